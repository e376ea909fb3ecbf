"""What a batch must be before it joins a buffer. Checked first, so that one bad request never fails its neighbours."""

from collections.abc import Mapping
from typing import Final

from millpond.model.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge
from millpond.model.topics import TopicConfig
from millpond.records import (
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    Codec,
    iter_records,
    recompress,
    validate,
    walk,
    with_append_time,
)

NO_APPEND_TIME = -1
AS_PRODUCED: Final = "producer"
CODECS: Final[Mapping[str, Codec]] = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

Headers = list[tuple[int, BatchHeader]]


def admit(data: Buffer, config: TopicConfig, *, now_ms: int) -> tuple[Buffer, Headers, int]:
    """The bytes to append, their headers, and the append time (-1 if the topic keeps the producer's times)."""
    headers = validate(data, max_batch_bytes=config.max_message_bytes)
    _check_idempotent(headers)
    if config.append_time:
        data = with_append_time(data, now_ms)
        return data, list(walk(data)), now_ms
    _check_timestamps(headers, config, now_ms)
    return data, headers, NO_APPEND_TIME


def look_inside(
    data: Buffer, headers: Headers, config: TopicConfig, *, decompressed_bytes_max: int
) -> tuple[Buffer, Headers]:
    """What needs the records themselves: keys for a compacted topic, the topic's own codec. It takes its time."""
    if config.compacted:
        _check_keys(data, decompressed_bytes_max)
    if config.compression == AS_PRODUCED:
        return data, headers
    return _with_codec(data, headers, config, decompressed_bytes_max)


def _with_codec(
    data: Buffer, headers: Headers, config: TopicConfig, decompressed_bytes_max: int
) -> tuple[Buffer, Headers]:
    """The batches in the codec that the topic asks for. What grows past the largest batch is refused."""
    codec = CODECS[config.compression]
    if all(header.codec is codec for _, header in headers):
        return data, headers
    data = recompress(data, codec, decompressed_bytes_max=decompressed_bytes_max)
    headers = list(walk(data))
    largest = max(header.size for _, header in headers)
    if largest > config.max_message_bytes:
        raise RecordTooLarge(size=largest, limit=config.max_message_bytes)
    return data, headers


def _check_idempotent(headers: Headers) -> None:
    """Kafka's rule: an idempotent producer sends one batch per partition and request."""
    if len(headers) > 1 and any(header.is_idempotent for _, header in headers):
        raise InvalidRecord(reason="an idempotent producer sends one batch per partition at a time")


def _check_timestamps(headers: Headers, config: TopicConfig, now_ms: int) -> None:
    """By the header: the newest time of a batch, and its first, which is the oldest in all but odd cases."""
    for _, header in headers:
        newest, oldest = header.newest_timestamp, header.base_timestamp
        if newest - now_ms > config.timestamp_after_max_ms:
            raise _too_far(newest, newest - now_ms, "ahead of", config.timestamp_after_max_ms)
        if now_ms - oldest > config.timestamp_before_max_ms and oldest != NO_TIMESTAMP:
            raise _too_far(oldest, now_ms - oldest, "behind", config.timestamp_before_max_ms)


def _too_far(timestamp: int, apart_ms: int, direction: str, limit_ms: int) -> InvalidTimestamp:
    return InvalidTimestamp(timestamp=timestamp, apart_ms=apart_ms, direction=direction, limit_ms=limit_ms)


def _check_keys(data: Buffer, decompressed_bytes_max: int) -> None:
    """Compaction keeps the last record of each key, so every record needs one."""
    records = iter_records(data, decompressed_bytes_max=decompressed_bytes_max)
    keyless = next((number for number, record in enumerate(records) if record.key is None), None)
    if keyless is not None:
        raise InvalidRecord(reason="a compacted topic takes no records without a key", record=keyless)
