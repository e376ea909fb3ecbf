"""Compaction points, the pure part: how far a partition is compacted, and since when its tombstones wait."""

from millpond.catalog import compactions
from millpond.catalog.compactions import TOMBSTONES_REMOVED, CompactionPoint
from millpond.rewriting.compaction import Compacted, CompactionPlan
from millpond.rewriting.compaction_keys import NO_TOMBSTONE


def points_after(compacted: Compacted, now_ms: int) -> tuple[CompactionPoint, ...]:
    """The points that hold after the commit. The dropped records disappear only with the commit, so the
    retention of tombstones starts then. Points below which there is no tombstone any more are combined into
    one, without a time."""
    plan, clean_end = compacted.plan, compacted.clean_end
    now_ms = max(now_ms, plan.now_ms)  # a clock that was set back must not shorten the wait
    points = [point for point in plan.points if point.end_offset <= clean_end]
    if not points or points[-1].end_offset < clean_end:
        points.append(CompactionPoint(clean_end, now_ms))
    bare_before = max((p.end_offset for p in points if p.compacted_at == TOMBSTONES_REMOVED), default=0)
    bare_now = clean_end if compacted.first_tombstone == NO_TOMBSTONE else compacted.first_tombstone
    bare_end = max(bare_before, bare_now)
    gone = [point.end_offset for point in points if point.end_offset <= bare_end]
    waiting = [_again(point, plan, now_ms) for point in points if point.end_offset > bare_end]
    begin = [CompactionPoint(gone[-1], TOMBSTONES_REMOVED)] if gone else []
    return (*begin, *compactions.thinned(waiting, plan.delete_retention_ms))


def _again(point: CompactionPoint, plan: CompactionPlan, now_ms: int) -> CompactionPoint:
    """Tombstones that were due and are still there are behind a batch that cannot be decoded. They are tried
    again after another `delete.retention.ms`."""
    return CompactionPoint(point.end_offset, now_ms) if point.end_offset <= plan.tombstones_end else point
