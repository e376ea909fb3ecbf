"""Appends a flush: the statements that assign offsets to bytes.

The order matters. The UPDATE that moves a partition's end locks its row first, in (topic id, partition)
order; for an owner the same statement compares its epoch. Transactions and producer sequences are checked
only after that, in separate statements: if they were checked before the lock, a late batch could be appended
behind its own transaction's marker. A refused share returns its offsets while its row is still locked, so no
reader sees a gap and the other shares of the flush are not affected.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from millpond.catalog import extents, objects, producers
from millpond.catalog.commits import decode_error, encode_error
from millpond.catalog.database import CatalogTransaction
from millpond.model.errors import (
    FlushFailed,
    InvalidTransactionState,
    MillpondError,
    NotOwner,
    OutOfOrderSequence,
    ProducerFenced,
    UnknownPartition,
)
from millpond.model.extents import LATE_MS, NO_APPEND_TIME
from millpond.model.ids import TopicPartition
from millpond.model.producers import ProducerState, SequencedBatch, check_sequence

EXTEND: Final = """
    UPDATE partitions SET end_offset = end_offset + ?, bytes = bytes + ?,
      high_timestamp = CASE WHEN high_timestamp < ? THEN ? ELSE high_timestamp END
    WHERE topic_id = ? AND partition = ? AND (epoch = ? OR ? < 0)
    RETURNING end_offset, epoch, log_start, high_timestamp
"""
RETURN_OFFSETS: Final = """
    UPDATE partitions SET end_offset = end_offset - ?, bytes = bytes - ?, high_timestamp = coalesce(
      (SELECT e.high_timestamp FROM extents e WHERE e.topic_id = partitions.topic_id
         AND e.partition = partitions.partition ORDER BY e.base_offset DESC LIMIT 1), -1)
    WHERE topic_id = ? AND partition = ?
"""
EXISTS: Final = "SELECT epoch FROM partitions WHERE topic_id = ? AND partition = ?"
TOUCH_TRANSACTION: Final = """
    UPDATE txn_partitions SET first_offset = coalesce(first_offset, ?)
    WHERE topic_id = ? AND partition = ? AND producer_id = ? AND producer_epoch = ?
"""
IN_TRANSACTION: Final = """
    SELECT 1 FROM txn_partitions WHERE topic_id = ? AND partition = ? AND producer_id = ? AND producer_epoch = ?
"""
FOREIGN: Final = -1
"""The epoch of a writer that is not the owner. Such a writer takes the row lock, and its `writers` row fences it."""


@dataclass(frozen=True, slots=True)
class AppendShare:
    """One partition's part of a flush. Offsets in `sequences` count from the start of the share."""

    topic_partition: TopicPartition
    epoch: int
    position: int
    length: int
    records: int
    min_timestamp: int
    max_timestamp: int
    sparse_index: bytes | None = None
    inline: bytes | bytearray | memoryview | None = None
    sequences: tuple[SequencedBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class AppendedShare:
    """The offset at which a share was appended."""

    base_offset: int
    epoch: int
    log_start: int


ShareResult = AppendedShare | MillpondError
_Extended = tuple[int, int, int, int]


def append(
    tx: CatalogTransaction,
    shares: Sequence[AppendShare],
    new_object: objects.NewObject | None,
    *,
    now_ms: int,
) -> list[ShareResult]:
    """Assign offsets to each share, or refuse it with an error. Results are in the order of `shares`. A partition
    appears at most once. `new_object` describes the object with the bytes; None if every share is inline."""
    ordered = sorted(shares, key=lambda share: share.topic_partition)
    extended = tx.each(EXTEND, [_extend_parameters(share) for share in ordered])
    placed: dict[TopicPartition, _Extended] = {}
    results: dict[TopicPartition, ShareResult] = {}
    for share, rows in zip(ordered, extended, strict=True):
        if rows:
            end, epoch, log_start, high = rows[0]
            placed[share.topic_partition] = (end, epoch, log_start, high)
            results[share.topic_partition] = AppendedShare(end - share.records, epoch, log_start)
        else:
            results[share.topic_partition] = _refusal(tx, share.topic_partition)
    locked = [share for share in ordered if share.topic_partition in placed]
    _check_producers(tx, locked, results, now_ms)
    accepted = [share for share in locked if isinstance(results[share.topic_partition], AppendedShare)]
    refused = [share for share in locked if not isinstance(results[share.topic_partition], AppendedShare)]
    tx.each(RETURN_OFFSETS, [(each.records, each.length, *each.topic_partition) for each in refused])
    _insert(tx, accepted, placed, new_object, now_ms)
    return [results[share.topic_partition] for share in shares]


def encode_results(results: Sequence[ShareResult]) -> Any:
    return [
        [each.base_offset, each.epoch, each.log_start]
        if isinstance(each, AppendedShare)
        else encode_error(each)
        for each in results
    ]


def decode_results(encoded: Any) -> list[ShareResult]:
    return [AppendedShare(*each) if isinstance(each[0], int) else decode_error(each) for each in encoded]


def _extend_parameters(share: AppendShare) -> tuple[int | bytes, ...]:
    newest = share.max_timestamp
    return (share.records, share.length, newest, newest, *share.topic_partition, share.epoch, share.epoch)


def _refusal(tx: CatalogTransaction, topic_partition: TopicPartition) -> MillpondError:
    if tx.rows(EXISTS, topic_partition):
        return NotOwner()
    return UnknownPartition(topic=topic_partition.topic_id.hex(), partition=topic_partition.partition)


def _check_producers(
    tx: CatalogTransaction,
    shares: Sequence[AppendShare],
    results: dict[TopicPartition, ShareResult],
    now_ms: int,
) -> None:
    sequenced = [share for share in shares if share.sequences]
    if not sequenced:
        return
    wanted = {(share.topic_partition, batch.producer_id) for share in sequenced for batch in share.sequences}
    known = producers.load_some(tx, sorted(wanted))
    changed: dict[tuple[TopicPartition, int], ProducerState] = {}
    for share in sequenced:
        placed = results[share.topic_partition]
        assert isinstance(placed, AppendedShare), "only placed shares are checked"
        try:
            changed.update(_next_producer_states(tx, share, placed.base_offset, known))
        except (OutOfOrderSequence, ProducerFenced) as error:
            results[share.topic_partition] = FlushFailed(f"The owner's view of a producer was stale. {error}")
        except InvalidTransactionState as error:
            results[share.topic_partition] = error
    producers.save(tx, changed, now_ms=now_ms)


def _next_producer_states(
    tx: CatalogTransaction,
    share: AppendShare,
    base_offset: int,
    known: dict[tuple[TopicPartition, int], ProducerState],
) -> dict[tuple[TopicPartition, int], ProducerState]:
    """The producers' states after this share. Raises if a batch is not the next one of its producer."""
    states: dict[tuple[TopicPartition, int], ProducerState] = {}
    for batch in share.sequences:
        key = (share.topic_partition, batch.producer_id)
        state = states.get(key) or known.get(key)
        if check_sequence(state, batch) is not None:
            raise OutOfOrderSequence(
                producer_id=batch.producer_id, sequence=batch.base_sequence, expected="a new batch"
            )
        placed = batch._replace(offset=base_offset + batch.offset)
        before = state or ProducerState(batch.producer_id, batch.producer_epoch)
        states[key] = before.after(placed)
    _touch_transactions(tx, share, base_offset)
    return states


def _touch_transactions(tx: CatalogTransaction, share: AppendShare, base_offset: int) -> None:
    """Record the first offsets of the share's transactions. Every transactional batch must belong to an open
    transaction; if one does not, nothing is recorded. Two statements are safe: ending a transaction needs the
    partition row, which this transaction has locked."""
    batches = [batch for batch in share.sequences if batch.transactional]
    keys = [(*share.topic_partition, batch.producer_id, batch.producer_epoch) for batch in batches]
    for batch, found in zip(batches, tx.each(IN_TRANSACTION, keys), strict=True):
        if not found:
            raise InvalidTransactionState(producer_id=batch.producer_id)
    firsts = [base_offset + batch.offset for batch in batches]
    tx.each(TOUCH_TRANSACTION, [(first, *key) for first, key in zip(firsts, keys, strict=True)])


def _insert(
    tx: CatalogTransaction,
    accepted: Sequence[AppendShare],
    placed: dict[TopicPartition, _Extended],
    new_object: objects.NewObject | None,
    now_ms: int,
) -> None:
    stored = sum(1 for share in accepted if share.inline is None)
    object_id = None
    if stored:
        assert new_object is not None, "bytes outside the catalog need an object"
        object_id = objects.add(tx, new_object, extents=stored, now_ms=now_ms)
    extents.insert(
        tx, [_extent(share, placed[share.topic_partition], object_id, now_ms) for share in accepted]
    )


def _extent(share: AppendShare, placed: _Extended, object_id: int | None, now_ms: int) -> extents.NewExtent:
    end, epoch, _, high = placed
    return extents.NewExtent(
        topic_partition=share.topic_partition,
        base_offset=end - share.records,
        end_offset=end,
        epoch=epoch,
        object_id=None if share.inline is not None else object_id,
        position=share.position,
        length=share.length,
        records=share.records,
        min_timestamp=share.min_timestamp,
        max_timestamp=share.max_timestamp,
        high_timestamp=high,
        stamped=False,
        sparse_index=share.sparse_index,
        inline=share.inline,
        appended_at=now_ms,
        late_at=now_ms if share.min_timestamp < now_ms - LATE_MS else NO_APPEND_TIME,
    )
