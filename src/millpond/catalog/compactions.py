"""How far each partition has been compacted, and when: points (end offset, time), oldest first.

Everything below a point had been compacted by its time. The next compaction finds its first dirty record at the last
point. A tombstone may be removed once the point above it is older than the topic's `delete.retention.ms`. Points
below which no tombstone is left are merged into one, with the time `TOMBSTONES_REMOVED`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from millpond.catalog.database import CatalogTransaction
from millpond.model.ids import TopicId, TopicPartition

TOMBSTONES_REMOVED: Final = 0
"""The time of a point below which no tombstone is left."""
POINTS_PER_RETENTION: Final = 32
"""How finely tombstones are distinguished by age: they stay up to a thirty-second of `delete.retention.ms`
longer."""

READ: Final = """
    SELECT end_offset, compacted_at FROM compactions WHERE topic_id = ? AND partition = ? ORDER BY end_offset
"""
CLEAR: Final = "DELETE FROM compactions WHERE topic_id = ? AND partition = ?"
ADD: Final = "INSERT INTO compactions (topic_id, partition, end_offset, compacted_at) VALUES (?, ?, ?, ?)"
MARKS: Final = """
    SELECT c.topic_id, c.partition, max(c.end_offset), sum(c.compacted_at)
    FROM compactions c JOIN partitions p ON p.topic_id = c.topic_id AND p.partition = c.partition
    WHERE p.owner = ? GROUP BY c.topic_id, c.partition
"""


class CompactionPoint(NamedTuple):
    """Everything below `end_offset` had been compacted at `compacted_at` (milliseconds)."""

    end_offset: int
    compacted_at: int


def read(tx: CatalogTransaction, topic_partition: TopicPartition) -> tuple[CompactionPoint, ...]:
    return tuple(CompactionPoint(*row) for row in tx.rows(READ, topic_partition))


def marks(tx: CatalogTransaction, owner: str) -> dict[TopicPartition, tuple[int, int]]:
    """For each compacted partition of an owner, a value that changes with each compaction."""
    rows = tx.rows(MARKS, (owner,))
    return {TopicPartition(TopicId(bytes(row[0])), row[1]): (row[2], int(row[3])) for row in rows}


def write(tx: CatalogTransaction, topic_partition: TopicPartition, points: Sequence[CompactionPoint]) -> None:
    """Replace the partition's points. The caller holds the partition's row."""
    tx.rows(CLEAR, topic_partition)
    tx.each(ADD, [(*topic_partition, *point) for point in points])


def thinned(points: Sequence[CompactionPoint], delete_retention_ms: int) -> list[CompactionPoint]:
    """Drop points, so that they do not accumulate however often a log is compacted. Dropping a point is
    always safe: tombstones below it wait for the next point."""
    apart_ms = delete_retention_ms // POINTS_PER_RETENTION
    kept: list[CompactionPoint] = []
    for point in points:
        if len(kept) > 1 and kept[-1].compacted_at - kept[-2].compacted_at < apart_ms:
            kept.pop()
        kept.append(point)
    return kept
