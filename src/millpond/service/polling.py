"""Reads messages: polls some or all partitions of a topic. The poller stores no positions; the caller does.

A poll is limited in messages, bytes and time, and always makes progress: it returns at least one message if there is
one. It skips what a reader may not see (aborted transactions, markers), and the position moves past it.
"""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from millpond.catalog import partitions
from millpond.log import FetchRequest, FetchResult, FetchRole
from millpond.model.errors import (
    InvalidInput,
    InvalidRequest,
    MillpondError,
    OffsetOutOfRange,
    Stopping,
    TopicReplaced,
    UnknownPartition,
    UnknownTopic,
    UnreadableBatch,
)
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.topics import Topic
from millpond.reading.quick_decoding import decodes_quickly
from millpond.reading.visible import VisibleBatch, visible_from
from millpond.records import BatchHeader, Record, encoded_size_max, walk
from millpond.service.limits import ServiceLimits
from millpond.service.owners import Owners
from millpond.service.workers import Workers

Unpack = Callable[["PollRequest", Mapping[int, int], Sequence[FetchResult]], Awaitable["PollResult"]]
"""Turns what was fetched from these positions into the result of the poll."""
OLDEST = -1
"""A position that means: from the oldest message on."""
REMOTE_POLL_INTERVAL_MS = 250
"""While a poll waits for partitions of several brokers, it reads those of other brokers at this interval."""
REMOTE_READS_MAX = 8
"""Maximum number of partitions of other brokers that one poll reads concurrently."""
REMOTE_READ_BYTES_MIN = 64 * 1024
EMPTY_FETCHES_MAX = 16
"""Maximum number of fetches of a poll that does not wait, while they find no visible messages (compacted batches,
hidden transactions). After a single fetch a reader could mistake the empty response for the end of the log."""


@dataclass(frozen=True, slots=True)
class PollRequest:
    """`positions` are offsets by partition; empty means all partitions from the oldest message on. If a position is
    below the log start, reading continues at the oldest message; if it is past the log end, the poll waits until the
    offset exists. With `strict` both are refused. With a `topic_id`, another topic of the same name is refused."""

    topic: str
    positions: Mapping[int, int] = field(default_factory=dict)
    messages_max: int = 1_000
    bytes_max: int = 1024 * 1024
    wait_ms: int = 0
    strict: bool = False
    committed: bool = True
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The position of a reader of one partition after a poll, and the range of offsets it can read."""

    partition: int
    next_offset: int
    log_start: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class PollResult:
    """`records` are (partition, record), each partition's in order; `batches` are (partition, bytes of one batch)."""

    topic_id: TopicId
    read_positions: list[ReadPosition] = field(default_factory=list)
    records: list[tuple[int, Record]] = field(default_factory=list)
    batches: list[tuple[int, memoryview]] = field(default_factory=list)


class Poller:
    def __init__(self, log: FetchRole, owners: Owners, workers: Workers, *, limits: ServiceLimits) -> None:
        self._log = log
        self._owners = owners
        self._workers = workers
        self._limits = limits
        self._round_robin = 0
        self._stopping = False
        self._waiting: set[asyncio.Task[list[FetchResult]]] = set()

    def stop(self) -> None:
        """End waiting polls and refuse new ones with `Stopping`."""
        self._stopping = True
        for task in self._waiting:
            task.cancel()

    async def poll(self, request: PollRequest) -> PollResult:
        """Decoded messages. Waits for the first one up to `wait_ms`."""
        return await self._poll_until_found(request, self._decoded)

    async def poll_batches(self, request: PollRequest) -> PollResult:
        """The same messages as complete stored batches. The first batch of a partition may start below its position."""
        return await self._poll_until_found(request, self._as_batches)

    def partitions(self, topic: str) -> int:
        return self._log.topics.named(topic).partitions

    async def _poll_until_found(self, request: PollRequest, unpack: Unpack) -> PollResult:
        """Fetch until there are messages or the time is up. The topic is looked up once, because a topic of the same
        name that is created during the poll is a different one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(request.wait_ms, self._limits.wait_ms_max) / 1000
        topic = await self._log.topic(request.topic)
        if request.topic_id not in (None, topic.id):
            raise TopicReplaced(topic=request.topic)
        positions = self._positions(request, topic)
        for fetches in itertools.count(1):
            left_ms = max(0, math.ceil((deadline - loop.time()) * 1000))
            results = await self._fetch_unless_stopping(request, topic, positions, left_ms)
            polled = await unpack(request, positions, results)
            positions = {each.partition: each.next_offset for each in polled.read_positions}
            if polled.records or polled.batches:
                return polled
            must_continue = fetches < EMPTY_FETCHES_MAX and any(result.has_more for result in results)
            if loop.time() >= deadline and not must_continue:
                return polled
        raise AssertionError("unreachable: the loop is endless")

    def _positions(self, request: PollRequest, topic: Topic) -> dict[int, int]:
        """The positions, starting at a different partition for each poll. In a fixed order, a partition with a long
        backlog would starve those behind it."""
        positions = request.positions or dict.fromkeys(range(topic.partitions), OLDEST)
        for partition, offset in positions.items():
            self._log.topics.partition(request.topic, partition)
            if offset < OLDEST:
                raise InvalidRequest(reason=f"position {offset} is negative")
        self._round_robin += 1
        order = sorted(positions)
        first = self._round_robin % len(order)
        return {partition: positions[partition] for partition in order[first:] + order[:first]}

    async def _fetch_unless_stopping(
        self, request: PollRequest, topic: Topic, positions: Mapping[int, int], wait_ms: int
    ) -> list[FetchResult]:
        if self._stopping:
            raise Stopping
        if not wait_ms:
            return await self._fetch(request, topic, positions, wait_ms)
        fetching = asyncio.create_task(self._fetch(request, topic, positions, wait_ms))
        self._waiting.add(fetching)
        fetching.add_done_callback(self._waiting.discard)
        try:
            await asyncio.wait([fetching])
        finally:
            fetching.cancel()  # the caller may have been cancelled
        if fetching.cancelled():
            raise Stopping
        return fetching.result()

    async def _fetch(
        self, request: PollRequest, topic: Topic, positions: Mapping[int, int], wait_ms: int
    ) -> list[FetchResult]:
        fetches = [
            FetchRequest(TopicPartition(topic.id, partition), offset, self._bytes_max(request))
            for partition, offset in positions.items()
        ]
        if self._has_several_owners(fetches):
            return await self._fetch_local_and_remote(request, topic, fetches, wait_ms)
        return await self._fetch_local(request, fetches, wait_ms)

    async def _fetch_local(
        self, request: PollRequest, fetches: Sequence[FetchRequest], wait_ms: int
    ) -> list[FetchResult]:
        if not request.strict or any(each.offset == OLDEST for each in fetches):
            fetches = [await self._clamped(each, request) for each in fetches]
        results = await self._log.fetch(
            fetches, bytes_max=self._bytes_max(request), wait_ms=wait_ms, read_committed=request.committed
        )
        for result in results:
            if result.error is not None:
                await self._raise_error(request, result)
        return results

    # -- partitions of several brokers ------------------------------------------------------------------------

    def _has_several_owners(self, fetches: Sequence[FetchRequest]) -> bool:
        """Whether no single broker owns all of these partitions, so that redirecting the client would not help."""
        if all(self._log.owns(each.topic_partition) for each in fetches):
            return False
        return len({self._owners.owner(each.topic_partition) for each in fetches}) > 1

    async def _fetch_local_and_remote(
        self, request: PollRequest, topic: Topic, fetches: Sequence[FetchRequest], wait_ms: int
    ) -> list[FetchResult]:
        """Reads this broker's own partitions through its log and the others from the store. Waits until any of them
        has a message."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while True:
            own = [each for each in fetches if self._log.owns(each.topic_partition)]
            others = [each for each in fetches if each not in own]
            results_by_partition = {
                each.topic_partition: each for each in await self._fetch_remote(request, topic, others)
            }
            left_ms = max(0, math.ceil((deadline - loop.time()) * 1000))
            pause_ms = (
                0
                if any(each.batches for each in results_by_partition.values())
                else min(left_ms, REMOTE_POLL_INTERVAL_MS)
            )
            if own:
                results_by_partition |= {
                    each.topic_partition: each for each in await self._fetch_local(request, own, pause_ms)
                }
            elif pause_ms:
                await asyncio.sleep(pause_ms / 1000)
            if any(each.batches for each in results_by_partition.values()) or left_ms == 0:
                return [results_by_partition[each.topic_partition] for each in fetches]

    async def _fetch_remote(
        self, request: PollRequest, topic: Topic, fetches: Sequence[FetchRequest]
    ) -> list[FetchResult]:
        """Reads the catalog once to find which partitions have messages, and fetches only from those."""
        rows = await self._log.read(
            lambda tx: {row.topic_partition: row for row in partitions.of_topic(tx, topic.id)}
        )
        read_slots = asyncio.Semaphore(REMOTE_READS_MAX)
        bytes_max = max(self._bytes_max(request) // max(1, len(fetches)), REMOTE_READ_BYTES_MIN)

        async def fetch(each: FetchRequest) -> FetchResult:
            row = rows.get(each.topic_partition)
            if row is None:
                raise UnknownTopic(topic=request.topic)
            offset = each.offset
            if offset == OLDEST or (not request.strict and offset < row.log_start):
                offset = row.log_start
            if not request.strict:
                offset = min(offset, row.end_offset)
            if offset == row.end_offset:
                return FetchResult(
                    each.topic_partition, (), offset, row.log_start, row.end_offset, row.end_offset
                )
            async with read_slots:
                stored = FetchRequest(each.topic_partition, offset, bytes_max)
                result = await self._log.fetch_stored(stored, read_committed=request.committed)
            if result.error is not None:
                await self._raise_error(request, result)
            return result

        return list(await asyncio.gather(*map(fetch, fetches)))

    async def _clamped(self, fetch: FetchRequest, request: PollRequest) -> FetchRequest:
        """The same fetch, moved to the nearest offset that can be read."""
        try:
            partition = self._log.partition(fetch.topic_partition)
        except MillpondError as error:
            raise await self._error_for_caller(request, error, fetch.topic_partition) from error
        if fetch.offset == OLDEST:
            return FetchRequest(fetch.topic_partition, partition.log_start, fetch.bytes_max)
        if request.strict:
            return fetch
        offset = min(max(fetch.offset, partition.log_start), partition.end_offset)
        return FetchRequest(fetch.topic_partition, offset, fetch.bytes_max)

    async def _raise_error(self, request: PollRequest, result: FetchResult) -> None:
        """Raise the error of a partition. Unless `strict`, a position that expired during the fetch is not an error:
        the next fetch continues at the oldest message."""
        error = result.error
        assert error is not None, "callers check it first"
        if isinstance(error, OffsetOutOfRange) and not request.strict:
            return
        raise await self._error_for_caller(request, error, result.topic_partition) from error

    async def _error_for_caller(
        self, request: PollRequest, error: MillpondError, topic_partition: TopicPartition
    ) -> MillpondError:
        """The error for the caller. The log and the catalog know only the topic's id. The partition existed when the
        poll began, and a topic loses partitions only when it is deleted."""
        if isinstance(error, UnknownTopic | UnknownPartition):
            return UnknownTopic(topic=request.topic)
        return self._owners.explain(error, topic_partition)

    async def _decoded(
        self, request: PollRequest, positions: Mapping[int, int], results: Sequence[FetchResult]
    ) -> PollResult:
        """Decode small results directly, and others on a thread, because they would block the event loop."""
        if decodes_quickly(
            _headers(results),
            sum(result.size for result in results),
            bytes_max=self._limits.decoded_on_loop_bytes,
            records_max=self._limits.on_loop_messages,
        ):
            return _decode(request, positions, results, self._limits)
        slow = sum(_record_counts(results)) > self._limits.slow_records
        return await self._workers.run(lambda: _decode(request, positions, results, self._limits), slow=slow)

    async def _as_batches(
        self, request: PollRequest, positions: Mapping[int, int], results: Sequence[FetchResult]
    ) -> PollResult:
        polled = PollResult(results[0].topic_partition.topic_id)
        for result in results:
            start = positions[result.topic_partition.partition]
            first = max(start, result.log_start)
            for batch in visible_from(result.batches, result.aborted, first):
                if await self._reaches(batch, first):
                    polled.batches.append((result.topic_partition.partition, batch.data))
            polled.read_positions.append(_partition_position(result, start))
        return polled

    async def _reaches(self, batch: VisibleBatch, start: int) -> bool:
        """Whether a batch has a record from `start` on. If `start` is inside the batch, compaction may have left only
        earlier records, so the batch is decoded to find out."""
        header = batch.header
        if not header.record_count:
            return False
        is_whole = header.record_count == header.last_offset_delta + 1
        if header.base_offset >= start or is_whole:
            return True
        slow = header.record_count > self._limits.slow_records
        limit = self._limits.decompressed_bytes_max
        return await self._workers.run(lambda: _has_record_from(batch, start, limit), slow=slow)

    def _bytes_max(self, request: PollRequest) -> int:
        return min(request.bytes_max, self._limits.poll_bytes_max)


def _decode(
    request: PollRequest, positions: Mapping[int, int], results: Sequence[FetchResult], limits: ServiceLimits
) -> PollResult:
    """Decode each partition up to the first batch that cannot be decoded. If no partition has messages before such a
    batch, raise its error, which contains the offset to skip to."""
    polled = PollResult(results[0].topic_partition.topic_id)
    messages_max = min(request.messages_max, limits.poll_messages_max)
    bytes_left = min(request.bytes_max, limits.poll_bytes_max)
    unreadable: UnreadableBatch | None = None
    for result in results:
        start = positions[result.topic_partition.partition]
        stopped_at = None
        try:
            for record in _records(result, max(start, result.log_start), limits.decompressed_bytes_max):
                size = encoded_size_max(record)
                if polled.records and (size > bytes_left or len(polled.records) >= messages_max):
                    stopped_at = record.offset
                    break
                bytes_left -= size
                polled.records.append((result.topic_partition.partition, record))
        except UnreadableBatch as error:
            unreadable = error
            stopped_at = error.facts["offset"]
        polled.read_positions.append(_partition_position(result, start, stopped_at))
    if unreadable is not None and not polled.records:
        raise unreadable
    return polled


def _records(result: FetchResult, start: int, decompressed_bytes_max: int) -> Iterator[Record]:
    for batch in visible_from(result.batches, result.aborted, start):
        next_offset = max(start, batch.header.base_offset)
        try:
            for record in batch.records_from(start, decompressed_bytes_max=decompressed_bytes_max):
                yield record
                next_offset = record.offset + 1
        except InvalidInput as error:
            raise UnreadableBatch(
                partition=result.topic_partition.partition,
                offset=next_offset,
                next_offset=batch.header.next_offset,
                reason=str(error).rstrip("."),
            ) from error


def _has_record_from(batch: VisibleBatch, start: int, decompressed_bytes_max: int) -> bool:
    """Returns True for a batch that cannot be decoded here: the client may be able to decode it."""
    try:
        records = batch.records_from(start, decompressed_bytes_max=decompressed_bytes_max)
        return next(records, None) is not None
    except InvalidInput:
        return True


def _headers(results: Sequence[FetchResult]) -> Iterator[BatchHeader]:
    for result in results:
        for buffer in result.batches:
            yield from (header for _, header in walk(buffer))


def _record_counts(results: Sequence[FetchResult]) -> list[int]:
    return [header.record_count for header in _headers(results)]


def _partition_position(result: FetchResult, start: int, stopped_at: int | None = None) -> ReadPosition:
    """The position after a fetch. A reader that received nothing keeps its position; `OLDEST` becomes an offset."""
    next_offset = max(start, result.next_offset) if result.batches else start
    if next_offset == OLDEST:
        next_offset = max(result.log_start, 0)
    return ReadPosition(
        result.topic_partition.partition,
        next_offset if stopped_at is None else stopped_at,
        result.log_start,
        min(result.end_offset, result.last_stable_offset),
    )
