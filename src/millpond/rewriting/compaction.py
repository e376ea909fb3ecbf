"""Log compaction, the pure part: keep the last record of each key. Brokers and Spark jobs execute it.

**The plan** (`plan_compaction`). A partition is compacted up to a safe point: whole extents below the last
stable offset, and older than `min.compaction.lag.ms`. The range between the last compaction point and the
safe point is dirty. Compaction is due when the dirty part of the log reaches `min.cleanable.dirty.ratio`,
when a dirty record has waited for `max.compaction.lag.ms`, when tombstones may be removed, or when the caller
requests it (`force`).

**The execution** (`compact`) has two passes, like Kafka's cleaner. The first pass reads the dirty range and
maps each key to its last offset. The map is bounded: when it is full, the range ends there (`clean_end`), if
necessary in the middle of an extent or even of a batch, and the next compaction continues. The second pass
reads everything from the log start to the clean end and drops

* records that a later record of the same key in the map replaces,
* tombstones below `tombstones_end`,
* records of aborted transactions,
* records without a key (as Kafka does; they exist if the topic was not always compacted),
* records below the log start, which no reader can reach.

Every control batch stays: without an abort marker a reader would hide its producer's later records, too.
Offsets never change. A batch that cannot be decoded stays as it is, and its keys are ignored. Tombstones
behind it stay as long as it does, because another reader may be able to decode it and would find the records
that they delete. Records at or past the clean end stay.

**The delete horizon.** A tombstone must stay for `delete.retention.ms` after the records it deletes were
removed, so that a slow reader receives it. The catalog keeps points (`millpond.catalog.compactions`):
tombstones below a point of that age are removed. The batches themselves do not change for this.

`millpond.rewriting.inputs` reads what the plan needs; `millpond.rewriting.commits` commits the result.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from millpond.catalog.compactions import TOMBSTONES_REMOVED, CompactionPoint
from millpond.catalog.extents import NewExtent
from millpond.catalog.objects import NewObject
from millpond.catalog.partitions import PartitionRow
from millpond.catalog.transactions import Aborted
from millpond.model.errors import ExtentsChanged, InvalidInput
from millpond.model.extents import Extent
from millpond.model.ids import Session, TopicPartition
from millpond.model.topics import TopicConfig
from millpond.reading.runs import ReadRuns
from millpond.reading.visible import PlacedBatch
from millpond.records import NO_TIMESTAMP, BatchHeader, Buffer, walk
from millpond.rewriting.compaction_batches import with_records
from millpond.rewriting.compaction_keys import NO_TOMBSTONE, BatchFilter, FilteredBatch, KeyMap
from millpond.rewriting.compaction_segments import SegmentWriter
from millpond.rewriting.merging import LARGE_BYTES, SEGMENT_BYTES_MAX
from millpond.segments.keys import segment_key

EXTENTS_MAX: Final = 100_000
"""Maximum number of extents of one partition per compaction; later extents wait for the next one."""
CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Number of bytes read and filtered at a time."""
NO_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType({})

PutObject = Callable[[str, list[Buffer]], object]
"""`ObjectStore.put`: key, parts."""
Pause = Callable[[int], None]
"""Receives the number of bytes just processed; may sleep, and may raise to abort."""


# -- the plan ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The catalog state on which a plan is based. `extents` are outlines, starting with the first extent."""

    row: PartitionRow
    extents: tuple[Extent, ...]
    last_stable_offset: int
    aborted: tuple[Aborted, ...]
    points: tuple[CompactionPoint, ...]


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """`extents` are all that begin below `clean_end`. The dirty range is [`dirty_start`, `clean_end`); it is
    empty if only tombstones are to be removed. Plain values: a plan can be sent to another process."""

    topic_partition: TopicPartition
    extents: tuple[Extent, ...]
    log_start: int
    dirty_start: int
    clean_end: int
    tombstones_end: int
    aborted: tuple[Aborted, ...]
    points: tuple[CompactionPoint, ...]
    delete_retention_ms: int
    min_compaction_lag_ms: int
    broker_defaults: Mapping[str, str]
    """The defaults, at planning time, of configs that are not set on the topic itself."""
    now_ms: int
    dirty_bytes: int
    total_bytes: int


def plan_compaction(
    state: PartitionState,
    config: TopicConfig,
    *,
    now_ms: int,
    force: bool = False,
    skip_small_tail: bool = False,
    broker_defaults: Mapping[str, str] = NO_DEFAULTS,
) -> CompactionPlan | None:
    """Returns None if there is nothing to do, or not enough. With `skip_small_tail` the small extents at the end
    are left out: a running broker is about to merge them, and the commit of a long compaction would then
    fail. `config` results from the topic's own configs and `broker_defaults`."""
    log_start, points = state.row.log_start, state.points
    dirty_start = max(log_start, points[-1].end_offset if points else 0)
    clean_end = max(dirty_start, _safe_end(state, config, now_ms, skip_small_tail))
    covered = tuple(extent for extent in state.extents if extent.base_offset < clean_end)
    dirty = [extent for extent in covered if dirty_start < clean_end and extent.end_offset > dirty_start]
    dirty_bytes, total_bytes = (sum(e.length for e in some) for some in (dirty, covered))
    due = [point for point in points if _is_due(point, config, now_ms)]
    is_worth_it = bool(dirty) and (
        force
        or dirty_bytes >= config.min_cleanable_dirty_ratio * total_bytes
        or any(_has_waited(extent, config, now_ms) for extent in dirty)
    )
    if not covered or not (is_worth_it or any(point.compacted_at != TOMBSTONES_REMOVED for point in due)):
        return None
    return CompactionPlan(
        state.row.topic_partition,
        covered,
        log_start,
        dirty_start,
        clean_end,
        max((point.end_offset for point in due), default=0),
        state.aborted,
        points,
        config.delete_retention_ms,
        config.min_compaction_lag_ms,
        dict(broker_defaults),
        now_ms,
        dirty_bytes,
        total_bytes,
    )


def _safe_end(state: PartitionState, config: TopicConfig, now_ms: int, skip_small_tail: bool) -> int:
    """The end of the longest prefix of whole extents in which every record is stable and old enough."""
    end = 0
    extents = _without_small_tail(state.extents) if skip_small_tail else state.extents
    for extent in extents:
        too_young = extent.max_timestamp > now_ms - config.min_compaction_lag_ms
        if extent.end_offset > state.last_stable_offset or (config.min_compaction_lag_ms and too_young):
            break
        end = extent.end_offset
    return end


def _without_small_tail(extents: Sequence[Extent]) -> Sequence[Extent]:
    count = len(extents)
    while count and extents[count - 1].length < LARGE_BYTES:
        count -= 1
    return extents[:count]


def _is_due(point: CompactionPoint, config: TopicConfig, now_ms: int) -> bool:
    """Whether the tombstones below a point may be removed, or already were."""
    gone = point.compacted_at == TOMBSTONES_REMOVED
    return gone or point.compacted_at + config.delete_retention_ms <= now_ms


def _has_waited(extent: Extent, config: TopicConfig, now_ms: int) -> bool:
    oldest = extent.min_timestamp
    return oldest != NO_TIMESTAMP and oldest + config.max_compaction_lag_ms <= now_ms


# -- the execution ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompactedSegment:
    """A segment that has been stored, the row that describes it, and the extents that it replaces."""

    old: tuple[Extent, ...]
    row: NewExtent
    new_object: NewObject


@dataclass(frozen=True, slots=True)
class Compacted:
    """The input of the commit. Segments are in order; unchanged extents between them stay. Below
    `first_tombstone` there is no tombstone, and no batch that could not be decoded. Plain values without any
    record's bytes: a Spark task can send it to its driver."""

    plan: CompactionPlan
    segments: tuple[CompactedSegment, ...]
    clean_end: int
    first_tombstone: int
    records_read: int
    records_kept: int
    unreadable_batches: int

    @property
    def bytes_freed(self) -> int:
        """How much smaller the partition becomes."""
        old = sum(extent.length for segment in self.segments for extent in segment.old)
        return old - sum(segment.row.length for segment in self.segments)


def compact(
    plan: CompactionPlan,
    read_runs: ReadRuns,
    keys: KeyMap,
    *,
    session: Session,
    attempts: Iterator[int],
    put: PutObject,
    pause: Pause = lambda _: None,
    chunk_bytes: int = CHUNK_BYTES,
    segment_bytes_max: int = SEGMENT_BYTES_MAX,
) -> Compacted:
    """Perform both passes. Segments are stored one by one as they fill. If this raises, the caller deletes
    the stored segments, or leaves them to garbage collection after the end of the session. `attempts` never
    yields the same number twice for one session. `keys` must be empty."""
    execution = _Deed(plan, read_runs, keys, pause, chunk_bytes)
    segments: list[CompactedSegment] = []

    def put_segment(old: tuple[Extent, ...], row: NewExtent, parts: list[Buffer]) -> None:
        key = segment_key(session, *row.topic_partition, row.base_offset, row.end_offset, next(attempts))
        new_object = NewObject(key, "segment", session, sum(map(len, parts)), sealed=True)
        put(key, parts)
        segments.append(CompactedSegment(old, row, new_object))

    clean_end = execution.collect_keys()
    execution.rewrite(
        clean_end, SegmentWriter(plan.extents, put_segment, segment_bytes_max=segment_bytes_max)
    )
    return Compacted(
        plan,
        tuple(segments),
        clean_end,
        execution.first_tombstone,
        execution.records_read,
        execution.records_kept,
        execution.unreadable_batches,
    )


class _Deed:
    """One compaction in progress."""

    def __init__(
        self, plan: CompactionPlan, read_runs: ReadRuns, keys: KeyMap, pause: Pause, chunk_bytes: int
    ) -> None:
        self._plan = plan
        self._read_runs = read_runs
        self._keys = keys
        self._pause = pause
        self._chunk_bytes = chunk_bytes
        self._sieve = BatchFilter(0, 0, 0)
        self.records_read = 0
        self.records_kept = 0
        self.unreadable_batches = 0
        self.first_tombstone = NO_TOMBSTONE

    def collect_keys(self) -> int:
        """The first pass. Returns the clean end: the plan's, or the offset at which the map was full."""
        start, end = self._plan.dirty_start, self._plan.clean_end
        for chunk in self._chunks(start, end):
            full_at = _collect_keys(self._keys, [batch for batch, is_data in chunk if is_data], start, end)
            if full_at < end:
                return full_at
        return end

    def rewrite(self, clean_end: int, writer: SegmentWriter) -> None:
        """The second pass."""
        plan = self._plan
        self._sieve = BatchFilter(plan.log_start, clean_end, plan.tombstones_end)
        for chunk in self._chunks(plan.extents[0].base_offset, plan.extents[-1].end_offset):
            data = [batch for batch, is_data in chunk if is_data and batch[2].base_offset < clean_end]
            filtered = iter(self._filter_batches(data))
            for batch, is_data in chunk:
                header = batch[2]
                self.records_read += header.record_count
                if header.is_control or header.base_offset >= clean_end:
                    self._keep(writer, batch)
                elif is_data:
                    self._write(writer, batch, next(filtered))
                else:
                    writer.drop(header)
        writer.finish()

    def _filter_batches(self, batches: Sequence[PlacedBatch]) -> Sequence[FilteredBatch | None]:
        """Keeps all tombstones behind the first batch that cannot be decoded."""
        filtered = _filter_batches(self._keys, batches, self._sieve)
        if not self._sieve.tombstones_end or None not in filtered:
            return filtered
        readable = filtered.index(None)
        self._sieve = dataclasses.replace(self._sieve, tombstones_end=0)
        return (*filtered[:readable], *_filter_batches(self._keys, batches[readable:], self._sieve))

    def _write(self, writer: SegmentWriter, batch: PlacedBatch, filtered: FilteredBatch | None) -> None:
        header = batch[2]
        if filtered is None:
            self.unreadable_batches += 1
        if self.first_tombstone == NO_TOMBSTONE:
            self.first_tombstone = header.base_offset if filtered is None else filtered.first_tombstone
        if filtered is None or filtered.records is None:
            self._keep(writer, batch)
        elif filtered.kept == 0:
            writer.drop(header)
        else:
            self.records_kept += filtered.kept
            changed = with_records(header, filtered.kept, filtered.records, filtered.newest_timestamp)
            writer.change(next(walk(changed))[1], changed)

    def _keep(self, writer: SegmentWriter, batch: PlacedBatch) -> None:
        buffer, position, header = batch
        self.records_kept += header.record_count
        writer.keep(header, memoryview(buffer)[position : position + header.size])

    def _chunks(self, start: int, end: int) -> Iterator[list[tuple[PlacedBatch, bool]]]:
        """Batches from `start` to `end`, each with whether it holds records that readers may see."""
        aborts = _Aborts(self._plan.aborted, start)
        offset = start
        while offset < end:
            runs = self._read_runs(self._plan.topic_partition, offset, self._chunk_bytes)
            if not runs:
                raise ExtentsChanged  # the extents have expired
            yield [
                ((run.data, position, header), aborts.shows(header))
                for run in runs
                for position, header in walk(run.data)
                if header.next_offset > offset and header.base_offset < end
            ]
            self._pause(sum(len(run.data) for run in runs))
            offset = max(run.end_offset for run in runs)


class _Aborts:
    """Receives all batches in order, and tells which hold visible records: like `visible`, but across many
    reads."""

    def __init__(self, aborted: Sequence[Aborted], start: int) -> None:
        touching = (each for each in aborted if each.last_offset >= start)
        self._ahead = sorted(touching, key=lambda each: each.first_offset, reverse=True)
        self._hidden: set[int] = set()

    def shows(self, header: BatchHeader) -> bool:
        while self._ahead and self._ahead[-1].first_offset <= header.last_offset:
            self._hidden.add(self._ahead.pop().producer_id)
        if header.is_control:
            self._hidden.discard(header.producer_id)
            return False
        is_aborted = header.is_transactional and header.producer_id in self._hidden
        return header.record_count > 0 and not is_aborted


def _collect_keys(keys: KeyMap, batches: Sequence[PlacedBatch], start: int, end: int) -> int:
    """Learn the keys of the batches that can be decoded; bisects to find those that cannot."""
    if not batches:
        return end
    try:
        return keys.collect_keys(batches, start, end)
    except InvalidInput:
        if len(batches) == 1:
            return end
        half = len(batches) // 2
        full_at = _collect_keys(keys, batches[:half], start, end)
        return full_at if full_at < end else _collect_keys(keys, batches[half:], start, end)


def _filter_batches(
    keys: KeyMap, batches: Sequence[PlacedBatch], batch_filter: BatchFilter
) -> Sequence[FilteredBatch | None]:
    """Returns None for a batch that cannot be decoded."""
    if not batches:
        return ()
    try:
        return keys.filter_batches(batches, batch_filter)
    except InvalidInput:
        if len(batches) == 1:
            return (None,)
        half = len(batches) // 2
        return (
            *_filter_batches(keys, batches[:half], batch_filter),
            *_filter_batches(keys, batches[half:], batch_filter),
        )
