"""The settled offsets of a subscription partition: a floor, and a bitmap above it.

Everything below the floor is settled; the floor itself never is. Above it, each chunk of 8,192 offsets has one bit per
offset, so ten million settled messages above an unsettled one take 1.2 MB, and full chunks almost nothing. A change has
two steps, `plan` and `apply`. In between, the plan is written to the catalog as absolute values, so that writing it
twice does no harm.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

CHUNK_OFFSETS: Final = 8192
CHUNK_BYTES: Final = CHUNK_OFFSETS // 8
FULL: Final = b"\xff" * CHUNK_BYTES
EMPTY: Final = bytes(CHUNK_BYTES)

OffsetRange = tuple[int, int]
"""From the first offset (inclusive) to the second (exclusive)."""


@dataclass(frozen=True, slots=True)
class SettledChange:
    """The new floor and chunks. Chunks that are not named stay unchanged."""

    floor: int
    chunks: Mapping[int, bytes]
    removed: tuple[int, ...]


class SettledOffsets:
    def __init__(self, floor: int = 0, chunks: Mapping[int, bytes] | None = None) -> None:
        self.floor = floor
        self.chunks: dict[int, bytes] = {
            number: FULL if bits == FULL else bits for number, bits in (chunks or {}).items()
        }
        """Empty if no offset above the floor is settled. Changed only by `apply`."""

    def __contains__(self, offset: int) -> bool:
        if offset < self.floor:
            return True
        bits = self.chunks.get(offset // CHUNK_OFFSETS)
        return bits is not None and bool(bits[offset % CHUNK_OFFSETS >> 3] >> (offset & 7) & 1)

    @property
    def above_floor(self) -> int:
        """How many offsets above the floor are settled."""
        first, within = self.floor // CHUNK_OFFSETS, self.floor % CHUNK_OFFSETS
        return sum(
            (int.from_bytes(bits, "little") >> (within if number == first else 0)).bit_count()
            for number, bits in self.chunks.items()
        )

    def next_open(self, offset: int) -> int:
        """The first unsettled offset from here on."""
        return _next_open(self.chunks, max(offset, self.floor))

    def plan(self, offsets: Iterable[int], ranges: Iterable[OffsetRange] = ()) -> SettledChange:
        """What to store so that these offsets are settled, too."""
        touched: dict[int, bytearray] = {}
        floor = self.floor
        above = []
        for start, end in sorted(ranges):
            if start > floor:
                above.append((start, end))
            else:
                floor = max(floor, end)
        for offset in offsets:
            if offset >= floor:
                bits = touched.get(offset // CHUNK_OFFSETS) or self._touch(touched, offset // CHUNK_OFFSETS)
                bits[offset % CHUNK_OFFSETS >> 3] |= 1 << (offset & 7)
        for start, end in above:
            self._fill(touched, start, end)
        return self._change(touched, floor)

    def apply(self, change: SettledChange) -> None:
        self.floor = change.floor
        for number in change.removed:
            self.chunks.pop(number, None)
        self.chunks.update(change.chunks)

    def _touch(self, touched: dict[int, bytearray], number: int) -> bytearray:
        bits = touched[number] = bytearray(self.chunks.get(number, EMPTY))
        return bits

    def _fill(self, touched: dict[int, bytearray], start: int, end: int) -> None:
        while start < end:
            number = start // CHUNK_OFFSETS
            stop = min(end, (number + 1) * CHUNK_OFFSETS)
            bits = touched.get(number) or self._touch(touched, number)
            mask = (1 << (stop - start)) - 1 << start % CHUNK_OFFSETS
            bits[:] = (int.from_bytes(bits, "little") | mask).to_bytes(CHUNK_BYTES, "little")
            start = stop

    def _below(self, last: int) -> list[int]:
        """Stored chunks that are below the floor once it moves into chunk `last`."""
        first = self.floor // CHUNK_OFFSETS
        if last - first < len(self.chunks):
            return [number for number in range(first, last) if number in self.chunks]
        return sorted(number for number in self.chunks if number < last)

    def _change(self, touched: dict[int, bytearray], floor: int) -> SettledChange:
        """Everything below `floor` is settled; the new floor may be higher."""
        after: dict[int, bytes] = {
            number: FULL if bits == FULL else bytes(bits) for number, bits in touched.items()
        }
        known = ChainMap(after, self.chunks)
        floor = _next_open(known, floor)
        last = floor // CHUNK_OFFSETS
        removed = self._below(last)
        chunks = {number: bits for number, bits in after.items() if number >= last}
        at_floor = known.get(last)
        if at_floor is not None and not int.from_bytes(at_floor, "little") >> floor % CHUNK_OFFSETS:
            chunks.pop(last, None)
            removed += [last] if last in self.chunks else []
        return SettledChange(floor, chunks, tuple(removed))


def _next_open(chunks: Mapping[int, bytes], offset: int) -> int:
    while (bits := chunks.get(offset // CHUNK_OFFSETS)) is not None:
        within = offset % CHUNK_OFFSETS
        settled = int.from_bytes(bits, "little") | (1 << within) - 1
        zero = (~settled & (settled + 1)).bit_length() - 1
        if zero < CHUNK_OFFSETS:
            return offset - within + zero
        offset += CHUNK_OFFSETS - within
    return offset
