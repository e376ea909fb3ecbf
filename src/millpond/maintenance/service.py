"""The maintenance service: runs each duty at its own interval until it is cancelled. A failed pass is retried."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from millpond.catalog import producers
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.published_settings import PublishedSettings
from millpond.log import Upkeep
from millpond.maintenance.clock_guard import ClockGuard
from millpond.maintenance.compaction import Compaction
from millpond.maintenance.disk_space import FreeBytes, SpaceCheck, without_limit
from millpond.maintenance.examination import Examination
from millpond.maintenance.garbage import Garbage
from millpond.maintenance.merging import Merging
from millpond.maintenance.payloads import PayloadCollector
from millpond.maintenance.retention import Retention
from millpond.maintenance.retention_pause import ResumedGuard, RetentionPause
from millpond.model.clock import Clock
from millpond.model.errors import MillpondError
from millpond.model.ids import Session
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import MaintenanceMetrics
from millpond.topology import TopologyView

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MaintenanceLimits:
    retention_every_ms: int = 500
    retention_grace_ms: int = PublishedSettings().retention_grace_ms
    """Nothing expires by age before it has been stored for this long, or for its retention if that is
    shorter: records that are old on arrival can be read."""
    merge_every_ms: int = 2_000
    merge_busy_bytes: int = 16 * 1024 * 1024
    """Merging is postponed while more bytes than this were appended or read since its last pass: it would
    move every byte once more while the broker is busy."""
    merge_turns_missed_max: int = 15
    """Maximum number of passes that are skipped in a row because the broker is busy."""
    compaction_every_ms: int = 15_000
    """How often partitions are checked for compaction; 0 disables compaction in this broker. It is postponed
    like merging."""
    compaction_bytes_per_second: int = 16 * 1024 * 1024
    """Rate at which a compaction reads. It decodes every record, and other work needs the processor more."""
    compaction_keys_bytes: int = 64 * 1024 * 1024
    """Memory for the keys of a dirty range. If they do not fit, less is compacted at a time."""
    garbage_every_ms: int = 10_000
    expiry_every_ms: int = 10 * 60 * 1000
    garbage_grace_ms: int = 60_000
    """How long a dead object is kept for readers that have already planned to read it."""
    payloads_every_ms: int = 60_000
    payload_age_ms: int = 86_400_000
    """A payload to which no message refers is collected at this age."""
    payload_bytes_per_second: int = 16 * 1024 * 1024
    """Rate at which messages are read that may refer to payloads."""
    producer_expiry_ms: int = 7 * 86_400_000
    """Idempotent producers that have sent nothing for this long are removed."""


class Maintenance:
    def __init__(
        self,
        log: Upkeep,
        view: TopologyView,
        store: ObjectStore,
        session: Session,
        *,
        clock: Clock,
        limits: MaintenanceLimits,
        metrics: MaintenanceMetrics,
        free_bytes: FreeBytes = without_limit,
        resumed: ResumedGuard | None = None,
    ) -> None:
        """`resumed` is a guard that knows of a pause from before the start."""
        resumed = resumed or ResumedGuard(ClockGuard(clock), False)
        self._metrics = metrics
        self._log = log
        self._view = view
        self._session = session
        self._clock = clock
        self._limits = limits
        self._merge_gate = BusyGate(log)
        self._compaction_gate = BusyGate(log)
        self.guard = resumed.guard
        self.pause = RetentionPause(log, clock, resumed)
        space = SpaceCheck(free_bytes, metrics)
        self.merging = Merging(log, store, session, clock, space)
        self.retention = Retention(
            log,
            clock,
            self.pause,
            Examination(log, store, session, clock, self.merging.attempts, space),
            grace_ms=limits.retention_grace_ms,
        )
        self.compaction = Compaction(
            log,
            store,
            session,
            clock,
            self.guard,
            self.merging,
            space,
            bytes_per_second=limits.compaction_bytes_per_second,
            keys_bytes_max=limits.compaction_keys_bytes,
            metrics=metrics,
        )
        self.payloads = PayloadCollector(
            log,
            store,
            clock,
            self.guard,
            age_ms=limits.payload_age_ms,
            bytes_per_second=limits.payload_bytes_per_second,
        )
        self.garbage = Garbage(log, store, session, clock, grace_ms=limits.garbage_grace_ms)

    async def run(self) -> None:
        limits = self._limits
        async with asyncio.TaskGroup() as duties:
            duties.create_task(self._repeat("retention", self.retention.run_once, limits.retention_every_ms))
            duties.create_task(self._repeat("merging", self.merge_unless_busy, limits.merge_every_ms))
            if limits.compaction_every_ms:
                duties.create_task(
                    self._repeat("compaction", self.compact_unless_busy, limits.compaction_every_ms)
                )
            duties.create_task(self._repeat("garbage", self.collect_if_first, limits.garbage_every_ms))
            duties.create_task(self._repeat("payloads", self.payloads.run_once, limits.payloads_every_ms))
            duties.create_task(self._repeat("expiry", self.expire_once, limits.expiry_every_ms))

    async def _repeat(self, duty: str, run_once: Callable[[], Awaitable[int]], every_ms: int) -> None:
        while True:
            await asyncio.sleep(every_ms / 1000)
            try:
                self._metrics.done.labels(duty).inc(await run_once())
            except MillpondError as error:
                self._metrics.failures.labels(duty).inc()
                logger.warning("maintenance failed; will retry", extra={"duty": duty, "error": str(error)})
            except Exception as error:  # a bug in one duty must not end the others
                self._metrics.failures.labels(duty).inc()
                logger.exception(
                    "unexpected error in maintenance; will retry",
                    extra={"duty": duty, "error": error},
                )

    async def merge_unless_busy(self) -> int:
        """If inline bytes fill the catalog, merging runs even if the broker is busy."""
        is_time = self._merge_gate.take(self._limits) or self._log.needs_merging
        return await self.merging.run_once() if is_time else 0

    async def collect_if_first(self) -> int:
        """Garbage belongs to all brokers. Collecting it twice does no harm, but a hundred brokers need not
        list the same objects, so only the first member does."""
        is_first = next(iter(self._view.current.members), self._session) == self._session
        return await self.garbage.run_once() if is_first else 0

    async def compact_unless_busy(self) -> int:
        return await self.compaction.run_once() if self._compaction_gate.take(self._limits) else 0

    async def expire_once(self) -> int:
        """Remove idempotent producers that have sent nothing for long. Skipped while the clock is off."""
        if not self.guard.trusts_clock():
            return 0
        silent_since = self._clock.now_ms() - self._limits.producer_expiry_ms

        def expire(tx: CatalogTransaction) -> int:
            return producers.expire(tx, unused_since_ms=silent_since)

        expired: int = await self._log.write(expire)
        if expired:
            for partition in self._log.partitions():
                partition.sequences.forget_committed()
        return expired


class BusyGate:
    """Postpones duties that move bytes a second time while producers and readers move many."""

    def __init__(self, log: Upkeep) -> None:
        self._log = log
        self._moved_before = 0
        self._missed = 0

    def take(self, limits: MaintenanceLimits) -> bool:
        """Whether the duty may run now: the broker is not busy, or the duty has been postponed too often."""
        moved = self._log.moved_bytes
        is_busy = moved - self._moved_before > limits.merge_busy_bytes
        self._moved_before = moved
        if is_busy and self._missed < limits.merge_turns_missed_max:
            self._missed += 1
            return False
        self._missed = 0
        return True
