"""AlterShareGroupOffsets (91), v0: lets a share group without members begin at other offsets.

The group is created if it does not exist. Offsets outside of what a partition has are moved to its start or its end.
In a topic where the group has no position yet, it gets one in all partitions; those that the request does not name
begin as `share.auto.offset.reset` says.
"""

from collections.abc import Collection, Mapping
from typing import Final

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import READ_GROUP, READ_TOPIC
from millpond.frontends.kafka.turns import Turns
from millpond.model.errors import MillpondError
from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

REASONS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such topic or partition.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "The client may not read this topic.",
}


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
    turns = Turns()
    offsets: dict[str, dict[int, int]] = {}
    async for topic in turns.over(request.topics):
        if call.allows(READ_TOPIC, topic.topic_name):
            found = offsets.setdefault(topic.topic_name, {})
            async for each in turns.over(topic.partitions):
                found[each.partition_index] = each.start_offset
    await call.ensure_known(READ_TOPIC, offsets)
    moved = await call.share_groups.move(request.group_id, offsets)
    return AlterShareGroupOffsetsResponse(
        responses=[await _topic(call, topic, offsets, moved, turns) for topic in request.topics]
    )


async def _topic(
    call: KafkaCall,
    asked: AlterShareGroupOffsetsRequestTopic,
    allowed: Collection[str],
    moved: Mapping[str, Collection[int]],
    turns: Turns,
) -> AlterShareGroupOffsetsResponseTopic:
    name, found = asked.topic_name, moved.get(asked.topic_name, ())
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name in allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [
        AlterShareGroupOffsetsResponsePartition(
            partition_index=each.partition_index,
            error_code=ErrorCode.NONE if each.partition_index in found else error,
            error_message=None if each.partition_index in found else REASONS[error],
        )
        async for each in turns.over(asked.partitions)
    ]
    topic_id = call.log.topics.named(name).id if name in moved else NO_UUID
    return AlterShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=partitions)
