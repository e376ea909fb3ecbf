"""Offsets by time: the first record at or after a timestamp, and the record with the newest one.

Plain synchronous code for the readers' threads. The catalog names the extent, its sparse index the stretch, batch
headers the batch; only that one batch is decoded.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from millpond.catalog import extents as catalog_extents
from millpond.catalog.database import Database
from millpond.log.reader import StoreReader
from millpond.log.runs import Run
from millpond.model.errors import ObjectMissing
from millpond.model.extents import Extent
from millpond.model.ids import TopicPartition
from millpond.records import Record, iter_records, walk
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

    def at_or_after(self, where: TopicPartition, timestamp: int, log_start: int) -> TimedOffset | None:
        """The first retained record whose timestamp is at least `timestamp`."""
        for _ in range(LOOK_UPS_MAX):
            try:
                return self._search(where, timestamp, log_start)
            except ObjectMissing:
                continue  # replaced by a merge meanwhile: look again
        return self._search(where, timestamp, log_start)

    def newest(self, where: TopicPartition, log_start: int) -> TimedOffset | None:
        """The first record that carries the newest timestamp; None if the log is empty."""
        with self._database.read() as tx:
            extent = catalog_extents.with_newest_timestamp(tx, where)
        if extent is None:
            return None
        return self.at_or_after(where, extent.max_timestamp, log_start)

    def _search(self, where: TopicPartition, timestamp: int, log_start: int) -> TimedOffset | None:
        for extent in self._candidates(where, timestamp):
            if extent.end_offset <= log_start:
                continue
            for run in self._stretches(extent, timestamp):
                found = self._in_run(run, timestamp, log_start)
                if found is not None:
                    return found
        return None

    def _candidates(self, where: TopicPartition, timestamp: int) -> Iterator[Extent]:
        with self._database.read() as tx:
            extent = catalog_extents.first_with_timestamp(tx, where, timestamp)
        while extent is not None:
            yield extent
            with self._database.read() as tx:
                extent = catalog_extents.next_with_timestamp(tx, where, timestamp, extent.end_offset)

    def _stretches(self, extent: Extent, timestamp: int) -> Iterator[Run]:
        """Stretches of the extent from the first that can hold the timestamp on."""
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
            batch = memoryview(run.data)[position : position + header.size]
            for record in self._records(batch):
                if record.timestamp >= timestamp and record.offset >= log_start:
                    return TimedOffset(record.offset, record.timestamp)
        return None

    def _records(self, batch: memoryview) -> Iterator[Record]:
        return iter_records(batch, decompressed_bytes_max=self._decompressed_bytes_max)
