"""Merging, the pure part: many small extents become few larger ones, so that rows and files follow bytes, not flushes.

The plan is pure, so any process can execute it. Adjacent extents are merged when there are many of similar
size (eight or more of a tier), or when together they fill a segment. A byte is rewritten about four times
between a kilobyte row and a megabyte segment. Extents of a mebibyte and more are left alone. So only the last
run of a partition has bytes inside the catalog: fewer than `ROWS_MAX` flushes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from millpond.catalog.extents import NewExtent
from millpond.model.errors import ObjectMissing
from millpond.model.extents import Extent
from millpond.model.ids import Session
from millpond.reading.reader import ReadRuns
from millpond.reading.runs import Run
from millpond.records import Buffer, walk
from millpond.segments.frame import FRAME_BYTES
from millpond.segments.index import build_index, pack_index
from millpond.segments.keys import segment_key
from millpond.segments.segment import write_segment

LARGE_BYTES: Final = 1024 * 1024
"""Extents of at least this size are left alone. Extents that together reach it are merged."""
SEGMENT_BYTES_MAX: Final = 32 * 1024 * 1024
TIERS: Final = (8 * 1024, 64 * 1024, 512 * 1024)
FAN_IN: Final = 8
SEGMENT_SLACK_BYTES: Final = 64 * 1024
"""Size of a segment in addition to its batches: frame, index, footer."""
ROWS_MAX: Final = 4 * FAN_IN
"""This many adjacent small extents are merged whatever their sizes. A steady stream stays below it."""


def plan_merges(extents: Sequence[Extent]) -> list[list[Extent]]:
    """Groups of adjacent extents of one partition, each to become one segment. `extents` are in order."""
    groups: list[list[Extent]] = []
    for run in _small_runs(extents):
        planned = list(_groups(run))
        is_closed = run[-1] is not extents[-1]
        groups += planned if planned or not is_closed else _leftovers(run)
    return groups


def last_small_run(rows: Sequence[Extent]) -> int:
    """The offset at which the run of small extents at the end of `rows` begins. Extents before it will not
    change."""
    begins = rows[-1].end_offset
    for extent in reversed(rows):
        if extent.length >= LARGE_BYTES:
            break
        begins = extent.base_offset
    return begins


def _small_runs(extents: Sequence[Extent]) -> Iterator[list[Extent]]:
    """Maximal runs of adjacent small extents."""
    for is_small, run in groupby(extents, key=lambda extent: extent.length < LARGE_BYTES):
        if is_small:
            yield list(run)


def _groups(run: list[Extent]) -> Iterator[list[Extent]]:
    if sum(extent.length for extent in run) >= LARGE_BYTES and len(run) > 1:
        yield from _filled(run)
        return
    for low, high in pairwise((0, *TIERS)):
        many = [group for group in _below(run, high) if _count_from(group, low) >= FAN_IN]
        if many:
            yield from many
            return
    if len(run) >= ROWS_MAX:
        yield run


def _leftovers(run: list[Extent]) -> list[list[Extent]]:
    """A run between large extents does not grow any more. Merge it if any of its bytes are inline: inline
    bytes must not stay in the catalog."""
    return [run] if any(extent.key is None for extent in run) else []


def _below(run: Sequence[Extent], bound: int) -> list[list[Extent]]:
    """Runs of adjacent extents that are all smaller than the bound."""
    return [list(group) for below, group in groupby(run, key=lambda e: e.length < bound) if below]


def _count_from(group: Sequence[Extent], bound: int) -> int:
    """The number of extents that are not smaller than the bound. The others do not count: otherwise the large
    ones among them would be rewritten with every few small ones that follow."""
    return sum(extent.length >= bound for extent in group)


def _filled(run: list[Extent]) -> Iterator[list[Extent]]:
    """Cut a long run into groups of at least a mebibyte; a remainder waits for more extents."""
    group: list[Extent] = []
    size = 0
    for extent in run:
        if group and size + extent.length > SEGMENT_BYTES_MAX:
            yield group
            group, size = [], 0
        group.append(extent)
        size += extent.length
    if len(group) > 1 and (size >= LARGE_BYTES or len(group) >= FAN_IN):
        yield group


@dataclass(frozen=True, slots=True)
class MergedSegment:
    """A segment ready to be stored and registered."""

    key: str
    parts: list[Buffer]
    row: NewExtent
    size: int


def build_segment(
    session: Session, sequence: int, old: Sequence[Extent], runs: Sequence[Run]
) -> MergedSegment:
    """One segment with the batches of several extents, in their order. Offsets do not change."""
    topic_partition, base, end = old[0].topic_partition, old[0].base_offset, old[-1].end_offset
    epoch = max(extent.epoch for extent in old)
    oldest = min(extent.min_timestamp for extent in old)
    newest = max(extent.max_timestamp for extent in old)
    facts = list(_batch_facts(runs, base))
    records = sum(extent.records for extent in old)
    index = build_index(facts)
    parts = write_segment(
        topic_partition,
        base,
        end,
        [run.data for run in runs],
        batches=len(facts),
        records=records,
        epoch=epoch,
        min_timestamp=oldest,
        max_timestamp=newest,
        index=index,
    )
    length = sum(len(run.data) for run in runs)
    row = NewExtent(
        topic_partition, base, end, epoch, None, FRAME_BYTES, length, records, oldest, newest, newest, True,
        pack_index(index) or None, None,
    )  # fmt: skip
    return MergedSegment(
        segment_key(session, topic_partition.topic_id, topic_partition.partition, base, end, sequence),
        parts,
        row,
        sum(map(len, parts)),
    )


def size_of_merged(group: Sequence[Extent]) -> int:
    """Approximate size of a group's segment: slightly more than its batches."""
    return sum(extent.length for extent in group) + SEGMENT_SLACK_BYTES


def _batch_facts(runs: Sequence[Run], base_offset: int) -> Iterator[tuple[int, int, int]]:
    start = 0
    for run in runs:
        for position, header in walk(run.data):
            yield header.base_offset - base_offset, start + position, header.newest_timestamp
        start += len(run.data)


def read_group(read_runs: ReadRuns, group: Sequence[Extent]) -> list[Run]:
    """The bytes of every extent of a group, stamped. The plan has no inline bytes, so the rows are read again."""
    runs: list[Run] = []
    topic_partition, offset, end = group[0].topic_partition, group[0].base_offset, group[-1].end_offset
    while offset < end:
        found = read_runs(topic_partition, offset, max(sum(e.length for e in group), 1))
        within = [run for run in found if run.end_offset <= end]
        if not within or within[0].base_offset < offset:
            raise ObjectMissing(key=f"extents at offset {offset}")
        runs.extend(within)
        offset = within[-1].end_offset
    return runs
