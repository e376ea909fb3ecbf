"""How many bytes of a broker's partitions ride in the catalog and wait to be merged into objects.

The catalog is not the place where data stays: past a bound flushes take the store's way until merging has caught up,
also when it cannot because the store is away. Appends add to the count; merging, which looks at the rows, sets it
right. Changes only between awaits.
"""

from typing import Final

from millpond.model.ids import TopicPartition

PRESSING: Final = 0.5
"""From this part of the bound on merging gives way to nobody."""


class InlineBytes:
    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max
        self._kept: dict[TopicPartition, int] = {}
        self.total = 0

    def has_room_for(self, size: int) -> bool:
        return self.total + size <= self._max

    @property
    def is_pressing(self) -> bool:
        return self.total > self._max * PRESSING

    def add(self, where: TopicPartition, size: int) -> None:
        self.found(where, self._kept.get(where, 0) + size)

    def found(self, where: TopicPartition, size: int) -> None:
        """So many are there, as its rows say."""
        self.total += size - self._kept.get(where, 0)
        self._kept[where] = size

    def forget(self, where: TopicPartition) -> None:
        """It is another broker's, or nobody's, by now."""
        self.total -= self._kept.pop(where, 0)
