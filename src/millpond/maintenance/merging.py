"""Merging: many small extents become few larger ones, so that rows and files follow bytes, not flushes.

The plan is pure and serves any executor. Neighbouring extents are merged when they are many and of like size
(eight or more of a tier), which rewrites a byte about four times on its way from a kilobyte row to a megabyte
segment, or when together they fill a segment. Extents of a mebibyte and more stay where they are.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby, pairwise
from typing import Final

from millpond.catalog import extents as catalog_extents
from millpond.catalog.database import Transaction
from millpond.catalog.objects import NewObject
from millpond.log.log import Log
from millpond.log.reader import StoreReader
from millpond.log.runs import Run
from millpond.model.clock import Clock
from millpond.model.errors import ExtentsChanged, MillpondError, ObjectMissing, OutcomeUnknown, Unavailable
from millpond.model.extents import Extent
from millpond.model.ids import Session, TopicPartition
from millpond.objects.store import ObjectStore
from millpond.records import Buffer, walk
from millpond.segments.frame import FRAME_BYTES
from millpond.segments.index import build_index, pack_index
from millpond.segments.keys import segment_key
from millpond.segments.segment import write_segment

LARGE_BYTES: Final = 1024 * 1024
"""Extents from here on are left alone, and extents that together reach it are merged."""
SEGMENT_BYTES_MAX: Final = 32 * 1024 * 1024
TIERS: Final = (8 * 1024, 64 * 1024, 512 * 1024)
FAN_IN: Final = 8
ROWS_MAX: Final = 4 * FAN_IN
"""So many small extents in a row are merged whatever their sizes. A steady stream stays below it."""
EXTENTS_PER_LOOK: Final = 4_000
BYTES_PER_PASS: Final = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


def plan_merges(extents: Sequence[Extent]) -> list[list[Extent]]:
    """Groups of neighbouring extents of one partition, each to become one segment. `extents` are in order."""
    return [group for run in _small_runs(extents) for group in _groups(run)]


def _small_runs(extents: Sequence[Extent]) -> Iterator[list[Extent]]:
    """Maximal runs of adjoining small extents."""
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


def _below(run: Sequence[Extent], bound: int) -> list[list[Extent]]:
    """Neighbours that are all smaller than the bound."""
    return [list(group) for below, group in groupby(run, key=lambda e: e.length < bound) if below]


def _count_from(group: Sequence[Extent], bound: int) -> int:
    """How many are not smaller than the bound. The others do not count, else the large ones among them would
    be written anew with every few small ones that follow."""
    return sum(extent.length >= bound for extent in group)


def _filled(run: list[Extent]) -> Iterator[list[Extent]]:
    """Cut a long run into groups of at least a mebibyte; a remainder waits for company."""
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
    """A segment ready to be put and registered."""

    key: str
    parts: list[Buffer]
    row: catalog_extents.NewExtent
    size: int


def build_segment(
    session: Session, sequence: int, old: Sequence[Extent], runs: Sequence[Run]
) -> MergedSegment:
    """One segment of the batches of several extents, in their order. Offsets stay what they are."""
    where, base, end = old[0].where, old[0].base_offset, old[-1].end_offset
    epoch = max(extent.epoch for extent in old)
    oldest = min(extent.min_timestamp for extent in old)
    newest = max(extent.max_timestamp for extent in old)
    facts = list(_batch_facts(runs, base))
    records = sum(extent.records for extent in old)
    index = build_index(facts)
    parts = write_segment(
        where,
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
    row = catalog_extents.NewExtent(
        where, base, end, epoch, None, FRAME_BYTES, length, records, oldest, newest, newest, True,
        pack_index(index) or None, None,
    )  # fmt: skip
    return MergedSegment(
        segment_key(session, where.topic_id, where.partition, base, end, sequence),
        parts,
        row,
        sum(map(len, parts)),
    )


def _batch_facts(runs: Sequence[Run], base_offset: int) -> Iterator[tuple[int, int, int]]:
    start = 0
    for run in runs:
        for position, header in walk(run.data):
            yield header.base_offset - base_offset, start + position, header.newest_timestamp
        start += len(run.data)


class Merging:
    """The broker's own executor. Remembers for each partition where its last run of small extents begins, and
    looks only at partitions that have grown since."""

    def __init__(self, log: Log, store: ObjectStore, session: Session, clock: Clock) -> None:
        self._log = log
        self._store = store
        self._session = session
        self._clock = clock
        self._from: dict[TopicPartition, int] = {}
        self._due: set[TopicPartition] | None = None
        self._sequence = count(1)

    async def run_once(self) -> int:
        """Merge what is worth merging, up to a budget of bytes; returns how many extents were replaced."""
        due = self._due = await self._take_due()
        replaced = 0
        room = BYTES_PER_PASS
        for where in list(due):
            done = await self._merge_partition(where, room)
            replaced += done.replaced
            room -= done.bytes
            if not done.has_more:
                due.discard(where)
            if room <= 0:
                break
        return replaced

    async def _merge_partition(self, where: TopicPartition, room: int) -> "Step":
        """Steps until nothing is left to do. A partition that cannot be merged is left for the next pass: one
        damaged object must not keep all others from being merged."""
        replaced = written = 0
        try:
            while (step := await self._step(where)).has_more and written < room:
                replaced, written = replaced + step.replaced, written + step.bytes
        except Unavailable:
            raise  # no use in trying the others
        except MillpondError as error:
            logger.warning("%s cannot be merged for now: %s", where, error)
            return Step(replaced, written, has_more=True)
        return Step(replaced + step.replaced, written + step.bytes, step.has_more or step.is_due)

    async def _take_due(self) -> set[TopicPartition]:
        """At first every partition with small extents; then those that grew, and those left over."""
        if self._due is None:
            found = await self._log.read(
                lambda tx: catalog_extents.partitions_with_small_extents(tx, LARGE_BYTES)
            )
            self._from = dict(found)
            self._due = set(self._from)
        grown = self._log.take_grown()
        for where, end_offset in grown.items():
            self._from.setdefault(where, end_offset)
        return self._due | set(grown)

    async def _step(self, where: TopicPartition) -> "Step":
        start = self._from[where]
        rows = await self._log.read(lambda tx: catalog_extents.facts(tx, where, start, EXTENTS_PER_LOOK))
        groups = plan_merges(rows)
        if not rows:
            del self._from[where]  # expired or deleted; if it grows again, it begins there
            return Step(0, 0, has_more=False)
        if not groups:
            self._from[where] = _last_small_run(rows)
            return Step(0, 0, has_more=len(rows) == EXTENTS_PER_LOOK)
        sizes = [(len(group), await self._merge(group)) for group in groups]
        written = sum(size for _, size in sizes)
        return Step(
            sum(n for n, size in sizes if size),
            written,
            has_more=written > 0,
            is_due=any(s == 0 for _, s in sizes),
        )

    async def _merge(self, group: Sequence[Extent]) -> int:
        try:
            segment = await self._log.in_pool(lambda: self._write(group))
        except ObjectMissing:
            return 0  # replaced or expired meanwhile: the next pass plans anew

        def replace(tx: Transaction) -> None:
            new_object = NewObject(segment.key, "segment", self._session, segment.size, sealed=True)
            catalog_extents.replace(tx, group, segment.row, new_object, now_ms=self._clock.now_ms())

        try:
            await self._log.write(replace)
        except OutcomeUnknown:
            raise  # the segment may be in use
        except MillpondError as error:
            await self._log.in_pool(lambda: self._store.delete([segment.key]))
            if isinstance(error, ExtentsChanged):
                return 0
            raise
        return segment.size

    def _write(self, group: Sequence[Extent]) -> MergedSegment:
        runs = read_group(self._log.reader, group)
        segment = build_segment(self._session, next(self._sequence), group, runs)
        self._store.put(segment.key, segment.parts)
        return segment


@dataclass(frozen=True, slots=True)
class Step:
    """What one look at a partition came to."""

    replaced: int
    bytes: int
    has_more: bool
    is_due: bool = False
    """Something changed under it: the next pass looks again."""


def _last_small_run(rows: Sequence[Extent]) -> int:
    """Where the run of small extents at the end of `rows` begins: what lies before it will not change."""
    begins = rows[-1].end_offset
    for extent in reversed(rows):
        if extent.length >= LARGE_BYTES:
            break
        begins = extent.base_offset
    return begins


def read_group(reader: StoreReader, group: Sequence[Extent]) -> list[Run]:
    """The bytes of every extent of a group, stamped. The plan knows no inline bytes, so rows are read again."""
    runs: list[Run] = []
    where, offset, end = group[0].where, group[0].base_offset, group[-1].end_offset
    while offset < end:
        found = reader.read_runs(where, offset, max(sum(e.length for e in group), 1))
        within = [run for run in found if run.end_offset <= end]
        if not within or within[0].base_offset < offset:
            raise ObjectMissing(key=f"extents at offset {offset}")
        runs.extend(within)
        offset = within[-1].end_offset
    return runs
