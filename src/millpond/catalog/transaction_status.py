"""What administrators see of producers and transactions. Every function only reads."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from millpond.catalog.database import CatalogTransaction, Row
from millpond.catalog.transactions import TransactionState
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.producers import unpack_batches

T = TypeVar("T")

KEYS_PER_STATEMENT: Final = 1_000
"""Maximum number of keys that are looked up at a time, so that the rows of a long list are not all in memory twice."""

PRODUCERS: Final = """
    SELECT p.producer_id, p.producer_epoch, p.last_batches, p.updated_at, t.first_offset FROM producers p
    LEFT JOIN txn_partitions t
      ON t.topic_id = p.topic_id AND t.partition = p.partition AND t.producer_id = p.producer_id
    WHERE p.topic_id = ? AND p.partition = ? ORDER BY p.producer_id
"""
COLUMNS: Final = """
    SELECT transactional_id, producer_id, producer_epoch, state, timeout_ms, started_at FROM transactions
"""
ALL: Final = f"{COLUMNS} ORDER BY transactional_id"
ONE: Final = f"{COLUMNS} WHERE transactional_id = ?"
PARTITIONS: Final = """
    SELECT topic_id, partition FROM txn_partitions WHERE producer_id = ? ORDER BY topic_id, partition
"""


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that a partition remembers. `last_sequence` is None after a marker has raised its epoch, and
    `first_offset` is None unless it has written to the partition in a transaction that is still open."""

    producer_id: int
    epoch: int
    last_sequence: int | None
    last_timestamp: int
    first_offset: int | None


@dataclass(frozen=True, slots=True)
class TransactionStatus:
    """A transactional id. `started_at` is None unless its transaction is open."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: TransactionState
    timeout_ms: int
    started_at: int | None


@dataclass(frozen=True, slots=True)
class FoundTransaction:
    status: TransactionStatus
    partitions: Sequence[TopicPartition]
    """Empty unless the transaction is open."""


def active_producers(
    tx: CatalogTransaction, topic_partitions: Sequence[TopicPartition]
) -> list[list[ActiveProducer]]:
    """In the order of the partitions."""
    return [
        [_producer(row) for row in rows]
        for keys in _in_pieces(topic_partitions)
        for rows in tx.each(PRODUCERS, keys)
    ]


def list_transactions(tx: CatalogTransaction) -> list[TransactionStatus]:
    """All transactional ids, of every coordinator."""
    return [_status(row) for row in tx.rows(ALL)]


def describe_transactions(
    tx: CatalogTransaction, transactional_ids: Sequence[str]
) -> dict[str, FoundTransaction]:
    """The transactional ids that exist, with the partitions of their open transactions."""
    found = find_transactions(tx, transactional_ids)
    is_open = [each.producer_id for each in found.values() if each.state is TransactionState.ONGOING]
    partitions = partitions_of_open(tx, is_open)
    return {
        name: FoundTransaction(each, partitions.get(each.producer_id, [])) for name, each in found.items()
    }


def find_transactions(
    tx: CatalogTransaction, transactional_ids: Sequence[str]
) -> dict[str, TransactionStatus]:
    """The ones that exist."""
    rows = (
        rows
        for keys in _in_pieces(transactional_ids)
        for rows in tx.each(ONE, [(transactional_id,) for transactional_id in keys])
    )
    return {found[0][0]: _status(found[0]) for found in rows if found}


def partitions_of_open(
    tx: CatalogTransaction, producer_ids: Collection[int]
) -> dict[int, list[TopicPartition]]:
    """The partitions of the open transactions of these producers."""
    found = tx.each(PARTITIONS, [(producer_id,) for producer_id in producer_ids])
    return {
        producer_id: [TopicPartition(TopicId(bytes(topic_id)), partition) for topic_id, partition in rows]
        for producer_id, rows in zip(producer_ids, found, strict=True)
    }


def _in_pieces(keys: Sequence[T]) -> Iterable[Sequence[T]]:
    return (keys[start : start + KEYS_PER_STATEMENT] for start in range(0, len(keys), KEYS_PER_STATEMENT))


def _producer(row: Row) -> ActiveProducer:
    producer_id, epoch, packed, updated_at, first_offset = row
    batches = unpack_batches(bytes(packed))
    if not batches:
        return ActiveProducer(producer_id, epoch, None, updated_at, first_offset)
    return ActiveProducer(producer_id, epoch, batches[-1].last_sequence, batches[-1].timestamp, first_offset)


def _status(row: Row) -> TransactionStatus:
    transactional_id, producer_id, epoch, state, timeout_ms, started_at = row
    return TransactionStatus(
        transactional_id, producer_id, epoch, TransactionState(state), timeout_ms, started_at
    )
