"""A batch read: the snapshot is taken when Spark plans the read, and every task reads its share of it."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from millpond.model.clock import SystemClock
from millpond.model.errors import Unavailable
from millpond.spark.place import database, reader
from millpond.spark.source.data_loss import DataLossHandler
from millpond.spark.source.log_bounds import LogBounds, read_bounds
from millpond.spark.source.offsets import EARLIEST, LATEST, NamedPartition
from millpond.spark.source.options import ReadBoundary, SourceOptions, check_batch, refused
from millpond.spark.source.planning import ReadRange
from millpond.spark.source.positions import Resolver
from millpond.spark.source.splits import Split, plan_splits

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)
START_DEFAULT: Final = ReadBoundary("startingOffsets", all_partitions=EARLIEST)
END_DEFAULT: Final = ReadBoundary("endingOffsets", all_partitions=LATEST)


class BatchReader(DataSourceReader):
    """Do not implement `pushFilters`: Spark plans the partitions of a DataFrame once, so a second filter on
    the same DataFrame would read only what the first one selected."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_batch(options)
        self._options = options
        self._schema = schema
        for name in ("offsets_per_trigger_max", "offsets_per_trigger_min", "bytes_per_trigger_max"):
            if getattr(options, name) is not None:
                logger.warning("limit per trigger ignored in a batch read", extra={"option": name})

    def partitions(self) -> list[Split]:
        return plan_splits(database(self._options.place), self._ranges(), self._options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_split(self._options, self._schema, partition)

    def _ranges(self) -> list[ReadRange]:
        options, place = self._options, self._options.place
        bounds_by_partition = read_bounds(
            database(place), options.subscription, committed_only=options.committed_only
        )
        resolver = Resolver(database(place), reader(place), SystemClock())
        starts = resolver.start(options.starting or START_DEFAULT, bounds_by_partition, options.unmatched)
        ends = resolver.end(options.ending or END_DEFAULT, bounds_by_partition)
        return [
            self._range(name, bounds_by_partition[name], starts[name], ends[name])
            for name in bounds_by_partition
        ]

    def _range(self, name: NamedPartition, bounds: LogBounds, start: int, end: int) -> ReadRange:
        data_loss = DataLossHandler(self._options.fail_on_data_loss)
        if end > bounds.end_offset:
            data_loss.past_end(name, end, bounds.end_offset)
        if start > bounds.end_offset:
            data_loss.past_end(name, start, bounds.end_offset)
        if start > end and self._options.ending is not None:
            raise refused(self._options.ending.option, f"{name}: {end}", f"that is below its start, {start}")
        if 0 <= start < bounds.log_start:
            data_loss.expired(name, start, bounds.log_start)
        self._check_stable(name, bounds, min(end, bounds.end_offset))
        end = min(end, bounds.latest)
        start = end if start == LATEST else min(max(start, bounds.log_start), end)
        return ReadRange(name, bounds.topic_partition, start, end)

    def _check_stable(self, name: NamedPartition, bounds: LogBounds, end: int) -> None:
        """An explicit end offset is used as it is, or refused if a transaction is open below it. `latest` and
        times mean what is committed now."""
        ending = self._options.ending
        if ending is None or ending.offsets is None or ending.offsets[name] == LATEST:
            return
        if end > bounds.latest:
            raise Unavailable(
                f"Topic {name.topic!r}, partition {name.partition}: a transaction at offset {bounds.latest} is "
                f"open, below the end offset {end}. Read again when it has ended, or up to latest (-1).",
                topic=name.topic,
                partition=name.partition,
                offset=bounds.latest,
            )


def read_split(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[Any]:
    """The rows of one task; none if Spark passes no partition."""
    if not isinstance(partition, Split):
        return
    from pyspark.sql.pandas.types import to_arrow_schema

    from millpond.spark.source.tasks import RangeReader

    arrow = cast("Any", to_arrow_schema)(schema, timezone="UTC")
    ranges = RangeReader(
        options.place,
        arrow,
        committed_only=options.committed_only,
        data_loss=DataLossHandler(options.fail_on_data_loss),
    )
    for each in partition.ranges:
        yield from ranges.read(each)
