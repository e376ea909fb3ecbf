"""What a batch must be before it joins a buffer. Checked first, so that one bad request never fails its neighbours."""

from millpond.model.errors import InvalidRecord, InvalidTimestamp
from millpond.model.topics import TopicConfig
from millpond.records import BatchHeader, Buffer, iter_records, validate, walk, with_append_time

NO_APPEND_TIME = -1

Headers = list[tuple[int, BatchHeader]]


def admit(
    data: Buffer, config: TopicConfig, *, now_ms: int, decompressed_bytes_max: int
) -> tuple[Buffer, Headers, int]:
    """The bytes to append, their headers, and the append time (-1 if the topic keeps the producer's times)."""
    headers = validate(data, max_batch_bytes=config.max_message_bytes)
    _check_idempotent(headers)
    if config.compacted:
        _check_keys(data, decompressed_bytes_max)
    if config.append_time:
        data = with_append_time(data, now_ms)
        return data, list(walk(data)), now_ms
    _check_timestamps(headers, config, now_ms)
    return data, headers, NO_APPEND_TIME


def _check_idempotent(headers: Headers) -> None:
    """Kafka's rule: an idempotent producer sends one batch per partition and request."""
    if len(headers) > 1 and any(header.is_idempotent for _, header in headers):
        raise InvalidRecord(reason="an idempotent producer sends one batch per partition at a time")


def _check_timestamps(headers: Headers, config: TopicConfig, now_ms: int) -> None:
    for _, header in headers:
        ahead_ms = header.newest_timestamp - now_ms
        if ahead_ms > config.timestamp_after_max_ms:
            raise InvalidTimestamp(
                timestamp=header.newest_timestamp, ahead_ms=ahead_ms, limit_ms=config.timestamp_after_max_ms
            )


def _check_keys(data: Buffer, decompressed_bytes_max: int) -> None:
    """Compaction keeps the last record of each key, so every record needs one."""
    if any(
        record.key is None for record in iter_records(data, decompressed_bytes_max=decompressed_bytes_max)
    ):
        raise InvalidRecord(reason="a compacted topic takes no records without a key")
