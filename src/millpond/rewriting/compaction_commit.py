"""The commit of a compaction: one transaction that replaces extents by segments and records how far it has come.

It fails with `ExtentsChanged` if anything that the compaction relies on has changed: an extent that it
replaces, the points, or the topic's effective configs. Records that expired during the compaction are no such
change: with `compact,delete` the log start moves all the time, and a long compaction would never succeed
otherwise.
"""

from millpond.catalog import compactions, topics
from millpond.catalog import extents as catalog_extents
from millpond.catalog.compactions import TOMBSTONES_REMOVED, CompactionPoint
from millpond.catalog.database import CatalogTransaction
from millpond.model.errors import ExtentsChanged, UnknownTopic
from millpond.rewriting.compaction import Compacted, CompactionPlan
from millpond.rewriting.compaction_keys import NO_TOMBSTONE


def register(tx: CatalogTransaction, compacted: Compacted, *, now_ms: int) -> list[str]:
    """Write rows, objects and points. Returns the keys of segments whose records have all expired during the
    compaction. Nothing refers to these: the caller deletes them, or leaves them to garbage collection after
    the end of the session."""
    plan = compacted.plan
    log_start = catalog_extents.hold(tx, plan.topic_partition)
    if (
        log_start is None
        or compactions.read(tx, plan.topic_partition) != plan.points
        or not _still_wanted(tx, plan)
    ):
        raise ExtentsChanged
    living = [segment for segment in compacted.segments if segment.row.end_offset > log_start]
    catalog_extents.replace_all(
        tx,
        plan.topic_partition,
        [extent for segment in living for extent in segment.old],
        [(segment.row, segment.new_object) for segment in living],
        now_ms=now_ms,
        expired_below=log_start,
    )
    compactions.write(tx, plan.topic_partition, points_after(compacted, now_ms))
    return [s.new_object.key for s in compacted.segments if s.row.end_offset <= log_start]


def _still_wanted(tx: CatalogTransaction, plan: CompactionPlan) -> bool:
    """Whether the topic is still compacted, with the same lag and the same retention of tombstones as in the
    plan."""
    try:
        config = topics.config(tx, plan.topic_partition.topic_id, plan.broker_defaults)
    except UnknownTopic:
        return False
    kept = (config.min_compaction_lag_ms, config.delete_retention_ms)
    return config.compacted and kept == (plan.min_compaction_lag_ms, plan.delete_retention_ms)


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
