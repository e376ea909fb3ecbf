"""The sparse index of an extent: one place to enter per 64 KiB of batches, found by offset or by time.

Entries count from the extent's own start (see `IndexEntry`): an index is built before the extent has offsets
and stays true when the extent moves. It is kept in the catalog row and, for segments, in the object's footer.
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
"""(offset, position, max timestamp) of a batch, both counted from the extent's start."""


def build_index(batches: Iterable[Batch], every: int = INDEX_EVERY_BYTES) -> tuple[IndexEntry, ...]:
    """The index of an extent's batches, which come in order.

    An entry opens at the first batch, then at each one that starts `every` bytes or more after the last one.
    One entry alone says nothing the extent does not say itself, so a small extent has an empty index.
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
    """The last entry at or before `offset` (counted from the extent's start), where a search for it begins.

    None means the extent's own start: there is no index, or it begins later.
    """
    found = bisect_right(index, offset, key=_offset_of)
    return index[found - 1] if found else None


def entry_for_timestamp(index: tuple[IndexEntry, ...], timestamp: int) -> IndexEntry | None:
    """The first entry whose stretch holds a timestamp of at least `timestamp`; None if no stretch does.

    A scan: timestamps need not ascend, and an index has sixteen entries per MiB.
    """
    return next((entry for entry in index if entry.max_timestamp >= timestamp), None)


def pack_index(index: tuple[IndexEntry, ...]) -> bytes:
    """A version byte and twenty bytes for each entry; empty for an empty index."""
    if not index:
        return b""
    packed = (_ENTRY.pack(entry.offset, entry.position, entry.max_timestamp) for entry in index)
    return bytes((INDEX_VERSION,)) + b"".join(packed)


def unpack_index(data: bytes | memoryview, key: str = "?") -> tuple[IndexEntry, ...]:
    """The inverse of `pack_index`; `CorruptObject` for bytes that it cannot have written."""
    if not data:
        return ()
    if data[0] != INDEX_VERSION or len(data) == 1 or (len(data) - 1) % _ENTRY.size:
        raise CorruptObject(key=key, position=0, reason="the sparse index has an unknown version or length")
    index = tuple(map(IndexEntry._make, _ENTRY.iter_unpack(memoryview(data)[1:])))
    for before, after in pairwise(index):
        if after.offset <= before.offset or after.position <= before.position:
            raise CorruptObject(key=key, position=0, reason="the sparse index is not in order")
    return index
