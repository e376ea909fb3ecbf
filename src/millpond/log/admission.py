"""Checks a batch before it joins a flush buffer, so that one bad request never fails the requests flushed
with it."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from millpond.model.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, RecordTooLarge
from millpond.model.record_errors import keyless_records, untimely_records
from millpond.model.topics import TopicConfig
from millpond.records import (
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    Codec,
    RecordTimes,
    each_time,
    iter_records,
    read_times,
    recompress,
    set_max_timestamp,
    validate,
    walk,
    with_append_time,
)

NO_APPEND_TIME = -1
AS_PRODUCED: Final = "producer"
TRUSTED_AGE_MS: Final = 60_000
"""A header is trusted if its newest timestamp is at most this far from the append time. Any other header
could make retention delete current records or keep old ones for years, so the timestamps of the records are
read instead."""
CODECS: Final[Mapping[str, Codec]] = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

BatchHeaders = list[tuple[int, BatchHeader]]


class Admitted(NamedTuple):
    """Batches whose headers passed the checks. `now_ms` is the append time."""

    data: Buffer
    headers: BatchHeaders
    now_ms: int
    timestamp: int = NO_APPEND_TIME
    """The append time if the topic uses it; -1 if the topic keeps the producer's timestamps."""
    is_trusted: bool = True
    """Whether the timestamps in the headers are trusted."""
    oldest: int | None = None
    """The lowest timestamp of all records, if the records were read. None: the timestamps in the headers count."""


def admit(data: Buffer, config: TopicConfig, *, now_ms: int) -> Admitted:
    """Check the batches; return the bytes to append and their headers."""
    headers = validate(data, max_batch_bytes=config.max_message_bytes)
    if len(headers) > 1 and any(header.is_idempotent for _, header in headers):  # Kafka's rule
        raise InvalidRecord(reason="an idempotent producer sends one batch per partition at a time")
    if config.append_time:
        data = with_append_time(data, now_ms)
        return Admitted(data, list(walk(data)), now_ms, timestamp=now_ms)
    return Admitted(data, headers, now_ms, is_trusted=_are_trusted(headers, config, now_ms))


def needs_inspection(admitted: Admitted, config: TopicConfig) -> bool:
    return not admitted.is_trusted or config.compression != AS_PRODUCED or config.compacted


def inspect_records(admitted: Admitted, config: TopicConfig, *, decompressed_bytes_max: int) -> Admitted:
    """Perform the steps that need the records themselves: read their timestamps, require keys in a compacted
    topic, recompress with the topic's codec. This may take long."""
    if not admitted.is_trusted:
        admitted = _with_true_times(admitted, config, decompressed_bytes_max)
    if config.compacted:
        _check_keys(admitted.data, decompressed_bytes_max)
    if config.compression == AS_PRODUCED:
        return admitted
    data, headers = _with_codec(admitted.data, admitted.headers, config, decompressed_bytes_max)
    return admitted._replace(data=data, headers=headers)


def check_times(admitted: Admitted, config: TopicConfig, decompressed_bytes_max: int) -> list[RecordTimes]:
    """Return the timestamps of each batch's records, all of which must be within the topic's limits. A batch
    whose timestamps cannot be read is refused, because its expiry time would be unknown."""
    view = memoryview(admitted.data)
    try:
        times = [
            read_times(view, position, header, decompressed_bytes_max=decompressed_bytes_max)
            for position, header in admitted.headers
        ]
    except CorruptBatch as error:  # the CRC is correct, so a retry would send the same bytes
        raise InvalidRecord(reason=error.facts["reason"]) from error
    for each in times:
        if (timestamp := _outside_limits(each, config, admitted.now_ms)) is not None:
            raise _untimely(admitted, timestamp, config, decompressed_bytes_max)
    return times


# -- times ------------------------------------------------------------------------------------------------------


def _are_trusted(headers: BatchHeaders, config: TopicConfig, now_ms: int) -> bool:
    """A header that violates the topic's timestamp limits is not trusted either: the records decide."""
    for _, header in headers:
        base, newest = header.base_timestamp, header.max_timestamp
        if not (
            base <= newest
            and -min(TRUSTED_AGE_MS, config.timestamp_after_max_ms) <= now_ms - newest <= TRUSTED_AGE_MS
            and now_ms - base <= config.timestamp_before_max_ms
        ):
            return False
    return True


def _with_true_times(admitted: Admitted, config: TopicConfig, decompressed_bytes_max: int) -> Admitted:
    """Write the newest timestamp of each batch's records into its header, as Kafka's broker does. A record
    without a timestamp counts with the append time; Kafka uses the age of the segment file instead."""
    now_ms = admitted.now_ms
    times = check_times(admitted, config, decompressed_bytes_max)
    newest = [max(each.newest, now_ms) if each.untimed else each.newest for each in times]
    data, headers = _with_newest(admitted.data, admitted.headers, newest)
    return admitted._replace(
        data=data, headers=headers, is_trusted=True, oldest=min(each.oldest for each in times)
    )


def _with_newest(data: Buffer, headers: BatchHeaders, newest: Sequence[int]) -> tuple[Buffer, BatchHeaders]:
    """Writes in place if the buffer is writable, because the log owns a writable buffer."""
    true = [
        (position, header._replace(max_timestamp=each))
        for (position, header), each in zip(headers, newest, strict=True)
    ]
    if true == headers:
        return data, headers
    out = bytearray(data) if isinstance(data, bytes) or memoryview(data).readonly else data
    for (position, header), each in zip(headers, newest, strict=True):
        if header.max_timestamp != each:
            set_max_timestamp(out, position, header, each)
    return out, list(walk(out))


def _outside_limits(times: RecordTimes, config: TopicConfig, now_ms: int) -> int | None:
    """A timestamp that violates Kafka's rule, which holds for every record that has one."""
    if times.newest - now_ms > config.timestamp_after_max_ms:
        return times.newest
    if now_ms - times.earliest > config.timestamp_before_max_ms and times.earliest != NO_TIMESTAMP:
        return times.earliest
    return None


def _untimely(
    admitted: Admitted, timestamp: int, config: TopicConfig, decompressed_bytes_max: int
) -> InvalidTimestamp:
    """Reads the timestamps once more, to name every record that violates the limits."""
    view, now_ms = memoryview(admitted.data), admitted.now_ms
    times = chain.from_iterable(
        each_time(view, position, header, decompressed_bytes_max=decompressed_bytes_max)
        for position, header in admitted.headers
    )
    earliest, newest = now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms
    return untimely_records(
        timestamp,
        now_ms,
        before_max_ms=config.timestamp_before_max_ms,
        after_max_ms=config.timestamp_after_max_ms,
        indexes=(
            index
            for index, time in enumerate(times)
            if time != NO_TIMESTAMP and not earliest <= time <= newest
        ),
    )


# -- other checks -----------------------------------------------------------------------------------------------


def _with_codec(
    data: Buffer, headers: BatchHeaders, config: TopicConfig, decompressed_bytes_max: int
) -> tuple[Buffer, BatchHeaders]:
    """Compress the batches with the topic's codec. A batch that grows past the topic's maximum size is refused."""
    codec = CODECS[config.compression]
    if all(header.codec is codec for _, header in headers):
        return data, headers
    data = recompress(data, codec, decompressed_bytes_max=decompressed_bytes_max)
    headers = list(walk(data))
    largest = max(header.size for _, header in headers)
    if largest > config.max_message_bytes:
        raise RecordTooLarge(size=largest, limit=config.max_message_bytes)
    return data, headers


def _check_keys(data: Buffer, decompressed_bytes_max: int) -> None:
    """Compaction keeps the last record of each key, so every record needs one."""
    records = iter_records(data, decompressed_bytes_max=decompressed_bytes_max)
    error = keyless_records(index for index, record in enumerate(records) if record.key is None)
    if error is not None:
        raise error
