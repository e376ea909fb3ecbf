"""Applies the results of commits to this broker's partitions, on the event loop and in commit order.

For committed batches, their offsets and epoch are written into the batches, which are added to the tail cache;
the partition's end moves, waiting readers wake up, and the caller of the append receives its result. The caller
of a refused append receives the error. If another broker owns the partition, that broker is notified instead.
State changes only between awaits.
"""

from collections.abc import Callable, Sequence

from millpond.catalog.appends import AppendedShare
from millpond.catalog.transactions import Markers, TransactionalProducer
from millpond.log.buffer import AppendResult, Pending
from millpond.log.owned_partitions import OwnedPartitions
from millpond.log.partition import LogPartition
from millpond.log.refused_sequences import RefusedSequences, is_sent_again
from millpond.log.tail import TailCache
from millpond.model.clock import Clock
from millpond.model.errors import (
    FlushFailed,
    InvalidTransactionState,
    MillpondError,
    NotOwner,
    PartitionHalted,
    WriterDead,
)
from millpond.model.ids import TopicPartition
from millpond.observability.metrics import LogMetrics
from millpond.reading.runs import stamped
from millpond.records import walk
from millpond.topology import Peers


class CommitResults:
    def __init__(
        self,
        owned: OwnedPartitions,
        tails: TailCache,
        metrics: LogMetrics,
        peers: Peers,
        refused: RefusedSequences,
        clock: Clock,
        *,
        on_not_owner: Callable[[], None],
    ) -> None:
        """`on_not_owner` is called when a refused commit shows that another broker owns a partition that this
        broker served."""
        self._owned = owned
        self._tails = tails
        self._metrics = metrics
        self._peers = peers
        self._refused = refused
        self._clock = clock
        self._on_not_owner = on_not_owner

    # -- flushes ----------------------------------------------------------------------------------------------

    def committed(self, pendings: list[Pending], appended: AppendedShare, known_end: int) -> None:
        """Apply one partition's committed share of a flush. `known_end` is the partition's end offset as known
        here when the flush was submitted. A lower offset means that the catalog has returned to an older state:
        the partition is halted."""
        partition = self._owned.get(pendings[0].topic_partition)
        if partition is not None and appended.base_offset < known_end:
            self._refuse_all(partition, pendings, f"end {appended.base_offset}; it was {known_end}")
            return
        if partition is not None and appended.epoch != partition.epoch:
            partition = None  # handed over while the flush was in flight
        offset = appended.base_offset
        for pending in pendings:
            end = offset + pending.records
            if partition is not None:
                if pending.sequence is not None:
                    partition.sequences.commit(pending.sequence, offset)
                    if pending.sequence.transactional:
                        partition.open_transactions.wrote(pending.sequence, offset)
                run = stamped(pending.data, pending.headers, offset, appended.epoch)
                self._tails.push(partition.tail, run)
            if not pending.future.done():
                pending.future.set_result(AppendResult(offset, appended.log_start, pending.timestamp))
            offset = end
        if partition is not None:
            self._owned.grow(partition, appended.base_offset, offset)
        else:
            self._peers.notify_owner(pendings[0].topic_partition)

    def failed(self, topic_partition: TopicPartition, pendings: list[Pending], error: MillpondError) -> None:
        partition = self._owned.get(topic_partition)
        if isinstance(error, NotOwner | WriterDead):
            self._metrics.fenced.inc(len(pendings))
        if isinstance(error, NotOwner):
            self._on_not_owner()
        for pending in pendings:
            refusal = _error_for(pending, error)
            if pending.sequence is not None and is_sent_again(refusal):
                self._refused.add(topic_partition, pending.sequence, self._clock.monotonic_ms())
            if partition is not None and pending.sequence is not None:
                partition.sequences.fail(pending.sequence, pending.future)
            pending.refuse(refusal)

    def _refuse_all(self, partition: LogPartition, pendings: list[Pending], reason: str) -> None:
        self._owned.halt(partition.topic_partition, reason)
        for pending in pendings:
            pending.refuse(PartitionHalted(partition=partition.topic_partition.partition))

    # -- transactions -----------------------------------------------------------------------------------------

    def apply_added_partitions(
        self, producer: TransactionalProducer, topic_partitions: Sequence[TopicPartition]
    ) -> None:
        """Apply that these partitions were added to the producer's open transaction."""
        for topic_partition in topic_partitions:
            if (partition := self._owned.get(topic_partition)) is not None:
                partition.open_transactions.added(producer.producer_id, producer.epoch)

    def apply_markers(self, markers: Markers) -> None:
        """Apply the markers that end a transaction, one in each of its partitions."""
        data = markers.data()
        headers = list(walk(data))
        for marker in markers.partition_markers:
            partition = self._owned.get(marker.topic_partition)
            if partition is None:
                self._peers.notify_owner(marker.topic_partition)
                continue
            run = stamped(data, headers, marker.offset, marker.leader_epoch)
            self._tails.push(partition.tail, run)
            if markers.fence:
                partition.sequences.fence(markers.producer_id, markers.epoch)
            self._owned.grow(partition, marker.offset, run.end_offset)
            partition.open_transactions.ended(markers, marker)


def _error_for(pending: Pending, error: MillpondError) -> MillpondError:
    """Only the producer that sent the invalid transactional batch receives `InvalidTransactionState`. Others
    receive an error that they may retry."""
    if not isinstance(error, InvalidTransactionState):
        return error
    is_sender = pending.sequence is not None and pending.sequence.producer_id == error.facts.get(
        "producer_id"
    )
    return error if is_sender else FlushFailed()
