"""The commit of a compaction: one transaction that replaces extents by segments and records how far it has come.

It fails with `ExtentsChanged` if anything that the compaction relies on has changed: an extent that it
replaces, the points, or the topic's effective configs. Records that expired during the compaction are no such
change: with `compact,delete` the log start moves all the time, and a long compaction would never succeed
otherwise.
"""

from millpond.catalog import compactions, topics
from millpond.catalog import extents as catalog_extents
from millpond.catalog.database import CatalogTransaction
from millpond.model.errors import ExtentsChanged, UnknownTopic
from millpond.rewriting.compaction import Compacted, CompactionPlan
from millpond.rewriting.compaction_points import points_after


def commit_compaction(tx: CatalogTransaction, compacted: Compacted, *, now_ms: int) -> list[str]:
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
