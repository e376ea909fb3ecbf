"""Sizes of ranges, from the catalog: reads extents without their bytes, one page at a time."""

from collections.abc import Iterator
from typing import Final

from millpond.catalog import extents
from millpond.catalog.database import Database
from millpond.model.extents import Extent
from millpond.spark.source.planning import RangePart, ReadRange, split_by_bytes

EXTENTS_PER_PAGE: Final = 1_000
RANGE_PART_BYTES: Final = 1024 * 1024


def range_parts(database: Database, whole: ReadRange, *, every: int = RANGE_PART_BYTES) -> list[RangePart]:
    return split_by_bytes(_extents(database, whole), whole.start, whole.end, every=every)


def _extents(database: Database, whole: ReadRange) -> Iterator[Extent]:
    """The extents that hold the range. Each page is read in its own transaction; a merge in between does not
    matter, because only sizes are needed."""
    with database.read() as tx:
        page = extents.find(tx, whole.topic_partition, whole.start, bytes_max=1, extents_max=1)
    while page and page[0].base_offset < whole.end:
        yield from page
        with database.read() as tx:
            page = extents.facts(tx, whole.topic_partition, page[-1].end_offset, EXTENTS_PER_PAGE)
