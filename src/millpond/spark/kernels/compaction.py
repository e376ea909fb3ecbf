"""A key map in compiled code: it handles millions of records a second and compares keys byte for byte.

It is an open-addressing table of (hash, position of the key, its length, last offset) over an arena that
holds a copy of each key. The 64-bit hash finds a slot, and the bytes decide: two keys with the same hash are
never taken for one. Table and arena double in size, up to the bound. Interface and rules are those of
`millpond.rewriting.compaction_keys.KeyMap`.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # llvmlite has no type information
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from millpond.reading.visible import PlacedBatch
from millpond.rewriting.compaction_keys import BatchFilter, FilteredBatch
from millpond.spark.kernels.copying import copy_bytes
from millpond.spark.kernels.scan import Scan, scan
from millpond.spark.kernels.sections import Sections, to_sections

SLOTS_MIN: Final = 1 << 10
ARENA_BYTES_MIN: Final = 1 << 14
SLOT_BYTES: Final = 32
LOAD: Final = 0.6
"""Maximum load factor; above it the table doubles."""
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Limit for all batches of one call. A call that exceeds it raises, as for a batch that cannot be decoded."""
FREE: Final = -1
BLOCK: Final = 256
"""Number of rows whose slots are prefetched: the table is larger than any CPU cache, and cache misses that
overlap cost less."""


class CompiledKeys:
    """See `KeyMap`. `bytes_max` bounds table and arena together. While one of them grows, the old copy exists
    next to the new one."""

    def __init__(self, bytes_max: int, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._decompressed_bytes_max = decompressed_bytes_max
        self._table = _new_table(SLOTS_MIN)
        self._arena: NDArray[np.uint8] = np.empty(ARENA_BYTES_MIN, dtype=np.uint8)
        self._used = np.zeros(2, dtype=np.int64)  # number of keys, bytes used in the arena

    def __len__(self) -> int:
        return int(self._used[0])

    def collect_keys(self, batches: Sequence[PlacedBatch], start: int, end: int) -> int:
        sections, found = self._scan(batches)
        first, last = np.searchsorted(found.offset, (start, end))
        row = int(first)
        while True:
            row = _collect_keys(
                sections.data,
                found.offset,
                found.key_at,
                found.key_length,
                row,
                int(last),
                self._table,
                self._arena,
                self._used,
                int(len(self._table) * LOAD),
            )
            if row >= last:
                return end
            if not self._grow(int(found.key_length[row])):
                return int(found.offset[row])

    def filter_batches(
        self, batches: Sequence[PlacedBatch], batch_filter: BatchFilter
    ) -> list[FilteredBatch]:
        sections, found = self._scan(batches)
        keep = np.empty(len(found.offset), dtype=np.bool_)
        facts = np.empty((len(batches), 4), dtype=np.int64)
        _filter_batches(
            sections.data,
            found.section,
            found.offset,
            _times(found, batches),
            found.key_at,
            found.key_length,
            found.value_length,
            found.start,
            found.end,
            batch_filter.log_start,
            batch_filter.clean_end,
            batch_filter.tombstones_end,
            self._table,
            self._arena,
            keep,
            facts,
        )
        return _cut(sections, found, keep, facts)

    def _scan(self, batches: Sequence[PlacedBatch]) -> tuple[Sections, Scan]:
        """Each batch may use an equal share of the limit. If one exceeds it, the caller repeats the call with
        half of the batches."""
        limit = self._decompressed_bytes_max // len(batches)
        sections = to_sections(batches, decompressed_bytes_max=limit)
        return sections, scan(sections)

    def _grow(self, key_length: int) -> bool:
        """Make room for one more key of this length, within the bound; the first key always gets room. False
        if the bound is reached."""
        slots, arena = len(self._table), len(self._arena)
        while self._used[0] >= int(slots * LOAD):
            slots *= 2
        while self._used[1] + key_length > arena:
            arena *= 2
        if self._used[0] and slots * SLOT_BYTES + arena > self._bytes_max:
            return False
        if slots > len(self._table):
            table, self._table = self._table, _new_table(slots)
            _move(table, self._table)
        if arena > len(self._arena):
            small, self._arena = self._arena, np.empty(arena, dtype=np.uint8)
            self._arena[: len(small)] = small
        return True


def _new_table(slots: int) -> NDArray[np.int64]:
    """Rows of (hash, position in the arena or `FREE`, length, offset)."""
    table = np.zeros((slots, 4), dtype=np.int64)
    table[:, 1] = FREE
    return table


def _times(found: Scan, batches: Sequence[PlacedBatch]) -> Any:
    """The timestamps of the records. A record without one gets its batch's newest timestamp, because the
    header says when it was appended."""
    if not (found.timestamp < 0).any():
        return found.timestamp
    newest = np.array([header.newest_timestamp for _, _, header in batches], dtype=np.int64)
    return np.where(found.timestamp < 0, newest[found.section], found.timestamp)


def _cut(sections: Sections, found: Scan, keep: Any, facts: Any) -> list[FilteredBatch]:
    """The kept records of each batch that loses some, copied one after another."""
    counts, sizes, newest, tombstones = (facts[:, column] for column in range(4))
    changed = counts < sections.count
    out = np.empty(int(sizes[changed].sum()), dtype=np.uint8)
    _copy(sections.data, found.section, found.start, found.end, keep, changed, out)
    view = out.data
    ends = np.cumsum(np.where(changed, sizes, 0)).tolist()
    rows = zip(
        counts.tolist(),
        sizes.tolist(),
        newest.tolist(),
        tombstones.tolist(),
        changed.tolist(),
        ends,
        strict=True,
    )
    return [
        FilteredBatch(count, view[end - size : end] if is_changed else None, timestamp, tombstone)
        for count, size, timestamp, tombstone, is_changed, end in rows
    ]


def _load_word(_context: Any, data: Any, _at: Any) -> Any:
    """Load eight bytes of an array as one number, at any alignment. The caller has checked that they are
    within the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, at = arguments
        array = context.make_array(data)(context, builder, value=source)
        place = builder.bitcast(builder.gep(array.data, [at]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(data, types.int64), generate


_word: Any = intrinsic(_load_word)


@njit(cache=True, nogil=True)
def _hash(data: Any, at: int, length: int) -> Any:
    """Hash eight bytes at a time, with splitmix64's mixing at the end."""
    value = np.uint64(0xCBF29CE484222325) ^ np.uint64(length)
    factor = np.uint64(0x9E3779B97F4A7C15)
    position = at
    end = at + length
    while position + 8 <= end:
        value = (value ^ _word(data, position)) * factor
        value ^= value >> np.uint64(29)
        position += 8
    while position < end:
        value = (value ^ np.uint64(data[position])) * factor
        position += 1
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(value ^ (value >> np.uint64(31)))


@njit(cache=True, nogil=True)
def _is_same(one: Any, at: int, other: Any, place: int, length: int) -> bool:
    position = 0
    while position + 8 <= length:
        if _word(one, at + position) != _word(other, place + position):
            return False
        position += 8
    while position < length:
        if one[at + position] != other[place + position]:
            return False
        position += 1
    return True


@njit(cache=True, nogil=True)
def _slot(data: Any, at: int, length: int, hashed: Any, table: Any, arena: Any) -> Any:
    """The slot that holds this key, or the free slot where it belongs."""
    mask = np.int64(len(table) - 1)
    slot = hashed & mask
    while table[slot, 1] != FREE:
        if (
            table[slot, 0] == hashed
            and table[slot, 2] == length
            and _is_same(data, at, arena, table[slot, 1], length)
        ):
            return slot
        slot = (slot + 1) & mask
    return slot


@njit(cache=True, nogil=True)
def _prefetch(
    data: Any, key_at: Any, key_length: Any, first: int, last: int, table: Any, arena: Any, ahead: Any
) -> None:
    """Store the hashes of a block's keys in column 0 of `ahead`. Column 1 only makes sure that their slots,
    and the keys these point to, are loaded into the CPU cache together instead of one after another."""
    mask = np.int64(len(table) - 1)
    for row in range(first, last):
        if key_length[row] >= 0:
            hashed = _hash(data, key_at[row], key_length[row])
            ahead[row - first, 0] = hashed
            ahead[row - first, 1] = table[hashed & mask, 1]
        else:
            ahead[row - first, 1] = FREE
    arena_end = len(arena) - 1
    for number in range(last - first):
        if ahead[number, 1] != FREE:
            ahead[number, 1] = arena[min(ahead[number, 1], arena_end)]  # an empty key may lie at the very end


@njit(cache=True, nogil=True)
def _collect_keys(
    data: Any,
    offsets: Any,
    key_at: Any,
    key_length: Any,
    row: int,
    last: int,
    table: Any,
    arena: Any,
    used: Any,
    keys_max: int,
) -> int:
    """Add keys to the table. Returns the row after the last one added: less than `last` if table or arena
    must grow first."""
    ahead = np.empty((BLOCK, 2), dtype=np.int64)
    first = block_end = row
    while row < last:
        if row == block_end:
            first, block_end = row, min(row + BLOCK, last)
            _prefetch(data, key_at, key_length, first, block_end, table, arena, ahead)
        length = key_length[row]
        if length >= 0:
            hashed = ahead[row - first, 0]
            slot = _slot(data, key_at[row], length, hashed, table, arena)
            if table[slot, 1] == FREE:
                if used[0] >= keys_max or used[1] + length > len(arena):
                    return row
                place = used[1]
                copy_bytes(arena, place, data, key_at[row], length)
                table[slot, 0] = hashed
                table[slot, 1] = place
                table[slot, 2] = length
                used[0] += 1
                used[1] += length
            table[slot, 3] = offsets[row]
        row += 1
    return row


@njit(cache=True, nogil=True)
def _move(old: Any, new: Any) -> None:
    mask = np.int64(len(new) - 1)
    for row in range(len(old)):
        if old[row, 1] != FREE:
            slot = old[row, 0] & mask
            while new[slot, 1] != FREE:
                slot = (slot + 1) & mask
            for n in range(4):
                new[slot, n] = old[row, n]


@njit(cache=True, nogil=True)
def _filter_batches(
    data: Any,
    sections: Any,
    offsets: Any,
    timestamps: Any,
    key_at: Any,
    key_length: Any,
    value_length: Any,
    starts: Any,
    ends: Any,
    log_start: int,
    clean_end: int,
    tombstones_end: int,
    table: Any,
    arena: Any,
    keep: Any,
    facts: Any,
) -> None:
    """Decide which records stay. For each batch: the number of records that stay, their bytes, the newest
    timestamp, and the first tombstone."""
    for section in range(len(facts)):
        facts[section, 0] = 0
        facts[section, 1] = 0
        facts[section, 2] = -1
        facts[section, 3] = -1
    ahead = np.empty((BLOCK, 2), dtype=np.int64)
    for row in range(len(offsets)):
        if row % BLOCK == 0:
            block_end = min(row + BLOCK, len(offsets))
            _prefetch(data, key_at, key_length, row, block_end, table, arena, ahead)
        offset = offsets[row]
        is_tombstone = value_length[row] < 0
        stays = True
        if offset < clean_end:
            if offset < log_start or key_length[row] < 0 or (is_tombstone and offset < tombstones_end):
                stays = False
            else:
                slot = _slot(data, key_at[row], key_length[row], ahead[row % BLOCK, 0], table, arena)
                stays = table[slot, 1] == FREE or table[slot, 3] <= offset
        keep[row] = stays
        if stays:
            section = sections[row]
            facts[section, 0] += 1
            facts[section, 1] += ends[row] - starts[row]
            facts[section, 2] = max(facts[section, 2], timestamps[row])
            if is_tombstone and offset < clean_end and facts[section, 3] < 0:
                facts[section, 3] = offset


@njit(cache=True, nogil=True)
def _copy(data: Any, sections: Any, starts: Any, ends: Any, keep: Any, changed: Any, out: Any) -> None:
    at = 0
    for row in range(len(keep)):
        if keep[row] and changed[sections[row]]:
            length = ends[row] - starts[row]
            copy_bytes(out, at, data, starts[row], length)
            at += length
