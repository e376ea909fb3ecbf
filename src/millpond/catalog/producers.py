"""What each partition stores of its idempotent producers, and the allocation of producer ids in blocks."""

from collections.abc import Iterable
from typing import Final

from millpond.catalog.database import CatalogTransaction, Row
from millpond.model.ids import TopicPartition
from millpond.model.producers import ProducerState, pack_batches, unpack_batches

COLUMNS: Final = "SELECT producer_id, producer_epoch, last_batches FROM producers"
ALL: Final = f"{COLUMNS} WHERE topic_id = ? AND partition = ?"
ONE: Final = f"{COLUMNS} WHERE topic_id = ? AND partition = ? AND producer_id = ?"
SAVE: Final = """
    INSERT INTO producers (topic_id, partition, producer_id, producer_epoch, last_batches, updated_at)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (topic_id, partition, producer_id) DO UPDATE SET producer_epoch = excluded.producer_epoch,
      last_batches = excluded.last_batches, updated_at = excluded.updated_at
"""
RAISE: Final = """
    INSERT INTO producers (topic_id, partition, producer_id, producer_epoch, last_batches, updated_at)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (topic_id, partition, producer_id) DO UPDATE SET producer_epoch = excluded.producer_epoch,
      last_batches = excluded.last_batches, updated_at = excluded.updated_at
    WHERE producers.producer_epoch < excluded.producer_epoch
"""
EXPIRE: Final = """
    DELETE FROM producers WHERE updated_at < ? AND NOT EXISTS
      (SELECT 1 FROM txn_partitions t WHERE t.topic_id = producers.topic_id
        AND t.partition = producers.partition AND t.producer_id = producers.producer_id)
    RETURNING topic_id, partition
"""
TAKE_IDS: Final = "UPDATE counters SET next = next + ? WHERE name = 'producer_id' RETURNING next"


def load(tx: CatalogTransaction, topic_partition: TopicPartition) -> dict[int, ProducerState]:
    states = (_state(row) for row in tx.rows(ALL, topic_partition))
    return {state.producer_id: state for state in states}


def load_some(
    tx: CatalogTransaction, wanted: Iterable[tuple[TopicPartition, int]]
) -> dict[tuple[TopicPartition, int], ProducerState]:
    keys = list(wanted)
    found = tx.each(ONE, [(*topic_partition, producer_id) for topic_partition, producer_id in keys])
    return {key: _state(rows[0]) for key, rows in zip(keys, found, strict=True) if rows}


def save(
    tx: CatalogTransaction, states: dict[tuple[TopicPartition, int], ProducerState], *, now_ms: int
) -> None:
    tx.each(
        SAVE,
        [
            (*topic_partition, producer_id, state.epoch, pack_batches(state.batches), now_ms)
            for (topic_partition, producer_id), state in states.items()
        ],
    )


def raise_epochs(
    tx: CatalogTransaction,
    topic_partitions: Iterable[TopicPartition],
    producer_id: int,
    epoch: int,
    *,
    now_ms: int,
) -> None:
    """A marker with a higher epoch fences producers that still send under a lower one. The next sequence is 0."""
    none = pack_batches(())
    tx.each(
        RAISE, [(*topic_partition, producer_id, epoch, none, now_ms) for topic_partition in topic_partitions]
    )


def expire(tx: CatalogTransaction, *, unused_since_ms: int) -> int:
    return len(tx.rows(EXPIRE, (unused_since_ms,)))


def take_ids(tx: CatalogTransaction, count: int) -> range:
    """Allocate a block of producer ids; no other caller gets them."""
    end: int = tx.rows(TAKE_IDS, (count,))[0][0]
    return range(end - count, end)


def _state(row: Row) -> ProducerState:
    producer_id, epoch, packed = row
    return ProducerState(producer_id, epoch, unpack_batches(bytes(packed)))
