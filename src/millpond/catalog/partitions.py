"""The append row of each partition: its owner, and where its log starts and ends."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from millpond.catalog.database import CatalogTransaction, Row
from millpond.model.errors import OffsetOutOfRange, UnknownPartition
from millpond.model.ids import TopicId, TopicPartition

COLUMNS: Final = """
    SELECT topic_id, partition, owner, epoch, log_start, end_offset, bytes, high_timestamp FROM partitions
"""
ONE: Final = f"{COLUMNS} WHERE topic_id = ? AND partition = ?"
OWNED: Final = f"{COLUMNS} WHERE owner = ? ORDER BY topic_id, partition"
OF_TOPIC: Final = f"{COLUMNS} WHERE topic_id = ? ORDER BY partition"
MOVED: Final = "moved = (SELECT next FROM counters WHERE name = 'topology')"
"""The current version of the topology. A change of owner raises it in the same transaction."""
CLAIM_ALL: Final = f"""
    UPDATE partitions SET owner = ?, epoch = epoch + 1, {MOVED} WHERE owner IS NULL OR owner <> ? RETURNING partition
"""  # noqa: S608  # our own text
CLAIM: Final = f"""
    UPDATE partitions SET owner = ?, epoch = epoch + 1, {MOVED} WHERE topic_id = ? AND partition = ? RETURNING epoch
"""  # noqa: S608  # our own text
STORED: Final = """
    SELECT t.id, t.name, sum(p.bytes) FROM topics t JOIN partitions p ON p.topic_id = t.id
    WHERE t.deleted_at IS NULL GROUP BY t.id, t.name ORDER BY t.name
"""
ADVANCE: Final = """
    UPDATE partitions SET log_start = ? WHERE topic_id = ? AND partition = ? AND log_start < ? AND end_offset >= ?
    RETURNING log_start
"""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    topic_partition: TopicPartition
    owner: str | None
    epoch: int
    log_start: int
    end_offset: int
    bytes: int
    high_timestamp: int


def read(tx: CatalogTransaction, topic_partition: TopicPartition) -> PartitionRow:
    found = tx.rows(ONE, topic_partition)
    if not found:
        raise UnknownPartition(topic=topic_partition.topic_id.hex(), partition=topic_partition.partition)
    return _row(found[0])


def owned_by(tx: CatalogTransaction, owner: str) -> list[PartitionRow]:
    return [_row(row) for row in tx.rows(OWNED, (owner,))]


def of_topic(tx: CatalogTransaction, topic_id: TopicId) -> list[PartitionRow]:
    return [_row(row) for row in tx.rows(OF_TOPIC, (topic_id,))]


class StoredTopic(NamedTuple):
    id: TopicId
    name: str
    bytes: int


def stored_bytes(tx: CatalogTransaction) -> list[StoredTopic]:
    """The bytes of all partitions of each topic, ordered by name."""
    return [StoredTopic(TopicId(bytes(row[0])), row[1], int(row[2])) for row in tx.rows(STORED)]


def claim_all(tx: CatalogTransaction, owner: str) -> int:
    """Take every partition and raise its epoch, so that its former owner can no longer commit there."""
    return len(tx.rows(CLAIM_ALL, (owner, owner)))


def claim(tx: CatalogTransaction, topic_partition: TopicPartition, owner: str) -> int:
    found = tx.rows(CLAIM, (owner, *topic_partition))
    if not found:
        raise UnknownPartition(topic=topic_partition.topic_id.hex(), partition=topic_partition.partition)
    epoch: int = found[0][0]
    return epoch


def advance_log_start(tx: CatalogTransaction, topic_partition: TopicPartition, offset: int) -> int:
    """Remove everything below `offset` from the log; the log start never goes back. Returns the resulting log
    start."""
    if tx.rows(ADVANCE, (offset, *topic_partition, offset, offset)):
        return offset
    row = read(tx, topic_partition)
    if offset > row.end_offset:
        raise OffsetOutOfRange(offset=offset, log_start=row.log_start, end_offset=row.end_offset)
    return row.log_start


def _row(row: Row) -> PartitionRow:
    topic_id, partition, owner, epoch, log_start, end_offset, size, high = row
    return PartitionRow(
        TopicPartition(TopicId(bytes(topic_id)), partition), owner, epoch, log_start, end_offset, size, high
    )
