"""Compaction in the broker: performs the plans of `millpond.rewriting.compaction` at a modest pace.

One partition at a time, on a thread of the readers' pool, with so many bytes a second and so much memory for keys. It
is there so that a node without Spark does not grow for ever; for large backlogs there is `millpond pipeline compact`.
Merging leaves alone what is being compacted. Anybody else who changes it wins, and the partition is planned anew.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog.compactions import TOMBSTONES_GONE, CompactionPoint
from millpond.log.log import Log
from millpond.log.partition import Partition
from millpond.maintenance.clockguard import ClockGuard
from millpond.maintenance.merging import Merging
from millpond.maintenance.space import Space
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
from millpond.rewriting.compaction import Compacted, CompactionPlan, compact, plan_compaction, read_state
from millpond.rewriting.compaction_commit import points_after, register
from millpond.rewriting.compaction_keys import PlainKeys

DUTY: Final = "compaction"
CHUNK_BYTES: Final = 256 * 1024
"""What is decoded between two looks at the pace: some milliseconds of work."""
BYTES_PER_PASS: Final = 256 * 1024 * 1024
"""No further partition is begun once a pass has read so much."""
LOOK_AGAIN_MS: Final = 10 * 60 * 1000
"""A partition that has not grown is looked at this often: its configs may have changed."""
LAG_LOOK_AGAIN_MS: Final = 30 * 1000
"""And this often if its configs speak of time."""
NAP_S: Final = 0.05

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Look:
    """How far a partition went when it was last looked at, and when it is due although it has not grown. Without an
    end it waits until then in any case."""

    end_offset: int | None
    due_ms: int


class Pacer:
    """Limits a thread to a number of bytes a second, and raises `Stopping` when the log stops."""

    def __init__(
        self,
        log: Log,
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
        """`size` bytes have been worked on. An idle moment earlier is not made up for."""
        self._free_at = max(self._free_at, self._timer() - NAP_S) + size / self._bytes_per_second
        while not self._log.waiters.closed and (left_s := self._free_at - self._timer()) > 0:
            self._sleep(min(left_s, NAP_S))
        if self._log.waiters.closed:
            raise Stopping


class Compaction:
    """The broker's own executor. Looks at partitions that have grown, and at others when their time comes."""

    def __init__(
        self,
        log: Log,
        store: ObjectStore,
        session: Session,
        clock: Clock,
        guard: ClockGuard,
        merging: Merging,
        space: Space,
        *,
        bytes_per_second: int,
        keys_bytes_max: int,
        metrics: MaintenanceMetrics,
        make_pacer: Callable[[Log, int], Pacer] = Pacer,
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
        self._looks: dict[TopicPartition, Look] = {}
        self._turns: dict[TopicPartition, int] = {}

    async def run_once(self) -> int:
        """Compact what is worth it, those first that have waited longest; returns how many records went."""
        removed, room = 0, BYTES_PER_PASS
        for partition in sorted(self._compacted_partitions(), key=self._turn_of):
            # by a clock that jumped, maybe while the one before took its time, a tombstone would go too soon
            if room <= 0 or not self._guard.trusts_clock():
                break
            if not partition.fenced and self._is_due(partition):
                done = await self._look_at(partition)
                if done is not None:
                    removed += done.records_read - done.records_kept
                    room -= done.plan.total_bytes
        self._space.end_pass(DUTY)
        return removed

    def _compacted_partitions(self) -> list[Partition]:
        found = [p for p in self._log.partitions() if self._config(p.where).compacted]
        living = {partition.where for partition in found}
        self._looks = {where: look for where, look in self._looks.items() if where in living}
        self._turns = {where: turn for where, turn in self._turns.items() if where in living}
        return found

    def _config(self, where: TopicPartition) -> TopicConfig:
        return self._log.topics.config(where.topic_id)

    def _turn_of(self, partition: Partition) -> int:
        return self._turns.get(partition.where, 0)

    def _is_due(self, partition: Partition) -> bool:
        look = self._looks.get(partition.where)
        if look is None or self._clock.now_ms() >= look.due_ms:
            return True
        return look.end_offset is not None and look.end_offset != partition.end_offset

    async def _look_at(self, partition: Partition) -> Compacted | None:
        """A partition that cannot be compacted is left for a later pass: it must not keep the others from it."""
        where, end_offset, now_ms = partition.where, partition.end_offset, self._clock.now_ms()
        config = self._config(where)
        try:
            state = await self._log.read(lambda tx: read_state(tx, where))
            plan = plan_compaction(
                state, config, now_ms=now_ms, broker_defaults=self._log.topics.broker_defaults
            )
            if plan is None:
                self._looks[where] = Look(end_offset, _next_due_ms(state.points, config, now_ms))
                return None
            self._turns[where] = self._clock.monotonic_ms()
            done = await self._compact(plan)
            if done is not None and done.clean_end == plan.clean_end:
                points = points_after(done, self._clock.now_ms())
                self._looks[where] = Look(end_offset, _next_due_ms(points, config, now_ms))
            else:
                self._looks.pop(where, None)  # there is more to do, or it must be done again
            return done
        except Unavailable:
            self._looks.pop(where, None)
            raise  # no use in trying the others
        except MillpondError as error:
            logger.warning(
                "compaction failed; will retry",
                extra={
                    "topic": self._log.topics.name_of(where.topic_id),
                    "partition": where.partition,
                    "error": str(error),
                },
            )
            self._looks[where] = Look(None, now_ms + LOOK_AGAIN_MS)
            return None

    async def _compact(self, plan: CompactionPlan) -> Compacted | None:
        """None if what it would replace has changed meanwhile, or if there is no room for it yet."""
        stored: list[str] = []
        with self._merging.spare(plan.where, plan.extents[-1].end_offset):
            try:
                done = await self._log.in_pool(lambda: self._perform(plan, stored))
                if done is None:
                    return None
                expired = await self._log.write(
                    lambda tx: register(tx, done, now_ms=self._clock.now_ms()), alone=True
                )
            except (OutcomeUnknown, CatalogFailed):
                raise  # the segments may be in use, or be when the catalog is opened again
            except MillpondError as error:
                await self._discard(stored)
                if isinstance(error, ExtentsChanged):
                    return None
                raise
        self._log.forget_cached(plan.where)
        self._report(done)
        await self._discard(expired)
        return done

    def _perform(self, plan: CompactionPlan, stored: list[str]) -> Compacted | None:
        """None if there is no room for as much as is read; how much less is written is not known before."""
        if not self._space.has_room(DUTY, plan.total_bytes):
            return None

        def put(key: str, parts: list[Buffer]) -> None:
            stored.append(key)
            self._store.put(key, parts)

        return compact(
            plan,
            self._log.reader.read_runs,
            PlainKeys(self._keys_bytes_max),
            session=self._session,
            attempts=self._merging.attempts,
            put=put,
            pause=self._make_pacer(self._log, self._bytes_per_second).pause,
            chunk_bytes=CHUNK_BYTES,
        )

    async def _discard(self, keys: list[str]) -> None:
        """What is left behind by a broker that stops or fails here goes with its session."""
        if keys and not self._log.waiters.closed:
            await self._log.in_pool(lambda: self._store.delete(keys))

    def _report(self, done: Compacted) -> None:
        self._metrics.freed_bytes.inc(max(done.bytes_freed, 0))
        where = done.plan.where
        topic = self._log.topics.name_of(where.topic_id)
        logger.info(
            "partition compacted",
            extra={
                "topic": topic,
                "partition": where.partition,
                "offset": done.clean_end,
                "records_read": done.records_read,
                "records_kept": done.records_kept,
                "freed_bytes": done.bytes_freed,
            },
        )
        if done.unreadable_batches:
            logger.warning(
                "undecodable batches kept by compaction",
                extra={"topic": topic, "partition": where.partition, "batches": done.unreadable_batches},
            )


def _next_due_ms(points: Sequence[CompactionPoint], config: TopicConfig, now_ms: int) -> int:
    """When there may be something to do although nothing is appended."""
    speaks_of_time = config.min_compaction_lag_ms or config.max_compaction_lag_ms < LOOK_AGAIN_MS
    again_ms = now_ms + (LAG_LOOK_AGAIN_MS if speaks_of_time else LOOK_AGAIN_MS)
    waiting = (p.compacted_at for p in points if p.compacted_at != TOMBSTONES_GONE)
    return min((again_ms, *(at + config.delete_retention_ms for at in waiting)))
