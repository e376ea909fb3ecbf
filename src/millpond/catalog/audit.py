"""Queries for inspection only: they read whole tables and change nothing.

Each is one statement, hence one snapshot: a count and the rows it counts are consistent even while brokers run.
"""

from typing import Final, NamedTuple

from millpond.catalog.database import CatalogTransaction
from millpond.model.ids import Session, TopicId, TopicPartition

COUNT_EXTENTS: Final = "SELECT count(*) FROM extents WHERE topic_id = ?"
OBJECTS: Final = """
    SELECT o.key, o.session, o.bytes, o.extents, o.dead_since, coalesce(c.extents, 0) FROM objects o
    LEFT JOIN (SELECT object_id, count(*) AS extents FROM extents WHERE object_id IS NOT NULL GROUP BY object_id) c
      ON c.object_id = o.id
    ORDER BY o.key
"""
STORED_BYTES: Final = """
    SELECT p.bytes, coalesce((SELECT sum(e.length) FROM extents e
      WHERE e.topic_id = p.topic_id AND e.partition = p.partition), 0)
    FROM partitions p WHERE p.topic_id = ? AND p.partition = ?
"""
OPEN_TRANSACTIONS: Final = """
    SELECT t.producer_id, t.first_offset, p.log_start, p.end_offset FROM txn_partitions t
    JOIN partitions p ON p.topic_id = t.topic_id AND p.partition = t.partition
    WHERE t.topic_id = ? AND t.partition = ? AND t.first_offset IS NOT NULL
"""
NEWEST_OBJECT: Final = "SELECT max(created_at) FROM objects"


class ObjectCount(NamedTuple):
    """An object as the catalog knows it: `counted` is the extent count in its row, `actual` the number of
    extent rows."""

    key: str
    session: Session
    bytes: int
    counted: int
    dead_since: int | None
    actual: int


class OpenTransaction(NamedTuple):
    """The first offset of an open transaction in a partition, and the partition's bounds at that moment."""

    producer_id: int
    first_offset: int
    log_start: int
    end_offset: int


def count_extents(tx: CatalogTransaction, topic_id: TopicId) -> int:
    return int(tx.rows(COUNT_EXTENTS, (topic_id,))[0][0])


def objects(tx: CatalogTransaction) -> list[ObjectCount]:
    rows = tx.rows(OBJECTS)
    return [ObjectCount(key, Session(by), size, n, dead, actual) for key, by, size, n, dead, actual in rows]


def stored_bytes(tx: CatalogTransaction, topic_partition: TopicPartition) -> tuple[int, int]:
    """(bytes according to the partition's row, sum of the bytes of its extents)"""
    rows = tx.rows(STORED_BYTES, topic_partition)
    return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)


def open_transactions(tx: CatalogTransaction, topic_partition: TopicPartition) -> list[OpenTransaction]:
    return [OpenTransaction(*row) for row in tx.rows(OPEN_TRANSACTIONS, topic_partition)]


def newest_object_ms(tx: CatalogTransaction) -> int | None:
    """When the newest object was registered, according to its writer's clock."""
    found: int | None = tx.rows(NEWEST_OBJECT)[0][0]
    return found
