"""`merge`: combines many small extents into few segments. It copies bytes and decodes nothing.

Brokers merge what arrives; this pipeline works off a backlog, with the same plan. Each item covers one
partition and has its own session and its own commit, so a conflict with another writer costs only that item,
and its partition is planned again. Rounds continue until nothing is worth merging.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.catalog import audit
from millpond.catalog import extents as catalog_extents
from millpond.catalog.database import CatalogTransaction, Database
from millpond.model.errors import Damaged, ExtentsChanged, ObjectMissing, WriterDead
from millpond.model.extents import Extent
from millpond.model.ids import Session, TopicId, TopicPartition
from millpond.model.topics import Topic
from millpond.rewriting.inputs import read_group
from millpond.rewriting.merging import build_segment, last_small_run, plan_merges
from millpond.spark.pipelines.commit import StoredSegment, commit, mark_dead
from millpond.spark.pipelines.job import PipelineJob, Report, run_recorded
from millpond.spark.pipelines.tasks import perform
from millpond.spark.place import Place, reader
from millpond.spark.task_writer import TaskWriter

EXTENTS_PER_PAGE: Final = 4_000
ITEM_BYTES_MAX: Final = 64 * 1024 * 1024
ITEM_EXTENTS_MAX: Final = 4_000
"""Limit of what one commit replaces, because a broker's appends wait for it."""
ROUNDS_MAX: Final = 10
"""Merging kilobytes into megabytes takes two or three rounds; the others allow for conflicts."""

ExtentGroup = tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """Which topics: names or patterns with `*`; all topics if empty."""

    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeItem:
    """Some merge groups of one partition."""

    place: Place
    topic_partition: TopicPartition
    groups: tuple[ExtentGroup, ...]

    @property
    def bytes(self) -> int:
        return sum(extent.length for group in self.groups for extent in group)


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The segments of an item, each with the number of its group. `changed`: some groups had changed since
    the plan. `damage`: why some groups could not be read."""

    session: Session
    segments: tuple[tuple[int, StoredSegment], ...]
    changed: bool
    damage: tuple[str, ...]


@dataclass(slots=True)
class MergeTotals:
    """Totals of the rounds so far."""

    before: int = 0
    merged: int = 0
    segments: int = 0
    bytes: int = 0
    conflicts: int = 0
    failed: dict[TopicPartition, str] = field(default_factory=dict)


def run(job: PipelineJob, request: MergeRequest) -> Report:
    topics = job.topics(request.topics)
    return run_recorded(job, "merge", [topic.name for topic in topics], lambda: _merge(job, topics))


def _merge(job: PipelineJob, topics: Sequence[Topic]) -> Report:
    started = time.perf_counter()
    names = {topic.id: topic.name for topic in topics}
    due = [TopicPartition(topic.id, number) for topic in topics for number in range(topic.partitions)]
    tally = MergeTotals(before=_count_extents(job.database, topics))
    for _ in range(ROUNDS_MAX):
        items = plan(job.database, job.place, due)
        if job.is_dry_run:
            return _planned(items, tally.before)
        if not items:
            due = []
            break
        due = _round(job, items, tally)
    left = [topic_partition for topic_partition in due if topic_partition not in tally.failed]
    return _report(tally, names, left, time.perf_counter() - started)


def plan(database: Database, place: Place, topic_partitions: Sequence[TopicPartition]) -> list[MergeItem]:
    """Items for everything in these partitions that is worth merging now."""
    items: list[MergeItem] = []
    with database.read() as tx:
        for topic_partition in topic_partitions:
            items.extend(
                MergeItem(place, topic_partition, groups) for groups in _chunks(_groups(tx, topic_partition))
            )
    return items


def work(item: MergeItem) -> MergeResult:
    """Runs in a task: stores the item's segments."""
    source = reader(item.place)
    segments: list[tuple[int, StoredSegment]] = []
    damage: list[str] = []
    changed = False
    with TaskWriter(item.place) as writer:
        for number, group in enumerate(item.groups):
            try:
                runs = read_group(source.read_runs, group)
            except ObjectMissing:
                changed = True
                continue
            except Damaged as error:
                damage.append(str(error))
                continue
            segment = build_segment(writer.session, 0, group, runs)
            writer.store.put(segment.key, segment.parts)
            writer.renew()
            stored = StoredSegment(segment.key, writer.session, segment.row, segment.size)
            segments.append((number, stored))
    return MergeResult(writer.session, tuple(segments), changed, tuple(damage))


def _groups(tx: CatalogTransaction, topic_partition: TopicPartition) -> Iterator[ExtentGroup]:
    """All groups of a partition, found page by page. A run of small extents at the end of a page that is not
    in a group yet is read again as part of the next page."""
    start = 0
    while rows := catalog_extents.facts(tx, topic_partition, start, EXTENTS_PER_PAGE):
        groups = plan_merges(rows)
        yield from (tuple(group) for group in groups)
        if len(rows) < EXTENTS_PER_PAGE:
            return
        grouped_to = groups[-1][-1].end_offset if groups else 0
        start = max(grouped_to, last_small_run(rows), rows[0].base_offset + 1)


def _chunks(groups: Iterator[ExtentGroup]) -> Iterator[tuple[ExtentGroup, ...]]:
    """Split the groups into chunks of at most one item's size."""
    chunk: list[ExtentGroup] = []
    size = count = 0
    for group in groups:
        length = sum(extent.length for extent in group)
        if chunk and (size + length > ITEM_BYTES_MAX or count + len(group) > ITEM_EXTENTS_MAX):
            yield tuple(chunk)
            chunk, size, count = [], 0, 0
        chunk.append(group)
        size, count = size + length, count + len(group)
    if chunk:
        yield tuple(chunk)


def _round(job: PipelineJob, items: Sequence[MergeItem], tally: MergeTotals) -> list[TopicPartition]:
    """Merge and commit. Returns the partitions to plan again."""
    due: dict[TopicPartition, None] = {}
    results = perform(job.spark, items, work)
    for done, (item, result) in enumerate(zip(items, results, strict=True), start=1):
        if _commit(job, item, result, tally):
            due[item.topic_partition] = None
        if result.damage:
            tally.failed[item.topic_partition] = result.damage[0]
        job.progress(done, len(items), "merging")
    return list(due)


def _commit(job: PipelineJob, item: MergeItem, result: MergeResult, tally: MergeTotals) -> bool:
    """Replace the merged extents by the new segments. Returns whether the partition has to be planned again."""
    if not result.segments:
        mark_dead(job.database, [result.session], clock=job.clock)
        tally.conflicts += result.changed
        return result.changed
    now_ms = job.clock.now_ms()

    def replace(tx: CatalogTransaction) -> None:
        for number, stored in result.segments:
            catalog_extents.replace(tx, item.groups[number], stored.row, stored.new_object(), now_ms=now_ms)

    try:
        commit(job.database, [result.session], replace, clock=job.clock)
    except (ExtentsChanged, WriterDead):
        tally.conflicts += 1
        return True
    tally.conflicts += result.changed
    tally.merged += sum(len(item.groups[number]) for number, _ in result.segments)
    tally.segments += len(result.segments)
    tally.bytes += sum(stored.size for _, stored in result.segments)
    return True


def _count_extents(database: Database, topics: Sequence[Topic]) -> int:
    with database.read() as tx:
        return sum(audit.count_extents(tx, topic.id) for topic in topics)


def _planned(items: Sequence[MergeItem], before: int) -> Report:
    """What the first round would do. Later rounds may merge its segments further."""
    merged = sum(len(group) for item in items for group in item.groups)
    segments = sum(len(item.groups) for item in items)
    return {
        "extents_before": before,
        "extents_after": before - merged + segments,
        "merged_extents": merged,
        "segments": segments,
        "bytes": sum(item.bytes for item in items),
    }


def _report(
    tally: MergeTotals, names: Mapping[TopicId, str], left: Sequence[TopicPartition], seconds: float
) -> Report:
    return {
        "extents_before": tally.before,
        "extents_after": tally.before - tally.merged + tally.segments,
        "merged_extents": tally.merged,
        "segments": tally.segments,
        "bytes": tally.bytes,
        "conflicts": tally.conflicts,
        "failed": [
            {"topic": names[topic_partition.topic_id], "partition": topic_partition.partition, "error": error}
            for topic_partition, error in sorted(tally.failed.items())
        ],
        "left": [
            {"topic": names[topic_partition.topic_id], "partition": topic_partition.partition}
            for topic_partition in left
        ],
        "seconds": round(seconds, 3),
        "mb_per_second": round(tally.bytes / 1e6 / seconds, 1) if seconds else 0.0,
    }
