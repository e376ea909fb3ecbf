"""Kafka's transactions, as rows.

An open transaction has a row for each partition it writes. A batch is appended only while its row is there
(`appends`), and ending the transaction takes the same partition locks, writes the markers, and removes the rows
in one commit: no batch can land behind its own marker. Lock order: coordinator shard, transaction, partitions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from millpond.catalog import groups, producers
from millpond.catalog.appends import FOREIGN, Placed, Share, append
from millpond.catalog.coordinators import shard_of
from millpond.catalog.database import Transaction
from millpond.model.errors import InvalidTransactionState, ProducerFenced, UnknownPartition
from millpond.model.ids import TopicId, TopicPartition
from millpond.records import MarkerKind, build_control_batch

PRODUCER_EPOCH_MAX: Final = 32_766
"""Kafka keeps 32,767 for fencing; past this a transactional id gets a new producer id."""

FIND: Final = """
    SELECT producer_id, producer_epoch, timeout_ms, state FROM transactions WHERE transactional_id = ?
"""
CREATE: Final = """
    INSERT INTO transactions (transactional_id, shard, producer_id, producer_epoch, timeout_ms, state, updated_at)
    VALUES (?, ?, ?, 0, ?, ?, ?)
"""
RENEW: Final = """
    UPDATE transactions SET producer_id = ?, producer_epoch = ?, timeout_ms = ?, state = ?, started_at = NULL,
      updated_at = ? WHERE transactional_id = ?
"""
OPEN: Final = """
    UPDATE transactions SET state = ?, started_at = coalesce(started_at, ?), updated_at = ?
    WHERE transactional_id = ? AND producer_id = ? AND producer_epoch = ? RETURNING producer_id
"""
ADD_PARTITION: Final = """
    INSERT INTO txn_partitions (topic_id, partition, producer_id, producer_epoch) VALUES (?, ?, ?, ?)
    ON CONFLICT (topic_id, partition, producer_id) DO UPDATE SET producer_epoch = excluded.producer_epoch
"""
PARTITION_EXISTS: Final = "SELECT 1 FROM partitions WHERE topic_id = ? AND partition = ?"
CLOSE: Final = """
    UPDATE transactions SET state = ?, ended_producer_id = producer_id, ended_epoch = producer_epoch,
      started_at = NULL, updated_at = ?
    WHERE transactional_id = ? AND producer_id = ? AND producer_epoch = ? AND state = ? RETURNING producer_id
"""
LAST_END: Final = """
    SELECT producer_id, producer_epoch, state, ended_producer_id, ended_epoch FROM transactions
    WHERE transactional_id = ?
"""
PARTITIONS: Final = """
    SELECT topic_id, partition, first_offset FROM txn_partitions WHERE producer_id = ? ORDER BY topic_id, partition
"""
FORGET_PARTITIONS: Final = "DELETE FROM txn_partitions WHERE producer_id = ?"
ADD_ABORTED: Final = """
    INSERT INTO aborted_txns (topic_id, partition, last_offset, first_offset, producer_id) VALUES (?, ?, ?, ?, ?)
"""
ADD_OFFSET: Final = """
    INSERT INTO txn_offsets (producer_id, group_id, topic_id, partition, committed_offset, leader_epoch, metadata)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (producer_id, group_id, topic_id, partition) DO UPDATE SET
      committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch,
      metadata = excluded.metadata
"""
PENDING_OFFSETS: Final = """
    SELECT group_id, topic_id, partition, committed_offset, leader_epoch, metadata FROM txn_offsets
    WHERE producer_id = ? ORDER BY group_id, topic_id, partition
"""
FORGET_OFFSETS: Final = "DELETE FROM txn_offsets WHERE producer_id = ?"
FIRST_OPEN: Final = "SELECT min(first_offset) FROM txn_partitions WHERE topic_id = ? AND partition = ?"
ABORTED: Final = """
    SELECT producer_id, first_offset, last_offset FROM aborted_txns
    WHERE topic_id = ? AND partition = ? AND last_offset >= ? AND first_offset < ? ORDER BY first_offset
"""
FORGET_ABORTED: Final = "DELETE FROM aborted_txns WHERE topic_id = ? AND partition = ? AND last_offset < ?"
EXPIRED: Final = """
    SELECT transactional_id, producer_id, producer_epoch FROM transactions
    WHERE state = 'Ongoing' AND started_at + timeout_ms < ? ORDER BY transactional_id
"""


class State(StrEnum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


@dataclass(frozen=True, slots=True)
class Producer:
    """A transactional id's current producer."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Aborted:
    producer_id: int
    first_offset: int
    last_offset: int


def begin_producer(tx: Transaction, transactional_id: str, timeout_ms: int, *, now_ms: int) -> Producer:
    """A new epoch for this transactional id; whatever its former holder left open is aborted."""
    found = tx.rows(FIND, (transactional_id,))
    if not found:
        producer_id = producers.take_ids(tx, 1)[0]
        shard = shard_of(transactional_id)
        tx.rows(CREATE, (transactional_id, shard, producer_id, timeout_ms, State.EMPTY, now_ms))
        return Producer(transactional_id, producer_id, 0)
    producer_id, epoch, _, state = found[0]
    if state == State.ONGOING:
        end(tx, Producer(transactional_id, producer_id, epoch), commit=False, bump_epoch=False, now_ms=now_ms)
    fresh = _next_epoch(tx, Producer(transactional_id, producer_id, epoch))
    tx.rows(RENEW, (fresh.producer_id, fresh.epoch, timeout_ms, State.EMPTY, now_ms, transactional_id))
    return fresh


def add_partitions(
    tx: Transaction, producer: Producer, wheres: Sequence[TopicPartition], *, now_ms: int
) -> None:
    _open(tx, producer, now_ms)
    for where, found in zip(wheres, tx.each(PARTITION_EXISTS, wheres), strict=True):
        if not found:
            raise UnknownPartition(topic=where.topic_id.hex(), partition=where.partition)
    tx.each(ADD_PARTITION, [(*where, producer.producer_id, producer.epoch) for where in wheres])


def add_offsets(
    tx: Transaction, producer: Producer, group_id: str, offsets: Sequence[groups.GroupOffset], *, now_ms: int
) -> None:
    """Offsets that become the group's when the transaction commits."""
    _open(tx, producer, now_ms)
    tx.each(
        ADD_OFFSET,
        [
            (producer.producer_id, group_id, *each.where, each.offset, each.leader_epoch, each.metadata)
            for each in offsets
        ],
    )


def end(
    tx: Transaction, producer: Producer, *, commit: bool, bump_epoch: bool, now_ms: int
) -> tuple[Producer, dict[TopicPartition, int]]:
    """Commit or abort: markers, aborted list, group offsets, and the open rows go, all at once. Returns the
    producer with its next epoch and each marker's offset. Repeating an end that took effect changes nothing."""
    done = State.COMMITTED if commit else State.ABORTED
    if not tx.rows(CLOSE, (done, now_ms, *_identity(producer), State.ONGOING)):
        return _already_ended(tx, producer, done), {}
    markers = _write_markers(tx, producer, commit, now_ms)
    if commit:
        _publish_offsets(tx, producer.producer_id, now_ms)
    tx.rows(FORGET_OFFSETS, (producer.producer_id,))
    tx.rows(FORGET_PARTITIONS, (producer.producer_id,))
    if not bump_epoch:
        return producer, markers
    fresh = _next_epoch(tx, producer)
    _rename(tx, producer, fresh)
    return fresh, markers


def last_stable_offset(tx: Transaction, where: TopicPartition, end_offset: int) -> int:
    first: int | None = tx.rows(FIRST_OPEN, where)[0][0]
    return end_offset if first is None else min(first, end_offset)


def aborted(tx: Transaction, where: TopicPartition, start: int, end_offset: int) -> list[Aborted]:
    """Aborted transactions that touch offsets from `start` up to `end_offset`."""
    return [Aborted(*row) for row in tx.rows(ABORTED, (*where, start, end_offset))]


def forget_aborted(tx: Transaction, where: TopicPartition, log_start: int) -> None:
    tx.rows(FORGET_ABORTED, (*where, log_start))


def timed_out(tx: Transaction, *, now_ms: int) -> list[Producer]:
    return [Producer(*row) for row in tx.rows(EXPIRED, (now_ms,))]


def _identity(producer: Producer) -> tuple[str, int, int]:
    return producer.transactional_id, producer.producer_id, producer.epoch


def _next_epoch(tx: Transaction, producer: Producer) -> Producer:
    if producer.epoch < PRODUCER_EPOCH_MAX:
        return Producer(producer.transactional_id, producer.producer_id, producer.epoch + 1)
    return Producer(producer.transactional_id, producers.take_ids(tx, 1)[0], 0)


def _open(tx: Transaction, producer: Producer, now_ms: int) -> None:
    if not tx.rows(OPEN, (State.ONGOING, now_ms, now_ms, *_identity(producer))):
        _fenced(tx, producer)


def _fenced(tx: Transaction, producer: Producer) -> None:
    found = tx.rows(FIND, (producer.transactional_id,))
    if not found or found[0][0] != producer.producer_id:
        raise InvalidTransactionState(producer_id=producer.producer_id)
    raise ProducerFenced(producer_id=producer.producer_id, epoch=producer.epoch, current=found[0][1])


def _already_ended(tx: Transaction, producer: Producer, done: State) -> Producer:
    """The answer to a repeated end. Who ended is compared exactly: a zombie of an earlier epoch, whose own
    transaction was aborted, must not take its successor's commit for its own."""
    found = tx.rows(LAST_END, (producer.transactional_id,))
    if not found:
        raise InvalidTransactionState(producer_id=producer.producer_id)
    producer_id, epoch, state, *ended = found[0]
    if state == done and ended == [producer.producer_id, producer.epoch]:
        return Producer(producer.transactional_id, producer_id, epoch)
    if epoch != producer.epoch:
        _fenced(tx, producer)
    raise InvalidTransactionState(producer_id=producer.producer_id)


def _rename(tx: Transaction, producer: Producer, fresh: Producer) -> None:
    bump = "UPDATE transactions SET producer_id = ?, producer_epoch = ? WHERE transactional_id = ?"
    tx.rows(bump, (fresh.producer_id, fresh.epoch, producer.transactional_id))


def _write_markers(
    tx: Transaction, producer: Producer, commit: bool, now_ms: int
) -> dict[TopicPartition, int]:
    wheres = list(_first_offsets(tx, producer))
    marker = build_control_batch(
        MarkerKind.COMMIT if commit else MarkerKind.ABORT, producer.producer_id, producer.epoch, now_ms
    )
    shares = [_marker_share(where, marker, now_ms) for where in wheres]
    offsets = {
        share.where: result.base_offset
        for share, result in zip(shares, append(tx, shares, None, now_ms=now_ms), strict=True)
        if isinstance(result, Placed)
    }
    if not commit:
        _list_aborted(tx, producer, offsets)
    return offsets


def _list_aborted(tx: Transaction, producer: Producer, markers: dict[TopicPartition, int]) -> None:
    """First offsets are read only now that the markers have locked the partitions: read before, the first
    batch of a flush under way would be missed, and its aborted records shown to readers."""
    firsts = _first_offsets(tx, producer).items()
    written = [(where, first) for where, first in firsts if first is not None and where in markers]
    tx.each(ADD_ABORTED, [(*where, markers[where], first, producer.producer_id) for where, first in written])


def _first_offsets(tx: Transaction, producer: Producer) -> dict[TopicPartition, int | None]:
    rows = tx.rows(PARTITIONS, (producer.producer_id,))
    return {TopicPartition(TopicId(bytes(row[0])), row[1]): row[2] for row in rows}


def _marker_share(where: TopicPartition, marker: bytes, now_ms: int) -> Share:
    return Share(where, FOREIGN, 0, len(marker), 1, now_ms, now_ms, inline=marker)


def _publish_offsets(tx: Transaction, producer_id: int, now_ms: int) -> None:
    by_group: dict[str, list[groups.GroupOffset]] = {}
    for group_id, topic_id, partition, offset, leader_epoch, metadata in tx.rows(
        PENDING_OFFSETS, (producer_id,)
    ):
        where = TopicPartition(TopicId(bytes(topic_id)), partition)
        by_group.setdefault(group_id, []).append(groups.GroupOffset(where, offset, leader_epoch, metadata))
    for group_id, offsets in by_group.items():
        groups.commit_offsets(tx, group_id, offsets, now_ms=now_ms)
