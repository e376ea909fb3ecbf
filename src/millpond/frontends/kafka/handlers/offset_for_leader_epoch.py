"""OffsetForLeaderEpoch (23), v2-4: returns the end offset of a leader epoch, for clients that check for lost
records.

Committed records are never truncated, so no epoch ends before the log does. An epoch that the broker has not
reached yet has no end: -1 and -1, as in Kafka.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.epochs import UNKNOWN_EPOCH, check_epoch
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_TOPIC
from millpond.model.errors import MillpondError
from millpond.protocol.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handles(OffsetForLeaderEpochRequest, rights=(DESCRIBE_TOPIC,))
async def offset_for_leader_epoch(
    call: KafkaCall, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_one(call, topic.topic, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _one(call: KafkaCall, name: str, part: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        call.require(DESCRIBE_TOPIC, name)
        partition = call.log.partition(call.log.topics.partition(name, part.partition))
        check_epoch(partition.epoch, part.current_leader_epoch)
    except MillpondError as error:
        return EpochEndOffset(partition=part.partition, error_code=code_of(error))
    if not UNKNOWN_EPOCH < part.leader_epoch <= partition.epoch:
        return EpochEndOffset(partition=part.partition)
    return EpochEndOffset(
        partition=part.partition, leader_epoch=part.leader_epoch, end_offset=partition.end_offset
    )
