"""The read cache: runs that were read from the store for lagging readers.

Keyed by offset, not by object: the records at an offset are the same in every object that holds them. When a
partition is compacted, its cached runs are dropped.

Runs that were read together are parts of one memory, which stays as long as one of them does. So its whole size counts,
and they are evicted together: those of the least recently used memory first. State changes only between awaits.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from dataclasses import dataclass, field

from millpond.model.ids import TopicPartition
from millpond.reading.runs import Run

CacheKey = tuple[TopicPartition, int]
"""The partition and the base offset of a run."""


@dataclass(slots=True)
class _Memory:
    size: int
    runs: dict[CacheKey, Run] = field(default_factory=dict)


class ReadCache:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._memories: OrderedDict[int, _Memory] = OrderedDict()
        self._of_runs: dict[CacheKey, int] = {}
        """The memory of each run, by its id: a run keeps its memory alive, so no other one gets that id."""
        self._bases: dict[TopicPartition, list[int]] = {}
        self.bytes = 0

    def find(self, topic_partition: TopicPartition, offset: int) -> Run | None:
        """The cached run that holds `offset`."""
        bases = self._bases.get(topic_partition)
        position = bisect_right(bases, offset) if bases else 0
        if not bases or position == 0:
            return None
        key = (topic_partition, bases[position - 1])
        memory = self._of_runs[key]
        run = self._memories[memory].runs[key]
        if offset >= run.end_offset:
            return None
        self._memories.move_to_end(memory)
        return run

    def put(self, topic_partition: TopicPartition, run: Run) -> None:
        key = (topic_partition, run.base_offset)
        whole = memoryview(run.data).obj
        size = memoryview(whole).nbytes
        if size > self._bytes_max:
            return
        self._remove(key)
        memory = self._memories.get(id(whole))
        if memory is None:
            memory = self._memories[id(whole)] = _Memory(size)
            self.bytes += size
        memory.runs[key] = run
        self._of_runs[key] = id(whole)
        self._memories.move_to_end(id(whole))
        insort(self._bases.setdefault(topic_partition, []), run.base_offset)
        while self.bytes > self._bytes_max:
            for each in list(next(iter(self._memories.values())).runs):
                self._remove(each)

    def forget(self, topic_partition: TopicPartition) -> None:
        for base in list(self._bases.get(topic_partition, ())):
            self._remove((topic_partition, base))

    def _remove(self, key: CacheKey) -> None:
        number = self._of_runs.pop(key, None)
        if number is None:
            return
        memory = self._memories[number]
        del memory.runs[key]
        if not memory.runs:
            del self._memories[number]
            self.bytes -= memory.size
        topic_partition, base = key
        self._bases[topic_partition].remove(base)
        if not self._bases[topic_partition]:
            del self._bases[topic_partition]
