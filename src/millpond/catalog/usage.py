"""How much each topic holds, and how far its readers are behind. One query each, over the partitions of one owner."""

from typing import Final

from millpond.catalog.database import CatalogTransaction
from millpond.model.usage import ReaderLag, TopicUsage, Usage

TOPICS: Final = """
    SELECT t.name, count(*), sum(p.end_offset - p.log_start), sum(p.end_offset), sum(p.bytes)
    FROM partitions p JOIN topics t ON t.id = p.topic_id
    WHERE p.owner = ? AND t.deleted_at IS NULL GROUP BY t.name ORDER BY t.name
"""
GROUPS: Final = """
    SELECT o.group_id, t.name, sum(
      CASE WHEN o.committed_offset >= p.end_offset THEN 0
        WHEN o.committed_offset < p.log_start THEN p.end_offset - p.log_start
        ELSE p.end_offset - o.committed_offset END)
    FROM group_offsets o
      JOIN partitions p ON p.topic_id = o.topic_id AND p.partition = o.partition
      JOIN topics t ON t.id = o.topic_id
    WHERE p.owner = ? AND t.deleted_at IS NULL GROUP BY o.group_id, t.name ORDER BY o.group_id, t.name
"""
SUBSCRIPTIONS: Final = """
    SELECT s.name, t.name, sum(
      CASE WHEN f.floor >= p.end_offset THEN 0
        WHEN f.floor > p.log_start THEN p.end_offset - f.floor
        ELSE p.end_offset - p.log_start END)
    FROM subscriptions s
      JOIN topics t ON t.id = s.topic_id
      JOIN partitions p ON p.topic_id = s.topic_id
      LEFT JOIN subscription_state f ON f.subscription_id = s.id AND f.partition = p.partition
    WHERE p.owner = ? AND t.deleted_at IS NULL GROUP BY s.name, t.name ORDER BY s.name, t.name
"""
"""A partition that no consumer has read yet has no state."""


def of_owner(tx: CatalogTransaction, owner: str) -> Usage:
    return Usage(
        [TopicUsage(row[0], *map(int, row[1:])) for row in tx.rows(TOPICS, (owner,))],
        [_lag(row) for row in tx.rows(GROUPS, (owner,))],
        [_lag(row) for row in tx.rows(SUBSCRIPTIONS, (owner,))],
    )


def _lag(row: tuple[str, str, int]) -> ReaderLag:
    return ReaderLag(row[0], row[1], int(row[2]))
