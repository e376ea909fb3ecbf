"""`compact`: keeps the last record of each key, in every topic with `cleanup.policy=compact`. Offsets never
change.

The algorithm is `millpond.rewriting.compaction`, which brokers use too. Here it runs with a compiled key map,
one task per partition; a key never moves between partitions, so nothing is shuffled. A compaction whose
commit conflicted with another change is planned again. One whose key map was full continues in the next
round.

Tombstones are removed by age, so a run refuses to work with a clock that cannot be trusted
(`millpond.spark.pipelines.clock`).
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from millpond.catalog import writers
from millpond.catalog.database import CatalogTransaction
from millpond.model.errors import Damaged, ExtentsChanged, InvalidRequest, UnknownPartition, WriterDead
from millpond.model.ids import Session, TopicId, TopicPartition
from millpond.model.topics import Topic
from millpond.rewriting.commits import commit_compaction
from millpond.rewriting.compaction import Compacted, CompactionPlan, plan_compaction
from millpond.rewriting.compaction import compact as perform_compaction
from millpond.rewriting.inputs import read_state
from millpond.spark.pipelines.clock import checked_clock
from millpond.spark.pipelines.commit import commit, mark_dead
from millpond.spark.pipelines.job import PipelineJob, Report, run_recorded
from millpond.spark.pipelines.tasks import perform
from millpond.spark.place import Place, reader
from millpond.spark.task_writer import TaskWriter

KEYS_BYTES_MAX: Final = 256 * 1024 * 1024
"""Size of one task's key map: about five million keys of twenty bytes. Further keys take further rounds."""
KEYS_BYTES_MIN: Final = 1024 * 1024
CONFLICTS_MAX: Final = 5
"""A partition is given up for this run after this many conflicts with changes by other writers."""
LONG_BYTES: Final = 256 * 1024 * 1024
"""Compacting a partition of this size takes seconds, in which a broker merges the small extents at its end.
These are left out."""


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """Which topics: names or patterns with `*`; all compacted topics if empty. Topics without compaction are
    skipped, and the report lists them if they were named."""

    topics: tuple[str, ...] = ()
    force: bool = False
    """Compact regardless of `min.cleanable.dirty.ratio`."""
    keys_bytes_max: int = KEYS_BYTES_MAX
    trust_clock: bool = False
    """The operator has checked the clock and vouches for it."""

    def __post_init__(self) -> None:
        if self.keys_bytes_max < KEYS_BYTES_MIN:
            raise InvalidRequest(reason=f"a key map needs {KEYS_BYTES_MIN} bytes or more")


@dataclass(frozen=True, slots=True)
class CompactItem:
    place: Place
    plan: CompactionPlan
    keys_bytes_max: int


@dataclass(frozen=True, slots=True)
class CompactResult:
    """`compacted` is None if the partition had changed since it was planned, or could not be read; `damage`
    then holds the reason."""

    session: Session
    compacted: Compacted | None
    damage: str = ""


@dataclass(slots=True)
class CompactTotals:
    compacted: set[TopicPartition] = field(default_factory=set)
    segments: int = 0
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_freed: int = 0
    unreadable: int = 0
    conflicts: Counter[TopicPartition] = field(default_factory=Counter)
    failed: dict[TopicPartition, str] = field(default_factory=dict)


def run(job: PipelineJob, request: CompactRequest) -> Report:
    found = job.topics(request.topics)
    topics = [topic for topic in found if topic.config().compacted]
    passed_over = [topic.name for topic in found if topic.name in request.topics and topic not in topics]

    def work_on() -> Report:
        clock = checked_clock(job.database, job.clock, trust=request.trust_clock)
        return {**_compact(job, topics, request), "not_compacted": passed_over, "clock": list(clock)}

    return run_recorded(job, "compact", [topic.name for topic in topics], work_on)


def _compact(job: PipelineJob, topics: Sequence[Topic], request: CompactRequest) -> Report:
    started = time.perf_counter()
    tally = CompactTotals()
    by_id = {topic.id: topic for topic in topics}
    due = {TopicPartition(topic.id, n): request.force for topic in topics for n in range(topic.partitions)}
    while due:
        items = _plan(job, by_id, due, request, tally)
        if job.is_dry_run:
            return _planned(items, by_id)
        if not items:
            break
        due = _round(job, items, tally)
    left = sorted(
        topic_partition
        for topic_partition in tally.conflicts
        if tally.conflicts[topic_partition] >= CONFLICTS_MAX
    )
    return _report(tally, by_id, left, time.perf_counter() - started)


def _plan(
    job: PipelineJob,
    topics: Mapping[TopicId, Topic],
    due: Mapping[TopicPartition, bool],
    request: CompactRequest,
    tally: CompactTotals,
) -> list[CompactItem]:
    """Items to compact, the largest first, so that no core waits long for the last one. `due` maps each
    partition to whether it is compacted regardless of the dirty ratio."""
    items: list[CompactItem] = []
    now_ms = job.clock.now_ms()
    with job.database.read() as tx:
        has_brokers = any(kind == "broker" for _, kind, _ in writers.living(tx))
        for topic_partition, force in due.items():
            try:
                state = read_state(tx, topic_partition)
            except UnknownPartition:
                continue  # deleted since
            skip_small_tail = has_brokers and (
                tally.conflicts[topic_partition] > 1 or state.row.bytes >= LONG_BYTES
            )
            config = topics[topic_partition.topic_id].config()
            plan = plan_compaction(state, config, now_ms=now_ms, force=force, skip_small_tail=skip_small_tail)
            if plan is not None:
                items.append(CompactItem(job.place, plan, request.keys_bytes_max))
    return sorted(items, key=lambda item: -item.plan.total_bytes)


def work(item: CompactItem) -> CompactResult:
    """Runs in a task: both passes over one partition; stores its new segments."""
    from millpond.spark.kernels.compaction import CompiledKeys  # imports numba: only where it is used

    with TaskWriter(item.place) as writer:
        try:
            compacted = perform_compaction(
                item.plan,
                reader(item.place).read_runs,
                CompiledKeys(item.keys_bytes_max),
                session=writer.session,
                attempts=count(),
                put=writer.store.put,
                pause=lambda _: writer.renew(),
            )
        except ExtentsChanged:
            return CompactResult(writer.session, None)
        except Damaged as error:
            return CompactResult(writer.session, None, str(error))
    return CompactResult(writer.session, compacted)


def _round(
    job: PipelineJob, items: Sequence[CompactItem], tally: CompactTotals
) -> dict[TopicPartition, bool]:
    """Compact and commit. Returns the partitions that continue in the next round."""
    due: dict[TopicPartition, bool] = {}
    results = perform(job.spark, items, work)
    for done, (item, result) in enumerate(zip(items, results, strict=True), start=1):
        topic_partition = item.plan.topic_partition
        if result.damage:
            tally.failed[topic_partition] = result.damage
            mark_dead(job.database, [result.session], clock=job.clock)
        elif not _commit(job, result, tally):
            tally.conflicts[topic_partition] += 1
            if tally.conflicts[topic_partition] < CONFLICTS_MAX:
                due[topic_partition] = True
        elif result.compacted is not None and result.compacted.clean_end < item.plan.clean_end:
            due[topic_partition] = True
        job.progress(done, len(items), "compacting")
    return due


def _commit(job: PipelineJob, result: CompactResult, tally: CompactTotals) -> bool:
    compacted = result.compacted
    if compacted is None:
        mark_dead(job.database, [result.session], clock=job.clock)
        return False

    def replace(tx: CatalogTransaction) -> None:
        commit_compaction(tx, compacted, now_ms=job.clock.now_ms())

    try:
        commit(job.database, [result.session], replace, clock=job.clock)
    except (ExtentsChanged, WriterDead):
        return False
    tally.compacted.add(compacted.plan.topic_partition)
    tally.segments += len(compacted.segments)
    tally.records_read += compacted.records_read
    tally.records_kept += compacted.records_kept
    tally.bytes_read += compacted.plan.total_bytes
    tally.bytes_freed += compacted.bytes_freed
    tally.unreadable += compacted.unreadable_batches
    return True


def _planned(items: Sequence[CompactItem], topics: Mapping[TopicId, Topic]) -> Report:
    return {
        "topics": len(topics),
        "partitions": len(items),
        "dirty_bytes": sum(item.plan.dirty_bytes for item in items),
        "bytes": sum(item.plan.total_bytes for item in items),
    }


def _report(
    tally: CompactTotals, topics: Mapping[TopicId, Topic], left: Sequence[TopicPartition], seconds: float
) -> Report:
    return {
        "topics": len(topics),
        "partitions": len(tally.compacted),
        "segments": tally.segments,
        "records_read": tally.records_read,
        "records_kept": tally.records_kept,
        "bytes": tally.bytes_read,
        "bytes_freed": tally.bytes_freed,
        "unreadable_batches": tally.unreadable,
        "conflicts": tally.conflicts.total(),
        "failed": [
            {
                "topic": topics[topic_partition.topic_id].name,
                "partition": topic_partition.partition,
                "error": error,
            }
            for topic_partition, error in sorted(tally.failed.items())
        ],
        "left": [
            {"topic": topics[topic_partition.topic_id].name, "partition": topic_partition.partition}
            for topic_partition in left
        ],
        "seconds": round(seconds, 3),
        "records_per_second": round(tally.records_read / seconds) if seconds else 0,
    }
