"""Resolves options to offsets: where a batch starts and ends, and where a stream starts.

A start at `LATEST` is not resolved: for a batch there is nothing to read there, and for a stream it means the
end of its first micro-batch (see `stream`).
"""

from millpond.catalog import groups
from millpond.catalog.database import Database
from millpond.model.clock import Clock
from millpond.model.errors import InvalidSettings, UnknownGroup
from millpond.model.ids import TopicPartition
from millpond.reading.offsets import OffsetFinder
from millpond.reading.reader import StoreReader
from millpond.spark.kernels.sections import DECOMPRESSED_BYTES_MAX
from millpond.spark.source.log_bounds import BoundsByPartition, LogBounds
from millpond.spark.source.offsets import EARLIEST, LATEST, NamedPartition, Offsets
from millpond.spark.source.options import ReadBoundary, Unmatched, refused


class Resolver:
    def __init__(self, database: Database, reader: StoreReader, clock: Clock) -> None:
        self._database = database
        self._finder = OffsetFinder(database, reader, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        self._clock = clock

    def start(
        self, boundary: ReadBoundary, bounds_by_partition: BoundsByPartition, unmatched: Unmatched
    ) -> dict[NamedPartition, int]:
        """Offsets, or `LATEST`."""
        if boundary.all_partitions is not None:
            return {
                name: _earliest(boundary.all_partitions, each) for name, each in bounds_by_partition.items()
            }
        if boundary.offsets is not None:
            _check_all_named(boundary.option, boundary.offsets, bounds_by_partition)
            return {
                name: _earliest(boundary.offsets[name], each) for name, each in bounds_by_partition.items()
            }
        if boundary.group is not None:
            return self._of_group(boundary.group, bounds_by_partition)
        found = self._by_time(boundary, bounds_by_partition)
        missing = [name for name, offset in found.items() if offset is None]
        if missing and unmatched is Unmatched.ERROR:
            raise _unmatched(boundary, missing[0])
        return {name: LATEST if offset is None else offset for name, offset in found.items()}

    def end(
        self, boundary: ReadBoundary, bounds_by_partition: BoundsByPartition
    ) -> dict[NamedPartition, int]:
        """Offsets. Offsets that were given are not checked against the log."""
        if boundary.offsets is not None:
            _check_all_named(boundary.option, boundary.offsets, bounds_by_partition)
            given = boundary.offsets
            return {
                n: each.latest if given[n] == LATEST else given[n] for n, each in bounds_by_partition.items()
            }
        if boundary.all_partitions is not None:
            return {name: each.latest for name, each in bounds_by_partition.items()}
        found = self._by_time(boundary, bounds_by_partition)
        return {n: each.latest if (at := found[n]) is None else at for n, each in bounds_by_partition.items()}

    def _by_time(
        self, boundary: ReadBoundary, bounds_by_partition: BoundsByPartition
    ) -> dict[NamedPartition, int | None]:
        if boundary.times is not None:
            _check_all_named(boundary.option, boundary.times, bounds_by_partition)
            return {name: self._at(boundary.times[name], each) for name, each in bounds_by_partition.items()}
        time_ms = boundary.time_ms
        if time_ms is None:
            assert boundary.ago_ms is not None, "one of the fields is set"
            time_ms = self._clock.now_ms() - boundary.ago_ms
        return {name: self._at(time_ms, each) for name, each in bounds_by_partition.items()}

    def _at(self, time_ms: int, bounds: LogBounds) -> int | None:
        found = self._finder.at_or_after(bounds.topic_partition, time_ms, bounds.log_start)
        return found.offset if found is not None and found.offset < bounds.latest else None

    def _of_group(self, group: str, bounds_by_partition: BoundsByPartition) -> dict[NamedPartition, int]:
        """The group's committed offsets. A partition without one is read from its start."""
        with self._database.read() as tx:
            committed: dict[TopicPartition, int] = {
                each.topic_partition: each.offset for each in groups.committed_offsets(tx, group)
            }
        if not committed:
            raise UnknownGroup(f"Group {group!r} has no committed offsets to start from.", group=group)
        return {
            name: committed.get(each.topic_partition, each.log_start)
            for name, each in bounds_by_partition.items()
        }


def _earliest(offset: int, bounds: LogBounds) -> int:
    return bounds.log_start if offset == EARLIEST else offset


def _check_all_named(option: str, given: Offsets, bounds_by_partition: BoundsByPartition) -> None:
    if given.keys() != bounds_by_partition.keys():
        missing = ", ".join(map(str, sorted(bounds_by_partition.keys() - given.keys()))) or "none"
        unknown = ", ".join(map(str, sorted(given.keys() - bounds_by_partition.keys()))) or "none"
        reason = (
            "it must name every partition that is read (-1: latest, -2: earliest). "
            f"Missing: {missing}; not read or not there: {unknown}"
        )
        raise refused(option, ", ".join(map(str, sorted(given))), reason)


def _unmatched(boundary: ReadBoundary, name: NamedPartition) -> InvalidSettings:
    reason = (
        f"topic {name.topic!r}, partition {name.partition} has no record at or after that time; with "
        "startingOffsetsByTimestampStrategy=latest it would start at its end"
    )
    return refused(boundary.option, _shown(boundary, name), reason)


def _shown(boundary: ReadBoundary, name: NamedPartition) -> str:
    if boundary.times is not None:
        return str(boundary.times[name])
    return f"-{boundary.ago_ms}ms" if boundary.time_ms is None else str(boundary.time_ms)
