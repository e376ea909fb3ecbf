"""ShareAcknowledge (79), v1-2: a member of a share group acknowledges messages without fetching others (KIP-932).

It needs a share session, which ShareFetch opens; epoch -1 closes it and releases the member's locks. Acknowledgements
of a partition count together or not at all, and are answered when they are durable. v2 renews locks.
"""

from collections import defaultdict
from collections.abc import Awaitable

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import REFUSALS, KafkaRefusal, code_and_message
from millpond.frontends.kafka.registry import handles_pipelined
from millpond.frontends.kafka.rights import READ_GROUP, READ_TOPIC
from millpond.frontends.kafka.share_delivery import (
    Acknowledgements,
    PendingAcks,
    ServedPartitions,
    acknowledgements_of,
    end_session,
    member_name,
)
from millpond.frontends.kafka.share_sessions import FINAL_EPOCH
from millpond.protocol import ErrorCode, Response
from millpond.protocol.messages import share_fetch as wire
from millpond.queues import MemberName


@handles_pipelined(wire.ShareAcknowledgeRequest, rights=(READ_GROUP, READ_TOPIC))
async def share_acknowledge(
    call: KafkaCall, request: wire.ShareAcknowledgeRequest
) -> Awaitable[Response | None]:
    try:
        name = member_name(call, request.group_id, request.member_id)
        await call.ensure_known(READ_TOPIC, ids=(topic.topic_id for topic in request.topics))
        acks = await acknowledgements_of(request.topics)
        call.services.share_sessions.acknowledge(name, request.share_session_epoch)
    except REFUSALS as error:
        return _refused(error)
    served, pending = ServedPartitions(call), PendingAcks()
    await pending.apply(call, name, acks, served, is_renew_ack=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        end_session(call, name)
    return _respond(call, name, acks, served, pending)


async def _respond(
    call: KafkaCall, name: MemberName, acks: Acknowledgements, served: ServedPartitions, pending: PendingAcks
) -> wire.ShareAcknowledgeResponse:
    codes = await pending.results()
    topics: defaultdict[bytes, list[wire.ShareAcknowledgedPartition]] = defaultdict(list)
    for topic_partition in acks:
        code = codes.get(topic_partition, ErrorCode.NONE)
        topics[topic_partition.topic_id].append(
            wire.ShareAcknowledgedPartition(
                partition_index=topic_partition.partition,
                error_code=code,
                current_leader=served.leader(topic_partition, code),
            )
        )
    leaders = [each.current_leader for parts in topics.values() for each in parts]
    return wire.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=call.services.share_consumers.config(name.group_id).record_lock_ms,
        responses=[
            wire.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=parts)
            for topic_id, parts in topics.items()
        ],
        node_endpoints=served.endpoints(leaders),
    )


async def _refused(error: KafkaRefusal) -> wire.ShareAcknowledgeResponse:
    code, message = code_and_message(error)
    return wire.ShareAcknowledgeResponse(error_code=code, error_message=message)
