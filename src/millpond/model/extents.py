"""Locations of bytes in the store, and the extents that assign offsets to them."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from millpond.model.ids import TopicPartition

NO_APPEND_TIME: Final = -1
"""The append time of an extent that was stored before append times were kept, or by a version that does not
keep them."""

LATE_MS: Final = 500
"""Records that are older than this when they are appended are late: they are a backfill, not recent events."""


@dataclass(frozen=True, slots=True)
class Location:
    """A run of bytes inside one object of the store."""

    key: str
    position: int
    length: int


class IndexEntry(NamedTuple):
    """A point where a read can enter an extent: the batch at `position` starts at `offset`.

    `max_timestamp` is the newest timestamp from here to the next entry. Offsets and positions count from the
    extent's own start, so an index can be written before the extent's offsets are known, and stays valid when
    the extent moves.
    """

    offset: int
    position: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of consecutive batches of one partition, stored in the catalog itself (`inline`) or inside an object."""

    topic_partition: TopicPartition
    base_offset: int
    end_offset: int
    epoch: int
    position: int
    length: int
    records: int
    min_timestamp: int
    max_timestamp: int
    stamped: bool
    key: str | None
    inline: bytes | None
    index: tuple[IndexEntry, ...] = ()
    appended_at: int = NO_APPEND_TIME
    """When its newest part was appended, according to the wall clock of the process that committed it."""
    late_at: int = NO_APPEND_TIME
    """When its newest part with late records was appended; -1 if it has none."""

    @property
    def location(self) -> Location:
        assert self.key is not None, "an inline extent has no location"
        return Location(self.key, self.position, self.length)
