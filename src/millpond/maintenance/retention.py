"""Retention in the broker: executes `millpond.rewriting.expiry` for each partition when it is due."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog import extents as catalog_extents
from millpond.catalog.partitions import read as read_partition
from millpond.log import Upkeep
from millpond.maintenance.examination import Examination
from millpond.maintenance.retention_pause import RetentionPause
from millpond.model.clock import Clock
from millpond.model.errors import (
    ExtentsChanged,
    MillpondError,
    ObjectMissing,
    StoreFull,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from millpond.model.extents import Extent
from millpond.model.ids import TopicPartition
from millpond.model.topics import TopicConfig
from millpond.rewriting.expiry import (
    AgeLimit,
    ExpiryPoint,
    expired_by_age,
    expired_by_size,
)
from millpond.rewriting.inputs import expiry_point_inside

EXTENTS_PER_PAGE: Final = 500
CHECK_AT_LEAST_MS: Final = 1_000
CHECK_AT_MOST_MS: Final = 30_000
EXAMINED_BYTES_PER_PASS: Final = 8 * 1024 * 1024
"""Once a pass has read this much, it examines no further extent."""
WITHOUT_LIMIT: Final = -1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NextCheck:
    """When a partition is checked again, and the configs from which that time was computed."""

    due_ms: int
    retention_ms: int
    retention_bytes: int


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """The result of a check: everything below `target` expires. `bytes_seen` is the number of bytes that the
    partition must still have for that, 0 if its size does not matter."""

    target: int
    due_ms: int
    bytes_seen: int = 0
    unexamined: Extent | None = None


class Retention:
    """Checks each partition when its oldest record is due, and at least every half minute."""

    def __init__(
        self, log: Upkeep, clock: Clock, pause: RetentionPause, examination: Examination, *, grace_ms: int
    ) -> None:
        self._log = log
        self._clock = clock
        self._pause = pause
        self._examination = examination
        self._grace_ms = grace_ms
        self._checks: dict[TopicPartition, NextCheck] = {}
        self._examined_bytes = 0

    async def run_once(self) -> int:
        """Expire whatever is due; returns the number of partitions whose log start moved."""
        if not await self._pause.trusts_clock():
            return 0
        now_ms = self._clock.now_ms()
        moved = self._examined_bytes = 0
        partitions = self._log.partitions()
        if len(self._checks) > len(partitions):  # some have been deleted
            living = {partition.topic_partition for partition in partitions}
            self._checks = {
                topic_partition: check
                for topic_partition, check in self._checks.items()
                if topic_partition in living
            }
        for partition in partitions:
            if not partition.fenced:  # it may have been deleted since the pass began
                moved += await self._expire_if_due(partition.topic_partition, now_ms)
        self._examination.end_pass()
        return moved

    async def run_now(self) -> int:
        """Like `run_once`, but checks every partition, even if it was checked recently."""
        self._checks.clear()
        return await self.run_once()

    async def _expire_if_due(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        config = self._log.topics.config(topic_partition.topic_id)
        return self._is_due(topic_partition, config, now_ms) and await self._expire_all(
            topic_partition, config, now_ms
        )

    def _is_due(self, topic_partition: TopicPartition, config: TopicConfig, now_ms: int) -> bool:
        if not config.deleted_by_age:
            return False
        if config.retention_ms == WITHOUT_LIMIT and config.retention_bytes == WITHOUT_LIMIT:
            return False
        check = self._checks.get(topic_partition)
        if check is None or now_ms >= check.due_ms:
            return True
        return (check.retention_ms, check.retention_bytes) != (config.retention_ms, config.retention_bytes)

    async def _expire_all(self, topic_partition: TopicPartition, config: TopicConfig, now_ms: int) -> bool:
        """Checks repeatedly, because one check reads at most `EXTENTS_PER_PAGE` extents. First removes what a
        crash during an earlier pass left below the log start: otherwise a check might read nothing else."""
        try:
            log_start = self._log.partition(topic_partition).log_start
            if await self._log.in_pool(lambda: self._has_leftovers(topic_partition)):
                await self._log.delete_records(topic_partition, log_start)
            while await self._expire(topic_partition, config, now_ms):
                pass
            return self._log.partition(topic_partition).log_start > log_start
        except Unavailable:
            raise  # the other partitions would fail, too
        except (UnknownPartition, UnknownTopic):
            return False  # deleted since this broker last read the catalog
        except MillpondError as error:  # a damaged object here must not stop expiry in other partitions
            logger.warning(
                "retention failed; will retry",
                extra={
                    "topic": self._log.topics.name_of(topic_partition.topic_id),
                    "partition": topic_partition.partition,
                    "error": str(error),
                },
            )
            self._checks[topic_partition] = NextCheck(
                now_ms + CHECK_AT_MOST_MS, config.retention_ms, config.retention_bytes
            )
        return False

    async def _expire(self, topic_partition: TopicPartition, config: TopicConfig, now_ms: int) -> bool:
        """Returns whether another check may find more."""
        log_start = self._log.partition(topic_partition).log_start
        try:
            result = await self._log.in_pool(lambda: self._find_expired(topic_partition, config, now_ms))
        except ObjectMissing:
            return False  # a merge replaced the object: the next pass sees the new extents
        self._checks[topic_partition] = NextCheck(
            _next_due(result.due_ms, config, now_ms), config.retention_ms, config.retention_bytes
        )
        try:
            if result.target > log_start:
                await self._log.delete_records(topic_partition, result.target, bytes_seen=result.bytes_seen)
                return True
            return result.unexamined is not None and await self._examine(result.unexamined)
        except (ExtentsChanged, ObjectMissing):
            self._checks.pop(
                topic_partition, None
            )  # merged or compacted: it may no longer exceed its size limit
        except StoreFull:  # storing the extent again needs room; other partitions can still expire
            self._checks[topic_partition] = NextCheck(
                now_ms + CHECK_AT_MOST_MS, config.retention_ms, config.retention_bytes
            )
        return False

    async def _examine(self, extent: Extent) -> bool:
        """Returns False if this pass has examined enough."""
        if self._examined_bytes >= EXAMINED_BYTES_PER_PASS:
            return False
        await self._examination.examine(extent)
        self._examined_bytes += extent.length
        return True

    def _has_leftovers(self, topic_partition: TopicPartition) -> bool:
        with self._log.catalog_read() as tx:
            oldest = catalog_extents.facts(tx, topic_partition, 0, 1)
            return bool(oldest) and oldest[0].end_offset <= read_partition(tx, topic_partition).log_start

    def _find_expired(
        self, topic_partition: TopicPartition, config: TopicConfig, now_ms: int
    ) -> RetentionResult:
        with self._log.catalog_read() as tx:
            rows = catalog_extents.facts(tx, topic_partition, 0, EXTENTS_PER_PAGE)
            row = read_partition(
                tx, topic_partition
            )  # second: it may count more bytes than the extents, never fewer
        if rows and rows[0].end_offset <= row.log_start:
            # A deletion is in progress: the row still counts the bytes of extents below the log start.
            return RetentionResult(row.log_start, now_ms)
        expiry_point = ExpiryPoint(row.log_start, now_ms + CHECK_AT_MOST_MS)
        if config.retention_ms != WITHOUT_LIMIT:
            expiry_point = self._expiry_point_by_age(
                rows, row.log_start, AgeLimit(now_ms, config.retention_ms, self._grace_ms)
            )
        if config.retention_bytes != WITHOUT_LIMIT:
            by_size = expired_by_size(rows, row.log_start, row.bytes - config.retention_bytes)
            if by_size > expiry_point.offset:
                return RetentionResult(by_size, expiry_point.due_ms, row.bytes)
        return RetentionResult(expiry_point.offset, expiry_point.due_ms, unexamined=expiry_point.unexamined)

    def _expiry_point_by_age(self, rows: Sequence[Extent], log_start: int, limit: AgeLimit) -> ExpiryPoint:
        expiry_point = expired_by_age(rows, log_start, limit)
        if expiry_point.boundary is None:
            return expiry_point
        with self._log.catalog_read() as tx:
            whole = catalog_extents.find(
                tx,
                expiry_point.boundary.topic_partition,
                expiry_point.boundary.base_offset,
                bytes_max=1,
                extents_max=1,
            )
        if not whole or _extent_identity(whole[0]) != _extent_identity(expiry_point.boundary):
            return expiry_point
        offset, due_ms = expiry_point_inside(self._log.read_from, whole[0], log_start, limit)
        return ExpiryPoint(max(expiry_point.offset, offset), due_ms)


def _extent_identity(extent: Extent) -> tuple[int, int, int]:
    return extent.base_offset, extent.end_offset, extent.appended_at


def _next_due(due_ms: int, config: TopicConfig, now_ms: int) -> int:
    """When the oldest record expires, within bounds: appends may add older timestamps, or exceed the size limit."""
    soonest, latest = now_ms + CHECK_AT_LEAST_MS, now_ms + CHECK_AT_MOST_MS
    if config.retention_bytes != WITHOUT_LIMIT:
        return soonest
    return min(max(due_ms, soonest), latest)
