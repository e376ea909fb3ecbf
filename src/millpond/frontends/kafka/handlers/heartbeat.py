"""Heartbeat (12), v0-4: keeps a member's session alive. The response says whether the member must rejoin."""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import READ_GROUP
from millpond.groups import CommitSender
from millpond.model.errors import MillpondError
from millpond.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse


@handles(HeartbeatRequest, rights=(READ_GROUP,))
async def heartbeat(call: KafkaCall, request: HeartbeatRequest) -> HeartbeatResponse:
    member = CommitSender(request.member_id, request.generation_id, request.group_instance_id)
    try:
        call.require(READ_GROUP, request.group_id)
        await call.groups.heartbeat(request.group_id, member)
    except MillpondError as error:
        return HeartbeatResponse(error_code=coordinator_code_of(error))
    return HeartbeatResponse()
