"""The read path: tail cache, then read cache, then the store; and waiting at the end of the log.

A read at the tail never leaves the event loop. Other reads run on their own threads, so they neither evict
the tail nor delay the writer; readers at the same offset share one read (single flight). When a reader
continues where an earlier fetch ended, the fetcher reads ahead, so that the bytes are in memory when the
reader asks again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from millpond.catalog import transactions
from millpond.catalog.transactions import Aborted
from millpond.log.cache import ReadCache
from millpond.log.limits import LogLimits
from millpond.log.memory_reservation import MemoryReservation
from millpond.log.partition import LogPartition
from millpond.log.waiters import Waiters
from millpond.model.errors import MillpondError, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.observability.metrics import LogMetrics
from millpond.reading.reader import READ_S_MAX, StoreReader
from millpond.reading.runs import Run, take
from millpond.records import Buffer
from millpond.topology import ReadCatalog

UNKNOWN_OFFSET = -1
REQUESTS_PER_TURN = 200
FETCH_ENDS_MAX = 4_096
"""How many offsets at which lagging readers stopped are remembered. A fetch from one of them continues a fetch."""
READS_AHEAD_MAX = 32
"""With this many reads in flight, the fetcher does not read ahead: reads that a request waits for come first."""

FetchPosition = tuple[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    topic_partition: TopicPartition
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Whole stamped batches, starting with the one that holds the requested offset; or `error` instead."""

    topic_partition: TopicPartition
    batches: Sequence[Buffer]
    next_offset: int
    log_start: int
    end_offset: int
    last_stable_offset: int
    aborted: Sequence[Aborted] = ()
    error: MillpondError | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.batches))

    @property
    def has_more(self) -> bool:
        """Whether more can be read immediately: it did not fit, or comes from another source than these batches."""
        return self.error is None and self.next_offset < min(self.last_stable_offset, self.end_offset)


def failed(request: FetchRequest, error: MillpondError, log_start: int, end: int) -> FetchResult:
    """If the requested offset has expired, the result carries the current log start and end offset."""
    if isinstance(error, OffsetOutOfRange):
        log_start, end = error.facts["log_start"], error.facts["end_offset"]
    return FetchResult(request.topic_partition, (), request.offset, log_start, end, end, error=error)


class FetchBudget(NamedTuple):
    """How much one partition may add to a response."""

    budget: int
    deadline: float
    """By the loop's clock. After it the partition returns what it has."""
    must_yield: bool
    """Whether to return at least one batch, regardless of budget and deadline."""


class Fetcher:
    def __init__(
        self,
        reader: StoreReader,
        waiters: Waiters,
        in_pool: Callable[[Callable[[], list[Run]]], Coroutine[Any, Any, list[Run]]],
        read_catalog: ReadCatalog,
        limits: LogLimits,
        metrics: LogMetrics,
        resolve: Callable[[TopicPartition], LogPartition],
    ) -> None:
        self._metrics = metrics
        self._resolve = resolve
        self._reader = reader
        self._waiters = waiters
        self._in_pool = in_pool
        self._read_catalog = read_catalog
        self._limits = limits
        self._cache = ReadCache(limits.cache_bytes_max)
        self._memory = MemoryReservation(limits.gather_bytes_max)
        self._in_flight: dict[FetchPosition, asyncio.Task[list[Run]]] = {}
        self._fetch_ends: OrderedDict[FetchPosition, None] = OrderedDict()
        self.fetched_bytes = 0

    async def fetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        bytes_max: int,
        bytes_min: int,
        wait_ms: int,
        read_committed: bool,
    ) -> list[FetchResult]:
        """Returns as soon as `bytes_min` bytes are available, a partition has more than fits, or a partition
        has an error; at the latest after `wait_ms`. The first partition that has records returns at least one
        batch, however small the budgets are."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        topic_partitions = [request.topic_partition for request in requests]
        while True:
            with self._waiters.watch(topic_partitions) as watch:
                results = await self._gather(requests, bytes_max, read_committed)
                left_s = deadline - loop.time()
                enough = sum(result.size for result in results) >= bytes_min
                enough = enough or any(result.has_more for result in results)  # waiting would add nothing
                if enough or left_s <= 0 or self._waiters.closed or any(r.error for r in results):
                    return results
                await watch.wait(left_s)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Drop the cached runs. Reads in flight still return to their waiting callers, but are not cached."""
        self._cache.forget(topic_partition)
        for position in [each for each in self._in_flight if each[0] == topic_partition]:
            del self._in_flight[position]

    async def _gather(
        self, requests: Sequence[FetchRequest], bytes_max: int, read_committed: bool
    ) -> list[FetchResult]:
        """Reading from memory needs no reservation. Reading from the store reserves room, which is bounded
        over all readers: otherwise every reader could hold its whole budget in memory at the same time."""
        stored = [request for request in requests if self._needs_store(request)]
        needed = sum(request.bytes_max for request in stored)
        if not needed:
            return await self._once(requests, bytes_max, read_committed)
        async with self._memory.hold(min(needed, bytes_max)):
            if len(requests) > 1:
                self._start_reads(stored, bytes_max)
            return await self._once(requests, bytes_max, read_committed)

    def _needs_store(self, request: FetchRequest) -> bool:
        try:
            return self._is_only_in_store(self._resolve(request.topic_partition), request.offset)
        except MillpondError:
            return False  # the result of this request carries the error

    async def _once(
        self, requests: Sequence[FetchRequest], bytes_max: int, read_committed: bool
    ) -> list[FetchResult]:
        results = []
        room = bytes_max
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READ_S_MAX
        for request in requests:
            budget = min(request.bytes_max, room)
            empty_so_far = room == bytes_max
            if not empty_so_far and loop.time() >= deadline and self._needs_store(request):
                budget = 0
            result = self._at_end(request, read_committed)
            if result is None:
                share = FetchBudget(budget, deadline, must_yield=empty_so_far)
                result = await self._one(request, share, read_committed)
            room = max(room - result.size, 0)
            results.append(result)
            if len(results) % REQUESTS_PER_TURN == 0:
                await asyncio.sleep(0)  # let other tasks run
        return results

    def _at_end(self, request: FetchRequest, read_committed: bool) -> FetchResult | None:
        """The result of a reader that has read everything, which most partitions of a large request have. None if there
        may be more to do."""
        try:
            partition = self._resolve(request.topic_partition)
        except MillpondError:
            return None
        log_start, end = partition.log_start, partition.end_offset
        if request.offset != end:
            return None
        if read_committed:
            opened = partition.open_transactions
            if opened.stale or opened.last_stable(log_start, end) != end:
                return None
        return FetchResult(request.topic_partition, (), end, log_start, end, end)

    async def _one(self, request: FetchRequest, share: FetchBudget, read_committed: bool) -> FetchResult:
        """A partition that cannot be read returns the error in its own result. Other partitions are not
        affected."""
        log_start = end = UNKNOWN_OFFSET
        try:
            partition = self._resolve(request.topic_partition)
            log_start, end = partition.log_start, partition.end_offset
            return await self._read(partition, request, share, read_committed)
        except MillpondError as error:
            return failed(request, error, log_start, end)

    async def _read(
        self, partition: LogPartition, request: FetchRequest, share: FetchBudget, read_committed: bool
    ) -> FetchResult:
        if read_committed and partition.open_transactions.stale:
            await partition.refresh_transactions(self._read_catalog)
        log_start, end = partition.log_start, partition.end_offset
        if not log_start <= request.offset <= end:
            raise OffsetOutOfRange(offset=request.offset, log_start=log_start, end_offset=end)
        stable = partition.open_transactions.last_stable(log_start, end) if read_committed else end
        batches, following = await self._batches(partition, request.offset, share, stable)
        if following < stable and not partition.holds_in_tail(following):
            self._read_ahead(partition, request.offset, following)
        aborted: Sequence[Aborted] = ()
        if read_committed and batches:
            aborted = await self._aborted(partition, request.offset, following)
        return FetchResult(request.topic_partition, batches, following, log_start, end, stable, aborted)

    async def _aborted(self, partition: LogPartition, start: int, end_offset: int) -> list[Aborted]:
        known = partition.open_transactions.aborted(start, end_offset)
        if known is not None:
            return known
        found = await self._read_catalog(
            lambda tx: transactions.aborted(tx, partition.topic_partition, start, end_offset)
        )
        if partition.log_start > start:  # the list may have been removed together with the records
            raise OffsetOutOfRange(
                offset=start, log_start=partition.log_start, end_offset=partition.end_offset
            )
        return found

    async def _batches(
        self, partition: LogPartition, offset: int, share: FetchBudget, limit: int
    ) -> tuple[Sequence[Buffer], int]:
        """Read from tail, cache and store in turn, until the share is used up, the deadline has passed, or
        nothing more follows. Skips gaps that compaction left."""
        taken: list[Buffer] = []
        loop = asyncio.get_running_loop()
        budget = share.budget
        while offset < limit and (budget > 0 or (share.must_yield and not taken)):
            must_yield = share.must_yield and not taken
            batches, following = await self._read_once(partition, offset, budget, limit, must_yield)
            if following == offset:
                break
            taken.extend(batches)
            budget -= sum(map(len, batches))
            offset = following
            if taken and loop.time() >= share.deadline:
                break
        return taken or (), offset

    async def _read_once(
        self, partition: LogPartition, offset: int, budget: int, limit: int, must_yield: bool
    ) -> tuple[Sequence[Buffer], int]:
        if partition.holds_in_tail(offset):
            runs, source = partition.tail.runs_from(offset), self._metrics.from_tail
        elif cached := self._cached(partition.topic_partition, offset, budget):
            runs, source = iter(cached), self._metrics.from_cache
        else:
            read = await self._from_store(partition.topic_partition, offset, budget)
            if partition.log_start > offset:  # the offset expired during the read
                raise OffsetOutOfRange(
                    offset=offset, log_start=partition.log_start, end_offset=partition.end_offset
                )
            if not read:
                return (), limit
            runs, source = iter(read), self._metrics.from_store
        batches, following = take(runs, offset, budget, limit, must_yield=must_yield)
        size = sum(map(len, batches))
        source.inc(size)
        self.fetched_bytes += size
        return batches, following

    def _cached(self, topic_partition: TopicPartition, offset: int, budget: int) -> list[Run]:
        runs: list[Run] = []
        while budget > 0 and (run := self._cache.find(topic_partition, offset)) is not None:
            runs.append(run)
            budget -= len(run.data)
            offset = run.end_offset
        return runs

    async def _from_store(self, topic_partition: TopicPartition, offset: int, budget: int) -> list[Run]:
        return await asyncio.shield(self._start_read(topic_partition, offset, budget))

    def _start_reads(self, requests: Sequence[FetchRequest], bytes_max: int) -> None:
        """Start reads from the store concurrently, not one partition after the other."""
        for request in requests:
            if bytes_max <= 0:
                return
            budget = min(request.bytes_max, bytes_max)
            self._start_read(request.topic_partition, request.offset, budget)
            bytes_max -= budget

    def _read_ahead(self, partition: LogPartition, offset: int, following: int) -> None:
        """Start reading what follows `following`, if a reader at `offset` continues an earlier fetch."""
        if not self._continues_fetch(partition.topic_partition, offset, following):
            return
        room = self._limits.read_bytes
        while room > 0 and (run := self._cache.find(partition.topic_partition, following)) is not None:
            room -= len(run.data)
            following = run.end_offset
        is_free = len(self._in_flight) < READS_AHEAD_MAX
        if room > 0 and is_free and self._is_only_in_store(partition, following):
            self._start_read(partition.topic_partition, following, self._limits.read_bytes)

    def _continues_fetch(self, topic_partition: TopicPartition, offset: int, following: int) -> bool:
        """Whether an earlier fetch stopped at `offset`. Remembers that the current one stops at `following`."""
        known = (topic_partition, offset) in self._fetch_ends
        self._fetch_ends.pop((topic_partition, offset), None)
        self._fetch_ends[topic_partition, following] = None
        if len(self._fetch_ends) > FETCH_ENDS_MAX:
            self._fetch_ends.popitem(last=False)
        return known

    def _is_only_in_store(self, partition: LogPartition, offset: int) -> bool:
        """Whether only the store holds the record at `offset`."""
        if not partition.log_start <= offset < partition.end_offset or partition.holds_in_tail(offset):
            return False
        return self._cache.find(partition.topic_partition, offset) is None

    def _start_read(
        self, topic_partition: TopicPartition, offset: int, budget: int
    ) -> "asyncio.Task[list[Run]]":
        """Start a read, or return the one in flight: all readers at the same offset share it."""
        position = (topic_partition, offset)
        task = self._in_flight.get(position)
        if task is None:
            wanted = max(budget, self._limits.read_bytes)
            task = asyncio.create_task(
                self._in_pool(lambda: self._reader.read_runs(topic_partition, offset, wanted))
            )
            self._in_flight[position] = task
            task.add_done_callback(lambda done: self._on_read(position, done))
        return task

    def _on_read(self, position: FetchPosition, task: "asyncio.Task[list[Run]]") -> None:
        # Retrieve the exception even if no reader waits for this task: asyncio would log a warning.
        failed = task.cancelled() or task.exception() is not None
        if self._in_flight.get(position) is not task:
            return  # `forget` was called during the read
        del self._in_flight[position]
        if not failed:
            for run in task.result():
                self._cache.put(position[0], run)
