"""OffsetDelete (47), v0: deletes a group's offsets for partitions of topics that no member subscribes to."""

from collections.abc import Sequence

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DELETE_GROUP, READ_TOPIC
from millpond.model.errors import MillpondError, NotAuthorized
from millpond.model.ids import TopicPartition
from millpond.protocol import ErrorCode
from millpond.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@handles(OffsetDeleteRequest, rights=(DELETE_GROUP, READ_TOPIC))
async def offset_delete(call: KafkaCall, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    try:
        call.require(DELETE_GROUP, request.group_id)
    except NotAuthorized as error:
        return OffsetDeleteResponse(error_code=coordinator_code_of(error), topics=[])
    asked = [
        _asked(call, topic.name, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
    ]
    topic_partitions = [each for each in asked if isinstance(each, TopicPartition)]
    try:
        errors = iter(await call.groups.delete_offsets(request.group_id, topic_partitions))
    except MillpondError as error:
        return OffsetDeleteResponse(error_code=coordinator_code_of(error), topics=[])
    codes = [each if isinstance(each, ErrorCode) else _code(next(errors)) for each in asked]
    return OffsetDeleteResponse(topics=_topic_responses(request, codes))


def _asked(call: KafkaCall, name: str, number: int) -> TopicPartition | ErrorCode:
    try:
        call.require(READ_TOPIC, name)
        return call.log.topics.partition(name, number)
    except MillpondError as error:
        return coordinator_code_of(error)


def _code(error: MillpondError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else coordinator_code_of(error)


def _topic_responses(
    request: OffsetDeleteRequest, codes: Sequence[ErrorCode]
) -> list[OffsetDeleteResponseTopic]:
    following = iter(codes)
    return [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=part.partition_index, error_code=next(following)
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
