"""DeleteRecords (21), v0-2: deletes all records below an offset; -1 deletes all records.

The response contains the new start of the log. For a topic that is only compacted the request is refused, as
in Kafka.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import REFUSALS, KafkaError, code_and_message
from millpond.frontends.kafka.internal_topics import check_not_internal
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DELETE_TOPIC
from millpond.model.ids import TopicPartition
from millpond.protocol import ErrorCode
from millpond.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_OFFSET = -1


@handles(DeleteRecordsRequest, rights=(DELETE_TOPIC,))
async def delete_records(call: KafkaCall, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[await _one(call, topic.name, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


async def _one(call: KafkaCall, name: str, part: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    number = part.partition_index
    try:
        call.require(DELETE_TOPIC, name)
        check_not_internal(call.log.topics, name)
        topic_partition = call.log.topics.partition(name, number)
        _check_policy(call, topic_partition)
        log_start = await call.services.topic_changes.delete_records(
            call.access, topic_partition, part.offset
        )
    except REFUSALS as error:
        code, _ = code_and_message(error)
        return DeleteRecordsPartitionResult(partition_index=number, low_watermark=NO_OFFSET, error_code=code)
    return DeleteRecordsPartitionResult(partition_index=number, low_watermark=log_start)


def _check_policy(call: KafkaCall, topic_partition: TopicPartition) -> None:
    config = call.log.topics.config(topic_partition.topic_id)
    if config.compacted and not config.deleted_by_age:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "The topic's cleanup.policy does not include 'delete'.")
