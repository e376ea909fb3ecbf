"""LeaveGroup (13), v0-5: removes members, so that the group need not wait for their sessions to time out.

A request has one member up to v2, whose error is the error of the response. From v3 it has several, each with
its own error; a static member may be named by its instance id alone, which is how administrators remove it.
The reasons (v5) are ignored.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import READ_GROUP
from millpond.groups import LeaveRequest
from millpond.model.errors import MillpondError
from millpond.protocol import ErrorCode
from millpond.protocol.messages.groups import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

BATCHED_SINCE = 3


@handles(LeaveGroupRequest, rights=(READ_GROUP,))
async def leave_group(call: KafkaCall, request: LeaveGroupRequest) -> LeaveGroupResponse:
    batched = call.version >= BATCHED_SINCE
    members = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    leaving = [LeaveRequest(each.member_id, each.group_instance_id) for each in members]
    try:
        call.require(READ_GROUP, request.group_id)
        codes = [_code(error) for error in await call.groups.leave(request.group_id, leaving)]
    except MillpondError as error:
        return LeaveGroupResponse(error_code=coordinator_code_of(error))
    if not batched:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
            )
            for each, code in zip(members, codes, strict=True)
        ]
    )


def _code(error: MillpondError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else coordinator_code_of(error)
