"""Reads committed messages of the log for subscriptions, and derives what a dispatcher needs to know about each."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from millpond.log import FetchRequest, FetchResult, FetchRole
from millpond.model.errors import InvalidInput, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.model.subscriptions import (
    DELAY,
    DELIVER_AT,
    RESERVED_HEADERS,
    SubscriptionConfig,
    SubscriptionMode,
)
from millpond.model.units import parse_duration_ms
from millpond.queues.addressing import REDRIVE_TO, Addressing
from millpond.queues.dispatcher_state import LogEntry
from millpond.queues.key_assignment import key_hash
from millpond.queues.limits import QueueLimits
from millpond.reading.quick_decoding import decodes_quickly
from millpond.reading.visible import VisibleBatch, visible_from
from millpond.records import HEADER_SIZE, Codec, Record, walk
from millpond.records.reader import plain_records

WHOLE_PARTITION: Final = 0
"""The key of all messages of a partition that is delivered in order."""
RESERVED_BYTES: Final = RESERVED_HEADERS.encode()
REMEMBERED_KEYS_MAX: Final = 16_384
REMEMBERED_KEY_BYTES_MAX: Final = 64

logger = logging.getLogger(__name__)


class PlainRun(NamedTuple):
    """Neighbouring messages of one batch without headers of the broker: everyone may receive them, at once."""

    first: int
    last: int
    size: int
    """Of each message, on average."""


@dataclass(frozen=True, slots=True)
class FeedChunk:
    """The result of one read. Everything before `next_offset` was read."""

    records: Sequence[Record]
    next_offset: int
    log_start: int
    plain: Sequence[PlainRun] = ()
    """Further messages, which were not decoded."""


FoundMessage = tuple[Record, LogEntry]
"""A message of the log, and its entry for the dispatcher."""


class Feed:
    def __init__(self, log: FetchRole, limits: QueueLimits) -> None:
        self._log = log
        self._limits = limits

    async def read(self, topic_partition: TopicPartition, offset: int) -> FeedChunk:
        """Messages from `offset` on, as far as one read goes; empty at the end of the log."""
        return await self._read(topic_partition, offset, read_committed=True)

    async def read_uncommitted(self, topic_partition: TopicPartition, offset: int) -> FeedChunk:
        """Like `read`, with the messages of open and aborted transactions."""
        return await self._read(topic_partition, offset, read_committed=False)

    async def _read(self, topic_partition: TopicPartition, offset: int, *, read_committed: bool) -> FeedChunk:
        size = self._limits.read_bytes
        results = await self._log.fetch(
            [FetchRequest(topic_partition, offset, size)],
            bytes_max=size,
            wait_ms=0,
            read_committed=read_committed,
        )
        return await self._piece(results[0], offset)

    async def read_runs(
        self, topic_partition: TopicPartition, offset: int, *, read_committed: bool
    ) -> FeedChunk:
        """Like `read`, but decodes only batches that may have headers of the broker. A search in the bytes tells."""
        size = self._limits.read_bytes
        [result] = await self._log.fetch(
            [FetchRequest(topic_partition, offset, size)],
            bytes_max=size,
            wait_ms=0,
            read_committed=read_committed,
        )
        if result.error is not None or not result.batches:
            return await self._piece(result, offset)
        is_compressed = any(
            header.codec is not Codec.NONE for buffer in result.batches for _, header in walk(buffer)
        )
        if is_compressed:
            return await self._log.in_pool(lambda: self._runs(result, offset))
        return self._runs(result, offset)

    def _runs(self, result: FetchResult, offset: int) -> FeedChunk:
        start, plain, decoded = max(offset, result.log_start), list[PlainRun](), list[Record]()
        for batch in visible_from(result.batches, result.aborted, start):
            header = batch.header
            is_whole = header.record_count == header.last_offset_delta + 1
            if is_whole and not self._may_have_broker_headers(batch):
                size = max(1, (header.size - HEADER_SIZE) // header.record_count)
                plain.append(PlainRun(max(start, header.base_offset), header.last_offset, size))
            else:
                decoded += self._decode_batch(batch, start, result.topic_partition)
        return FeedChunk(decoded, result.next_offset, result.log_start, plain)

    def _may_have_broker_headers(self, batch: VisibleBatch) -> bool:
        try:
            data = plain_records(batch.data, 0, batch.header, self._limits.decompressed_bytes_max)
        except InvalidInput:
            return True
        return RESERVED_BYTES in data

    async def read_stored(self, topic_partition: TopicPartition, offset: int) -> FeedChunk:
        """Like `read`, but works on any broker, not only on the partition's owner."""
        request = FetchRequest(topic_partition, offset, self._limits.read_bytes)
        return await self._piece(await self._log.fetch_stored(request, read_committed=True), offset)

    async def _piece(self, result: FetchResult, offset: int) -> FeedChunk:
        if isinstance(result.error, OffsetOutOfRange) and offset < result.log_start:
            return FeedChunk((), result.log_start, result.log_start)
        if result.error is not None:
            raise result.error
        if not result.batches:
            return FeedChunk((), result.next_offset, result.log_start)
        return FeedChunk(await self._decoded(result, offset), result.next_offset, result.log_start)

    async def _decoded(self, result: FetchResult, offset: int) -> list[Record]:
        headers = (header for buffer in result.batches for _, header in walk(buffer))
        limits = self._limits
        if decodes_quickly(
            headers, result.size, bytes_max=limits.on_loop_bytes, records_max=limits.on_loop_records
        ):
            return self._decode(result, offset)
        return await self._log.in_pool(lambda: self._decode(result, offset))

    def _decode(self, result: FetchResult, offset: int) -> list[Record]:
        """Skips a batch that cannot be decoded; it would block every message behind it for ever."""
        start = max(offset, result.log_start)
        records: list[Record] = []
        for batch in visible_from(result.batches, result.aborted, start):
            records += self._decode_batch(batch, start, result.topic_partition)
        return records

    def _decode_batch(self, batch: VisibleBatch, start: int, topic_partition: TopicPartition) -> list[Record]:
        """The whole batch, or nothing if it cannot be decoded."""
        try:
            return list(batch.records_from(start, decompressed_bytes_max=self._limits.decompressed_bytes_max))
        except InvalidInput as error:
            logger.error(
                "undecodable batch skipped by subscriptions",
                extra={
                    "topic": self._log.topics.name_of(topic_partition.topic_id),
                    "partition": topic_partition.partition,
                    "offset": max(start, batch.header.base_offset),
                    "last_offset": batch.header.last_offset,
                    "error": str(error),
                },
            )
            return []


def entries_of(
    records: Iterable[Record],
    config: SubscriptionConfig,
    subscription: str,
    addressing: Addressing,
    *,
    delay_ms_max: int,
) -> list[FoundMessage]:
    """The messages that are addressed to this subscription, each with its dispatcher entry. Messages without headers,
    the common case, are handled inline."""
    found: list[FoundMessage] = []
    by_key = config.mode is SubscriptionMode.KEY_SHARED
    whole = WHOLE_PARTITION if config.ordered_by_partition else None
    hashed, short = _remembered_hash, REMEMBERED_KEY_BYTES_MAX
    for record in records:
        if record.headers:
            if _is_for(subscription, record, addressing):
                found.append((record, entry_of(record, config, delay_ms_max=delay_ms_max)))
            continue
        key, value, order_key = record.key, record.value, whole
        size = len(value) if value is not None else 0
        if key is not None:
            size += len(key)
            if by_key:
                order_key = hashed(key) if len(key) <= short else key_hash(key)
        found.append((record, LogEntry(record.offset, order_key, size)))
    return found


def entry_of(record: Record, config: SubscriptionConfig, *, delay_ms_max: int) -> LogEntry:
    not_before = _not_before(dict(record.headers), record.timestamp, delay_ms_max)
    return LogEntry(record.offset, _key(record, config), size_of(record), not_before)


def _is_for(subscription: str, record: Record, addressing: Addressing) -> bool:
    if all(name != REDRIVE_TO for name, _ in record.headers):
        return True
    return addressing.addressee(record) in (None, subscription)


def size_of(record: Record) -> int:
    """Bytes of key, value and headers."""
    size = len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size


def _hashed(key: bytes) -> int:
    """Keys repeat, so most hashes are cached."""
    return _remembered_hash(key) if len(key) <= REMEMBERED_KEY_BYTES_MAX else key_hash(key)


_remembered_hash = lru_cache(maxsize=REMEMBERED_KEYS_MAX)(key_hash)


def _key(record: Record, config: SubscriptionConfig) -> int | None:
    if config.mode is SubscriptionMode.KEY_SHARED:
        return None if record.key is None else _hashed(record.key)
    return WHOLE_PARTITION if config.ordered_by_partition else None


def _not_before(headers: dict[str, bytes | None], timestamp: int, delay_ms_max: int) -> int:
    """The delivery time that the headers request. An invalid value means no delay; a long delay is cut to the limit."""
    try:
        if (at := headers.get(DELIVER_AT)) is not None:
            return min(int(at), timestamp + delay_ms_max)
        if (delay := headers.get(DELAY)) is not None:
            text = delay.decode()
            rest = int(text) if text.isdigit() else parse_duration_ms(text)
            return timestamp + min(rest, delay_ms_max)
    except ValueError:
        logger.debug(
            "invalid delay header ignored", extra={"header": DELIVER_AT if DELIVER_AT in headers else DELAY}
        )
    return 0
