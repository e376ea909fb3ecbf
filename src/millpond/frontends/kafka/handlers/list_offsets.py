"""ListOffsets (2), v1-11: returns the start and end offsets of a partition, or the first offset at or after a time.

Special times: -1 is the end (the last stable offset for read_committed), -2 the start, -3 the record with the
newest timestamp (v7), -4 the earliest local offset (v8), which is the start because there is no second tier.
-5, the end of the remote tier (v9), and -6, the next offset to upload (v11), do not exist and return -1. A
time after the last record returns -1. A lookup by time never finds a record without a timestamp, as in Kafka.

A partition that is requested twice is refused, as in Kafka: the response could not tell the two apart.
"""

from collections import Counter

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.epochs import check_epoch
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.internal_topics import find_internal
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_TOPIC
from millpond.frontends.kafka.turns import Turns
from millpond.log import TimedOffset
from millpond.model.errors import MillpondError, NotAuthorized, UnknownPartition
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.protocol import ErrorCode
from millpond.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
SINCE = {LATEST: 1, EARLIEST: 1, NEWEST: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
READ_COMMITTED = 1
NONE = TimedOffset(offset=-1, timestamp=-1)


@handles(ListOffsetsRequest, rights=(DESCRIBE_TOPIC,))
async def list_offsets(call: KafkaCall, request: ListOffsetsRequest) -> ListOffsetsResponse:
    await call.ensure_known(DESCRIBE_TOPIC, (topic.name for topic in request.topics))
    committed = request.isolation_level == READ_COMMITTED
    turns, times = Turns(), Counter[tuple[str, int]]()
    for topic in request.topics:
        async for part in turns.over(topic.partitions):
            times[topic.name, part.partition_index] += 1
    responses: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    for topic in request.topics:
        rows = responses.setdefault(topic.name, {})
        async for part in turns.over(topic.partitions):
            repeated = times[topic.name, part.partition_index] > 1
            rows[part.partition_index] = await _one(call, topic.name, part, committed, repeated)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=name, partitions=list(rows.values()))
            for name, rows in responses.items()
        ]
    )


async def _one(
    call: KafkaCall, name: str, part: ListOffsetsPartition, committed: bool, repeated: bool
) -> ListOffsetsPartitionResponse:
    number = part.partition_index
    try:
        call.require(DESCRIBE_TOPIC, name)
    except NotAuthorized as error:
        return ListOffsetsPartitionResponse(partition_index=number, error_code=code_of(error))
    if repeated:
        return ListOffsetsPartitionResponse(partition_index=number, error_code=ErrorCode.INVALID_REQUEST)
    if part.timestamp < 0 and call.version < SINCE.get(part.timestamp, call.version + 1):
        code = ErrorCode.UNSUPPORTED_VERSION
        return ListOffsetsPartitionResponse(partition_index=number, error_code=code)
    try:
        if (internal := find_internal(call.log.topics, name)) is not None:
            return _of_internal(internal, part)
        topic_partition = call.log.topics.partition(name, number)
        epoch = call.log.partition(topic_partition).epoch
        check_epoch(epoch, part.current_leader_epoch)
        found = await _find(call, topic_partition, part.timestamp, committed)
    except MillpondError as error:
        return ListOffsetsPartitionResponse(partition_index=number, error_code=code_of(error))
    known = epoch if found.offset >= 0 else -1
    return ListOffsetsPartitionResponse(
        partition_index=number, timestamp=found.timestamp, offset=found.offset, leader_epoch=known
    )


def _of_internal(topic: Topic, part: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    """Of a topic without records."""
    number = part.partition_index
    if not 0 <= number < topic.partitions:
        raise UnknownPartition(topic=topic.name, partition=number)
    has_offset = part.timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL)
    return ListOffsetsPartitionResponse(partition_index=number, timestamp=-1, offset=0 if has_offset else -1)


async def _find(
    call: KafkaCall, topic_partition: TopicPartition, timestamp: int, committed: bool
) -> TimedOffset:
    partition = call.log.partition(topic_partition)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimedOffset(offset=partition.log_start, timestamp=-1)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        return NONE
    readable = await call.log.last_stable_offset(topic_partition) if committed else partition.end_offset
    if timestamp == LATEST:
        return TimedOffset(offset=readable, timestamp=-1)
    if timestamp == NEWEST:
        found = await call.log.newest_offset(topic_partition)
    else:
        found = await call.log.offset_at(topic_partition, timestamp)
    return found if found is not None and found.offset < readable else NONE
