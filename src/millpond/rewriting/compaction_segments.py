"""Writes compacted batches as segments: adjacent extents share a segment until it is full; unchanged ones stay.

A segment replaces whole extents and covers all their offsets. Its last batch is always present, if necessary
without records: a reader at this batch gets past the gap, and an extent always has bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.catalog.extents import NewExtent
from millpond.model.errors import ExtentsChanged
from millpond.model.extents import Extent, IndexEntry
from millpond.records import NO_TIMESTAMP, BatchHeader, Buffer
from millpond.rewriting.compaction_batches import emptied
from millpond.rewriting.merging import LARGE_BYTES
from millpond.segments.frame import FRAME_BYTES
from millpond.segments.index import build_index, pack_index
from millpond.segments.segment import write_segment

TIMESTAMP_MAX: Final = 2**63 - 1

Put = Callable[[tuple[Extent, ...], NewExtent, list[Buffer]], None]
"""Receives extents, the row that replaces them, and the parts of the segment object that the row describes."""


@dataclass(slots=True)
class BatchRun:
    """Consecutive batches of one or several extents."""

    extents: list[Extent] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """(base offset, position, newest timestamp) of each batch."""
    records: int = 0
    oldest: int = TIMESTAMP_MAX
    newest: int = NO_TIMESTAMP
    is_changed: bool = False
    dropped_last: BatchHeader | None = None
    """The last batch, if it was dropped."""

    def add(self, header: BatchHeader, batch: Buffer) -> None:
        self.batches.append((header.base_offset, len(self.data), header.newest_timestamp))
        self.data += batch
        self.dropped_last = None
        if header.record_count:
            self.records += header.record_count
            self.oldest = min(self.oldest, header.oldest_timestamp)
            self.newest = max(self.newest, header.newest_timestamp)

    def drop(self, header: BatchHeader) -> None:
        """Dropping a batch that was already empty is no change: otherwise every compaction would find work."""
        self.is_changed = self.is_changed or header.record_count > 0
        self.dropped_last = header

    def extend(self, other: "BatchRun") -> None:
        shift = len(self.data)
        self.extents += other.extents
        self.batches += [(offset, shift + position, newest) for offset, position, newest in other.batches]
        self.data += other.data
        self.records += other.records
        self.oldest, self.newest = min(self.oldest, other.oldest), max(self.newest, other.newest)
        self.is_changed = self.is_changed or other.is_changed
        self.dropped_last = other.dropped_last

    def close(self) -> None:
        """Add the last batch without records, if it was dropped."""
        if (header := self.dropped_last) is not None:
            batch = emptied(header)
            self.add(header._replace(record_count=0, base_timestamp=-1, max_timestamp=-1), batch)


class SegmentWriter:
    """Receives the batches of some extents in order. Call `finish` last."""

    def __init__(self, extents: Sequence[Extent], put: Put, *, segment_bytes_max: int) -> None:
        self._ahead = list(reversed(extents))
        self._put = put
        self._segment_bytes_max = segment_bytes_max
        self._group = BatchRun()
        self._current = BatchRun([self._ahead.pop()])

    def keep(self, header: BatchHeader, batch: Buffer) -> None:
        """Add a batch that stays as it is."""
        self._at(header).add(header, batch)

    def change(self, header: BatchHeader, batch: Buffer) -> None:
        """Add a batch that has lost some of its records; `header` is its new header."""
        current = self._at(header)
        current.add(header, batch)
        current.is_changed = True

    def drop(self, header: BatchHeader) -> None:
        """Drop a batch that has no records any more."""
        self._at(header).drop(header)

    def finish(self) -> None:
        while self._ahead:
            self._next_extent()
        self._add_to_group(self._current)
        self._flush()

    def _at(self, header: BatchHeader) -> BatchRun:
        while header.base_offset >= self._current.extents[0].end_offset and self._ahead:
            self._next_extent()
        return self._current

    def _next_extent(self) -> None:
        self._add_to_group(self._current)
        self._current = BatchRun([self._ahead.pop()])

    def _add_to_group(self, stretch: BatchRun) -> None:
        if not stretch.is_changed and stretch.extents[0].length >= LARGE_BYTES:
            self._flush()
            return
        if len(self._group.data) + len(stretch.data) > self._segment_bytes_max:
            self._flush()
        self._group.extend(stretch)

    def _flush(self) -> None:
        group, self._group = self._group, BatchRun()
        if not group.is_changed:
            return
        group.close()
        if not group.batches:
            raise ExtentsChanged  # the batches were removed while they were being read
        index = _index(group)
        row = _row(group, index)
        parts = write_segment(
            row.topic_partition,
            row.base_offset,
            row.end_offset,
            [group.data],
            batches=len(group.batches),
            records=row.records,
            epoch=row.epoch,
            min_timestamp=row.min_timestamp,
            max_timestamp=row.max_timestamp,
            index=index,
        )
        self._put(tuple(group.extents), row, parts)


def _index(group: BatchRun) -> tuple[IndexEntry, ...]:
    base = group.extents[0].base_offset
    return build_index((offset - base, position, newest) for offset, position, newest in group.batches)


def _row(group: BatchRun, index: tuple[IndexEntry, ...]) -> NewExtent:
    old = group.extents
    return NewExtent(
        topic_partition=old[0].topic_partition,
        base_offset=old[0].base_offset,
        end_offset=old[-1].end_offset,
        epoch=max(extent.epoch for extent in old),
        object_id=None,
        position=FRAME_BYTES,
        length=len(group.data),
        records=group.records,
        min_timestamp=_oldest(group),
        max_timestamp=group.newest,
        high_timestamp=group.newest,
        stamped=True,
        sparse_index=pack_index(index) or None,
        inline=None,
    )


def _oldest(group: BatchRun) -> int:
    """No record is older than this. The rows of the extents are more accurate than the headers, whose base is
    the first record's timestamp. The oldest record itself may be gone."""
    if not group.records:
        return NO_TIMESTAMP
    return min(group.oldest, *(extent.min_timestamp for extent in group.extents if extent.records))
