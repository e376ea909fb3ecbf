"""Examination in the broker: performs `millpond.rewriting.examination` through the log's commit queue.

An extent is read on a thread of the readers' pool, at a limited rate. It receives correct timestamps and, as
its append time, the time of the examination: the actual append time is not known, but it is certainly not
later. An extent whose bytes hold wrong timestamps is stored again as a new segment.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Final

from millpond.catalog import extents as catalog_extents
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.objects import NewObject
from millpond.log import Upkeep
from millpond.maintenance.compaction import Pacer
from millpond.maintenance.disk_space import SpaceCheck
from millpond.model.clock import Clock
from millpond.model.errors import (
    CatalogFailed,
    ExtentsChanged,
    MillpondError,
    ObjectMissing,
    OutcomeUnknown,
    StoreFull,
)
from millpond.model.extents import Extent
from millpond.model.ids import Session
from millpond.objects.store import ObjectStore
from millpond.reading.runs import Run
from millpond.rewriting.examination import Examined, examine, must_be_stored_again
from millpond.rewriting.merging import MergedSegment, build_segment, size_of_merged

DUTY: Final = "examination"
BYTES_PER_SECOND: Final = 16 * 1024 * 1024
"""Rate at which extents are examined. Every record is decoded, and other work needs the processor more."""

logger = logging.getLogger(__name__)


class Examination:
    def __init__(
        self,
        log: Upkeep,
        store: ObjectStore,
        session: Session,
        clock: Clock,
        attempts: Iterator[int],
        space: SpaceCheck,
    ) -> None:
        """`attempts` are numbers that distinguish the session's segments."""
        self._log = log
        self._store = store
        self._session = session
        self._clock = clock
        self._attempts = attempts
        self._space = space

    def end_pass(self) -> None:
        """Call it when everything due has been checked."""
        self._space.end_pass(DUTY)

    async def examine(self, extent: Extent) -> None:
        """Raises `ExtentsChanged` if the extent was replaced during the examination, and `StoreFull` if there
        is no room to store it again. If its object is lost, its row is trusted: nothing else is left of
        it."""
        now_ms = self._clock.now_ms()
        try:
            whole, found = await self._log.in_pool(lambda: self._read(extent, now_ms))
        except ObjectMissing as error:
            await self._log.write(_believing(extent, now_ms))
            topic_partition = extent.topic_partition
            logger.error(
                "object missing; extent expires by its catalog row",
                extra={
                    "topic": self._log.topics.name_of(topic_partition.topic_id),
                    "partition": topic_partition.partition,
                    "offset": extent.base_offset,
                    "error": str(error),
                },
            )
            return
        if must_be_stored_again(whole, found):
            await self._replace(whole, found, now_ms)
        else:
            await self._log.write(_storing(whole, found, now_ms))

    def _read(self, extent: Extent, now_ms: int) -> tuple[Extent, Examined]:
        """A plan has no inline bytes, so the row is read again."""
        with self._log.catalog_read() as tx:
            rows = catalog_extents.find(
                tx, extent.topic_partition, extent.base_offset, bytes_max=1, extents_max=1
            )
        if not rows or rows[0].base_offset != extent.base_offset:
            raise ExtentsChanged
        run = self._log.read_extent(rows[0])
        return rows[0], examine(bytearray(run.data), now_ms, Pacer(self._log, BYTES_PER_SECOND).pause)

    async def _replace(self, extent: Extent, found: Examined, now_ms: int) -> None:
        if not self._space.has_room(DUTY, size_of_merged([extent])):
            raise StoreFull(reason="an examined extent must be stored again")
        segment = await self._log.in_pool(lambda: self._put(extent, found))
        row = dataclasses.replace(segment.row, appended_at=now_ms, late_at=now_ms)

        def replace(tx: CatalogTransaction) -> None:
            new_object = NewObject(segment.key, "segment", self._session, segment.size, sealed=True)
            catalog_extents.replace(tx, [extent], row, new_object, now_ms=now_ms)

        try:
            await self._log.write(replace, own_commit=True)
        except (OutcomeUnknown, CatalogFailed):
            raise  # the catalog may refer to the segment, or may do so when it is opened again
        except MillpondError:
            await self._log.in_pool(lambda: self._store.delete([segment.key]))
            raise
        self._log.forget_cached(extent.topic_partition)

    def _put(self, extent: Extent, found: Examined) -> MergedSegment:
        true = dataclasses.replace(extent, min_timestamp=found.oldest, max_timestamp=found.newest)
        run = Run(extent.base_offset, extent.end_offset, found.data)
        segment = build_segment(self._session, next(self._attempts), [true], [run])
        self._store.put(segment.key, segment.parts)
        return segment


def _believing(extent: Extent, now_ms: int) -> Callable[[CatalogTransaction], None]:
    oldest, newest = extent.min_timestamp, extent.max_timestamp
    return lambda tx: catalog_extents.examined(tx, extent, oldest, newest, appended_at=now_ms)


def _storing(extent: Extent, found: Examined, now_ms: int) -> Callable[[CatalogTransaction], None]:
    return lambda tx: catalog_extents.examined(tx, extent, found.oldest, found.newest, appended_at=now_ms)
