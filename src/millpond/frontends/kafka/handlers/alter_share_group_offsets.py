"""AlterShareGroupOffsets (91), v0: lets a share group without members begin at other offsets.

The group is created if it does not exist. Offsets outside of what a partition has are moved to its start or its end.
In a topic where the group has no position yet, it gets one in all partitions; those that the request does not name
begin as `share.auto.offset.reset` says.
"""

from collections.abc import Iterable, Mapping

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import READ_GROUP, READ_TOPIC
from millpond.model.errors import MillpondError
from millpond.protocol import NO_UUID
from millpond.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

MoveOutcome = MillpondError | None


@handles(AlterShareGroupOffsetsRequest, rights=(READ_GROUP, READ_TOPIC))
async def alter_share_group_offsets(
    call: KafkaCall, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    try:
        return await _response(call, request)
    except MillpondError as error:
        return AlterShareGroupOffsetsResponse(
            error_code=coordinator_code_of(error), error_message=str(error), responses=[]
        )


async def _response(
    call: KafkaCall, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    call.require(READ_GROUP, request.group_id)
    refused: dict[tuple[str, int], MoveOutcome] = {}
    offsets: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        error = _refusal(call, topic.topic_name)
        for each in topic.partitions:
            if error is None:
                offsets.setdefault(topic.topic_name, {})[each.partition_index] = each.start_offset
            else:
                refused[topic.topic_name, each.partition_index] = error
    await call.ensure_known(READ_TOPIC, offsets)
    outcomes = refused | await call.share_groups.move(request.group_id, offsets)
    return AlterShareGroupOffsetsResponse(responses=[*_topics(call, request.topics, outcomes)])


def _refusal(call: KafkaCall, name: str) -> MoveOutcome:
    try:
        call.require(READ_TOPIC, name)
    except MillpondError as error:
        return error
    return None


def _topics(
    call: KafkaCall,
    asked: Iterable[AlterShareGroupOffsetsRequestTopic],
    outcomes: Mapping[tuple[str, int], MoveOutcome],
) -> Iterable[AlterShareGroupOffsetsResponseTopic]:
    for topic in asked:
        name, topics = topic.topic_name, call.log.topics
        is_visible = topics.knows(name) and call.allows(READ_TOPIC, name)
        yield AlterShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=topics.named(name).id if is_visible else NO_UUID,
            partitions=[
                _partition(each.partition_index, outcomes[name, each.partition_index])
                for each in topic.partitions
            ],
        )


def _partition(number: int, error: MoveOutcome) -> AlterShareGroupOffsetsResponsePartition:
    if error is None:
        return AlterShareGroupOffsetsResponsePartition(partition_index=number)
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=number, error_code=code_of(error), error_message=str(error)
    )
