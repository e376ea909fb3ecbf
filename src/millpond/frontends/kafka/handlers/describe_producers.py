"""DescribeProducers (61), v0: lists the producers that a partition remembers, with their open transactions.

Only the leader of a partition responds for it. A producer is remembered from its first idempotent batch until it has
not been used for some time. Its last sequence is -1 after a marker has raised its epoch. Its start offset is -1 unless
it has written to the partition in a transaction that is still open. The epoch of the coordinator is not stored: -1.
"""

from collections.abc import Mapping, Sequence

from millpond.catalog.transaction_status import ActiveProducer, active_producers
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_and_message
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import READ_TOPIC
from millpond.frontends.kafka.turns import Turns
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicPartition, check_topic_name
from millpond.protocol.messages.transaction_admin import (
    DescribedProducer,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    DescribeProducersTopicResult,
)

NONE = -1

FoundProducers = Mapping[TopicPartition, Sequence[ActiveProducer]]
Asked = TopicPartition | MillpondError


@handles(DescribeProducersRequest, rights=(READ_TOPIC,))
async def describe_producers(call: KafkaCall, request: DescribeProducersRequest) -> DescribeProducersResponse:
    await call.ensure_known(READ_TOPIC, (topic.name for topic in request.topics))
    turns = Turns()
    asked = [await _asked(call, topic, turns) async for topic in turns.over(request.topics)]
    found = await _find(call, {each for parts in asked for each in parts if isinstance(each, TopicPartition)})
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResult(
                name=topic.name,
                partitions=[
                    _result(number, each, found)
                    async for number, each in turns.over(zip(topic.partition_indexes, parts, strict=True))
                ],
            )
            async for topic, parts in turns.over(zip(request.topics, asked, strict=True))
        ]
    )


async def _asked(call: KafkaCall, topic: DescribeProducersTopic, turns: Turns) -> list[Asked]:
    """One entry for each partition of the topic."""
    try:
        check_topic_name(topic.name)
        call.require(READ_TOPIC, topic.name)
    except MillpondError as error:
        return [error] * len(topic.partition_indexes)
    return [_served(call, topic.name, number) async for number in turns.over(topic.partition_indexes)]


def _served(call: KafkaCall, name: str, number: int) -> Asked:
    try:
        return call.log.partition(call.log.topics.partition(name, number)).topic_partition
    except MillpondError as error:
        return error.with_traceback(None)  # which would keep the frames of this call


async def _find(call: KafkaCall, asked: set[TopicPartition]) -> FoundProducers | MillpondError:
    topic_partitions = list(asked)
    try:
        found = await call.log.read(lambda tx: active_producers(tx, topic_partitions))
    except MillpondError as error:
        return error
    return dict(zip(topic_partitions, found, strict=True))


def _result(
    number: int, asked: Asked, found: FoundProducers | MillpondError
) -> DescribeProducersPartitionResult:
    refusal = asked if isinstance(asked, MillpondError) else found
    if isinstance(refusal, MillpondError):
        code, message = code_and_message(refusal)
        return DescribeProducersPartitionResult(
            partition_index=number, error_code=code, error_message=message, active_producers=[]
        )
    assert isinstance(found, Mapping)
    assert isinstance(asked, TopicPartition)
    return DescribeProducersPartitionResult(
        partition_index=number, active_producers=[_described(producer) for producer in found[asked]]
    )


def _described(producer: ActiveProducer) -> DescribedProducer:
    return DescribedProducer(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=NONE if producer.last_sequence is None else producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=NONE,
        current_txn_start_offset=NONE if producer.first_offset is None else producer.first_offset,
    )
