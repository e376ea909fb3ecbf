"""What a read of the catalog tells the log about the partitions that this broker owns."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from millpond.catalog.partitions import PartitionRow
from millpond.model.ids import TopicPartition

CompactionMark = tuple[int, int]
"""A value that changes with each compaction of a partition; see `compactions.marks`."""


class Seen(NamedTuple):
    """The epoch and end offset of a partition last read from the catalog. Neither may go back."""

    epoch: int
    end_offset: int

    def is_ahead_of(self, row: PartitionRow) -> bool:
        return row.epoch < self.epoch or (row.epoch == self.epoch and row.end_offset < self.end_offset)

    def __str__(self) -> str:
        return f"{self.epoch} and {self.end_offset}"


class OwnedRows(Protocol):
    """The partitions that this broker owns, which follow their catalog rows."""

    def seen(self) -> Mapping[TopicPartition, Seen]:
        """The epoch and end offset last read from the catalog, for each partition."""

    def apply_all(self, rows: Iterable[PartitionRow], seen: Mapping[TopicPartition, Seen]) -> None:
        """Apply the rows of all partitions this broker owns. `seen` is what `seen()` returned before they were
        read: a row that is older than that means that the catalog has lost committed state."""

    def apply(self, row: PartitionRow) -> None:
        """Apply the row of one partition that this broker owns."""

    def apply_compactions(self, marks: dict[TopicPartition, CompactionMark]) -> None:
        """Apply the compaction mark of each partition. A new mark means that cached records are out of date."""
