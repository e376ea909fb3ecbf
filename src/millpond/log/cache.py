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

    def find(self, topic_partition: TopicPartition, offset: int) -> Run | None:
        """The cached run that holds `offset`."""
        bases = self._bases.get(topic_partition)
        position = bisect_right(bases, offset) if bases else 0
        if not bases or position == 0:
            return None
        key = (topic_partition, bases[position - 1])
        run = self._runs[key]
        if offset >= run.end_offset:
            return None
        self._runs.move_to_end(key)
        return run

    def put(self, topic_partition: TopicPartition, run: Run) -> None:
        key = (topic_partition, run.base_offset)
        if len(run.data) > self._bytes_max:
            return
        self._remove(key)
        self._runs[key] = run
        insort(self._bases.setdefault(topic_partition, []), run.base_offset)
        self.bytes += len(run.data)
        while self.bytes > self._bytes_max:
            self._remove(next(iter(self._runs)))

    def forget(self, topic_partition: TopicPartition) -> None:
        for base in list(self._bases.get(topic_partition, ())):
            self._remove((topic_partition, base))

    def _remove(self, key: tuple[TopicPartition, int]) -> None:
        run = self._runs.pop(key, None)
        if run is None:
            return
        topic_partition, base = key
        self.bytes -= len(run.data)
        self._bases[topic_partition].remove(base)
        if not self._bases[topic_partition]:
            del self._bases[topic_partition]
