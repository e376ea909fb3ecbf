"""ConsumerGroupHeartbeat (68), v0-1: a member of the consumer protocol (KIP-848) joins, reports that it is alive and
what it owns, learns its assignment, leaves, or pauses.

Member epoch 0 joins, -1 leaves, and -2 pauses a static member. From v1 the client creates its member id; in v0 the
response has one. Regular expressions (RE2, v1) match the topics that the client may describe. A response without an
assignment means that the member keeps what it has. The first one on a connection always has it: the response before it
may be lost, and librdkafka does not say so.

A member of a group that does not exist, or uses the classic protocol by now, gets UNKNOWN_MEMBER_ID and joins again.
Kafka has GROUP_ID_NOT_FOUND there, with which its clients fail; here only a join gets it, if the group cannot change
to the consumer protocol. One of librdkafka's members with `cooperative-sticky` can, which Kafka refuses.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_TOPIC, READ_GROUP
from millpond.frontends.kafka.turns import Turns
from millpond.groups import JOIN_EPOCH, ConsumerHeartbeat
from millpond.model.errors import InvalidRequest, MillpondError
from millpond.model.ids import TopicId, TopicPartition
from millpond.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

OWN_ID_SINCE: Final = 1


@handles(ConsumerGroupHeartbeatRequest, rights=(READ_GROUP, DESCRIBE_TOPIC))
async def consumer_group_heartbeat(
    call: KafkaCall, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    try:
        return await _response(call, request)
    except MillpondError as error:
        return ConsumerGroupHeartbeatResponse(error_code=coordinator_code_of(error), error_message=str(error))


async def _response(
    call: KafkaCall, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    call.require(READ_GROUP, request.group_id)
    names = request.subscribed_topic_names or []
    for name in names:
        call.require(DESCRIBE_TOPIC, name)
    if request.member_epoch == JOIN_EPOCH and not request.member_id and call.version >= OWN_ID_SINCE:
        raise InvalidRequest(reason="the member id is empty")
    await call.ensure_known(DESCRIBE_TOPIC, names)
    response = await call.groups.consumer_heartbeat(
        request.group_id, await _heartbeat(call, request), lambda name: call.allows(DESCRIBE_TOPIC, name)
    )
    return ConsumerGroupHeartbeatResponse(
        member_id=response.member_id,
        member_epoch=response.member_epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        assignment=None if response.assignment is None else _assignment(response.assignment),
    )


async def _heartbeat(call: KafkaCall, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=call.client_id,
        client_host=f"/{call.client_host}",  # the form in which Java prints addresses and tools show them
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else tuple(names),
        topic_regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if owned is None else await _owned(owned),
        connection=call.authentication,
    )


async def _owned(topics: Sequence[HeartbeatTopicPartitions]) -> frozenset[TopicPartition]:
    found, turns = set[TopicPartition](), Turns()
    for topic in topics:
        async for number in turns.over(topic.partitions):
            found.add(TopicPartition(TopicId(topic.topic_id), number))
    return frozenset(found)


def _assignment(partitions: Iterable[TopicPartition]) -> HeartbeatAssignment:
    by_topic: defaultdict[TopicId, list[int]] = defaultdict(list)
    for topic_id, number in partitions:
        by_topic[topic_id].append(number)
    return HeartbeatAssignment(
        topic_partitions=[
            HeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic.items()
        ]
    )
