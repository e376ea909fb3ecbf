"""Decides how much a micro-batch reads, and which task reads what. Pure: ranges and their sizes in, ranges
out.

Work is distributed by bytes: large ranges are cut where an extent or its sparse index lets a reader begin,
and small ranges share a task. A range consists of offsets only; the object that holds them is looked up when
the range is read.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

from millpond.model.extents import Extent
from millpond.model.ids import TopicPartition
from millpond.spark.source.offsets import NamedPartition

SPLIT_BYTES_MIN: Final = 1024 * 1024
SPLIT_BYTES_MAX: Final = 32 * 1024 * 1024
SPLITS_PER_CORE: Final = 4
"""Tasks differ in duration; with several per core, none is idle for long."""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Offsets of one partition to read, and their approximate size in stored bytes."""

    name: NamedPartition
    topic_partition: TopicPartition
    start: int
    end: int
    bytes: int = 0

    @property
    def offsets(self) -> int:
        return self.end - self.start


class RangePart(NamedTuple):
    """A part of a range. It begins where the previous one ends."""

    end: int
    bytes: int


def split_by_bytes(extents: Iterable[Extent], start: int, end: int, *, every: int) -> list[RangePart]:
    """Divide a range into parts of about `every` bytes each, or of one entry of a sparse index if that is
    larger. They cover the whole range, gaps included."""
    parts: list[RangePart] = []
    size = 0
    for _, piece_end, piece_bytes in _pieces(extents, start, end):
        size += piece_bytes
        if size >= every:
            parts.append(RangePart(piece_end, size))
            size = 0
    if size or not parts:
        parts.append(RangePart(end, size))
    parts[-1] = RangePart(end, parts[-1].bytes)
    return parts


def _pieces(extents: Iterable[Extent], start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(start, end, bytes) between the positions where a reader can begin, limited to the range."""
    for extent in extents:
        base = extent.base_offset
        entries = [(base + each.offset, each.position) for each in extent.index] or [(base, 0)]
        ends = [*entries[1:], (extent.end_offset, extent.length)]
        for (low, position), (high, following) in zip(entries, ends, strict=True):
            if high > start and low < end:
                yield max(low, start), min(high, end), following - position


def split_bytes(total: int, cores: int) -> int:
    """How many bytes one task should read."""
    return max(SPLIT_BYTES_MIN, min(SPLIT_BYTES_MAX, total // (SPLITS_PER_CORE * cores)))


def cut(whole: ReadRange, parts: Sequence[RangePart], bytes_wanted: int) -> list[ReadRange]:
    """Ranges of about `bytes_wanted`, cut between parts."""
    ranges: list[ReadRange] = []
    start, size = whole.start, 0
    for number, range_part in enumerate(parts):
        size += range_part.bytes
        if size >= bytes_wanted or number + 1 == len(parts):
            if range_part.end > start:
                ranges.append(replace(whole, start=start, end=range_part.end, bytes=size))
            start, size = range_part.end, 0
    return ranges


def arrange(
    ranges: Sequence[ReadRange],
    *,
    bytes_wanted: int,
    min_partitions: int | None = None,
    records_max: int | None = None,
) -> list[tuple[ReadRange, ...]]:
    """The ranges of each task. Small neighbouring ranges share a task, unless the user set options for the
    division."""
    if min_partitions is None and records_max is None:
        return _packed(ranges, bytes_wanted)
    if records_max is not None:
        ranges = [piece for each in ranges for piece in _in_parts(each, -(-each.offsets // records_max))]
    return [(each,) for each in _at_least(ranges, min_partitions or 1)]


def _packed(ranges: Sequence[ReadRange], bytes_wanted: int) -> list[tuple[ReadRange, ...]]:
    tasks: list[list[ReadRange]] = []
    size = 0
    for each in ranges:
        if not tasks or size + each.bytes > bytes_wanted:
            tasks.append([])
            size = 0
        tasks[-1].append(each)
        size += each.bytes
    return [tuple(task) for task in tasks]


def _at_least(ranges: Sequence[ReadRange], count: int) -> list[ReadRange]:
    """Halve the longest range until there are enough, or none can be halved."""
    heap = [(-each.offsets, number, each) for number, each in enumerate(ranges)]
    heapq.heapify(heap)
    number = len(heap)
    while heap and len(heap) < count and heap[0][2].offsets > 1:
        for piece in _in_parts(heapq.heappop(heap)[2], 2):
            number += 1
            heapq.heappush(heap, (-piece.offsets, number, piece))
    return sorted((each for _, _, each in heap), key=lambda each: (each.name, each.start))


def _in_parts(whole: ReadRange, parts: int) -> list[ReadRange]:
    """Split into equal numbers of offsets, each with an equal share of the bytes."""
    bounds = [whole.start + whole.offsets * part // parts for part in range(parts + 1)]
    return [replace(whole, start=low, end=high, bytes=whole.bytes // parts) for low, high in pairwise(bounds)]


def limit_offsets(
    starts: Mapping[NamedPartition, int], ends: Mapping[NamedPartition, int], most: int
) -> dict[NamedPartition, int]:
    """End offsets that limit the read to about `most` offsets: each partition in proportion to what it has,
    and at least one offset of each."""
    sizes = {name: max(0, end - starts[name]) for name, end in ends.items()}
    total = sum(sizes.values())
    if total <= most:
        return dict(ends)
    return {name: min(end, starts[name] + _share(sizes[name], total, most)) for name, end in ends.items()}


def _share(size: int, total: int, most: int) -> int:
    """Rounded down, but at least one if there is anything, so that small partitions do not starve."""
    return max(most * size // total, min(size, 1))


def limit_bytes(
    starts: Mapping[NamedPartition, int],
    parts_by_partition: Mapping[NamedPartition, Sequence[RangePart]],
    most: int,
) -> dict[NamedPartition, int]:
    """End offsets that limit the read to about `most` bytes: each partition in proportion to what it has, and
    at least one offset of each."""
    sizes = {name: sum(each.bytes for each in parts) for name, parts in parts_by_partition.items()}
    total = sum(sizes.values())
    if total <= most:
        return {name: parts[-1].end for name, parts in parts_by_partition.items()}
    return {
        name: _end_after(starts[name], parts, most * sizes[name] // total)
        for name, parts in parts_by_partition.items()
    }


def _end_after(start: int, parts: Sequence[RangePart], room: int) -> int:
    """The offset at which `room` bytes are used up. Within a part, bytes are assumed to be evenly
    distributed."""
    at = start
    for range_part in parts:
        if range_part.bytes > room:
            taken = (range_part.end - at) * room // range_part.bytes
            return at + taken if at + taken > start else min(start + 1, range_part.end)
        room -= range_part.bytes
        at = range_part.end
    return at
