"""AddPartitionsToTxn (24), v0-5: adds partitions to a transaction before records are written to them. All are
added, or none.

Clients stop at v3, which covers one transaction. From v4 brokers send requests for several transactions, and may
ask only for verification: then nothing is added, and a partition that is not part of the open transaction is an
error (48 in v4; from v5 120, which tells the client to abort). A fenced producer gets error 90 from v2, 47 before.

Clients need WRITE on the transactional id and on all topics, brokers CLUSTER_ACTION.
"""

from collections.abc import Mapping, Sequence

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import CLUSTER_ACTION, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from millpond.frontends.kafka.transaction_errors import transaction_code_of
from millpond.log import TransactionalProducer
from millpond.model.errors import MillpondError, NotAuthorized
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


@handles(AddPartitionsToTxnRequest, rights=(WRITE_TRANSACTIONAL_ID, WRITE_TOPIC, CLUSTER_ACTION))
async def add_partitions_to_txn(
    call: KafkaCall, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if call.version >= BATCHED_SINCE:
        return await _add_batched(call, request)
    transactional_id, topics = request.v3_and_below_transactional_id, request.v3_and_below_topics
    producer = TransactionalProducer(
        transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
    try:
        call.require(WRITE_TRANSACTIONAL_ID, transactional_id)
    except NotAuthorized as error:
        codes = dict.fromkeys(_named(topics), _code(call, error))
    else:
        refused = _refused_topics(call, topics)
        codes = await _codes(call, producer, topics, refused, verify_only=False)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, codes))


async def _add_batched(call: KafkaCall, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    try:
        call.require(CLUSTER_ACTION)
    except NotAuthorized as error:
        return AddPartitionsToTxnResponse(error_code=_code(call, error))
    results = [await _one(call, each) for each in request.transactions]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _one(call: KafkaCall, each: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    producer = TransactionalProducer(each.transactional_id, each.producer_id, each.producer_epoch)
    codes = await _codes(call, producer, each.topics, {}, verify_only=each.verify_only)
    return AddPartitionsToTxnResult(
        transactional_id=each.transactional_id, topic_results=_results(each.topics, codes)
    )


async def _codes(
    call: KafkaCall,
    producer: TransactionalProducer,
    topics: TxnTopics,
    refused: Mapping[str, ErrorCode],
    *,
    verify_only: bool,
) -> dict[Named, ErrorCode]:
    """`refused` are the topics that the client may not write to."""
    await call.ensure_known(WRITE_TOPIC, (topic.name for topic in topics))
    named = _named(topics)
    known: dict[Named, TopicPartition] = {}
    codes = {(name, number): refused[name] for name, number in named if name in refused}
    for name, number in named:
        if name in refused:
            continue
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


def _named(topics: TxnTopics) -> list[Named]:
    return [(topic.name, number) for topic in topics for number in topic.partitions]


def _refused_topics(call: KafkaCall, topics: TxnTopics) -> dict[str, ErrorCode]:
    refused = {}
    for topic in topics:
        try:
            call.require(WRITE_TOPIC, topic.name)
        except NotAuthorized as error:
            refused[topic.name] = _code(call, error)
    return refused


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
