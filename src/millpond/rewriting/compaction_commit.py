"""The commit of a compaction: one transaction that puts segments in their places and notes how far it has come.

It fails with `ExtentsChanged` if anything it rests on has changed: an extent that it replaces, the points, or what the
topic's configs come to. That records have expired meanwhile is no such change: with `compact,delete` the log start
moves all the time, and a long compaction would never end otherwise.
"""

from millpond.catalog import compactions, topics
from millpond.catalog import extents as catalog_extents
from millpond.catalog.compactions import TOMBSTONES_GONE, CompactionPoint
from millpond.catalog.database import Transaction
from millpond.model.errors import ExtentsChanged, UnknownTopic
from millpond.rewriting.compaction import Compacted, CompactionPlan
from millpond.rewriting.compaction_keys import NO_TOMBSTONE


def register(tx: Transaction, compacted: Compacted, *, now_ms: int) -> list[str]:
    """Rows, objects and points. Returns the keys of segments that all expired meanwhile: nothing refers to them, and
    whoever put them deletes them or leaves them to die with their session."""
    plan = compacted.plan
    log_start = catalog_extents.hold(tx, plan.where)
    if log_start is None or compactions.read(tx, plan.where) != plan.points or not _still_wanted(tx, plan):
        raise ExtentsChanged
    living = [segment for segment in compacted.segments if segment.row.end_offset > log_start]
    catalog_extents.replace_all(
        tx,
        plan.where,
        [extent for segment in living for extent in segment.old],
        [(segment.row, segment.new_object) for segment in living],
        now_ms=now_ms,
        expired_below=log_start,
    )
    compactions.write(tx, plan.where, points_after(compacted, now_ms))
    return [s.new_object.key for s in compacted.segments if s.row.end_offset <= log_start]


def _still_wanted(tx: Transaction, plan: CompactionPlan) -> bool:
    """Whether the topic is compacted, and keeps records as long as the plan has it."""
    try:
        config = topics.config(tx, plan.where.topic_id, plan.broker_defaults)
    except UnknownTopic:
        return False
    kept = (config.min_compaction_lag_ms, config.delete_retention_ms)
    return config.compacted and kept == (plan.min_compaction_lag_ms, plan.delete_retention_ms)


def points_after(compacted: Compacted, now_ms: int) -> tuple[CompactionPoint, ...]:
    """The points that hold once it is committed: what it leaves out goes only then, and the time that tombstones wait
    begins. Points below which there is no tombstone any more are one, without a time."""
    plan, clean_end = compacted.plan, compacted.clean_end
    now_ms = max(now_ms, plan.now_ms)  # a clock that was set back must not shorten the wait
    points = [point for point in plan.points if point.end_offset <= clean_end]
    if not points or points[-1].end_offset < clean_end:
        points.append(CompactionPoint(clean_end, now_ms))
    bare_before = max((p.end_offset for p in points if p.compacted_at == TOMBSTONES_GONE), default=0)
    bare_now = clean_end if compacted.first_tombstone == NO_TOMBSTONE else compacted.first_tombstone
    bare_end = max(bare_before, bare_now)
    gone = [point.end_offset for point in points if point.end_offset <= bare_end]
    waiting = [_again(point, plan, now_ms) for point in points if point.end_offset > bare_end]
    begin = [CompactionPoint(gone[-1], TOMBSTONES_GONE)] if gone else []
    return (*begin, *compactions.thinned(waiting, plan.delete_retention_ms))


def _again(point: CompactionPoint, plan: CompactionPlan, now_ms: int) -> CompactionPoint:
    """Tombstones that were due and are still there lie behind a batch that cannot be decoded: they are tried again,
    but not at once."""
    return CompactionPoint(point.end_offset, now_ms) if point.end_offset <= plan.tombstones_end else point
