"""AddPartitionsToTxn (24), v0-5: adds partitions to a transaction before records are written to them. All are
added, or none.

Clients stop at v3, which covers one transaction. From v4 brokers send requests for several transactions, and may
ask only for verification: then nothing is added, and a partition that is not part of the open transaction is an
error (48 in v4; from v5 120, which tells the client to abort). A fenced producer gets error 90 from v2, 47 before.
"""

from collections.abc import Sequence

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.transaction_errors import transaction_code_of
from millpond.log import TransactionalProducer
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicPartition
from millpond.protocol import ErrorCode
from millpond.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BATCHED_SINCE = 4
FENCED_SINCE = 2
ABORTABLE_SINCE = 5

TxnTopics = Sequence[AddPartitionsToTxnTopic]
Named = tuple[str, int]


@handles(AddPartitionsToTxnRequest)
async def add_partitions_to_txn(
    call: KafkaCall, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if call.version >= BATCHED_SINCE:
        results = [await _one(call, each) for each in request.transactions]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    producer = TransactionalProducer(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    topics = request.v3_and_below_topics
    codes = await _codes(call, producer, topics, verify_only=False)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, codes))


async def _one(call: KafkaCall, each: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    producer = TransactionalProducer(each.transactional_id, each.producer_id, each.producer_epoch)
    codes = await _codes(call, producer, each.topics, verify_only=each.verify_only)
    return AddPartitionsToTxnResult(
        transactional_id=each.transactional_id, topic_results=_results(each.topics, codes)
    )


async def _codes(
    call: KafkaCall, producer: TransactionalProducer, topics: TxnTopics, *, verify_only: bool
) -> dict[Named, ErrorCode]:
    await call.ensure_known(topic.name for topic in topics)
    named = [(topic.name, number) for topic in topics for number in topic.partitions]
    known: dict[Named, TopicPartition] = {}
    codes: dict[Named, ErrorCode] = {}
    for name, number in named:
        try:
            known[name, number] = call.log.topics.partition(name, number)
        except MillpondError as error:
            codes[name, number] = _code(call, error)
    if codes:
        return {each: codes.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in named}
    try:
        if verify_only:
            return await _verify(call, producer, known)
        if known:
            await call.transactions.add_partitions(producer, list(known.values()))
    except MillpondError as error:
        return dict.fromkeys(named, _code(call, error))
    return dict.fromkeys(named, ErrorCode.NONE)


async def _verify(
    call: KafkaCall, producer: TransactionalProducer, known: dict[Named, TopicPartition]
) -> dict[Named, ErrorCode]:
    added = await call.transactions.partitions_of(producer)
    is_new = call.version >= ABORTABLE_SINCE
    missing = ErrorCode.TRANSACTION_ABORTABLE if is_new else ErrorCode.INVALID_TXN_STATE
    return {
        each: ErrorCode.NONE if topic_partition in added else missing
        for each, topic_partition in known.items()
    }


def _results(topics: TxnTopics, codes: dict[Named, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[topic.name, number]
                )
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]


def _code(call: KafkaCall, error: MillpondError) -> ErrorCode:
    return transaction_code_of(error, call.version, fenced_since=FENCED_SINCE)
