"""The tail cache: the newest batches of every partition, stamped, in memory.

A partition's tail is one contiguous range that ends at its log end. When another writer appends, the range is
broken: the tail is dropped and a new range begins after the hole, so a reader never skips offsets it has not
seen. All tails share one budget; the oldest entries of the whole broker are evicted first. Readers of old
data cannot evict anything here. State changes only between awaits.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator

from millpond.reading.runs import Run

COMPACT_AFTER = 512
EVICTED = Run(0, 0, b"")


class Tail:
    """The contiguous newest runs of one partition."""

    __slots__ = ("_ends", "_head", "_runs")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._ends: list[int] = []
        self._head = 0

    @property
    def start(self) -> int | None:
        """The first offset held, or None if the tail is empty."""
        return self._runs[self._head].base_offset if self._head < len(self._runs) else None

    def push(self, run: Run) -> None:
        self._runs.append(run)
        self._ends.append(run.end_offset)

    def ends_at(self, offset: int) -> bool:
        return self._head == len(self._runs) or self._ends[-1] == offset

    def pop_oldest(self) -> None:
        self._runs[self._head] = EVICTED  # frees the memory immediately
        self._head += 1
        if self._head > COMPACT_AFTER and self._head * 2 > len(self._runs):
            del self._runs[: self._head], self._ends[: self._head]
            self._head = 0

    def runs_from(self, offset: int) -> Iterator[Run]:
        """Runs from the one that holds `offset` on. The caller has checked that the tail holds it."""
        for position in range(bisect_right(self._ends, offset, lo=self._head), len(self._runs)):
            yield self._runs[position]

    def drain(self) -> Iterator[Run]:
        yield from self._runs[self._head :]
        self._runs, self._ends, self._head = [], [], 0


class TailCache:
    """One byte budget for all tails."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._order: OrderedDict[Run, Tail] = OrderedDict()
        self.bytes = 0

    def push(self, tail: Tail, run: Run) -> None:
        if not tail.ends_at(run.base_offset):
            self.drop(tail)
        tail.push(run)
        self._order[run] = tail
        self.bytes += len(run.data)
        while self.bytes > self._bytes_max:
            self._evict_oldest()

    def drop(self, tail: Tail) -> None:
        """Drop a whole tail, because a hole follows, or its partition was compacted or is gone."""
        for run in tail.drain():
            del self._order[run]
            self.bytes -= len(run.data)

    def _evict_oldest(self) -> None:
        run, tail = self._order.popitem(last=False)
        tail.pop_oldest()
        self.bytes -= len(run.data)
