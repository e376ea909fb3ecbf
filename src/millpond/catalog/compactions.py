"""How far each partition has been compacted, and when: points (end offset, time), oldest first.

Everything below a point had been compacted by its time. The last point is where the next compaction finds its
first dirty record; a tombstone may go once the point above it is older than the topic's `delete.retention.ms`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from millpond.catalog.database import Transaction
from millpond.model.ids import TopicPartition

READ: Final = """
    SELECT end_offset, compacted_at FROM compactions WHERE topic_id = ? AND partition = ? ORDER BY end_offset
"""
CLEAR: Final = "DELETE FROM compactions WHERE topic_id = ? AND partition = ?"
ADD: Final = "INSERT INTO compactions (topic_id, partition, end_offset, compacted_at) VALUES (?, ?, ?, ?)"


class CompactionPoint(NamedTuple):
    """Everything below `end_offset` had been compacted at `compacted_at` (milliseconds)."""

    end_offset: int
    compacted_at: int


def read(tx: Transaction, where: TopicPartition) -> tuple[CompactionPoint, ...]:
    return tuple(CompactionPoint(*row) for row in tx.rows(READ, where))


def write(tx: Transaction, where: TopicPartition, points: Sequence[CompactionPoint]) -> None:
    tx.rows(CLEAR, where)
    tx.each(ADD, [(*where, *point) for point in points])
