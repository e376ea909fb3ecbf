"""Compaction in the broker: executes the plans of `millpond.rewriting.compaction` at a limited rate.

It compacts one partition at a time, on a thread of the readers' pool, with a limit on bytes per second and on
memory for keys. It keeps a node without Spark from growing for ever; for large backlogs use `millpond
pipeline compact`. Merging skips extents that are being compacted. Any other change to them wins, and the
partition is planned again.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog.compactions import TOMBSTONES_REMOVED, CompactionPoint
from millpond.log import Upkeep
from millpond.log.partition import LogPartition
from millpond.maintenance.clock_guard import ClockGuard
from millpond.maintenance.disk_space import SpaceCheck
from millpond.maintenance.merging import Merging
from millpond.model.clock import Clock
from millpond.model.errors import (
    CatalogFailed,
    ExtentsChanged,
    MillpondError,
    OutcomeUnknown,
    Stopping,
    Unavailable,
)
from millpond.model.ids import Session, TopicPartition
from millpond.model.topics import TopicConfig
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import MaintenanceMetrics
from millpond.records import Buffer
from millpond.rewriting.commits import commit_compaction
from millpond.rewriting.compaction import Compacted, CompactionPlan, compact, plan_compaction
from millpond.rewriting.compaction_keys import PlainKeys
from millpond.rewriting.compaction_points import points_after
from millpond.rewriting.inputs import read_state

DUTY: Final = "compaction"
CHUNK_BYTES: Final = 256 * 1024
"""Number of bytes decoded between two checks of the rate: some milliseconds of work."""
BYTES_PER_PASS: Final = 256 * 1024 * 1024
"""Once a pass has read this much, it starts no further partition."""
RECHECK_MS: Final = 10 * 60 * 1000
"""How often a partition that has not grown is checked: its configs may have changed."""
LAG_RECHECK_MS: Final = 30 * 1000
"""How often it is checked if its configs set a compaction lag."""
SLEEP_S_MAX: Final = 0.05

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionCheck:
    """The partition's end offset at the last check, and the time of the next check even if it has not grown.
    Without an end offset the partition waits until that time in any case."""

    end_offset: int | None
    due_ms: int


class Pacer:
    """Limits a thread to a number of bytes per second, and raises `Stopping` when the log stops."""

    def __init__(
        self,
        log: Upkeep,
        bytes_per_second: int,
        *,
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._log = log
        self._bytes_per_second = bytes_per_second
        self._timer = timer
        self._sleep = sleep
        self._free_at = timer()

    def pause(self, size: int) -> None:
        """`size` bytes have been processed. Earlier idle time is not made up for."""
        self._free_at = max(self._free_at, self._timer() - SLEEP_S_MAX) + size / self._bytes_per_second
        while not self._log.is_stopping and (left_s := self._free_at - self._timer()) > 0:
            self._sleep(min(left_s, SLEEP_S_MAX))
        if self._log.is_stopping:
            raise Stopping


class Compaction:
    """The broker's own executor. Checks partitions that have grown, and the others when they are due."""

    def __init__(
        self,
        log: Upkeep,
        store: ObjectStore,
        session: Session,
        clock: Clock,
        guard: ClockGuard,
        merging: Merging,
        space: SpaceCheck,
        *,
        bytes_per_second: int,
        keys_bytes_max: int,
        metrics: MaintenanceMetrics,
        make_pacer: Callable[[Upkeep, int], Pacer] = Pacer,
    ) -> None:
        self._log = log
        self._store = store
        self._session = session
        self._clock = clock
        self._guard = guard
        self._merging = merging
        self._space = space
        self._bytes_per_second = bytes_per_second
        self._keys_bytes_max = keys_bytes_max
        self._metrics = metrics
        self._make_pacer = make_pacer
        self._checks: dict[TopicPartition, CompactionCheck] = {}
        self._compacted_at: dict[TopicPartition, int] = {}

    async def run_once(self) -> int:
        """Compact the partitions that are worth it, the longest waiting first; returns how many records were
        removed."""
        removed, room = 0, BYTES_PER_PASS
        for partition in sorted(self._compacted_partitions(), key=self._last_compacted_ms):
            # The clock may have jumped during the previous compaction: a tombstone would be removed too early.
            if room <= 0 or not self._guard.trusts_clock():
                break
            if not partition.fenced and self._is_due(partition):
                done = await self._compact_if_due(partition)
                if done is not None:
                    removed += done.records_read - done.records_kept
                    room -= done.plan.total_bytes
        self._space.end_pass(DUTY)
        return removed

    def _compacted_partitions(self) -> list[LogPartition]:
        found = [p for p in self._log.partitions() if self._config(p.topic_partition).compacted]
        living = {partition.topic_partition for partition in found}
        self._checks = {
            topic_partition: check
            for topic_partition, check in self._checks.items()
            if topic_partition in living
        }
        self._compacted_at = {
            topic_partition: compacted_at
            for topic_partition, compacted_at in self._compacted_at.items()
            if topic_partition in living
        }
        return found

    def _config(self, topic_partition: TopicPartition) -> TopicConfig:
        return self._log.topics.config(topic_partition.topic_id)

    def _last_compacted_ms(self, partition: LogPartition) -> int:
        return self._compacted_at.get(partition.topic_partition, 0)

    def _is_due(self, partition: LogPartition) -> bool:
        check = self._checks.get(partition.topic_partition)
        if check is None or self._clock.now_ms() >= check.due_ms:
            return True
        return check.end_offset is not None and check.end_offset != partition.end_offset

    async def _compact_if_due(self, partition: LogPartition) -> Compacted | None:
        """A partition that cannot be compacted is left for a later pass: it must not stop the others."""
        topic_partition, end_offset, now_ms = (
            partition.topic_partition,
            partition.end_offset,
            self._clock.now_ms(),
        )
        config = self._config(topic_partition)
        try:
            state = await self._log.read(lambda tx: read_state(tx, topic_partition))
            plan = plan_compaction(
                state, config, now_ms=now_ms, broker_defaults=self._log.topics.broker_defaults
            )
            if plan is None:
                self._checks[topic_partition] = CompactionCheck(
                    end_offset, _next_due_ms(state.points, config, now_ms)
                )
                return None
            self._compacted_at[topic_partition] = self._clock.monotonic_ms()
            done = await self._compact(plan)
            if done is not None and done.clean_end == plan.clean_end:
                points = points_after(done, self._clock.now_ms())
                self._checks[topic_partition] = CompactionCheck(
                    end_offset, _next_due_ms(points, config, now_ms)
                )
            else:
                self._checks.pop(
                    topic_partition, None
                )  # there is more to do, or the compaction must be repeated
            return done
        except Unavailable:
            self._checks.pop(topic_partition, None)
            raise  # the other partitions would fail, too
        except MillpondError as error:
            logger.warning(
                "compaction failed; will retry",
                extra={
                    "topic": self._log.topics.name_of(topic_partition.topic_id),
                    "partition": topic_partition.partition,
                    "error": str(error),
                },
            )
            self._checks[topic_partition] = CompactionCheck(None, now_ms + RECHECK_MS)
            return None

    async def _compact(self, plan: CompactionPlan) -> Compacted | None:
        """Returns None if the extents to replace have changed during the compaction, or if there is no room yet."""
        stored: list[str] = []
        with self._merging.exclude_below(plan.topic_partition, plan.extents[-1].end_offset):
            try:
                done = await self._log.in_pool(lambda: self._perform(plan, stored))
                if done is None:
                    return None
                expired = await self._log.write(
                    lambda tx: commit_compaction(tx, done, now_ms=self._clock.now_ms()), own_commit=True
                )
            except (OutcomeUnknown, CatalogFailed):
                raise  # the catalog may refer to the segments, or may do so when it is opened again
            except MillpondError as error:
                await self._discard(stored)
                if isinstance(error, ExtentsChanged):
                    return None
                raise
        self._log.forget_cached(plan.topic_partition)
        self._report(done)
        await self._discard(expired)
        return done

    def _perform(self, plan: CompactionPlan, stored: list[str]) -> Compacted | None:
        """Returns None if there is no room for all bytes that are read: how many fewer are written is not
        known yet."""
        if not self._space.has_room(DUTY, plan.total_bytes):
            return None

        def put(key: str, parts: list[Buffer]) -> None:
            stored.append(key)
            self._store.put(key, parts)

        return compact(
            plan,
            self._log.read_runs,
            PlainKeys(self._keys_bytes_max),
            session=self._session,
            attempts=self._merging.attempts,
            put=put,
            pause=self._make_pacer(self._log, self._bytes_per_second).pause,
            chunk_bytes=CHUNK_BYTES,
        )

    async def _discard(self, keys: list[str]) -> None:
        """If the broker stops or fails here, garbage collection removes the objects with those of its session."""
        if keys and not self._log.is_stopping:
            await self._log.in_pool(lambda: self._store.delete(keys))

    def _report(self, done: Compacted) -> None:
        self._metrics.freed_bytes.inc(max(done.bytes_freed, 0))
        topic_partition = done.plan.topic_partition
        topic = self._log.topics.name_of(topic_partition.topic_id)
        logger.info(
            "partition compacted",
            extra={
                "topic": topic,
                "partition": topic_partition.partition,
                "offset": done.clean_end,
                "records_read": done.records_read,
                "records_kept": done.records_kept,
                "freed_bytes": done.bytes_freed,
            },
        )
        if done.unreadable_batches:
            logger.warning(
                "undecodable batches kept by compaction",
                extra={
                    "topic": topic,
                    "partition": topic_partition.partition,
                    "batches": done.unreadable_batches,
                },
            )


def _next_due_ms(points: Sequence[CompactionPoint], config: TopicConfig, now_ms: int) -> int:
    """When there may be work although nothing is appended."""
    has_compaction_lag = config.min_compaction_lag_ms or config.max_compaction_lag_ms < RECHECK_MS
    again_ms = now_ms + (LAG_RECHECK_MS if has_compaction_lag else RECHECK_MS)
    waiting = (p.compacted_at for p in points if p.compacted_at != TOMBSTONES_REMOVED)
    return min((again_ms, *(at + config.delete_retention_ms for at in waiting)))
