"""Produce (0), v3-13: appends record batches. v0-2 are advertised, because librdkafka compresses only then,
and refused.

Requests name topics up to v12 and use topic ids from v13. A batch is stored as the bytes that the client
sent, unless `message.timestamp.type` or `compression.type` requires a change, or the newest timestamp in its
header is not plausible: if it is more than a minute away from the broker's clock, unset or below the base,
the broker reads it from the records, as Kafka does for every batch. Then `message.timestamp.before.max.ms`
and `message.timestamp.after.max.ms` are checked for every record, as in Kafka; for a batch with a current
header only its base and its newest timestamp are checked. The response is sent when the batch is durable,
whatever `acks` is. acks=0 gets no response, and an error closes the connection because there is no other way
to report it. From v12 a transactional batch adds its partition to the transaction (KIP-890). Zstandard
requires v7. From v8 the error of a batch names every record that is to blame, up to 10,000 (KIP-467). If a request
names a partition twice, both batches are appended. WRITE on the topic is needed, and WRITE on the transactional id
for a transactional batch.
"""

import asyncio
from collections.abc import Awaitable

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.internal_topics import find_internal
from millpond.frontends.kafka.registry import Disconnect, handles_pipelined
from millpond.frontends.kafka.rights import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from millpond.log import AppendResult, TransactionalProducer
from millpond.model.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTransactionState,
    MillpondError,
    NotAuthorized,
    UnknownTopic,
    UnsupportedCompression,
)
from millpond.model.ids import TopicPartition
from millpond.model.record_errors import RECORD_ERRORS_MAX, RecordErrors
from millpond.protocol import ErrorCode, Response, Versions
from millpond.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from millpond.records import BatchHeader, Buffer, Codec, read_header

BY_ID_SINCE = 13
JOINS_TRANSACTION_SINCE = 12
ABORTABLE_SINCE = 11
ZSTD_SINCE = 7
ACKS = (-1, 0, 1)
MAGIC_AT, NEWEST_MAGIC = 16, 2
PARTITIONS_PER_YIELD = 200
COPY_BELOW_FRACTION = 2
"""Batches smaller than half of their request are copied, so that they do not keep the whole request in memory."""

Submitted = tuple[int, "asyncio.Future[AppendResult] | MillpondError | ErrorCode"]


class NamedRecords:
    """Bad records are named in the response, so that a producer can tell them from the others (KIP-467). All
    partitions share a limit; past it, one record of each partition is named."""

    def __init__(self) -> None:
        self._room = RECORD_ERRORS_MAX

    def of(self, error: MillpondError) -> list[BatchIndexAndErrorMessage]:
        found = error.facts.get("records")
        if not isinstance(found, RecordErrors):
            return []
        indexes = found.indexes[: max(self._room, 1)]
        self._room -= len(indexes)
        return [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=found.message)
            for index in indexes
        ]


@handles_pipelined(
    ProduceRequest,
    rights=(WRITE_TOPIC, WRITE_TRANSACTIONAL_ID),
    advertised=Versions(0, ProduceRequest.versions.last),
)
async def produce(call: KafkaCall, request: ProduceRequest) -> Awaitable[Response | None]:
    await _ensure_known(call, request)
    submitted = [(topic, await _submit_topic(call, request, topic)) for topic in request.topic_data]
    return _response(call, request, submitted)


async def _submit_topic(call: KafkaCall, request: ProduceRequest, topic: TopicProduceData) -> list[Submitted]:
    try:
        call.require_topic(WRITE_TOPIC, topic.name, topic.topic_id, by_id=call.version >= BY_ID_SINCE)
    except NotAuthorized as error:
        return [(part.index, code_of(error)) for part in topic.partition_data]
    parts: list[Submitted] = []
    for part in topic.partition_data:
        parts.append(await _submit(call, request, topic, part))
        if len(parts) % PARTITIONS_PER_YIELD == 0:
            await asyncio.sleep(0)  # let other requests run
    return parts


async def _ensure_known(call: KafkaCall, request: ProduceRequest) -> None:
    if call.version >= BY_ID_SINCE:
        await call.ensure_known(WRITE_TOPIC, ids=(topic.topic_id for topic in request.topic_data))
    else:
        await call.ensure_known(WRITE_TOPIC, (topic.name for topic in request.topic_data))


async def _submit(
    call: KafkaCall, request: ProduceRequest, topic: TopicProduceData, part: PartitionProduceData
) -> Submitted:
    if request.acks not in ACKS:
        return part.index, ErrorCode.INVALID_REQUIRED_ACKS
    try:
        topic_partition = call.topic_partition(
            topic.name, topic.topic_id, part.index, by_id=call.version >= BY_ID_SINCE
        )
        data, header = _checked(call, part.records)
        if header.is_transactional:
            if request.transactional_id is None:
                return part.index, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            call.require(WRITE_TRANSACTIONAL_ID, request.transactional_id)
            await _join_transaction(call, request.transactional_id, topic_partition, data, header)
        return part.index, await call.log.submit(topic_partition, data)
    except UnknownTopic as error:
        if find_internal(call.log.topics, topic.name, topic.topic_id) is not None:
            return part.index, ErrorCode.INVALID_TOPIC_EXCEPTION
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if call.version >= BY_ID_SINCE else code_of(error)
        return part.index, unknown
    except MillpondError as error:
        return part.index, error


def _checked(call: KafkaCall, records: Buffer | None) -> tuple[Buffer, BatchHeader]:
    """Returns the batches and the header of the first. Rejects what Kafka rejects before it looks inside a batch."""
    if records is None:
        raise InvalidRecord(reason="there are no records")
    try:
        header = read_header(records)
    except CorruptBatch as error:
        if len(records) > MAGIC_AT and records[MAGIC_AT] > NEWEST_MAGIC:
            raise
        # Clients retry corrupt batches, but a retry cannot fix an incomplete batch or one in an older format.
        raise InvalidRecord(reason=error.facts["reason"]) from error
    if call.version < ZSTD_SINCE and header.codec is Codec.ZSTD:
        raise UnsupportedCompression(codec="zstd before Produce v7")
    return _copied_if_small(records), header


def _copied_if_small(records: Buffer) -> Buffer:
    """Copy small batches. The log keeps these bytes for a while, and a view would keep the whole request in memory."""
    if (
        isinstance(records, memoryview)
        and len(records) * COPY_BELOW_FRACTION < memoryview(records.obj).nbytes
    ):
        return bytearray(records)
    return records


async def _join_transaction(
    call: KafkaCall, transactional_id: str, topic_partition: TopicPartition, data: Buffer, header: BatchHeader
) -> None:
    if call.version < JOINS_TRANSACTION_SINCE:
        return
    producer = TransactionalProducer(transactional_id, header.producer_id, header.producer_epoch)
    try:
        await call.transactions.ensure_partitions(producer, [topic_partition])
    except MillpondError as error:
        call.log.remember_refusal(topic_partition, data, error)
        raise


async def _response(
    call: KafkaCall, request: ProduceRequest, submitted: list[tuple[TopicProduceData, list[Submitted]]]
) -> ProduceResponse | None:
    named = NamedRecords()
    responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[await _result(call, index, outcome, named) for index, outcome in parts],
        )
        for topic, parts in submitted
    ]
    if request.acks == 0:
        _disconnect_on_error(responses)
        return None
    return ProduceResponse(responses=responses)


def _disconnect_on_error(responses: list[TopicProduceResponse]) -> None:
    for topic in responses:
        for part in topic.partition_responses:
            if part.error_code != ErrorCode.NONE:
                which = f"{topic.name or topic.topic_id.hex()}-{part.index}"
                code = ErrorCode(part.error_code).name
                raise Disconnect(f"a produce with acks=0 failed: {which}: {code}")


async def _result(
    call: KafkaCall,
    index: int,
    outcome: "asyncio.Future[AppendResult] | MillpondError | ErrorCode",
    named: NamedRecords,
) -> PartitionProduceResponse:
    if isinstance(outcome, ErrorCode):
        return PartitionProduceResponse(index=index, error_code=outcome, base_offset=-1)
    try:
        if isinstance(outcome, MillpondError):
            raise outcome
        done = await outcome
    except MillpondError as error:
        return PartitionProduceResponse(
            index=index,
            error_code=_code(call, error),
            base_offset=-1,
            record_errors=named.of(error),
            error_message=str(error),
        )
    return PartitionProduceResponse(
        index=index,
        base_offset=done.base_offset,
        log_append_time_ms=done.timestamp,
        log_start_offset=done.log_start,
    )


def _code(call: KafkaCall, error: MillpondError) -> ErrorCode:
    if isinstance(error, InvalidTransactionState) and call.version >= ABORTABLE_SINCE:
        return ErrorCode.TRANSACTION_ABORTABLE
    return code_of(error)
