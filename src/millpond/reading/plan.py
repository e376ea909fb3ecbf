"""The read plan: which bytes of which objects to read for readers at some offsets. Pure.

Large extents are entered through their sparse index. Adjacent ranges of one object are read together, including the
frames between them, also if they are of different partitions: a flush stores those of all partitions side by side. The
plan for a partition stops at its byte budget but always covers at least one batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from millpond.model.extents import Extent
from millpond.segments.index import entry_for_offset

GAP_BYTES_MAX: Final = 64 * 1024
"""Maximum gap between two ranges of an object that are read together, because a second read costs more."""
JOINT_BYTES_MAX: Final = 1024 * 1024
"""Ranges are read together up to this size: then the bytes are still in the processor's cache when they are checked,
several reads of a remote store can run at a time, and a view of one range keeps little memory of others."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of whole batches of one extent: `length` bytes from `start`, relative to the extent's own
    bytes. The next range begins at `end_offset`; where compaction left a gap, this is past the last batch of
    this range."""

    extent: Extent
    start: int
    length: int
    base_offset: int
    end_offset: int

    @property
    def position(self) -> int:
        """In its object."""
        return self.extent.position + self.start

    @property
    def end(self) -> int:
        return self.position + self.length


class SliceOf(NamedTuple):
    """A slice, and which one it is: the number of its reader, and its place among that reader's slices."""

    reader: int
    place: int
    slice: Slice


@dataclass(frozen=True, slots=True)
class ObjectRead:
    """One read of one object that serves several slices; no read at all for a slice that is inline."""

    parts: tuple[SliceOf, ...]

    @property
    def key(self) -> str | None:
        return self.parts[0].slice.extent.key

    @property
    def position(self) -> int:
        return self.parts[0].slice.position

    @property
    def end(self) -> int:
        return self.parts[-1].slice.end

    @property
    def length(self) -> int:
        return self.end - self.position


def plan_slices(extents: Sequence[Extent], offset: int, bytes_wanted: int) -> list[Slice]:
    """Slices that cover `offset` and what follows it, `bytes_wanted` or slightly more."""
    slices: list[Slice] = []
    room = bytes_wanted
    for extent in extents:
        if slices and room <= 0:
            break
        piece = slice_extent(extent, max(offset, extent.base_offset), max(room, 1))
        slices.append(piece)
        room -= piece.length
    return slices


def plan_reads(wanted: Sequence[Sequence[Slice]]) -> list[ObjectRead]:
    """The reads for several readers. Those that the first reader needs come first, in the order of its slices."""
    parts = [
        SliceOf(reader, place, piece)
        for reader, slices in enumerate(wanted)
        for place, piece in enumerate(slices)
    ]
    by_object: dict[str, list[SliceOf]] = {}
    reads = [ObjectRead((part,)) for part in parts if part.slice.extent.key is None]
    for part in parts:
        if part.slice.extent.key is not None:
            by_object.setdefault(part.slice.extent.key, []).append(part)
    for of_object in by_object.values():
        reads += _joined(sorted(of_object, key=_position))
    return sorted(reads, key=_first_needed)


def slice_extent(extent: Extent, offset: int, bytes_wanted: int) -> Slice:
    """From the index entry at or before `offset` to the first entry that lies `bytes_wanted` past it."""
    entry = entry_for_offset(extent.index, offset - extent.base_offset)
    start = entry.position if entry is not None else 0
    base = extent.base_offset + (entry.offset if entry is not None else 0)
    following = next((each for each in extent.index if each.position >= start + bytes_wanted), None)
    if following is None:
        return Slice(extent, start, extent.length - start, base, extent.end_offset)
    return Slice(extent, start, following.position - start, base, extent.base_offset + following.offset)


def _joined(parts: Sequence[SliceOf]) -> list[ObjectRead]:
    """Of one object, in the order of their positions."""
    reads: list[ObjectRead] = []
    open_parts: list[SliceOf] = []
    for part in parts:
        if open_parts and not _adjoins(open_parts, part):
            reads.append(ObjectRead(tuple(open_parts)))
            open_parts = []
        open_parts.append(part)
    reads.append(ObjectRead(tuple(open_parts)))
    return reads


def _adjoins(parts: Sequence[SliceOf], part: SliceOf) -> bool:
    gap = part.slice.position - parts[-1].slice.end
    return 0 <= gap <= GAP_BYTES_MAX and part.slice.end - parts[0].slice.position <= JOINT_BYTES_MAX


def _position(part: SliceOf) -> int:
    return part.slice.position


def _first_needed(read: ObjectRead) -> tuple[int, int]:
    return min((part.reader, part.place) for part in read.parts)
