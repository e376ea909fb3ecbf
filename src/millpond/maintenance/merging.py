"""Merging in the broker: performs the plans of `millpond.rewriting.merging` through the log's commit queue."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final

from millpond.catalog import extents as catalog_extents
from millpond.catalog.database import Transaction
from millpond.catalog.objects import NewObject
from millpond.log.log import Log
from millpond.maintenance.space import Space
from millpond.model.clock import Clock
from millpond.model.errors import (
    CatalogFailed,
    ExtentsChanged,
    MillpondError,
    ObjectMissing,
    OutcomeUnknown,
    Unavailable,
)
from millpond.model.extents import Extent
from millpond.model.ids import Session, TopicPartition
from millpond.objects.store import ObjectStore
from millpond.rewriting.merging import (
    LARGE_BYTES,
    MergedSegment,
    build_segment,
    last_small_run,
    plan_merges,
    read_group,
    size_of_merged,
)

DUTY: Final = "merging"
EXTENTS_PER_LOOK: Final = 4_000
BYTES_PER_PASS: Final = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


class Merging:
    """The broker's own executor. Remembers for each of its partitions where the last run of small extents begins, and
    looks only at those that have grown since, or that it has got from another broker."""

    def __init__(self, log: Log, store: ObjectStore, session: Session, clock: Clock, space: Space) -> None:
        self._space = space
        self._log = log
        self._store = store
        self._session = session
        self._clock = clock
        self._from: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._due: set[TopicPartition] = set()
        self._spared: dict[TopicPartition, int] = {}
        self.attempts = count(1)
        """Numbers that tell apart the session's segments for one range. Compaction takes from them, too."""

    @contextmanager
    def spare(self, where: TopicPartition, end_offset: int) -> Iterator[None]:
        """Leave alone what lies below `end_offset`: somebody is about to replace it."""
        self._spared[where] = end_offset
        try:
            yield
        finally:
            del self._spared[where]

    async def run_once(self) -> int:
        """Merge what is worth merging, up to a budget of bytes; returns how many extents were replaced."""
        due = self._due = await self._take_due()
        replaced = 0
        room = BYTES_PER_PASS
        for where in sorted(due):
            done = await self._merge_partition(where, room)
            replaced += done.replaced
            room -= done.bytes
            if not done.has_more:
                due.discard(where)
            if room <= 0:
                break
        self._space.end_pass(DUTY)
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
            logger.warning(
                "merging failed; will retry",
                extra={
                    "topic": self._log.topics.name_of(where.topic_id),
                    "partition": where.partition,
                    "error": str(error),
                },
            )
            return Step(replaced, written, has_more=True)
        return Step(replaced + step.replaced, written + step.bytes, step.has_more or step.is_due)

    async def _take_due(self) -> set[TopicPartition]:
        """Those that are new here and have small extents, those that grew, and those left over. Not those that others
        have by now."""
        owned = {partition.where: partition.epoch for partition in self._log.partitions()}
        taken = [where for where, epoch in owned.items() if self._epochs.get(where) != epoch]
        found = await self._log.read(lambda tx: catalog_extents.first_small(tx, taken, LARGE_BYTES))
        self._epochs = owned
        grown = self._log.take_grown()
        starts = {**grown, **self._from, **found}
        self._from = {where: start for where, start in starts.items() if where in owned}
        return (self._due | found.keys() | grown.keys()) & owned.keys()

    async def _step(self, where: TopicPartition) -> "Step":
        start = self._from[where]
        rows = await self._log.read(lambda tx: catalog_extents.facts(tx, where, start, EXTENTS_PER_LOOK))
        self._log.inline.found(where, sum(row.length for row in rows if row.key is None))
        spared = self._spared.get(where, 0)
        groups = plan_merges([row for row in rows if row.base_offset >= spared])
        if not rows:
            del self._from[where]  # expired or deleted; if it grows again, it begins there
            return Step(0, 0, has_more=False)
        if not groups and spared:
            return Step(0, 0, has_more=False, is_due=True)
        if not groups:
            self._from[where] = last_small_run(rows)
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
        """How many bytes were written: 0 if the group has changed meanwhile, or if there is no room for it yet."""
        try:
            segment = await self._log.in_pool(lambda: self._write(group))
        except ObjectMissing:
            return 0  # replaced or expired meanwhile: the next pass plans anew
        if segment is None:
            return 0

        def replace(tx: Transaction) -> None:
            new_object = NewObject(segment.key, "segment", self._session, segment.size, sealed=True)
            catalog_extents.replace(tx, group, segment.row, new_object, now_ms=self._clock.now_ms())

        try:
            await self._log.write(replace, alone=True)
        except (OutcomeUnknown, CatalogFailed):
            raise  # the segment may be in use, or be when the catalog is opened again
        except MillpondError as error:
            await self._log.in_pool(lambda: self._store.delete([segment.key]))
            if isinstance(error, ExtentsChanged):
                return 0
            raise
        return segment.size

    def _write(self, group: Sequence[Extent]) -> MergedSegment | None:
        """None if there is no room for it."""
        if not self._space.has_room(DUTY, size_of_merged(group)):
            return None
        runs = read_group(self._log.reader, group)
        segment = build_segment(self._session, next(self.attempts), group, runs)
        self._store.put(segment.key, segment.parts)
        return segment


@dataclass(frozen=True, slots=True)
class Step:
    """What one look at a partition came to."""

    replaced: int
    bytes: int
    has_more: bool
    is_due: bool = False
    """Something changed under it, or there was no room for it: the next pass looks again."""
