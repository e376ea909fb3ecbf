"""A stream read: the methods that Spark calls on the driver between micro-batches.

Spark stores offsets in its checkpoint and may request again any range that it stored; such a range always
returns the same records. Spark does not store the first position of a stream before the first micro-batch is
done, and requests it again after a crash. So a start at the latest offset is returned as -1, which means
*where the first micro-batch ends*: that batch has nothing to read from there, however often it is retried,
and no later record is missed.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from millpond.model.clock import Clock, SystemClock
from millpond.model.errors import InvalidSettings, Unavailable
from millpond.model.ids import TopicId
from millpond.spark.place import database, reader
from millpond.spark.source.batch import read_split
from millpond.spark.source.data_loss import Losses
from millpond.spark.source.group_commit import check_free, commit_to_group
from millpond.spark.source.log_bounds import BoundsByPartition, LogBounds, read_bounds
from millpond.spark.source.offsets import LATEST, NamedPartition, Offsets, from_json, to_json
from millpond.spark.source.options import Limit, SourceOptions, check_stream
from millpond.spark.source.planning import ReadRange, limit_bytes, limit_offsets
from millpond.spark.source.positions import Resolver
from millpond.spark.source.range_sizes import RANGE_PART_BYTES, range_parts
from millpond.spark.source.splits import plan_splits

if TYPE_CHECKING:
    import pyarrow as pa

START_DEFAULT: Final = Limit("startingOffsets", all_partitions=LATEST)
FIRST_OFFSET: Final = 0
"""Start of a partition that was created since the last micro-batch."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process for as long as the query runs. Copies go to executors, which only call `read`."""

    def __init__(self, options: SourceOptions, schema: StructType, *, clock: Clock | None = None) -> None:
        check_stream(options)
        self._options = options
        self._schema = schema
        self._clock = clock or SystemClock()
        self._losses = Losses(options.fail_on_data_loss)
        self._topic_ids: dict[str, TopicId] = {}
        self._recreated: set[str] = set()
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._committed: Offsets | None = None
        self._triggered_ms = 0

    # -- called by Spark, with Spark's names --------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where a new query starts. Spark ignores it if the checkpoint has offsets."""
        options, place = self._options, self._options.place
        bounds_by_partition = read_bounds(
            database(place), options.subscription, committed_only=options.committed_only
        )
        resolver = Resolver(database(place), reader(place), self._clock)
        self._initial = resolver.start(
            options.starting or START_DEFAULT, bounds_by_partition, options.unmatched
        )
        if options.group is not None:
            check_free(database(place), options.group)
        return to_json(self._initial)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends; `start` itself if there is nothing to read."""
        starts, bounds_by_partition = _from_checkpoint(start), self._read_bounds()
        self._commit(starts, bounds_by_partition)
        self._check_lost(starts, bounds_by_partition)
        ends = {name: self._end(name, starts, bounds) for name, bounds in bounds_by_partition.items()}
        if isinstance(limit, ReadAllAvailable):
            return to_json(ends)
        begins = {name: self._begin(name, starts, bounds_by_partition[name]) for name in ends}
        if self._must_wait(begins, ends):
            return start
        return to_json(self._limited(begins, ends, bounds_by_partition))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Only tells Spark that there is a limit. The options define the limits, and all of them apply."""
        options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.offsets_per_trigger_min is not None:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The latest offsets regardless of limits, for the query's progress."""
        return to_json({name: each.latest for name, each in self._read_bounds().items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {name: each.latest for name, each in self._read_bounds().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        starts, ends, bounds_by_partition = (
            _from_checkpoint(start),
            _from_checkpoint(end),
            self._read_bounds(),
        )
        self._check_lost({name: at for name, at in starts.items() if name not in ends}, bounds_by_partition)
        ranges = [
            self._range(name, starts, ends[name], bounds_by_partition.get(name)) for name in sorted(ends)
        ]
        self._recreated.clear()
        planned = [each for each in ranges if each is not None]
        return plan_splits(database(self._options.place), planned, self._options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_split(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(_from_checkpoint(end), self._read_bounds())

    def stop(self) -> None:
        """Nothing to do: resources are released when the process exits."""

    # -- ends -----------------------------------------------------------------------------------------------------

    def _read_bounds(self) -> BoundsByPartition:
        """What can be read now. Also detects topics that were deleted and created again since they were read."""
        options = self._options
        bounds_by_partition = read_bounds(
            database(options.place),
            options.subscription,
            committed_only=options.committed_only,
            strict=False,
        )
        for name, bounds in bounds_by_partition.items():
            known = self._topic_ids.setdefault(name.topic, bounds.topic_partition.topic_id)
            if known != bounds.topic_partition.topic_id:
                self._losses.replaced(name.topic)
                self._topic_ids[name.topic] = bounds.topic_partition.topic_id
                self._recreated.add(name.topic)
        return bounds_by_partition

    def _check_lost(self, starts: Offsets, bounds_by_partition: BoundsByPartition) -> None:
        for name, start in starts.items():
            bounds = bounds_by_partition.get(name)
            if bounds is None:
                self._losses.gone(name)
            elif start > bounds.end_offset and name.topic not in self._recreated:
                self._losses.beyond(name, start, bounds.end_offset)

    def _end(self, name: NamedPartition, starts: Offsets, bounds: LogBounds) -> int:
        """The latest offset, or the target of AvailableNow. Never below the start: an earlier run may have
        read past this run's target."""
        latest = bounds.latest
        if self._target is not None:
            latest = min(latest, self._target.get(name, FIRST_OFFSET))
        start = starts.get(name, LATEST)
        is_valid = start <= bounds.end_offset and name.topic not in self._recreated
        return max(start, latest) if is_valid else latest

    def _begin(self, name: NamedPartition, starts: Offsets, bounds: LogBounds) -> int:
        """The first offset that the next micro-batch can read."""
        start = starts.get(name, bounds.log_start)
        if start == LATEST:
            return bounds.latest
        return bounds.log_start if name.topic in self._recreated else max(start, bounds.log_start)

    def _must_wait(self, begins: Offsets, ends: Offsets) -> bool:
        """`minOffsetsPerTrigger`: whether there are too few offsets and the maximum delay has not passed.
        Under AvailableNow it never waits, because no more records will be read."""
        least, now_ms = self._options.offsets_per_trigger_min, self._clock.now_ms()
        if least is None or self._target is not None:
            return False
        waited_ms = now_ms - self._triggered_ms
        available = sum(max(0, end - begins[name]) for name, end in ends.items())
        if available < least and waited_ms < self._options.trigger_delay_max_ms:
            return True
        self._triggered_ms = now_ms
        return False

    def _limited(
        self, begins: Offsets, ends: dict[NamedPartition, int], bounds_by_partition: BoundsByPartition
    ) -> dict[NamedPartition, int]:
        offsets_max, bytes_max = self._options.offsets_per_trigger_max, self._options.bytes_per_trigger_max
        if offsets_max is not None:
            ends = limit_offsets(begins, ends, offsets_max)
        if bytes_max is not None:
            weights = {
                name: range_parts(
                    database(self._options.place),
                    ReadRange(name, bounds_by_partition[name].topic_partition, begins[name], end),
                    every=min(RANGE_PART_BYTES, bytes_max),
                )
                for name, end in ends.items()
                if end > begins[name]
            }
            ends = {**ends, **limit_bytes(begins, weights, bytes_max)}
        return ends

    # -- ranges ---------------------------------------------------------------------------------------------------

    def _range(
        self, name: NamedPartition, starts: Offsets, end: int, bounds: LogBounds | None
    ) -> ReadRange | None:
        start = starts.get(name, FIRST_OFFSET)
        if start == LATEST or end == LATEST:
            return None
        if bounds is None:
            self._losses.gone(name)
            return None
        if name.topic in self._recreated:
            start = bounds.log_start
        elif start > end:
            if starts == self._initial:
                return None  # a start by time has advanced since this micro-batch was first planned
            self._losses.beyond(name, start, end)
            start = bounds.log_start
        if end > bounds.end_offset:
            self._losses.beyond(name, end, bounds.end_offset)
            end = bounds.end_offset
        if end > bounds.latest:
            raise Unavailable(
                f"Topic {name.topic!r}, partition {name.partition}: a transaction below offset {end} is open. "
                "Start the query again when it has ended."
            )
        if start < min(bounds.log_start, end):
            self._losses.expired(name, start, bounds.log_start)
            start = bounds.log_start
        return ReadRange(name, bounds.topic_partition, start, end) if start < end else None

    # -- groups ---------------------------------------------------------------------------------------------------

    def _commit(self, offsets: Offsets, bounds_by_partition: BoundsByPartition) -> None:
        """Commit progress to the group. Spark reports a finished micro-batch one micro-batch late, and never
        the last one. But it requests the next end only when everything below its start is done."""
        group = self._options.group
        if group is None or offsets == self._committed:
            return
        done = {
            bounds_by_partition[name].topic_partition: offset
            for name, offset in offsets.items()
            if name in bounds_by_partition
        }
        commit_to_group(database(self._options.place), group, done, now_ms=self._clock.now_ms())
        self._committed = offsets


def _from_checkpoint(shaped: Any) -> dict[NamedPartition, int]:
    try:
        return from_json(shaped)
    except ValueError as error:
        raise InvalidSettings(
            f"The checkpoint's offset {shaped!r} is not one of this source or of Kafka's: {error}."
        ) from error
