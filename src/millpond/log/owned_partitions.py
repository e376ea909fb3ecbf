"""The partitions that this broker owns, by the catalog rows that it last read, and which of them it serves.

A partition whose epoch has changed is dropped and created again. A partition is halted if the catalog has
lost committed state of it: until an operator intervenes, it stays in memory, serves no request, ignores its
catalog rows, and is not handed over. State changes only between awaits.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from millpond.catalog.appends import FOREIGN
from millpond.catalog.partitions import PartitionRow
from millpond.log.inline import InlineBytes
from millpond.log.partition import LogPartition
from millpond.log.tail import TailCache
from millpond.log.waiters import Waiters
from millpond.model.errors import NotOwner, PartitionHalted, UnknownPartition
from millpond.model.ids import Session, TopicPartition
from millpond.observability.metrics import LogMetrics
from millpond.topology import CompactionMark, Lease, Seen, TopicRegistry

NOT_OWNED = 0
"""The epoch of a partition that this broker does not own. A partition that has an owner has a higher one."""

logger = logging.getLogger(__name__)


class OwnedPartitions:
    def __init__(
        self,
        session: Session,
        topics: TopicRegistry,
        waiters: Waiters,
        tails: TailCache,
        inline: InlineBytes,
        lease: Lease,
        metrics: LogMetrics,
        *,
        drop_cached_reads: Callable[[TopicPartition], None],
    ) -> None:
        """`drop_cached_reads` drops the records of a partition that were read from the store."""
        self._session = session
        self._topics = topics
        self._waiters = waiters
        self._tails = tails
        self._inline = inline
        self._metrics = metrics
        self._lease = lease
        self._drop_cached_reads = drop_cached_reads
        self._partitions: dict[TopicPartition, LogPartition] = {}
        self._grown: dict[TopicPartition, int] = {}
        """See `take_grown`."""
        self._compaction_marks: dict[TopicPartition, CompactionMark] = {}

    # -- queries ----------------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> LogPartition | None:
        """The partition, whether or not this broker serves it at the moment."""
        return self._partitions.get(topic_partition)

    def all(self) -> list[LogPartition]:
        return list(self._partitions.values())

    def served(self, topic_partition: TopicPartition) -> LogPartition:
        """Returns the partition if this broker serves it now; raises the reason otherwise."""
        partition = self._partitions.get(topic_partition)
        if partition is not None and self.serves(partition):
            return partition
        self.check_not_halted(topic_partition)
        topic = self._topics.with_id(topic_partition.topic_id)
        if not 0 <= topic_partition.partition < topic.partitions:
            raise UnknownPartition(topic=topic.name, partition=topic_partition.partition)
        raise NotOwner

    def serves(self, partition: LogPartition) -> bool:
        return not partition.fenced and not partition.in_handover and self._lease.held

    def check_not_halted(self, topic_partition: TopicPartition) -> None:
        """For appends that any broker accepts, whichever broker owns the partition. Only the broker that owned it
        when the catalog lost state knows that it is halted."""
        partition = self._partitions.get(topic_partition)
        if partition is not None and partition.halted:
            raise PartitionHalted(partition=topic_partition.partition)

    def epoch_of(self, topic_partition: TopicPartition) -> int:
        partition = self._partitions.get(topic_partition)
        return partition.epoch if partition is not None else NOT_OWNED

    def joint_epoch_of(self, topic_partition: TopicPartition) -> int:
        """The epoch for joint appends: `FOREIGN` if another broker owns the partition. It is also `FOREIGN` during
        a handover, since another broker may own the partition by the time of the commit."""
        partition = self._partitions.get(topic_partition)
        return partition.epoch if partition is not None and not partition.in_handover else FOREIGN

    def end_of(self, topic_partition: TopicPartition) -> int:
        partition = self._partitions.get(topic_partition)
        return partition.end_offset if partition is not None else 0

    def seen(self) -> dict[TopicPartition, Seen]:
        """The epoch and end offset last read from the catalog, for each partition."""
        return {topic_partition: partition.seen for topic_partition, partition in self._partitions.items()}

    # -- growing ----------------------------------------------------------------------------------------------

    def grow(self, partition: LogPartition, start: int, end: int) -> None:
        """Move the partition's end, after this broker has committed the offsets from `start` up to `end`."""
        partition.grow(start, end)
        self._grown.setdefault(partition.topic_partition, start)
        self._waiters.wake(partition.topic_partition)

    def take_grown(self) -> dict[TopicPartition, int]:
        """Partitions that have grown since the last call, each with the end offset that it had before."""
        grown, self._grown = self._grown, {}
        return grown

    # -- catalog rows -----------------------------------------------------------------------------------------

    def apply_all(self, rows: Iterable[PartitionRow], seen: Mapping[TopicPartition, Seen]) -> None:
        """Apply the rows of all partitions this broker owns. `seen` is what `seen()` returned before they were read."""
        owned = {row.topic_partition: row for row in rows}
        for topic_partition, partition in list(self._partitions.items()):
            if topic_partition not in owned and not partition.halted:
                self._drop(partition)
        for topic_partition, row in owned.items():
            if topic_partition in seen and seen[topic_partition].is_ahead_of(row):
                self.halt(
                    topic_partition,
                    f"epoch {row.epoch} and end {row.end_offset}; they were {seen[topic_partition]}",
                )
            else:
                self.apply(row)

    def apply(self, row: PartitionRow) -> None:
        """Apply the row of a partition that this broker owns."""
        topic_partition = row.topic_partition
        partition = self._partitions.get(topic_partition)
        if partition is not None and partition.halted:
            return
        if partition is None or row.epoch != partition.epoch:
            if partition is not None:
                self._drop(partition)
            self._partitions[topic_partition] = LogPartition(row)
            return
        before = partition.end_offset
        if partition.observe(row, self._session):
            self._grown.setdefault(topic_partition, before)
            self._waiters.wake(topic_partition)

    def halt(self, topic_partition: TopicPartition, reason: str) -> None:
        """Stop serving a partition, because the catalog has returned to an older state, for example by a failover
        to a replica that lagged. Further writes would assign offsets a second time."""
        partition = self._partitions.get(topic_partition)
        if partition is None or partition.halted:
            return
        partition.fenced = partition.halted = True
        self._metrics.halted.inc()
        name = self._topics.name_of(topic_partition.topic_id)
        logger.critical(
            "catalog went back in time; partition halted",
            extra={"topic": name, "partition": topic_partition.partition, "reason": reason},
        )
        self._waiters.wake(topic_partition)

    def _drop(self, partition: LogPartition) -> None:
        topic_partition = partition.topic_partition
        partition.fenced = True
        self._tails.drop(partition.tail)
        self._drop_cached_reads(topic_partition)
        self._inline.forget(topic_partition)
        del self._partitions[topic_partition]
        self._waiters.wake(topic_partition)

    # -- handing over -----------------------------------------------------------------------------------------

    def prepare_handover(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Stop serving these partitions. This broker still owns them until the handover is committed."""
        for topic_partition in topic_partitions:
            if (partition := self._partitions.get(topic_partition)) is not None:
                partition.in_handover = True
                self._waiters.wake(topic_partition)

    def end_handover(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """The handover has completed or failed: serve the partitions that this broker still owns."""
        for topic_partition in topic_partitions:
            if (partition := self._partitions.get(topic_partition)) is not None:
                partition.in_handover = False

    # -- compaction -------------------------------------------------------------------------------------------

    def apply_compactions(self, marks: dict[TopicPartition, CompactionMark]) -> None:
        """Apply the compaction mark of each partition. A new mark drops the cached records of the partition."""
        for topic_partition, mark in marks.items():
            if self._compaction_marks.get(topic_partition) != mark:
                self.forget_cached(topic_partition)
        self._compaction_marks = marks

    def forget_cached(self, topic_partition: TopicPartition) -> None:
        """Drop the cached records of a partition that was compacted: readers must not receive them any more.
        Compaction eventually removes a tombstone; a reader that still received the deleted record would then
        consider it current. The tail is dropped, too, although it also holds the tombstone: a reader may
        receive the old record from the tail, and continue in the store after the tail was evicted. The store
        no longer has the tombstone."""
        self._drop_cached_reads(topic_partition)
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            self._tails.drop(partition.tail)
