"""One partition as its owner sees it: the numbers of its row, its tail, its producers. Changes between awaits."""

from millpond.catalog.partitions import PartitionRow
from millpond.log.buffer import AppendResult
from millpond.log.producers import Sequences
from millpond.log.tail import Tail
from millpond.model.ids import TopicPartition


class Partition:
    __slots__ = ("end_offset", "epoch", "fenced", "log_start", "sequences", "tail", "where")

    def __init__(self, row: PartitionRow) -> None:
        self.where: TopicPartition = row.where
        self.epoch = row.epoch
        self.log_start = row.log_start
        self.end_offset = row.end_offset
        self.tail = Tail()
        self.sequences: Sequences[AppendResult] = Sequences()
        self.fenced = False

    def observe(self, row: PartitionRow, owner: str) -> bool:
        """Take in what the catalog says; True if the log has grown behind our back."""
        self.fenced = row.owner != owner or row.epoch != self.epoch
        self.log_start = max(self.log_start, row.log_start)
        grown = row.end_offset > self.end_offset
        self.end_offset = max(self.end_offset, row.end_offset)
        return grown

    def holds_in_tail(self, offset: int) -> bool:
        start = self.tail.start
        return start is not None and start <= offset < self.end_offset and self.tail.ends_at(self.end_offset)
