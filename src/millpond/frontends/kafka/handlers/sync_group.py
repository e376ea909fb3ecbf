"""SyncGroup (14), v0-5: returns a member's assignment; the leader's request contains the assignments of all
members.

The response waits until the leader has sent the assignments and they are stored. From v5 the protocol is
required and checked.
"""

from collections.abc import Awaitable

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles_pipelined
from millpond.frontends.kafka.rights import READ_GROUP
from millpond.groups import SyncRequest
from millpond.model.errors import InconsistentProtocol, MillpondError
from millpond.protocol import Response
from millpond.protocol.messages.groups import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5


@handles_pipelined(SyncGroupRequest, rights=(READ_GROUP,))
async def sync_group(call: KafkaCall, request: SyncGroupRequest) -> Awaitable[Response | None]:
    return _sync(call, request)


async def _sync(call: KafkaCall, request: SyncGroupRequest) -> SyncGroupResponse:
    try:
        call.require(READ_GROUP, request.group_id)
        _check_protocol_is_named(call, request)
        synced = await call.groups.sync(request.group_id, _sync_request(request))
    except MillpondError as error:
        return SyncGroupResponse(error_code=coordinator_code_of(error), assignment=b"")
    return SyncGroupResponse(
        protocol_type=synced.protocol_type, protocol_name=synced.protocol, assignment=synced.assignment
    )


def _check_protocol_is_named(call: KafkaCall, request: SyncGroupRequest) -> None:
    named = request.protocol_type is not None and request.protocol_name is not None
    if call.version >= PROTOCOL_SINCE and not named:
        raise InconsistentProtocol(group=request.group_id)


def _sync_request(request: SyncGroupRequest) -> SyncRequest:
    return SyncRequest(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
