"""The read path: tail cache, then read cache, then the store; and waiting at the end of the log.

A read at the tail never leaves the event loop. Other reads run on their own threads, so they neither evict
the tail nor delay the writer; readers at the same offset share one read (single flight). All partitions of a fetch are
read together. When a reader continues where an earlier fetch ended, the fetcher reads ahead, again all partitions
together and as much as the reader has taken, so that the bytes are in memory when the reader asks again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.catalog import transactions
from millpond.catalog.transactions import Aborted
from millpond.log.cache import ReadCache
from millpond.log.limits import LogLimits
from millpond.log.memory_reservation import MemoryReservation
from millpond.log.partition import LogPartition
from millpond.log.shared_reads import InPool, SharedReads
from millpond.log.waiters import Waiters
from millpond.model.errors import MillpondError, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.observability.metrics import LogMetrics
from millpond.reading.reader import READ_S_MAX, PartitionRead, StoreReader
from millpond.reading.runs import Run, take
from millpond.records import Buffer
from millpond.topology import ReadCatalog

UNKNOWN_OFFSET = -1
REQUESTS_PER_TURN = 200
FETCH_ENDS_MAX = 4_096
"""How many offsets at which lagging readers stopped are remembered. A fetch from one of them continues a fetch."""
AHEAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""With this many bytes wanted by reads in flight, the fetcher does not read ahead: reads that a request waits for come
first."""

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


@dataclass(slots=True)
class FetchBudget:
    """How much the next partition may add to a response, and what to read ahead when all partitions are read."""

    deadline: float
    """By the loop's clock. After it the partition returns what it has."""
    budget: int = 0
    must_yield: bool = True
    """Whether to return at least one batch, regardless of budget and deadline."""
    ahead_bytes_min: int = 0
    """A read ahead for the partition reads at least this much."""
    ahead: list[PartitionRead] = field(default_factory=list)


class Fetcher:
    def __init__(
        self,
        reader: StoreReader,
        waiters: Waiters,
        in_pool: InPool,
        read_catalog: ReadCatalog,
        limits: LogLimits,
        metrics: LogMetrics,
        resolve: Callable[[TopicPartition], LogPartition],
    ) -> None:
        self._metrics = metrics
        self._resolve = resolve
        self._waiters = waiters
        self._read_catalog = read_catalog
        self._limits = limits
        self._cache = ReadCache(limits.cache_bytes_max)
        self._memory = MemoryReservation(limits.gather_bytes_max)
        self._reads = SharedReads(reader, in_pool, self._cache)
        self._fetch_ends: OrderedDict[FetchPosition, None] = OrderedDict()
        self._joint_bytes_max = limits.cache_bytes_max // 2
        """How much is read together: more would leave the read cache before it is used."""
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
        self._reads.forget(topic_partition)

    async def _gather(
        self, requests: Sequence[FetchRequest], bytes_max: int, read_committed: bool
    ) -> list[FetchResult]:
        """Reading from memory needs no reservation. Reading from the store reserves room, which is bounded
        over all readers: otherwise every reader could hold its whole budget in memory at the same time."""
        stored = [each for request in requests if (each := self._missing(request)) is not None]
        needed = sum(each.bytes_wanted for each in stored)
        if not needed:
            return await self._once(requests, bytes_max, read_committed)
        async with self._memory.hold(min(needed, bytes_max)):
            if len(requests) > 1:
                self._start_reads(stored, bytes_max)
            return await self._once(requests, bytes_max, read_committed)

    def _missing(self, request: FetchRequest) -> PartitionRead | None:
        """What must be read from the store for this request; None if enough of it is in memory."""
        topic_partition, offset, room = request.topic_partition, request.offset, request.bytes_max
        try:
            partition = self._resolve(topic_partition)
        except MillpondError:
            return None  # the result of this request carries the error
        if not partition.log_start <= offset < partition.end_offset or partition.holds_in_tail(offset):
            return None
        while (run := self._cache.find(topic_partition, offset)) is not None:
            room -= len(run.data)
            offset = run.end_offset
            if _is_mostly_used(room, request.bytes_max):
                return None
        if offset >= partition.end_offset or partition.holds_in_tail(offset):
            return None
        return PartitionRead(topic_partition, offset, room)

    def _needs_store(self, request: FetchRequest) -> bool:
        """Whether nothing of what is requested is in memory."""
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
        share = FetchBudget(loop.time() + READ_S_MAX, ahead_bytes_min=self._bytes_min(len(requests)))
        for request in requests:
            share.budget = min(request.bytes_max, room)
            share.must_yield = room == bytes_max
            is_late = not share.must_yield and loop.time() >= share.deadline
            if is_late and self._needs_store(request):
                share.budget = 0
            result = self._at_end(request, read_committed)
            if result is None:
                result = await self._one(request, share, read_committed)
            room = max(room - result.size, 0)
            results.append(result)
            if len(results) % REQUESTS_PER_TURN == 0:
                await asyncio.sleep(0)  # let other tasks run
        self._read_ahead(share.ahead)
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
            size = max(sum(map(len, batches)), share.ahead_bytes_min)
            if (ahead := self._ahead(partition, request.offset, following, size)) is not None:
                share.ahead.append(ahead)
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
        """Read from tail, cache and store in turn, until the share is (mostly) used up, the deadline has passed, or
        nothing more follows. Skips gaps that compaction left."""
        taken: list[Buffer] = []
        loop = asyncio.get_running_loop()
        budget = share.budget
        while offset < limit and (budget > 0 or (share.must_yield and not taken)):
            must_yield = share.must_yield and not taken
            try:
                batches, following = await self._read_once(partition, offset, budget, limit, must_yield)
            except OffsetOutOfRange:
                raise
            except MillpondError:
                if not taken:
                    raise
                break  # the reader gets what precedes, and the error when it asks for what follows
            if following == offset:
                break
            taken.extend(batches)
            budget -= sum(map(len, batches))
            offset = following
            is_enough = _is_mostly_used(budget, share.budget)
            if taken and (
                loop.time() >= share.deadline or (is_enough and self._is_only_in_store(partition, offset))
            ):
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
            wanted = max(budget, self._limits.read_bytes)
            read = await self._reads.runs(partition.topic_partition, offset, wanted)
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

    def _start_reads(self, missing: Sequence[PartitionRead], bytes_max: int) -> None:
        """Start to read what a fetch needs from the store, all together, not one partition after the other."""
        wanted: list[PartitionRead] = []
        least = self._bytes_min(len(missing))
        bytes_max = min(bytes_max, self._joint_bytes_max)
        for each in missing:
            if bytes_max <= 0:
                break
            budget = min(each.bytes_wanted, bytes_max)
            bytes_max -= budget
            wanted.append(each._replace(bytes_wanted=max(budget, least)))
        self._reads.start(wanted)

    def _read_ahead(self, wanted: Sequence[PartitionRead]) -> None:
        wanted_bytes = sum(each.bytes_wanted for each in wanted)
        if self._reads.bytes_in_flight + wanted_bytes <= min(AHEAD_BYTES_MAX, self._joint_bytes_max):
            self._reads.start(wanted)

    def _bytes_min(self, partitions: int) -> int:
        """Minimum number of bytes to read of each of these partitions, which are read together."""
        return self._limits.read_bytes // max(partitions, 1)

    def _ahead(self, partition: LogPartition, offset: int, following: int, size: int) -> PartitionRead | None:
        """What to read ahead of a reader that has read from `offset` to `following`, if it continues an earlier
        fetch: `size` bytes, unless twice as many are in memory. So it can take one part while the next one is
        read."""
        topic_partition = partition.topic_partition
        if not self._continues_fetch(topic_partition, offset, following):
            return None
        room = 2 * size
        while room > 0 and (run := self._cache.find(topic_partition, following)) is not None:
            room -= len(run.data)
            following = run.end_offset
        if room <= 0 or not self._is_only_in_store(partition, following):
            return None
        return PartitionRead(topic_partition, following, size)

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


def _is_mostly_used(room: int, budget: int) -> bool:
    """Whether the store is not read for the rest of a budget. The next batch may not even fit."""
    return room * 2 < budget
