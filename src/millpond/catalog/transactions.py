"""Kafka's transactions, as rows.

An open transaction has a row for each partition it writes. A batch is appended only while its row exists
(`appends`). Ending the transaction takes the same partition locks, writes the markers and removes the rows in
one commit, so no batch can be appended behind its own marker.

An end that takes the epoch from its holder (a timeout, a new instance, an epoch bump by the holder itself)
takes it on the partitions too: the markers carry the new epoch, as Kafka's do, and raise the epoch that the
partition stores for the producer. Lock order: coordinator shard, transaction, partitions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from millpond.catalog import groups, producers
from millpond.catalog.appends import FOREIGN, AppendedShare, AppendShare, append
from millpond.catalog.commits import Json
from millpond.catalog.coordinators import shard_of
from millpond.catalog.database import CatalogTransaction
from millpond.model.errors import (
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    UnknownPartition,
)
from millpond.model.ids import TopicId, TopicPartition
from millpond.records import MarkerKind, build_control_batch

PRODUCER_EPOCH_MAX: Final = 32_766
"""Kafka reserves 32,767 for the marker that fences. Beyond this epoch a transactional id gets a new producer id."""

NEVER_MS: Final = 2**62

FIND: Final = """
    SELECT producer_id, producer_epoch, state, ended_producer_id, ended_epoch FROM transactions
    WHERE transactional_id = ?
"""
CREATE: Final = """
    INSERT INTO transactions (transactional_id, shard, producer_id, producer_epoch, timeout_ms, state, updated_at)
    VALUES (?, ?, ?, 0, ?, ?, ?)
"""
RENEW: Final = """
    UPDATE transactions SET producer_id = ?, producer_epoch = ?, timeout_ms = ?, state = ?, started_at = NULL,
      ended_producer_id = ?, ended_epoch = ?, updated_at = ? WHERE transactional_id = ?
"""
OPEN: Final = """
    UPDATE transactions SET state = ?, started_at = coalesce(started_at, ?), updated_at = ?
    WHERE transactional_id = ? AND producer_id = ? AND producer_epoch = ? RETURNING producer_id
"""
TOUCH: Final = """
    UPDATE transactions SET updated_at = ?
    WHERE transactional_id = ? AND producer_id = ? AND producer_epoch = ? AND state = ? RETURNING producer_id
"""
ADD_PARTITION: Final = """
    INSERT INTO txn_partitions (topic_id, partition, producer_id, producer_epoch) VALUES (?, ?, ?, ?)
    ON CONFLICT (topic_id, partition, producer_id) DO UPDATE SET producer_epoch = excluded.producer_epoch
"""
PARTITION_EXISTS: Final = "SELECT 1 FROM partitions WHERE topic_id = ? AND partition = ?"
CLOSE: Final = """
    UPDATE transactions SET producer_id = ?, producer_epoch = ?, state = ?, ended_producer_id = ?,
      ended_epoch = ?, started_at = NULL, updated_at = ?
    WHERE transactional_id = ? AND producer_id = ? AND producer_epoch = ? AND state = ?
      AND coalesce(started_at, 0) + timeout_ms < ? RETURNING producer_id
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
OPEN_AT_END: Final = """
    SELECT p.end_offset, t.producer_id, t.producer_epoch, t.first_offset FROM partitions p
    LEFT JOIN txn_partitions t ON t.topic_id = p.topic_id AND t.partition = p.partition
    WHERE p.topic_id = ? AND p.partition = ?
"""
ABORTED: Final = """
    SELECT producer_id, first_offset, last_offset FROM aborted_txns
    WHERE topic_id = ? AND partition = ? AND last_offset >= ? AND first_offset < ? ORDER BY first_offset
"""
NEWEST_ABORTED: Final = """
    SELECT producer_id, first_offset, last_offset FROM aborted_txns
    WHERE topic_id = ? AND partition = ? ORDER BY last_offset DESC LIMIT ?
"""
FORGET_ABORTED: Final = "DELETE FROM aborted_txns WHERE topic_id = ? AND partition = ? AND last_offset < ?"
TIMED_OUT: Final = """
    SELECT transactional_id, producer_id, producer_epoch FROM transactions
    WHERE state = 'Ongoing' AND started_at + timeout_ms < ? ORDER BY transactional_id
"""
UNUSED: Final = """
    SELECT transactional_id FROM transactions WHERE state <> 'Ongoing' AND updated_at < ? ORDER BY transactional_id
"""
FORGET: Final = """
    DELETE FROM transactions WHERE transactional_id = ? AND state <> 'Ongoing' AND updated_at < ?
    RETURNING producer_id
"""


class TransactionState(StrEnum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


class ProducerEpoch(NamedTuple):
    """Distinguishes one holder of a transactional id from the next."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """A transactional id and its current holder."""

    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def identity(self) -> ProducerEpoch:
        return ProducerEpoch(self.producer_id, self.epoch)


@dataclass(frozen=True, slots=True)
class Aborted:
    producer_id: int
    first_offset: int
    last_offset: int


class PartitionMarker(NamedTuple):
    """A marker in one partition. `first_offset` is the first offset that it aborts; None if the transaction
    wrote nothing there, or if the marker commits."""

    topic_partition: TopicPartition
    offset: int
    leader_epoch: int
    first_offset: int | None


@dataclass(frozen=True, slots=True)
class Markers:
    """All markers of one end; they differ only in partition and offset. If they `fence`, their epoch is a new
    one."""

    kind: MarkerKind
    producer_id: int
    epoch: int
    fence: bool
    timestamp: int
    partition_markers: tuple[PartitionMarker, ...] = ()

    def data(self) -> bytes:
        return build_control_batch(self.kind, self.producer_id, self.epoch, self.timestamp)


@dataclass(frozen=True, slots=True)
class Transition:
    """The result of a step: the producer to continue with, and the markers that the step wrote."""

    producer: TransactionalProducer
    markers: Markers | None = None


@dataclass(frozen=True, slots=True)
class PartitionTransactions:
    """A partition's transactions at the moment when its log ended at `end_offset`. `open` maps each producer
    id to its epoch and first offset. `aborted` is ordered by marker, and is complete for markers from
    `aborted_from` on."""

    end_offset: int
    open: Mapping[int, tuple[int, int | None]]
    aborted: Sequence[Aborted]
    aborted_from: int


class _Row(NamedTuple):
    producer_id: int
    epoch: int
    state: str
    ended_producer_id: int | None
    ended_epoch: int | None

    @property
    def identity(self) -> ProducerEpoch:
        return ProducerEpoch(self.producer_id, self.epoch)

    @property
    def former(self) -> tuple[int | None, int | None]:
        """The holder that last asked to continue under another epoch, or ended its transaction. A holder that
        was fenced is not recorded."""
        return self.ended_producer_id, self.ended_epoch


# -- steps ----------------------------------------------------------------------------------------------------


def begin_producer(
    tx: CatalogTransaction,
    transactional_id: str,
    timeout_ms: int,
    *,
    now_ms: int,
    known: ProducerEpoch | None = None,
) -> Transition:
    """Assign a new epoch to this transactional id and abort the transaction that its former holder left open.

    `known` is the caller's identity, if it has held the id before (KIP-360). The caller continues only if no
    other producer has taken the id since. If the caller repeats the request because the response was lost, it
    gets the same response.
    """
    row = _find(tx, transactional_id)
    if row is None:
        return Transition(_create(tx, transactional_id, timeout_ms, now_ms))
    if known is not None and known != row.identity:
        if known != row.former:
            raise ProducerFenced(producer_id=known.producer_id, epoch=known.epoch, current=row.epoch)
        return Transition(TransactionalProducer(transactional_id, *row.identity))
    current = TransactionalProducer(transactional_id, *row.identity)
    fresh = _next_epoch(tx, current)
    former = (None, None) if known is None else known
    renewed = (*fresh.identity, timeout_ms, TransactionState.EMPTY, *former, now_ms)
    tx.rows(RENEW, (*renewed, transactional_id))
    if row.state != TransactionState.ONGOING:
        return Transition(fresh)
    return Transition(fresh, _finish(tx, current, commit=False, fence=True, now_ms=now_ms))


def add_partitions(
    tx: CatalogTransaction,
    producer: TransactionalProducer,
    topic_partitions: Sequence[TopicPartition],
    *,
    now_ms: int,
) -> None:
    open_transaction(tx, producer, now_ms=now_ms)
    for topic_partition, found in zip(
        topic_partitions, tx.each(PARTITION_EXISTS, topic_partitions), strict=True
    ):
        if not found:
            raise UnknownPartition(topic=topic_partition.topic_id.hex(), partition=topic_partition.partition)
    tx.each(ADD_PARTITION, [(*topic_partition, *producer.identity) for topic_partition in topic_partitions])


def open_transaction(tx: CatalogTransaction, producer: TransactionalProducer, *, now_ms: int) -> None:
    """Open the transaction if it is not open yet."""
    if not tx.rows(
        OPEN, (TransactionState.ONGOING, now_ms, now_ms, producer.transactional_id, *producer.identity)
    ):
        _check_holder(tx, producer)


def add_offsets(
    tx: CatalogTransaction,
    producer: TransactionalProducer,
    group_id: str,
    offsets: Sequence[groups.GroupOffset],
    *,
    now_ms: int,
    opens: bool = False,
) -> None:
    """Add offsets that become the group's when the transaction commits. Only a client whose epoch changes
    with each transaction may open one this way. From any other client, this may be a late request for a
    transaction that has ended."""
    if opens:
        open_transaction(tx, producer, now_ms=now_ms)
    elif not tx.rows(
        TOUCH, (now_ms, producer.transactional_id, *producer.identity, TransactionState.ONGOING)
    ):
        _check_holder(tx, producer)
        raise InvalidTransactionState(producer_id=producer.producer_id)
    tx.each(
        ADD_OFFSET,
        [
            (
                producer.producer_id,
                group_id,
                *each.topic_partition,
                each.offset,
                each.leader_epoch,
                each.metadata,
            )
            for each in offsets
        ],
    )


def end(
    tx: CatalogTransaction, producer: TransactionalProducer, *, commit: bool, bump_epoch: bool, now_ms: int
) -> Transition:
    """Commit or abort. One commit writes the markers, the aborted list and the group offsets, and removes the
    open rows. Repeating an end that took effect changes nothing and returns the same result."""
    done = TransactionState.COMMITTED if commit else TransactionState.ABORTED
    fresh = _next_epoch(tx, producer) if bump_epoch else producer
    if _close(tx, producer, fresh, done, now_ms=now_ms, former=producer.identity):
        return Transition(fresh, _finish(tx, producer, commit=commit, fence=bump_epoch, now_ms=now_ms))
    row = _find(tx, producer.transactional_id)
    if row is not None and _is_repeated(row, producer, done, bump_epoch):
        return Transition(TransactionalProducer(producer.transactional_id, *row.identity))
    state = _check_holder(tx, producer).state
    if commit or not bump_epoch:
        raise InvalidTransactionState(producer_id=producer.producer_id)
    # KIP-890: a client cannot tell whether its transaction was opened, so it may abort one that was never opened.
    _close(tx, producer, fresh, done, now_ms=now_ms, former=producer.identity, state=state)
    return Transition(fresh)


def abort_timed_out(
    tx: CatalogTransaction, producer: TransactionalProducer, *, now_ms: int
) -> Transition | None:
    """Abort a transaction if it is still the one that was found, and still timed out. This fences its holder."""
    fresh = _next_epoch(tx, producer)
    if not _close(
        tx, producer, fresh, TransactionState.ABORTED, now_ms=now_ms, former=None, before_ms=now_ms
    ):
        return None
    return Transition(fresh, _finish(tx, producer, commit=False, fence=True, now_ms=now_ms))


def forget(tx: CatalogTransaction, transactional_id: str, *, unused_since_ms: int) -> bool:
    """Remove a transactional id that has not been used since then and has no open transaction."""
    return bool(tx.rows(FORGET, (transactional_id, unused_since_ms)))


def forget_aborted(tx: CatalogTransaction, topic_partition: TopicPartition, log_start: int) -> None:
    tx.rows(FORGET_ABORTED, (*topic_partition, log_start))


# -- queries --------------------------------------------------------------------------------------------------


def of_partition(
    tx: CatalogTransaction, topic_partition: TopicPartition, *, aborted_max: int
) -> PartitionTransactions:
    """The first statement reads one snapshot. Aborted transactions are read after it, so they may be newer,
    but none is missing."""
    rows = tx.rows(OPEN_AT_END, topic_partition)
    if not rows:
        raise UnknownPartition(topic=topic_partition.topic_id.hex(), partition=topic_partition.partition)
    open_ = {producer_id: (epoch, first) for _, producer_id, epoch, first in rows if producer_id is not None}
    newest = [Aborted(*row) for row in reversed(tx.rows(NEWEST_ABORTED, (*topic_partition, aborted_max)))]
    aborted_from = newest[0].last_offset if len(newest) == aborted_max else 0
    return PartitionTransactions(rows[0][0], open_, newest, aborted_from)


def partitions_of(tx: CatalogTransaction, producer: TransactionalProducer) -> list[TopicPartition]:
    """The partitions of the open transaction. Raises unless this producer holds its transactional id."""
    _check_holder(tx, producer)
    return list(_first_offsets(tx, producer.producer_id))


def last_stable_offset(tx: CatalogTransaction, topic_partition: TopicPartition, end_offset: int) -> int:
    first: int | None = tx.rows(FIRST_OPEN, topic_partition)[0][0]
    return end_offset if first is None else min(first, end_offset)


def aborted(
    tx: CatalogTransaction, topic_partition: TopicPartition, start: int, end_offset: int
) -> list[Aborted]:
    """Aborted transactions that touch offsets from `start` up to `end_offset`."""
    return [Aborted(*row) for row in tx.rows(ABORTED, (*topic_partition, start, end_offset))]


def timed_out(tx: CatalogTransaction, *, now_ms: int) -> list[TransactionalProducer]:
    return [TransactionalProducer(*row) for row in tx.rows(TIMED_OUT, (now_ms,))]


def unused(tx: CatalogTransaction, *, unused_since_ms: int) -> list[str]:
    return [row[0] for row in tx.rows(UNUSED, (unused_since_ms,))]


# -- encoding of transitions ----------------------------------------------------------------------------------


def encode_transition(transition: Transition) -> Json:
    producer, markers = transition.producer, transition.markers
    named = [producer.transactional_id, *producer.identity]
    if markers is None:
        return [named, None]
    partition_markers = [
        [each.topic_partition.topic_id.hex(), each.topic_partition.partition, *each[1:]]
        for each in markers.partition_markers
    ]
    return [
        named,
        [
            markers.kind,
            markers.producer_id,
            markers.epoch,
            markers.fence,
            markers.timestamp,
            partition_markers,
        ],
    ]


def decode_transition(encoded: Json) -> Transition:
    named, markers = encoded
    if markers is None:
        return Transition(TransactionalProducer(*named))
    kind, producer_id, epoch, fence, timestamp, partition_markers = markers
    decoded = tuple(
        PartitionMarker(TopicPartition(TopicId(bytes.fromhex(topic_id)), partition), *fields)
        for topic_id, partition, *fields in partition_markers
    )
    return Transition(
        TransactionalProducer(*named),
        Markers(MarkerKind(kind), producer_id, epoch, fence, timestamp, decoded),
    )


# -- helpers --------------------------------------------------------------------------------------------------


def _find(tx: CatalogTransaction, transactional_id: str) -> _Row | None:
    found = tx.rows(FIND, (transactional_id,))
    return _Row(*found[0]) if found else None


def _create(
    tx: CatalogTransaction, transactional_id: str, timeout_ms: int, now_ms: int
) -> TransactionalProducer:
    producer_id = producers.take_ids(tx, 1)[0]
    shard = shard_of(transactional_id)
    tx.rows(CREATE, (transactional_id, shard, producer_id, timeout_ms, TransactionState.EMPTY, now_ms))
    return TransactionalProducer(transactional_id, producer_id, 0)


def _next_epoch(tx: CatalogTransaction, producer: TransactionalProducer) -> TransactionalProducer:
    if producer.epoch < PRODUCER_EPOCH_MAX:
        return TransactionalProducer(producer.transactional_id, producer.producer_id, producer.epoch + 1)
    return TransactionalProducer(producer.transactional_id, producers.take_ids(tx, 1)[0], 0)


def _check_holder(tx: CatalogTransaction, producer: TransactionalProducer) -> _Row:
    """Raises unless this producer holds its transactional id."""
    row = _find(tx, producer.transactional_id)
    if row is None or row.producer_id != producer.producer_id:
        raise InvalidProducerIdMapping(
            transactional_id=producer.transactional_id, producer_id=producer.producer_id
        )
    if row.epoch != producer.epoch:
        raise ProducerFenced(producer_id=producer.producer_id, epoch=producer.epoch, current=row.epoch)
    return row


def _is_repeated(
    row: _Row, producer: TransactionalProducer, done: TransactionState, bump_epoch: bool
) -> bool:
    """Whether this producer's end took effect before. The producer's identity is compared exactly: a zombie
    of an earlier epoch, whose own transaction was aborted, must not mistake its successor's commit for its
    own. If the end bumped the epoch, the holder must have another identity by now."""
    bumped = row.identity != producer.identity
    return row.former == producer.identity and row.state == done and (bumped or not bump_epoch)


def _close(
    tx: CatalogTransaction,
    producer: TransactionalProducer,
    fresh: TransactionalProducer,
    done: TransactionState,
    *,
    now_ms: int,
    former: ProducerEpoch | None,
    state: str = TransactionState.ONGOING,
    before_ms: int = NEVER_MS,
) -> bool:
    after = (*fresh.identity, done, *(former or (None, None)), now_ms)
    return bool(tx.rows(CLOSE, (*after, producer.transactional_id, *producer.identity, state, before_ms)))


def _finish(
    tx: CatalogTransaction, producer: TransactionalProducer, *, commit: bool, fence: bool, now_ms: int
) -> Markers:
    """Everything that an end changes besides the transaction's own row."""
    kind = MarkerKind.COMMIT if commit else MarkerKind.ABORT
    epoch = producer.epoch + 1 if fence else producer.epoch
    markers = _write(tx, Markers(kind, producer.producer_id, epoch, fence, now_ms))
    if fence:
        topic_partitions = [marker.topic_partition for marker in markers.partition_markers]
        producers.raise_epochs(tx, topic_partitions, producer.producer_id, epoch, now_ms=now_ms)
    if commit:
        _publish_offsets(tx, producer.producer_id, now_ms)
    tx.rows(FORGET_OFFSETS, (producer.producer_id,))
    tx.rows(FORGET_PARTITIONS, (producer.producer_id,))
    return markers


def _write(tx: CatalogTransaction, markers: Markers) -> Markers:
    """Append one marker to each partition of the transaction that still exists. Returns the markers with
    their offsets."""
    data, now_ms = markers.data(), markers.timestamp
    topic_partitions = list(_first_offsets(tx, markers.producer_id))
    shares = [_marker_share(topic_partition, data, now_ms) for topic_partition in topic_partitions]
    results = zip(topic_partitions, append(tx, shares, None, now_ms=now_ms), strict=True)
    placed = {
        topic_partition: result for topic_partition, result in results if isinstance(result, AppendedShare)
    }
    # First offsets are read again now that the markers have locked the partitions. If they were read only before,
    # the first batch of a flush in flight would be missed, and readers would see its aborted records.
    firsts = {} if markers.kind is MarkerKind.COMMIT else _first_offsets(tx, markers.producer_id)
    partition_markers = tuple(
        PartitionMarker(topic_partition, each.base_offset, each.epoch, firsts.get(topic_partition))
        for topic_partition, each in placed.items()
    )
    _list_aborted(tx, markers.producer_id, partition_markers)
    return replace(markers, partition_markers=partition_markers)


def _list_aborted(
    tx: CatalogTransaction, producer_id: int, partition_markers: Sequence[PartitionMarker]
) -> None:
    written = [each for each in partition_markers if each.first_offset is not None]
    tx.each(
        ADD_ABORTED,
        [(*each.topic_partition, each.offset, each.first_offset, producer_id) for each in written],
    )


def _first_offsets(tx: CatalogTransaction, producer_id: int) -> dict[TopicPartition, int | None]:
    rows = tx.rows(PARTITIONS, (producer_id,))
    return {TopicPartition(TopicId(bytes(row[0])), row[1]): row[2] for row in rows}


def _marker_share(topic_partition: TopicPartition, marker: bytes, now_ms: int) -> AppendShare:
    return AppendShare(topic_partition, FOREIGN, 0, len(marker), 1, now_ms, now_ms, inline=marker)


def _publish_offsets(tx: CatalogTransaction, producer_id: int, now_ms: int) -> None:
    by_group: dict[str, list[groups.GroupOffset]] = {}
    for group_id, topic_id, partition, offset, leader_epoch, metadata in tx.rows(
        PENDING_OFFSETS, (producer_id,)
    ):
        topic_partition = TopicPartition(TopicId(bytes(topic_id)), partition)
        by_group.setdefault(group_id, []).append(
            groups.GroupOffset(topic_partition, offset, leader_epoch, metadata)
        )
    for group_id, offsets in by_group.items():
        groups.commit_offsets(tx, group_id, offsets, now_ms=now_ms)
