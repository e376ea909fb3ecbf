"""The sparse index of an extent: one entry point per 64 KiB of batches, found by offset or by timestamp.

Entries are relative to the start of the extent (see `IndexEntry`), so an index can be built before the extent
has offsets, and stays valid when the extent moves. It is stored in the catalog row and, for segments, in the
object's footer.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from operator import attrgetter

from millpond.model.errors import CorruptObject
from millpond.model.extents import IndexEntry

INDEX_EVERY_BYTES = 65_536
INDEX_VERSION = 1

_ENTRY = struct.Struct(">QIq")
_offset_of = attrgetter("offset")

Batch = tuple[int, int, int]
"""(offset, position, max timestamp) of a batch. Offset and position are relative to the extent's start."""


def build_index(batches: Iterable[Batch], every: int = INDEX_EVERY_BYTES) -> tuple[IndexEntry, ...]:
    """Build the index of an extent's batches, which must be in order.

    The first entry is at the first batch; each next entry is at the first batch that starts at least `every`
    bytes after the previous entry. A single entry would add nothing to the extent's row, so a small extent
    has an empty index.
    """
    entries: list[IndexEntry] = []
    start: Batch | None = None
    newest = 0
    for batch in batches:
        _, position, timestamp = batch
        if start is None or position - start[1] >= every:
            if start is not None:
                entries.append(IndexEntry(start[0], start[1], newest))
            start, newest = batch, timestamp
        elif timestamp > newest:
            newest = timestamp
    if start is None or not entries:
        return ()
    return (*entries, IndexEntry(start[0], start[1], newest))


def entry_for_offset(index: tuple[IndexEntry, ...], offset: int) -> IndexEntry | None:
    """The last entry at or before `offset` (relative to the extent's start), at which a search begins.

    None means the extent's own start: there is no index, or its first entry is later.
    """
    found = bisect_right(index, offset, key=_offset_of)
    return index[found - 1] if found else None


def entry_for_timestamp(index: tuple[IndexEntry, ...], timestamp: int) -> IndexEntry | None:
    """The first entry whose range holds a timestamp of at least `timestamp`; None if no range does.

    This is a linear scan: timestamps need not ascend, and an index has only sixteen entries per MiB.
    """
    return next((entry for entry in index if entry.max_timestamp >= timestamp), None)


def pack_index(index: tuple[IndexEntry, ...]) -> bytes:
    """A version byte and twenty bytes for each entry; empty for an empty index."""
    if not index:
        return b""
    packed = (_ENTRY.pack(entry.offset, entry.position, entry.max_timestamp) for entry in index)
    return bytes((INDEX_VERSION,)) + b"".join(packed)


def unpack_index(data: bytes | memoryview, key: str = "?") -> tuple[IndexEntry, ...]:
    """The inverse of `pack_index`; raises `CorruptObject` for bytes that `pack_index` cannot have written."""
    if not data:
        return ()
    if data[0] != INDEX_VERSION or len(data) == 1 or (len(data) - 1) % _ENTRY.size:
        raise CorruptObject(key=key, position=0, reason="the sparse index has an unknown version or length")
    index = tuple(map(IndexEntry._make, _ENTRY.iter_unpack(memoryview(data)[1:])))
    for before, after in pairwise(index):
        if after.offset <= before.offset or after.position <= before.position:
            raise CorruptObject(key=key, position=0, reason="the sparse index is not in order")
    return index
