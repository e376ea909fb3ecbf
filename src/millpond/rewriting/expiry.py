"""Retention by age and by size, the pure part: the log start moves up, extents below it go, and nothing is renumbered.

As in Kafka a prefix expires: records go while everything before them has gone. Whole extents are judged by their
row; inside the first one that stays, batch headers tell where the line runs, so that a topic with one large
extent expires as evenly as one with many small ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millpond.model.extents import Extent
from millpond.reading.reader import StoreReader
from millpond.records import NO_TIMESTAMP, walk
from millpond.segments.index import entry_for_timestamp


@dataclass(frozen=True, slots=True)
class Line:
    """Everything below `offset` expires; `boundary` is the extent the line may run through."""

    offset: int
    boundary: Extent | None


def expired_by_age(extents: Sequence[Extent], log_start: int, cutoff_ms: int) -> Line:
    """The prefix of extents whose newest record is older than `cutoff_ms`. One without any timestamps has no
    age: it goes when something behind it does."""
    offset = log_start
    for extent in extents:
        if extent.max_timestamp >= cutoff_ms:
            return Line(offset, extent if extent.min_timestamp < cutoff_ms else None)
        if extent.max_timestamp != NO_TIMESTAMP:
            offset = max(offset, extent.end_offset)
    return Line(offset, None)


def expired_by_size(extents: Sequence[Extent], log_start: int, excess_bytes: int) -> int:
    """Whole extents go as long as what remains is still at least the allowed size."""
    offset = log_start
    for extent in extents:
        excess_bytes -= extent.length
        if excess_bytes < 0:
            break
        offset = max(offset, extent.end_offset)
    return offset


def line_inside(reader: StoreReader, extent: Extent, cutoff_ms: int) -> tuple[int, int]:
    """The first batch of an extent that is young enough: its offset, and its newest timestamp."""
    entry = entry_for_timestamp(extent.index, cutoff_ms)
    offset = extent.base_offset + (entry.offset if entry is not None else 0)
    run = reader.read_from(extent, offset, 1)
    for _, header in walk(run.data):
        if header.newest_timestamp >= cutoff_ms:
            return max(extent.base_offset, header.base_offset), header.newest_timestamp
    return run.end_offset, cutoff_ms
