"""Fetch (1), v4-18: returns record batches, as the bytes that were stored.

Requests name topics up to v12 and use topic ids from v13. Sessions (v7) are declined: every response has
session 0, which the protocol allows and clients accept. Partitions are read in the order of the request;
clients rotate it themselves. The first partition that has data returns at least one batch, however small the
limits (KIP-74). A client that is beyond its quota gets an empty response, as in Kafka. A batch compressed with
Zstandard requires v10. There are no followers, so a fetch from a
follower is refused.
"""

from collections.abc import Awaitable

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.epochs import check_epoch
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.internal_topics import find_internal
from millpond.frontends.kafka.registry import handles_pipelined
from millpond.frontends.kafka.rights import READ_TOPIC
from millpond.log import FetchRequest, FetchResult
from millpond.model.errors import MillpondError, OffsetOutOfRange, UnknownTopic
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.quotas import CONSUMER_BYTE_RATE
from millpond.model.topics import Topic
from millpond.protocol import ErrorCode, Response
from millpond.protocol.messages import fetch as wire
from millpond.records import Codec, read_header

BY_ID_SINCE = 13
ZSTD_SINCE = 10
READ_COMMITTED = 1
NO_SESSION = 0
NO_OFFSET = -1
FULL_FETCH_EPOCHS = (-1, 0)

RequestedPartition = tuple[wire.FetchTopic, wire.FetchPartition, "FetchRequest | ErrorCode"]
"""The last one is what to read, or the result of a partition that is not read: an error, or NONE if it is of the
internal topic, which has no records."""


@handles_pipelined(wire.FetchRequest, rights=(READ_TOPIC,))
async def fetch(call: KafkaCall, request: wire.FetchRequest) -> Awaitable[Response | None]:
    return _fetch(call, request)


async def _fetch(call: KafkaCall, request: wire.FetchRequest) -> wire.FetchResponse:
    if request.session_epoch not in FULL_FETCH_EPOCHS:
        return wire.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    quotas, bytes_max = (
        call.services.security.quotas,
        min(request.max_bytes, call.services.limits.fetch_bytes_max),
    )
    if quotas.is_active:
        client = (call.access.principal, call.client_id)
        if (delay_ms := quotas.delay_ms(CONSUMER_BYTE_RATE, *client)) > 0:
            return wire.FetchResponse(throttle_time_ms=delay_ms, session_id=NO_SESSION, responses=[])
        if (allowed := quotas.response_bytes_max(*client)) is not None:
            bytes_max = min(bytes_max, allowed)
    if call.version >= BY_ID_SINCE:
        await call.ensure_known(READ_TOPIC, ids=(topic.topic_id for topic in request.topics))
    else:
        await call.ensure_known(READ_TOPIC, (topic.topic for topic in request.topics))
    security_version = call.services.security.version
    asked = [each for topic in request.topics for each in _asked_of_topic(call, request, topic)]
    refused = any(isinstance(each, ErrorCode) and each != ErrorCode.NONE for _, _, each in asked)
    limits = call.services.limits
    results = await call.log.fetch(
        [each for _, _, each in asked if isinstance(each, FetchRequest)],
        bytes_max=max(0, bytes_max),
        bytes_min=request.min_bytes,
        wait_ms=0 if refused else max(0, min(request.max_wait_ms, limits.fetch_wait_ms_max)),
        read_committed=request.isolation_level == READ_COMMITTED,
    )
    if call.services.security.version != security_version:  # rights may have ended while it waited
        request.max_wait_ms = 0
        return await _fetch(call, request)
    return wire.FetchResponse(session_id=NO_SESSION, responses=_responses(call, request, asked, results))


def _asked_of_topic(
    call: KafkaCall, request: wire.FetchRequest, asked: wire.FetchTopic
) -> list[RequestedPartition]:
    by_id = call.version >= BY_ID_SINCE
    try:
        call.require_topic(READ_TOPIC, asked.topic, asked.topic_id, by_id=by_id)
        if (internal := find_internal(call.log.topics, asked.topic, asked.topic_id)) is not None:
            return [(asked, part, _of_internal(internal, part)) for part in asked.partitions]
        topic = call.find_topic(asked.topic, asked.topic_id, by_id=by_id)
    except MillpondError as error:
        is_unknown_id = by_id and isinstance(error, UnknownTopic)
        code = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else code_of(error)
        return [(asked, part, code) for part in asked.partitions]
    if _is_follower(request):
        return [(asked, part, ErrorCode.NOT_LEADER_OR_FOLLOWER) for part in asked.partitions]
    return [(asked, part, _asked(call, topic.id, part)) for part in asked.partitions]


def _asked(call: KafkaCall, topic_id: TopicId, part: wire.FetchPartition) -> FetchRequest | ErrorCode:
    topic_partition = TopicPartition(topic_id, part.partition)
    try:
        partition = call.log.partition(topic_partition)
        check_epoch(partition.epoch, part.current_leader_epoch)
        if part.last_fetched_epoch > partition.epoch:
            raise OffsetOutOfRange(
                offset=part.fetch_offset, log_start=partition.log_start, end_offset=partition.end_offset
            )
    except MillpondError as error:
        return code_of(error)
    return FetchRequest(topic_partition, part.fetch_offset, max(0, part.partition_max_bytes))


def _of_internal(topic: Topic, part: wire.FetchPartition) -> ErrorCode:
    if not 0 <= part.partition < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if part.fetch_offset == 0 else ErrorCode.OFFSET_OUT_OF_RANGE


def _is_follower(request: wire.FetchRequest) -> bool:
    """Consumers send -1, or -2 when debugging."""
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)


def _responses(
    call: KafkaCall, request: wire.FetchRequest, asked: list[RequestedPartition], results: list[FetchResult]
) -> list[wire.FetchableTopicResponse]:
    following = iter(results)
    parts = iter(
        [
            _partition_response(call, request, part, next(following))
            if isinstance(each, FetchRequest)
            else _not_read(part.partition, each)
            for _, part, each in asked
        ]
    )
    return [
        wire.FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=[next(parts) for _ in topic.partitions]
        )
        for topic in request.topics
    ]


def _partition_response(
    call: KafkaCall, request: wire.FetchRequest, part: wire.FetchPartition, result: FetchResult
) -> wire.PartitionData:
    if result.error is not None:
        return _refused(part.partition, code_of(result.error))
    if call.version < ZSTD_SINCE and any(read_header(b).codec is Codec.ZSTD for b in result.batches):
        return _refused(part.partition, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    committed = request.isolation_level == READ_COMMITTED
    return wire.PartitionData(
        partition_index=part.partition,
        high_watermark=result.end_offset,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start,
        aborted_transactions=_aborted(result) if committed else None,
        records=result.batches,
    )


def _aborted(result: FetchResult) -> list[wire.AbortedTransaction]:
    return [
        wire.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in result.aborted
    ]


def _not_read(number: int, code: ErrorCode) -> wire.PartitionData:
    if code != ErrorCode.NONE:
        return _refused(number, code)
    return wire.PartitionData(
        partition_index=number, high_watermark=0, last_stable_offset=0, log_start_offset=0, records=()
    )


def _refused(number: int, code: ErrorCode) -> wire.PartitionData:
    return wire.PartitionData(partition_index=number, error_code=code, high_watermark=NO_OFFSET, records=())
