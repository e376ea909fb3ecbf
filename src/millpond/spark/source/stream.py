"""The reader of a stream: the methods that Spark calls on the driver between micro-batches.

Spark stores offsets in its checkpoint and may request any stored range again; such a range always returns the
same records. But Spark does not store a stream's initial offset before the first micro-batch is done, and asks for
it again after a crash. If the stream starts at the latest offset, that could then be a later one, and records in
between would be missed. So such a start is returned as -1, which means *the end of the first micro-batch*: that
micro-batch reads nothing, however often it is retried, and the next one reads from its end on.
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
from millpond.spark.source.data_loss import DataLossHandler
from millpond.spark.source.group_commit import check_free, commit_to_group
from millpond.spark.source.log_bounds import BoundsByPartition, LogBounds, read_bounds
from millpond.spark.source.offsets import LATEST, NamedPartition, Offsets, from_json, to_json
from millpond.spark.source.options import ReadBoundary, SourceOptions, check_stream
from millpond.spark.source.planning import ReadRange, limit_bytes, limit_offsets
from millpond.spark.source.positions import Resolver
from millpond.spark.source.range_sizes import RANGE_PART_BYTES, range_parts
from millpond.spark.source.splits import plan_splits

if TYPE_CHECKING:
    import pyarrow as pa

START_DEFAULT: Final = ReadBoundary("startingOffsets", all_partitions=LATEST)
FIRST_OFFSET: Final = 0
"""Where reading starts in a partition that was created since the last micro-batch."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One object per query, in one process for as long as the query runs. Spark sends copies to executors, which only
    call `read`."""

    def __init__(self, options: SourceOptions, schema: StructType, *, clock: Clock | None = None) -> None:
        check_stream(options)
        self._options = options
        self._schema = schema
        self._clock = clock or SystemClock()
        self._data_loss = DataLossHandler(options.fail_on_data_loss)
        self._topic_ids: dict[str, TopicId] = {}
        self._recreated: set[str] = set()
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._committed: Offsets | None = None
        self._triggered_ms = 0

    # -- called by Spark, with Spark's names --------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The offsets at which a new query starts. Spark ignores them if the checkpoint has offsets."""
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
        """The offsets at which the next micro-batch ends; `start` itself if there is nothing to read."""
        starts, bounds_by_partition = _from_checkpoint(start), self._read_bounds()
        self._commit(starts, bounds_by_partition)
        self._check_data_loss(starts, bounds_by_partition)
        ends = {name: self._end_offset(name, starts, bounds) for name, bounds in bounds_by_partition.items()}
        if isinstance(limit, ReadAllAvailable):
            return to_json(ends)
        first_offsets = {name: self._first_offset(name, starts, bounds_by_partition[name]) for name in ends}
        if self._must_wait(first_offsets, ends):
            return start
        return to_json(self._limited(first_offsets, ends, bounds_by_partition))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Tells Spark only that there is a limit: one of those that are set. `latestOffset` applies all of them."""
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
        self._check_data_loss(
            {name: at for name, at in starts.items() if name not in ends}, bounds_by_partition
        )
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

    # -- end offsets -------------------------------------------------------------------------------------------

    def _read_bounds(self) -> BoundsByPartition:
        """The offsets that can be read now. Also detects topics that were deleted and created again since the last
        call."""
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
                self._data_loss.topic_replaced(name.topic)
                self._topic_ids[name.topic] = bounds.topic_partition.topic_id
                self._recreated.add(name.topic)
        return bounds_by_partition

    def _check_data_loss(self, starts: Offsets, bounds_by_partition: BoundsByPartition) -> None:
        for name, start in starts.items():
            bounds = bounds_by_partition.get(name)
            if bounds is None:
                self._data_loss.partition_gone(name)
            elif start > bounds.end_offset and name.topic not in self._recreated:
                self._data_loss.past_end(name, start, bounds.end_offset)

    def _end_offset(self, name: NamedPartition, starts: Offsets, bounds: LogBounds) -> int:
        """The latest offset, or the target of AvailableNow if that is lower. Never below the start: an earlier run may
        have read past this run's target."""
        latest = bounds.latest
        if self._target is not None:
            latest = min(latest, self._target.get(name, FIRST_OFFSET))
        start = starts.get(name, LATEST)
        is_valid = start <= bounds.end_offset and name.topic not in self._recreated
        return max(start, latest) if is_valid else latest

    def _first_offset(self, name: NamedPartition, starts: Offsets, bounds: LogBounds) -> int:
        """The first offset that the next micro-batch can read."""
        start = starts.get(name, bounds.log_start)
        if start == LATEST:
            return bounds.latest
        return bounds.log_start if name.topic in self._recreated else max(start, bounds.log_start)

    def _must_wait(self, first_offsets: Offsets, ends: Offsets) -> bool:
        """For `minOffsetsPerTrigger`: whether there are too few offsets and the maximum delay has not passed. With
        AvailableNow it never waits, because waiting would not increase what is read."""
        offsets_min, now_ms = self._options.offsets_per_trigger_min, self._clock.now_ms()
        if offsets_min is None or self._target is not None:
            return False
        waited_ms = now_ms - self._triggered_ms
        available = sum(max(0, end - first_offsets[name]) for name, end in ends.items())
        if available < offsets_min and waited_ms < self._options.trigger_delay_max_ms:
            return True
        self._triggered_ms = now_ms
        return False

    def _limited(
        self, first_offsets: Offsets, ends: dict[NamedPartition, int], bounds_by_partition: BoundsByPartition
    ) -> dict[NamedPartition, int]:
        offsets_max, bytes_max = self._options.offsets_per_trigger_max, self._options.bytes_per_trigger_max
        if offsets_max is not None:
            ends = limit_offsets(first_offsets, ends, offsets_max)
        if bytes_max is not None:
            parts_by_partition = {
                name: range_parts(
                    database(self._options.place),
                    ReadRange(name, bounds_by_partition[name].topic_partition, first_offsets[name], end),
                    every=min(RANGE_PART_BYTES, bytes_max),
                )
                for name, end in ends.items()
                if end > first_offsets[name]
            }
            ends = {**ends, **limit_bytes(first_offsets, parts_by_partition, bytes_max)}
        return ends

    # -- ranges ---------------------------------------------------------------------------------------------------

    def _range(
        self, name: NamedPartition, starts: Offsets, end: int, bounds: LogBounds | None
    ) -> ReadRange | None:
        start = starts.get(name, FIRST_OFFSET)
        if start == LATEST or end == LATEST:
            return None
        if bounds is None:
            self._data_loss.partition_gone(name)
            return None
        if name.topic in self._recreated:
            start = bounds.log_start
        elif start > end:
            if starts == self._initial:
                return None  # the query starts at a time, which resolves to a later offset than in the first attempt
            self._data_loss.past_end(name, start, end)
            start = bounds.log_start
        if end > bounds.end_offset:
            self._data_loss.past_end(name, end, bounds.end_offset)
            end = bounds.end_offset
        if end > bounds.latest:
            raise Unavailable(
                f"Topic {name.topic!r}, partition {name.partition}: a transaction below offset {end} is open. "
                "Start the query again when it has ended."
            )
        if start < min(bounds.log_start, end):
            self._data_loss.expired(name, start, bounds.log_start)
            start = bounds.log_start
        return ReadRange(name, bounds.topic_partition, start, end) if start < end else None

    # -- groups ---------------------------------------------------------------------------------------------------

    def _commit(self, offsets: Offsets, bounds_by_partition: BoundsByPartition) -> None:
        """Commit progress to the group. Spark calls `commit` one micro-batch late, and never for the last one. So
        `latestOffset` commits as well: Spark calls it only when everything below its start is done."""
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


def _from_checkpoint(offset: Any) -> dict[NamedPartition, int]:
    try:
        return from_json(offset)
    except ValueError as error:
        raise InvalidSettings(
            f"The checkpoint's offset {offset!r} is not one of this source or of Kafka's: {error}."
        ) from error
