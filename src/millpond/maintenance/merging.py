"""Merging in the broker: executes the plans of `millpond.rewriting.merging` through the log's commit queue."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final

from millpond.catalog import extents as catalog_extents
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.objects import NewObject
from millpond.log import Upkeep
from millpond.maintenance.disk_space import SpaceCheck
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
from millpond.rewriting.inputs import read_group
from millpond.rewriting.merging import (
    LARGE_BYTES,
    MergedSegment,
    build_segment,
    last_small_run,
    plan_merges,
    size_of_merged,
)

DUTY: Final = "merging"
EXTENTS_PER_PAGE: Final = 4_000
BYTES_PER_PASS: Final = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


class Merging:
    """The broker's own executor. Remembers for each of its partitions where the last run of small extents
    begins, and checks only partitions that have grown since, or that it has received from another broker."""

    def __init__(
        self, log: Upkeep, store: ObjectStore, session: Session, clock: Clock, space: SpaceCheck
    ) -> None:
        self._space = space
        self._log = log
        self._store = store
        self._session = session
        self._clock = clock
        self._from: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._due: set[TopicPartition] = set()
        self._excluded_below: dict[TopicPartition, int] = {}
        self.attempts = count(1)
        """Numbers that distinguish the session's segments for one range. Compaction uses them, too."""

    @contextmanager
    def exclude_below(self, topic_partition: TopicPartition, end_offset: int) -> Iterator[None]:
        """Skip extents below `end_offset` for the duration of the block: the caller is about to replace them."""
        self._excluded_below[topic_partition] = end_offset
        try:
            yield
        finally:
            del self._excluded_below[topic_partition]

    async def run_once(self) -> int:
        """Merge what is worth merging, up to a budget of bytes; returns how many extents were replaced."""
        due = self._due = await self._take_due()
        replaced = 0
        room = BYTES_PER_PASS
        for topic_partition in sorted(due):
            done = await self._merge_partition(topic_partition, room)
            replaced += done.replaced
            room -= done.bytes
            if not done.has_more:
                due.discard(topic_partition)
            if room <= 0:
                break
        self._space.end_pass(DUTY)
        return replaced

    async def _merge_partition(self, topic_partition: TopicPartition, room: int) -> "Step":
        """Repeat steps until nothing is left to do. A partition that cannot be merged is left for the next
        pass: one damaged object must not stop the merging of all others."""
        replaced = written = 0
        try:
            while (step := await self._step(topic_partition)).has_more and written < room:
                replaced, written = replaced + step.replaced, written + step.bytes
        except Unavailable:
            raise  # the other partitions would fail, too
        except MillpondError as error:
            logger.warning(
                "merging failed; will retry",
                extra={
                    "topic": self._log.topics.name_of(topic_partition.topic_id),
                    "partition": topic_partition.partition,
                    "error": str(error),
                },
            )
            return Step(replaced, written, has_more=True)
        return Step(replaced + step.replaced, written + step.bytes, step.has_more or step.is_due)

    async def _take_due(self) -> set[TopicPartition]:
        """Partitions that are new here and have small extents, those that grew, and those left over from
        earlier passes; without those that this broker no longer owns."""
        owned = {partition.topic_partition: partition.epoch for partition in self._log.partitions()}
        taken = [
            topic_partition
            for topic_partition, epoch in owned.items()
            if self._epochs.get(topic_partition) != epoch
        ]
        found = await self._log.read(lambda tx: catalog_extents.first_small(tx, taken, LARGE_BYTES))
        self._epochs = owned
        grown = self._log.take_grown()
        starts = {**grown, **self._from, **found}
        self._from = {
            topic_partition: start for topic_partition, start in starts.items() if topic_partition in owned
        }
        return (self._due | found.keys() | grown.keys()) & owned.keys()

    async def _step(self, topic_partition: TopicPartition) -> "Step":
        start = self._from[topic_partition]
        rows = await self._log.read(
            lambda tx: catalog_extents.facts(tx, topic_partition, start, EXTENTS_PER_PAGE)
        )
        self._log.found_inline(topic_partition, sum(row.length for row in rows if row.key is None))
        excluded_below = self._excluded_below.get(topic_partition, 0)
        groups = plan_merges([row for row in rows if row.base_offset >= excluded_below])
        if not rows:
            del self._from[
                topic_partition
            ]  # expired or deleted; if the partition grows again, merging starts there
            return Step(0, 0, has_more=False)
        if not groups and excluded_below:
            return Step(0, 0, has_more=False, is_due=True)
        if not groups:
            self._from[topic_partition] = last_small_run(rows)
            return Step(0, 0, has_more=len(rows) == EXTENTS_PER_PAGE)
        sizes = [(len(group), await self._merge(group)) for group in groups]
        written = sum(size for _, size in sizes)
        return Step(
            sum(n for n, size in sizes if size),
            written,
            has_more=written > 0,
            is_due=any(s == 0 for _, s in sizes),
        )

    async def _merge(self, group: Sequence[Extent]) -> int:
        """Returns how many bytes were written: 0 if the group has changed during the merge, or if there is no
        room."""
        try:
            segment = await self._log.in_pool(lambda: self._write(group))
        except ObjectMissing:
            return 0  # replaced or expired: the next pass plans again
        if segment is None:
            return 0

        def replace(tx: CatalogTransaction) -> None:
            new_object = NewObject(segment.key, "segment", self._session, segment.size, sealed=True)
            catalog_extents.replace(tx, group, segment.row, new_object, now_ms=self._clock.now_ms())

        try:
            await self._log.write(replace, own_commit=True)
        except (OutcomeUnknown, CatalogFailed):
            raise  # the catalog may refer to the segment, or may do so when it is opened again
        except MillpondError as error:
            await self._log.in_pool(lambda: self._store.delete([segment.key]))
            if isinstance(error, ExtentsChanged):
                return 0
            raise
        return segment.size

    def _write(self, group: Sequence[Extent]) -> MergedSegment | None:
        """Returns None if there is no room for the segment."""
        if not self._space.has_room(DUTY, size_of_merged(group)):
            return None
        runs = read_group(self._log.read_runs, group)
        segment = build_segment(self._session, next(self.attempts), group, runs)
        self._store.put(segment.key, segment.parts)
        return segment


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step on a partition."""

    replaced: int
    bytes: int
    has_more: bool
    is_due: bool = False
    """The group changed, or there was no room for it: the next pass checks the partition again."""
