"""What the pure plans of this package need from the catalog and the store. Synchronous: callers choose the thread."""

from collections.abc import Sequence

from millpond.catalog import compactions, partitions, transactions
from millpond.catalog import extents as catalog_extents
from millpond.catalog.database import CatalogTransaction
from millpond.model.errors import ObjectMissing
from millpond.model.extents import Extent
from millpond.model.ids import TopicPartition
from millpond.reading.runs import ReadExtentFrom, ReadRuns, Run
from millpond.rewriting.compaction import EXTENTS_MAX, PartitionState
from millpond.rewriting.expiry import AgeLimit, first_kept, search_start


def read_state(tx: CatalogTransaction, topic_partition: TopicPartition) -> PartitionState:
    """The order of these reads matters: a transaction that was aborted before the stable offset was read is
    in the list of aborted ones that is read afterwards, whatever happens between the statements."""
    points = compactions.read(tx, topic_partition)
    row = partitions.read(tx, topic_partition)
    stable = transactions.last_stable_offset(tx, topic_partition, row.end_offset)
    aborted = transactions.aborted(tx, topic_partition, row.log_start, stable)
    extents = catalog_extents.outlines(tx, topic_partition, EXTENTS_MAX)
    return PartitionState(row, tuple(extents), stable, tuple(aborted), points)


def read_group(read_runs: ReadRuns, group: Sequence[Extent]) -> list[Run]:
    """The bytes of every extent of a group, stamped. The plan has no inline bytes, so the rows are read again."""
    runs: list[Run] = []
    topic_partition, offset, end = group[0].topic_partition, group[0].base_offset, group[-1].end_offset
    while offset < end:
        found = read_runs(topic_partition, offset, max(sum(e.length for e in group), 1))
        within = [run for run in found if run.end_offset <= end]
        if not within or within[0].base_offset < offset:
            raise ObjectMissing(key=f"extents at offset {offset}")
        runs.extend(within)
        offset = within[-1].end_offset
    return runs


def expiry_point_inside(
    read_from: ReadExtentFrom, extent: Extent, log_start: int, limit: AgeLimit
) -> tuple[int, int]:
    """The first batch of an extent that stays: its offset, and when it expires. Batches below `log_start` have been
    deleted, and keep nothing."""
    cutoff_ms = limit.cutoff_in(extent)
    if cutoff_ms is None:
        return extent.base_offset, limit.due_ms(extent.min_timestamp, extent)
    run = read_from(extent, max(search_start(extent, cutoff_ms), log_start), 1)
    return first_kept(extent, run, log_start, limit, cutoff_ms)
