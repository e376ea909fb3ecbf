"""JoinGroup (11), v0-9: joins the next generation of a group, which the response describes.

The response waits for the other members. From v4 a new member without an instance id only receives its member id
and must join again with it; static members exist from v5. From v9 a restarted static leader receives the member
list and the instruction to skip the assignment. Before v1 there was one timeout for session and rebalance.

A new group waits for more members before its first generation: `group_initial_rebalance_delay`, 100 ms by
default. While members keep arriving it waits again for twice the delay, up to 30 times the delay or the first
member's rebalance timeout in total. Kafka waits 3 s by default (0 in its server.properties) and repeats the
wait without doubling it; a delay of 3 s does the same here. kafka-python 3.0 drops a response that arrives
between two of its polls: use poll timeouts of seconds, not milliseconds.
"""

from collections.abc import Awaitable

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles_pipelined
from millpond.frontends.kafka.rights import READ_GROUP
from millpond.groups import Joined, JoinRequest, Protocol
from millpond.model.errors import MillpondError
from millpond.protocol import Response
from millpond.protocol.messages.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

KNOWN_ID_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIPPED_ASSIGNMENT_SINCE = 9


@handles_pipelined(JoinGroupRequest, rights=(READ_GROUP,))
async def join_group(call: KafkaCall, request: JoinGroupRequest) -> Awaitable[Response | None]:
    return _join(call, request)


async def _join(call: KafkaCall, request: JoinGroupRequest) -> JoinGroupResponse:
    try:
        call.require(READ_GROUP, request.group_id)
        return _joined(await call.groups.join(request.group_id, _join_request(call, request)))
    except MillpondError as error:
        return JoinGroupResponse(
            error_code=coordinator_code_of(error),
            protocol_name=None if call.version >= NULL_PROTOCOL_SINCE else "",
            leader="",
            member_id=error.facts.get("member_id", request.member_id),
            members=[],
        )


def _join_request(call: KafkaCall, request: JoinGroupRequest) -> JoinRequest:
    session_ms, rebalance_ms = request.session_timeout_ms, request.rebalance_timeout_ms
    return JoinRequest(
        member_id=request.member_id,
        client_id=call.client_id,
        client_host=f"/{call.client_host}",  # the form in which Java prints addresses and tools show them
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms if rebalance_ms >= 0 else session_ms,
        protocol_type=request.protocol_type,
        protocols=[Protocol(each.name, bytes(each.metadata)) for each in request.protocols],
        instance_id=request.group_instance_id,
        require_known_id=call.version >= KNOWN_ID_SINCE,
        can_skip_assignment=call.version >= SKIPPED_ASSIGNMENT_SINCE,
    )


def _joined(joined: Joined) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(joined.protocol),
            )
            for member in joined.members
        ],
    )
