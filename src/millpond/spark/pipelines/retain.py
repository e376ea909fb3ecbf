"""`retain`: applies the retention limits (age, bytes) that are set on a topic itself. It advances the log start
of each partition and removes the extents below it.

The rules are the broker's (`millpond.rewriting.expiry`). Tasks compute the new log starts, because a new log
start may be inside an extent whose batches must be read. The driver applies one only if the topic's limits are
still those that it was computed for, and if the partition has not become smaller since. Limits that are not
set on the topic itself come from the brokers' settings, which a job does not know, so such topics are left to
their brokers. The retention grace is read from the catalog (`millpond.catalog.published_settings`).

A task examines an extent whose timestamps cannot be trusted, and the driver stores the result. If timestamps in
the extent's bytes are wrong, the extent must be stored again. That is left to a broker, and the report names the
extent.

With a clock that runs ahead everything would expire, so a run checks the clock first and refuses to work if it
is wrong (`millpond.spark.pipelines.clock`).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from millpond.catalog import extents as catalog_extents
from millpond.catalog import partitions as catalog_partitions
from millpond.catalog import published_settings, topics, transactions
from millpond.catalog.database import CatalogTransaction, Database
from millpond.model.errors import Damaged, ExtentsChanged, ObjectMissing, UnknownPartition, UnknownTopic
from millpond.model.extents import Extent
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.topics import Topic
from millpond.reading.reader import StoreReader
from millpond.rewriting.examination import examine, must_be_stored_again
from millpond.rewriting.expiry import (
    AgeLimit,
    expired_by_age,
    expired_by_size,
    must_be_examined,
)
from millpond.rewriting.inputs import expiry_point_inside
from millpond.spark.pipelines.clock import checked_clock
from millpond.spark.pipelines.job import PipelineJob, Report, run_recorded
from millpond.spark.pipelines.tasks import perform
from millpond.spark.place import Place, database, reader

PARTITIONS_PER_ITEM: Final = 64
EXTENTS_PER_PAGE: Final = 1_000
EXAMINED_BYTES_PER_ROUND: Final = 256 * 1024 * 1024
"""Once a round has read this many bytes of a partition, it examines no further extent of it."""
REMOVED_PER_STEP: Final = 1_000
"""Maximum number of extents that one transaction removes, because producers wait for it."""
ROUNDS_MAX: Final = 5
WITHOUT_LIMIT: Final = -1
AGE, SIZE = "retention.ms", "retention.bytes"


@dataclass(frozen=True, slots=True)
class RetainRequest:
    """`topics` are names or patterns with `*`; all topics if empty."""

    topics: tuple[str, ...] = ()
    trust_clock: bool = False
    """Whether to skip the check of the clock; the operator has checked it."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The limits that are set on a topic itself; -1 means no limit."""

    age_ms: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RetainItem:
    place: Place
    partitions: tuple[tuple[TopicPartition, RetentionLimits], ...]
    now_ms: int
    grace_ms: int


@dataclass(frozen=True, slots=True)
class PartitionExpiry:
    """The records of a partition below `new_log_start` expire, provided that the partition still has these limits
    and this `log_start`, and at least this many bytes."""

    topic_partition: TopicPartition
    limits: RetentionLimits
    log_start: int
    bytes: int
    new_log_start: int
    unexamined: tuple[Extent, ...] = ()
    """The next extents to expire by age whose timestamps cannot be trusted."""


@dataclass(frozen=True, slots=True)
class ExaminedExtent:
    """The actual timestamps of an extent's records, and whether its bytes contain other ones and must be stored
    again."""

    extent: Extent
    oldest: int
    newest: int
    needs_rewrite: bool


@dataclass(frozen=True, slots=True)
class RetainResult:
    expiries: tuple[PartitionExpiry, ...]
    retry: tuple[TopicPartition, ...]
    failed: tuple[tuple[TopicPartition, str], ...]
    examined: tuple[ExaminedExtent, ...]


@dataclass(slots=True)
class RetainTotals:
    expired: int = 0
    moved: set[TopicPartition] = field(default_factory=set)
    extents: int = 0
    bytes: int = 0
    conflicts: int = 0
    examined: int = 0
    failed: dict[TopicPartition, str] = field(default_factory=dict)


def run(job: PipelineJob, request: RetainRequest) -> Report:
    chosen = job.topics(request.topics)
    return run_recorded(
        job, "retain", [topic.name for topic in chosen], lambda: _retain(job, chosen, request)
    )


def limits_of(topic: Topic) -> RetentionLimits | None:
    """None if no limit is set on the topic itself, or its cleanup policy does not delete records."""
    if not topic.config().deleted_by_age:
        return None
    limits = RetentionLimits(*(int(topic.overrides.get(name, WITHOUT_LIMIT)) for name in (AGE, SIZE)))
    return None if limits == RetentionLimits(WITHOUT_LIMIT, WITHOUT_LIMIT) else limits


def _retain(job: PipelineJob, chosen: Sequence[Topic], request: RetainRequest) -> Report:
    started = time.perf_counter()
    clock = checked_clock(job.database, job.clock, trust=request.trust_clock)
    limited = {topic.id: (topic, limits) for topic in chosen if (limits := limits_of(topic)) is not None}
    due = [
        (TopicPartition(topic.id, number), limits)
        for topic, limits in limited.values()
        for number in range(topic.partitions)
    ]
    totals = RetainTotals()
    for _ in range(ROUNDS_MAX):
        if not due:
            break
        due = _run_round(job, due, limited, totals)
        if job.is_dry_run:
            break
    names = {topic.id: topic.name for topic in chosen}
    return {
        "topics": len(limited),
        "left_to_brokers": sorted(topic.name for topic in chosen if topic.id not in limited),
        "partitions_moved": len(totals.moved),
        "offsets_expired": totals.expired,
        "extents_removed": totals.extents,
        "bytes_removed": totals.bytes,
        "extents_examined": totals.examined,
        "conflicts": totals.conflicts,
        "failed": [
            {"topic": names[topic_partition.topic_id], "partition": topic_partition.partition, "error": error}
            for topic_partition, error in sorted(totals.failed.items())
        ],
        "left": [
            {"topic": names[topic_partition.topic_id], "partition": topic_partition.partition}
            for topic_partition, _ in due
        ],
        "clock": list(clock),
        "seconds": round(time.perf_counter() - started, 3),
    }


Due = list[tuple[TopicPartition, RetentionLimits]]


def _run_round(
    job: PipelineJob, due: Due, limited: dict[TopicId, tuple[Topic, RetentionLimits]], totals: RetainTotals
) -> Due:
    """Compute the new log starts and apply them. Returns the partitions that need another round."""
    now_ms = job.clock.now_ms()
    with job.database.read() as tx:
        grace_ms = published_settings.read(tx).retention_grace_ms
    items = [
        RetainItem(job.place, tuple(due[start : start + PARTITIONS_PER_ITEM]), now_ms, grace_ms)
        for start in range(0, len(due), PARTITIONS_PER_ITEM)
    ]
    retry: set[TopicPartition] = set()
    examined: set[TopicPartition] = set()
    for done, result in enumerate(perform(job.spark, items, work), start=1):
        retry.update(result.retry)
        totals.failed.update(result.failed)
        examined |= _store_examined(job, result.examined, now_ms, totals)
        for expiry in result.expiries:
            if job.is_dry_run:
                is_current = _count_planned(job.database, expiry, totals)
            else:
                is_current = _apply_expiry(
                    job, expiry, limited[expiry.topic_partition.topic_id][0].name, totals
                )
            if not is_current:
                retry.add(expiry.topic_partition)
        job.progress(done, len(items), "expiring")
    totals.conflicts += len(retry)
    return _current_limits(job, retry | examined, limited)


def _current_limits(
    job: PipelineJob, retry: set[TopicPartition], limited: dict[TopicId, tuple[Topic, RetentionLimits]]
) -> Due:
    """Read the limits again, because a new log start may have been refused after they changed."""
    if not retry:
        return []
    with job.database.read() as tx:
        existing = {topic.id: topic for topic in topics.all_topics(tx)}
    found = [
        (topic_partition, limits_of(existing[topic_partition.topic_id]))
        for topic_partition in sorted(retry)
        if topic_partition.topic_id in existing
    ]
    return [(topic_partition, limits) for topic_partition, limits in found if limits is not None]


# -- computing new log starts, in tasks -----------------------------------------------------------------------


def work(item: RetainItem) -> RetainResult:
    catalog, source = database(item.place), reader(item.place)
    expiries: list[PartitionExpiry] = []
    retry: list[TopicPartition] = []
    failed: list[tuple[TopicPartition, str]] = []
    examined: list[ExaminedExtent] = []
    for topic_partition, limits in item.partitions:
        try:
            expiry = find_expiry(catalog, source, topic_partition, limits, item.now_ms, item.grace_ms)
            examined += [_examined(source, extent, item.now_ms) for extent in expiry.unexamined]
        except (ObjectMissing, ExtentsChanged):
            retry.append(topic_partition)
        except Damaged as error:
            failed.append((topic_partition, str(error)))
        except UnknownPartition:
            continue  # deleted since
        else:
            if expiry.new_log_start > expiry.log_start or _has_leftovers(
                catalog, topic_partition, expiry.log_start
            ):
                expiries.append(replace(expiry, unexamined=()))
    return RetainResult(tuple(expiries), tuple(retry), tuple(failed), tuple(examined))


def _examined(source: StoreReader, extent: Extent, now_ms: int) -> ExaminedExtent:
    found = examine(bytearray(source.read_extent(extent).data), now_ms)
    needs_rewrite = must_be_stored_again(extent, found)
    return ExaminedExtent(replace(extent, inline=None), found.oldest, found.newest, needs_rewrite)


def find_expiry(
    catalog: Database,
    source: StoreReader,
    topic_partition: TopicPartition,
    limits: RetentionLimits,
    now_ms: int,
    grace_ms: int,
) -> PartitionExpiry:
    """Compute the new log start of a partition. Its row is read before its extents, because appends in between can
    only make it larger. Raises `ExtentsChanged` or `ObjectMissing` if another writer changed the partition during
    the computation."""
    with catalog.read() as tx:
        row = catalog_partitions.read(tx, topic_partition)
    offset, unexamined = row.log_start, list[Extent]()
    if limits.age_ms != WITHOUT_LIMIT:
        limit = AgeLimit(now_ms, limits.age_ms, grace_ms)
        offset, unexamined = _new_start_by_age(catalog, source, topic_partition, row.log_start, limit)
    if limits.bytes != WITHOUT_LIMIT:
        offset = max(
            offset, _new_start_by_size(catalog, topic_partition, row.log_start, row.bytes - limits.bytes)
        )
    unexamined = [extent for extent in unexamined if extent.end_offset > offset]
    return PartitionExpiry(
        topic_partition, limits, row.log_start, row.bytes, min(offset, row.end_offset), tuple(unexamined)
    )


def _new_start_by_age(
    catalog: Database, source: StoreReader, topic_partition: TopicPartition, log_start: int, limit: AgeLimit
) -> tuple[int, list[Extent]]:
    """The new log start by age, and the extents that must be examined before it can advance further."""
    offset = start = log_start
    while True:
        with catalog.read() as tx:
            rows = catalog_extents.find(
                tx, topic_partition, start, bytes_max=2**62, extents_max=EXTENTS_PER_PAGE
            )
        point = expired_by_age(rows, offset, limit)
        if point.boundary is not None:
            inside, _ = expiry_point_inside(source.read_from, point.boundary, log_start, limit)
            return max(point.offset, inside), []
        if point.unexamined is not None:
            return point.offset, _to_examine(rows, point.unexamined, limit)
        if not rows or not point.is_open:
            return point.offset, []
        offset, start = point.offset, rows[-1].end_offset


def _to_examine(rows: Sequence[Extent], first: Extent, limit: AgeLimit) -> list[Extent]:
    """The extents to examine: `first` and later ones that need it, up to `EXAMINED_BYTES_PER_ROUND`."""
    chosen: list[Extent] = []
    room = EXAMINED_BYTES_PER_ROUND
    for extent in rows:
        if room > 0 and extent.base_offset >= first.base_offset and must_be_examined(extent, limit):
            chosen.append(extent)
            room -= extent.length
    return chosen


def _new_start_by_size(
    catalog: Database, topic_partition: TopicPartition, log_start: int, excess_bytes: int
) -> int:
    """The new log start by size. Extents that an interrupted run left below the log start still count in the
    partition's bytes, so all pages are read from offset 0 on."""
    offset = log_start
    if excess_bytes <= 0:
        return offset
    for rows in _pages(catalog, topic_partition):
        offset = expired_by_size(rows, offset, excess_bytes)
        excess_bytes -= sum(extent.length for extent in rows)
        if excess_bytes <= 0:
            break
    return offset


def _pages(catalog: Database, topic_partition: TopicPartition) -> Iterator[list[Extent]]:
    """All extents, each page read in its own transaction. Raises `ExtentsChanged` if a merge has created an
    extent across a page boundary: if it were skipped, it would expire without being counted."""
    start = 0
    while True:
        with catalog.read() as tx:
            rows = catalog_extents.find(
                tx, topic_partition, start, bytes_max=2**62, extents_max=EXTENTS_PER_PAGE
            )
        if not rows:
            return
        if rows[0].base_offset < start:
            raise ExtentsChanged
        yield rows
        start = rows[-1].end_offset


def _has_leftovers(catalog: Database, topic_partition: TopicPartition, log_start: int) -> bool:
    """Whether an interrupted run left extents below the log start."""
    with catalog.read() as tx:
        oldest = catalog_extents.facts(tx, topic_partition, 0, 1)
    return bool(oldest) and oldest[0].end_offset <= log_start


# -- storing the results of examination -----------------------------------------------------------------------


def _store_examined(
    job: PipelineJob, found: Sequence[ExaminedExtent], now_ms: int, totals: RetainTotals
) -> set[TopicPartition]:
    """Store the results. Returns the partitions that need another round, because their extents now have an append
    time: that of the examination."""
    stored: set[TopicPartition] = set()
    for each in () if job.is_dry_run else found:
        topic_partition = each.extent.topic_partition
        if each.needs_rewrite:
            totals.failed[topic_partition] = (
                f"the extent from offset {each.extent.base_offset} on has other timestamps than its records: "
                "a broker corrects it before it expires"
            )
            continue
        try:
            with job.database.write() as tx:
                catalog_extents.examined(tx, each.extent, each.oldest, each.newest, appended_at=now_ms)
        except ExtentsChanged:
            totals.conflicts += 1
        else:
            totals.examined += 1
        stored.add(topic_partition)
    return stored


# -- applying new log starts ----------------------------------------------------------------------------------


def _apply_expiry(job: PipelineJob, expiry: PartitionExpiry, topic_name: str, totals: RetainTotals) -> bool:
    """Advance the log start, then remove the extents below it, in steps. False if the expiry is out of date."""
    try:
        with job.database.write() as tx:
            _advance_log_start(tx, expiry, topic_name)
    except (ExtentsChanged, UnknownPartition):
        return False
    totals.expired += expiry.new_log_start - expiry.log_start
    if expiry.new_log_start > expiry.log_start:
        totals.moved.add(expiry.topic_partition)
    while _remove_step(job, expiry, totals) == REMOVED_PER_STEP:
        pass
    return True


def _advance_log_start(tx: CatalogTransaction, expiry: PartitionExpiry, topic_name: str) -> None:
    """Advance the log start. Raises `ExtentsChanged` if the conditions of `PartitionExpiry` no longer hold. The
    update locks the partition's row, so what is read after it cannot change before the commit."""
    if _limits_in(tx, topic_name, expiry.topic_partition.topic_id) != expiry.limits:
        raise ExtentsChanged
    if catalog_partitions.read(tx, expiry.topic_partition).log_start != expiry.log_start:
        raise ExtentsChanged
    catalog_partitions.advance_log_start(tx, expiry.topic_partition, expiry.new_log_start)
    if catalog_partitions.read(tx, expiry.topic_partition).bytes < expiry.bytes:
        raise ExtentsChanged
    # Readers in other processes may not have seen the new log start yet and still read below it. The list of
    # transactions aborted there stays until the next run; without it these readers would return aborted records.
    transactions.forget_aborted(tx, expiry.topic_partition, _first_stored_offset(tx, expiry))


def _limits_in(tx: CatalogTransaction, topic_name: str, topic_id: TopicId) -> RetentionLimits | None:
    try:
        topic = topics.find(tx, topic_name)
    except UnknownTopic:
        return None
    return limits_of(topic) if topic.id == topic_id else None


def _remove_step(job: PipelineJob, expiry: PartitionExpiry, totals: RetainTotals) -> int:
    topic_partition, limit = expiry.topic_partition, REMOVED_PER_STEP
    with job.database.write() as tx:
        expired = [
            e
            for e in catalog_extents.facts(tx, topic_partition, 0, limit)
            if e.end_offset <= expiry.new_log_start
        ]
        removed = catalog_extents.remove_below(
            tx, topic_partition, expiry.new_log_start, limit=limit, now_ms=job.clock.now_ms()
        )
    totals.extents += removed
    totals.bytes += sum(extent.length for extent in expired)
    return removed


def _first_stored_offset(tx: CatalogTransaction, expiry: PartitionExpiry) -> int:
    """The first offset at which records may still be stored. Below it there were none when this run began, and
    there are none now."""
    oldest = catalog_extents.facts(tx, expiry.topic_partition, 0, 1)
    return min(expiry.log_start, oldest[0].base_offset) if oldest else expiry.log_start


def _count_planned(catalog: Database, expiry: PartitionExpiry, totals: RetainTotals) -> bool:
    """For a dry run: count what would be removed. False if the expiry is out of date."""
    extents = size = 0
    try:
        for rows in _pages(catalog, expiry.topic_partition):
            expired = [extent for extent in rows if extent.end_offset <= expiry.new_log_start]
            extents += len(expired)
            size += sum(extent.length for extent in expired)
            if len(expired) < len(rows):
                break
    except ExtentsChanged:
        return False
    totals.expired += expiry.new_log_start - expiry.log_start
    totals.moved.add(expiry.topic_partition)
    totals.extents += extents
    totals.bytes += size
    return True
