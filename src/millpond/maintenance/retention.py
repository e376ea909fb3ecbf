"""Retention in the broker: draws the lines of `millpond.rewriting.expiry` when they are due."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog import extents as catalog_extents
from millpond.catalog.partitions import read as read_partition
from millpond.log.log import Log
from millpond.maintenance.pausing import RetentionPause
from millpond.model.clock import Clock
from millpond.model.errors import ExtentsChanged, MillpondError, ObjectMissing, Unavailable
from millpond.model.extents import Extent
from millpond.model.ids import TopicPartition
from millpond.model.topics import TopicConfig
from millpond.rewriting.expiry import expired_by_age, expired_by_size, line_inside

EXTENTS_PER_LOOK: Final = 500
CHECK_AT_LEAST_MS: Final = 1_000
CHECK_AT_MOST_MS: Final = 30_000
WITHOUT_LIMIT: Final = -1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """When a partition is to be looked at again, and under which config that was worked out."""

    due_ms: int
    retention_ms: int
    retention_bytes: int


class Retention:
    """Looks at each partition when its oldest record is due, and at least every half minute."""

    def __init__(self, log: Log, clock: Clock, pause: RetentionPause) -> None:
        self._log = log
        self._clock = clock
        self._pause = pause
        self._checks: dict[TopicPartition, Check] = {}

    async def run_once(self) -> int:
        """Expire whatever is due; returns how many partitions moved their log start."""
        if not await self._pause.trusts_clock():
            return 0
        now_ms = self._clock.now_ms()
        moved = 0
        partitions = self._log.partitions()
        if len(self._checks) > len(partitions):  # some have been deleted
            living = {partition.where for partition in partitions}
            self._checks = {where: check for where, check in self._checks.items() if where in living}
        for partition in partitions:
            if not partition.fenced:  # it may have been deleted since the pass began
                moved += await self._look_at(partition.where, now_ms)
        return moved

    async def run_now(self) -> int:
        """As `run_once`, with a look at every partition, whenever the last one was."""
        self._checks.clear()
        return await self.run_once()

    async def _look_at(self, where: TopicPartition, now_ms: int) -> bool:
        config = self._log.topics.config(where.topic_id)
        return self._is_due(where, config, now_ms) and await self._expire_all(where, config, now_ms)

    def _is_due(self, where: TopicPartition, config: TopicConfig, now_ms: int) -> bool:
        if not config.deleted_by_age:
            return False
        if config.retention_ms == WITHOUT_LIMIT and config.retention_bytes == WITHOUT_LIMIT:
            return False
        check = self._checks.get(where)
        if check is None or now_ms >= check.due_ms:
            return True
        return (check.retention_ms, check.retention_bytes) != (config.retention_ms, config.retention_bytes)

    async def _expire_all(self, where: TopicPartition, config: TopicConfig, now_ms: int) -> bool:
        """As many looks as it takes: one sees only so many extents. First goes what a crash in the middle of
        an earlier pass left below the log start, or it would be all that a look sees."""
        moved = False
        try:
            if await self._log.in_pool(lambda: self._has_leftovers(where)):
                await self._log.delete_records(where, self._log.partition(where).log_start)
            while await self._expire(where, config, now_ms):
                moved = True
        except Unavailable:
            raise  # no use in trying the others
        except MillpondError as error:  # a damaged object here must not keep other partitions from expiring
            logger.warning("%s cannot expire for now: %s", where, error)
            self._checks[where] = Check(
                now_ms + CHECK_AT_MOST_MS, config.retention_ms, config.retention_bytes
            )
        return moved

    async def _expire(self, where: TopicPartition, config: TopicConfig, now_ms: int) -> bool:
        log_start = self._log.partition(where).log_start
        try:
            target, oldest_ms, bytes_seen = await self._log.in_pool(
                lambda: self._find_line(where, config, now_ms)
            )
        except ObjectMissing:
            return False  # merged away meanwhile: the next pass sees the new extents
        self._checks[where] = Check(
            _next_due(oldest_ms, config, now_ms), config.retention_ms, config.retention_bytes
        )
        if target <= log_start:
            return False
        try:
            await self._log.delete_records(where, target, bytes_seen=bytes_seen)
        except ExtentsChanged:
            del self._checks[where]  # compacted meanwhile: there may be no bytes too many any more
            return False
        return True

    def _has_leftovers(self, where: TopicPartition) -> bool:
        with self._log.database.read() as tx:
            oldest = catalog_extents.facts(tx, where, 0, 1)
            return bool(oldest) and oldest[0].end_offset <= read_partition(tx, where).log_start

    def _find_line(self, where: TopicPartition, config: TopicConfig, now_ms: int) -> tuple[int, int, int]:
        """(the offset to expire up to, a timestamp no older than which the next batch will expire, how many bytes the
        partition must still have for that: 0 if they have no part in it)."""
        with self._log.database.read() as tx:
            rows = catalog_extents.facts(tx, where, 0, EXTENTS_PER_LOOK)
            row = read_partition(tx, where)  # second: what it counts may be more than the extents, never less
        if rows and rows[0].end_offset <= row.log_start:
            return row.log_start, now_ms, 0  # somebody is deleting: its bytes still count, its extents do not
        target, oldest = row.log_start, rows[0].min_timestamp if rows else now_ms
        if config.retention_ms != WITHOUT_LIMIT:
            target, oldest = self._line_by_age(rows, row.log_start, now_ms - config.retention_ms, now_ms)
        if config.retention_bytes != WITHOUT_LIMIT:
            by_size = expired_by_size(rows, row.log_start, row.bytes - config.retention_bytes)
            if by_size > target:
                return by_size, oldest, row.bytes
        return target, oldest, 0

    def _line_by_age(
        self, rows: Sequence[Extent], log_start: int, cutoff_ms: int, now_ms: int
    ) -> tuple[int, int]:
        line = expired_by_age(rows, log_start, cutoff_ms)
        if line.boundary is None:
            remaining = next((extent for extent in rows if extent.end_offset > line.offset), None)
            return line.offset, remaining.min_timestamp if remaining is not None else now_ms
        with self._log.database.read() as tx:
            whole = catalog_extents.find(
                tx, line.boundary.where, line.boundary.base_offset, bytes_max=1, extents_max=1
            )
        if not whole or whole[0].base_offset != line.boundary.base_offset:
            return line.offset, cutoff_ms
        offset, newest = line_inside(self._log.reader, whole[0], cutoff_ms)
        return max(line.offset, offset), newest


def _next_due(oldest_ms: int, config: TopicConfig, now_ms: int) -> int:
    """When the oldest record expires, within bounds: appends may bring older timestamps, or too many bytes."""
    soonest, latest = now_ms + CHECK_AT_LEAST_MS, now_ms + CHECK_AT_MOST_MS
    if config.retention_bytes != WITHOUT_LIMIT:
        return soonest
    return min(max(oldest_ms + config.retention_ms + 1, soonest), latest)
