"""The read plan: which bytes of which objects to read for a reader at an offset. Pure.

Large extents are entered through their sparse index. Adjacent ranges of one object are read together,
including the frames between them. The plan stops at its byte budget but always covers at least one batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millpond.model.extents import Extent
from millpond.segments.index import entry_for_offset

GAP_BYTES_MAX: Final = 64 * 1024
"""Maximum gap between two ranges of an object that are read together, because a second read costs more."""


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


@dataclass(frozen=True, slots=True)
class ObjectRead:
    """One read of one object that serves several slices; no read at all for a slice that is inline."""

    slices: tuple[Slice, ...]

    @property
    def key(self) -> str | None:
        return self.slices[0].extent.key

    @property
    def position(self) -> int:
        first = self.slices[0]
        return first.extent.position + first.start

    @property
    def end(self) -> int:
        last = self.slices[-1]
        return last.extent.position + last.start + last.length


def plan_reads(extents: Sequence[Extent], offset: int, bytes_wanted: int) -> list[ObjectRead]:
    """Reads that cover `offset` and what follows it, `bytes_wanted` or slightly more."""
    slices: list[Slice] = []
    room = bytes_wanted
    for extent in extents:
        if slices and room <= 0:
            break
        piece = slice_extent(extent, max(offset, extent.base_offset), max(room, 1))
        slices.append(piece)
        room -= piece.length
    return _coalesce(slices)


def slice_extent(extent: Extent, offset: int, bytes_wanted: int) -> Slice:
    """From the index entry at or before `offset` to the first entry that lies `bytes_wanted` past it."""
    entry = entry_for_offset(extent.index, offset - extent.base_offset)
    start = entry.position if entry is not None else 0
    base = extent.base_offset + (entry.offset if entry is not None else 0)
    following = next((each for each in extent.index if each.position >= start + bytes_wanted), None)
    if following is None:
        return Slice(extent, start, extent.length - start, base, extent.end_offset)
    return Slice(extent, start, following.position - start, base, extent.base_offset + following.offset)


def _coalesce(slices: Sequence[Slice]) -> list[ObjectRead]:
    reads: list[ObjectRead] = []
    for piece in slices:
        if reads and _adjoins(reads[-1], piece):
            reads[-1] = ObjectRead((*reads[-1].slices, piece))
        else:
            reads.append(ObjectRead((piece,)))
    return reads


def _adjoins(read: ObjectRead, piece: Slice) -> bool:
    if read.key is None or read.key != piece.extent.key:
        return False
    gap = piece.extent.position + piece.start - read.end
    return 0 <= gap <= GAP_BYTES_MAX
