"""Offsets by time: the first record at or after a timestamp, and the record with the newest one.

Synchronous code for the readers' threads. The catalog locates the extent, its sparse index the range, batch
headers the batch; only that one batch is decoded. A record without a timestamp is never found by time, as in
Kafka.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from millpond.catalog import extents as catalog_extents
from millpond.catalog.database import Database
from millpond.model.errors import ObjectMissing
from millpond.model.extents import Extent
from millpond.model.ids import TopicPartition
from millpond.reading.reader import StoreReader
from millpond.reading.runs import Run
from millpond.records import BatchHeader, iter_records, read_times, walk
from millpond.segments.index import entry_for_timestamp

LOOK_UPS_MAX = 5


@dataclass(frozen=True, slots=True)
class TimedOffset:
    offset: int
    timestamp: int


class OffsetFinder:
    def __init__(self, database: Database, reader: StoreReader, *, decompressed_bytes_max: int) -> None:
        self._database = database
        self._reader = reader
        self._decompressed_bytes_max = decompressed_bytes_max

    def at_or_after(
        self, topic_partition: TopicPartition, timestamp: int, log_start: int
    ) -> TimedOffset | None:
        """The first retained record whose timestamp is at least `timestamp`."""
        for _ in range(LOOK_UPS_MAX):
            try:
                return self._search(topic_partition, timestamp, log_start)
            except ObjectMissing:
                continue  # a merge replaced the object: look it up again
        return self._search(topic_partition, timestamp, log_start)

    def newest(self, topic_partition: TopicPartition, log_start: int) -> TimedOffset | None:
        """The first record that carries the newest timestamp; None if the log is empty."""
        with self._database.read() as tx:
            extent = catalog_extents.with_newest_timestamp(tx, topic_partition)
        if extent is None:
            return None
        found = self.at_or_after(topic_partition, extent.max_timestamp, log_start)
        return found if found is not None else self._newest_from(topic_partition, log_start)

    def _newest_from(self, topic_partition: TopicPartition, log_start: int) -> TimedOffset | None:
        """The slow path, batch by batch from the log start on. It is needed for a log start inside an extent,
        if the record with the extent's newest timestamp is below the log start. It is also needed for a
        newest record without a timestamp: its batch and its extent hold its append time, which no record has
        as its timestamp."""
        newest: TimedOffset | None = None
        while runs := self._reader.read_runs(topic_partition, log_start, 1):
            for record in self._newest_records(runs[0], log_start, newest):
                newest = record
            log_start = runs[0].end_offset
        return newest

    def _search(self, topic_partition: TopicPartition, timestamp: int, log_start: int) -> TimedOffset | None:
        for extent in self._candidates(topic_partition, timestamp):
            if extent.end_offset <= log_start:
                continue
            for run in self._stretches(extent, timestamp):
                found = self._in_run(run, timestamp, log_start)
                if found is not None:
                    return found
        return None

    def _candidates(self, topic_partition: TopicPartition, timestamp: int) -> Iterator[Extent]:
        with self._database.read() as tx:
            extent = catalog_extents.first_with_timestamp(tx, topic_partition, timestamp)
        while extent is not None:
            yield extent
            with self._database.read() as tx:
                extent = catalog_extents.next_with_timestamp(
                    tx, topic_partition, timestamp, extent.end_offset
                )

    def _stretches(self, extent: Extent, timestamp: int) -> Iterator[Run]:
        """Ranges of the extent, starting with the first that can hold the timestamp."""
        entry = entry_for_timestamp(extent.index, timestamp)
        offset = extent.base_offset + (entry.offset if entry is not None else 0)
        while offset < extent.end_offset:
            run = self._reader.read_from(extent, offset, 1)
            yield run
            offset = run.end_offset

    def _in_run(self, run: Run, timestamp: int, log_start: int) -> TimedOffset | None:
        for position, header in walk(run.data):
            if header.newest_timestamp < timestamp or header.next_offset <= log_start:
                continue
            if self._newest_of(run, position, header) < timestamp:
                continue  # some of its records have no timestamp, so its header holds their append time
            for record in self._records(run, position, header):
                if record.timestamp >= timestamp and record.offset >= log_start:
                    return record
        return None

    def _newest_records(self, run: Run, log_start: int, newest: TimedOffset | None) -> Iterator[TimedOffset]:
        """Each record that is newer than all before it, including `newest`."""
        for position, header in walk(run.data):
            if header.next_offset <= log_start or not header.record_count:
                continue
            if newest is not None and self._newest_of(run, position, header) <= newest.timestamp:
                continue
            for record in self._records(run, position, header):
                if record.offset >= log_start and (newest is None or record.timestamp > newest.timestamp):
                    newest = record
                    yield record

    def _newest_of(self, run: Run, position: int, header: BatchHeader) -> int:
        """The newest timestamp that a record of the batch has."""
        if header.is_control or not header.record_count:
            return header.newest_timestamp
        limit = self._decompressed_bytes_max
        return read_times(run.data, position, header, decompressed_bytes_max=limit).newest

    def _records(self, run: Run, position: int, header: BatchHeader) -> Iterator[TimedOffset]:
        """A transaction marker counts as a record, as in Kafka: it has an offset and a timestamp."""
        if header.is_control:
            yield TimedOffset(header.base_offset, header.newest_timestamp)
            return
        batch = memoryview(run.data)[position : position + header.size]
        for record in iter_records(batch, decompressed_bytes_max=self._decompressed_bytes_max):
            yield TimedOffset(record.offset, record.timestamp)
