"""The read cache: runs that were read from the store for lagging readers. Evicts the least recently used run first.

Keyed by offset, not by object: the records at an offset are the same in every object that holds them. When a
partition is compacted, its cached runs are dropped. State changes only between awaits.
"""

from bisect import bisect_right, insort
from collections import OrderedDict

from millpond.model.ids import TopicPartition
from millpond.reading.runs import Run


class ReadCache:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._runs: OrderedDict[tuple[TopicPartition, int], Run] = OrderedDict()
        self._bases: dict[TopicPartition, list[int]] = {}
        self.bytes = 0

    def find(self, where: TopicPartition, offset: int) -> Run | None:
        """The cached run that holds `offset`."""
        bases = self._bases.get(where)
        position = bisect_right(bases, offset) if bases else 0
        if not bases or position == 0:
            return None
        key = (where, bases[position - 1])
        run = self._runs[key]
        if offset >= run.end_offset:
            return None
        self._runs.move_to_end(key)
        return run

    def put(self, where: TopicPartition, run: Run) -> None:
        key = (where, run.base_offset)
        if len(run.data) > self._bytes_max:
            return
        self._remove(key)
        self._runs[key] = run
        insort(self._bases.setdefault(where, []), run.base_offset)
        self.bytes += len(run.data)
        while self.bytes > self._bytes_max:
            self._remove(next(iter(self._runs)))

    def forget(self, where: TopicPartition) -> None:
        for base in list(self._bases.get(where, ())):
            self._remove((where, base))

    def _remove(self, key: tuple[TopicPartition, int]) -> None:
        run = self._runs.pop(key, None)
        if run is None:
            return
        where, base = key
        self.bytes -= len(run.data)
        self._bases[where].remove(base)
        if not self._bases[where]:
            del self._bases[where]
