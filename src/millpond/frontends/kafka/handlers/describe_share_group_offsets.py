"""DescribeShareGroupOffsets (90), v0-1: returns where share groups are in their topics.

The start offset is the first one that is not settled; from v1 there is the lag, the number of offsets that are not
settled. Both are -1 where a group has no position. Without topics, all of the group are described that the client may
describe; named topics that it may not describe get TOPIC_AUTHORIZATION_FAILED.
"""

from collections.abc import Sequence
from typing import Final

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from millpond.frontends.kafka.turns import Turns
from millpond.model.errors import MillpondError
from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from millpond.queues import SharePosition
from millpond.service import TopicPositions

NO_OFFSET: Final = -1
DescribedTopics = list[DescribeShareGroupOffsetsResponseTopic]


@handles(DescribeShareGroupOffsetsRequest, rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
async def describe_share_group_offsets(
    call: KafkaCall, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[await _one(call, each) for each in request.groups])


async def _one(
    call: KafkaCall, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = asked.group_id
    try:
        call.require(DESCRIBE_GROUP, group_id)
        topics = await (_all(call, group_id) if asked.topics is None else _some(call, group_id, asked.topics))
    except MillpondError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group_id, topics=[], error_code=coordinator_code_of(error), error_message=str(error)
        )
    return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=topics)


async def _all(call: KafkaCall, group_id: str) -> DescribedTopics:
    found = await call.share_groups.positions(group_id)
    return [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=of_topic.topic.id,
            partitions=[_partition(number, each) for number, each in sorted(of_topic.positions.items())],
        )
        for name, of_topic in found.items()
        if call.allows(DESCRIBE_TOPIC, name)
    ]


async def _some(
    call: KafkaCall, group_id: str, asked: Sequence[DescribeShareGroupOffsetsRequestTopic]
) -> DescribedTopics:
    turns, described = Turns(), []
    names = [each.topic_name for each in asked]
    allowed = {name async for name in turns.over(names) if call.allows(DESCRIBE_TOPIC, name)}
    await call.ensure_known(DESCRIBE_TOPIC, allowed)
    found = await call.share_groups.positions(group_id, sorted(allowed))
    async for each in turns.over(asked):
        name, of_topic = each.topic_name, found.get(each.topic_name)
        is_allowed = name in allowed
        described.append(
            DescribeShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=of_topic.topic.id if of_topic is not None else NO_UUID,
                partitions=[
                    _named_partition(number, of_topic, is_allowed=is_allowed)
                    async for number in turns.over(each.partitions)
                ],
            )
        )
    return described


def _named_partition(
    number: int, of_topic: TopicPositions | None, *, is_allowed: bool
) -> DescribeShareGroupOffsetsResponsePartition:
    described = _partition(number, None if of_topic is None else of_topic.positions.get(number))
    if not is_allowed:
        described.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        described.error_message = "The client may not describe this topic."
    return described


def _partition(number: int, position: SharePosition | None) -> DescribeShareGroupOffsetsResponsePartition:
    if position is None:
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=number, start_offset=NO_OFFSET, leader_epoch=0, lag=NO_OFFSET
        )
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=number,
        start_offset=position.start_offset,
        leader_epoch=position.leader_epoch,
        lag=position.lag,
    )
