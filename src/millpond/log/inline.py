"""Counts the bytes of this broker's partitions that are stored inline in the catalog and not yet merged into
objects.

Data does not stay in the catalog: above a limit, flushes go to the store until merging has caught up, even
while merging cannot run because the store is unavailable. Appends add to the count; merging reads the rows
and corrects it. State changes only between awaits.
"""

from typing import Final

from millpond.model.ids import TopicPartition

MERGE_AT_FRACTION: Final = 0.5
"""Above this fraction of the limit, merging runs even if the broker is busy."""


class InlineBytes:
    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max
        self._kept: dict[TopicPartition, int] = {}
        self.total = 0

    def has_room_for(self, size: int) -> bool:
        return self.total + size <= self._max

    @property
    def needs_merging(self) -> bool:
        return self.total > self._max * MERGE_AT_FRACTION

    def add(self, topic_partition: TopicPartition, size: int) -> None:
        self.found(topic_partition, self._kept.get(topic_partition, 0) + size)

    def found(self, topic_partition: TopicPartition, size: int) -> None:
        """Set the partition's count to the number of bytes found in its rows."""
        self.total += size - self._kept.get(topic_partition, 0)
        self._kept[topic_partition] = size

    def forget(self, topic_partition: TopicPartition) -> None:
        """This broker no longer owns the partition under the same epoch."""
        self.total -= self._kept.pop(topic_partition, 0)
