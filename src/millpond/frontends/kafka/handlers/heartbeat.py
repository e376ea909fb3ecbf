"""Heartbeat (12), v0-4: a member is alive. The answer says whether it must join again."""

from millpond.frontends.kafka.call import Call
from millpond.frontends.kafka.coordination import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.groups import MemberIdentity
from millpond.model.errors import MillpondError
from millpond.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse


@handles(HeartbeatRequest)
async def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    member = MemberIdentity(request.member_id, request.generation_id, request.group_instance_id)
    try:
        await call.groups.heartbeat(request.group_id, member)
    except MillpondError as error:
        return HeartbeatResponse(error_code=coordinator_code_of(error))
    return HeartbeatResponse()
