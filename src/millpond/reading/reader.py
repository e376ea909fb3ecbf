"""Reads stored records: from catalog rows to stamped runs. Synchronous code for the threads of lagging readers.

Merging and compaction replace objects while readers run, so a missing object is not an error: the offset is
looked up again. The CRC of every batch is checked: corrupt bytes are never returned. What lies before them is.

Several partitions are read together: one look into the catalog, and one read for all ranges that are neighbours in an
object. The bytes are checked and stamped where the store has put them, and readers get views of them.

Shortly before the end of a log there are many small objects, and each read of a remote store takes tens of
milliseconds. So several reads run concurrently, and after a second the reader receives what was read so far:
otherwise it could time out and start over for ever.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final, NamedTuple

from millpond.catalog import extents as catalog_extents
from millpond.catalog.database import Database
from millpond.model.errors import CorruptBatch, CorruptObject, MillpondError, ObjectMissing
from millpond.model.extents import Extent
from millpond.model.ids import TopicPartition
from millpond.objects.store import ObjectStore
from millpond.reading.plan import ObjectRead, Slice, SliceOf, plan_reads, plan_slices, slice_extent
from millpond.reading.runs import Run
from millpond.records import check_crc, stamp, walk

Settle = Callable[[memoryview, int, int, bool], int]
"""See `check_and_stamp`."""


class PartitionRead(NamedTuple):
    """Where to read, and how much: what is stored there or slightly more."""

    topic_partition: TopicPartition
    offset: int
    bytes_wanted: int


FoundRuns = list[Run] | MillpondError | None
"""What a read at one position returns: runs, none if nothing follows; or why nothing can be read; None if there was no
time left to read it."""

LOOK_UPS_MAX: Final = 5
"""How often an offset is looked up if its object was replaced each time."""
READ_S_MAX: Final = 1.0
"""After this no further reads are started."""
READ_BYTES_MAX: Final = 64 * 1024 * 1024
"""After this no further reads are started. Each position reads one batch or more, even if it wants less."""
VIEW_SHARE_MIN: Final = 1 / 16
"""A run is a view of what was read if it is at least this share of it. Otherwise it is a copy: the whole would stay in
memory with a small part."""


def check_and_stamp(data: memoryview, base_offset: int, epoch: int, stamped: bool) -> int:
    """Check every batch. Unless the batches are already stamped, assign consecutive offsets from
    `base_offset` on, and the epoch. Stamped batches must be in the order of their offsets, possibly with
    gaps. Returns the offset that follows them. Raises `CorruptBatch`."""
    following = base_offset
    for position, header in walk(data):
        check_crc(data, position, header)
        if not stamped:
            stamp(data, position, following, epoch)
            following += header.last_offset_delta + 1
            continue
        if header.base_offset < following or header.last_offset_delta < 0:
            raise misplaced(header.base_offset, header.last_offset_delta, following)
        following = header.next_offset
    return following


def misplaced(base_offset: int, last_offset_delta: int, following: int) -> CorruptBatch:
    """A batch's base offset is outside its checksum: only the neighbouring batches reveal a wrong one."""
    last = base_offset + last_offset_delta
    return CorruptBatch(reason=f"a batch holds offsets {base_offset} to {last} where {following} is next")


class StoreReader:
    """`check_and_stamp` can be replaced by an equivalent function: Spark's is compiled."""

    def __init__(
        self,
        database: Database,
        store: ObjectStore,
        *,
        extents_per_read: int,
        check_and_stamp: Settle = check_and_stamp,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._store = store
        self._extents_per_read = extents_per_read
        self._check_and_stamp = check_and_stamp
        self._timer = timer

    def read_runs(self, topic_partition: TopicPartition, offset: int, bytes_wanted: int) -> list[Run]:
        """Runs starting with the one that holds `offset` (or the next one, in a gap); empty if nothing
        follows. Fewer bytes than wanted do not mean that the end was reached."""
        [found] = self.read_many([PartitionRead(topic_partition, offset, bytes_wanted)])
        if isinstance(found, MillpondError):
            raise found
        assert found is not None, "there is time for the first position"
        return found

    def read_many(self, wanted: Sequence[PartitionRead]) -> list[FoundRuns]:
        """Read at several positions. Those that come first are read first, if the time is short."""
        found: list[FoundRuns] = [None] * len(wanted)
        numbers = list(range(len(wanted)))
        for _ in range(LOOK_UPS_MAX):
            for number, runs in zip(numbers, self._read([wanted[each] for each in numbers]), strict=True):
                found[number] = runs
            numbers = [each for each in numbers if isinstance(found[each], ObjectMissing)]
            if not numbers:
                return found
        for number in numbers:
            found[number] = _still_missing(found[number])
        return found

    def find_extents(self, topic_partition: TopicPartition, offset: int, bytes_max: int) -> list[Extent]:
        [found] = self._find_all([PartitionRead(topic_partition, offset, bytes_max)])
        return found

    def read_extent(self, extent: Extent) -> Run:
        """All of one extent, stamped and checked. Raises `ObjectMissing` if it was replaced."""
        return self._read_one(Slice(extent, 0, extent.length, extent.base_offset, extent.end_offset))

    def read_from(self, extent: Extent, offset: int, bytes_wanted: int) -> Run:
        """A range of one extent that begins at or before `offset`."""
        return self._read_one(slice_extent(extent, offset, bytes_wanted))

    def close(self) -> None:
        """Call it when there are no more readers. Waits for reads in flight whose callers have failed."""
        if "_read_pool" in vars(self):
            self._read_pool.shutdown(cancel_futures=True)

    def _find_all(self, wanted: Sequence[PartitionRead]) -> list[list[Extent]]:
        extents_max = self._extents_per_read
        with self._database.read() as tx:
            return [
                catalog_extents.find(
                    tx,
                    each.topic_partition,
                    each.offset,
                    bytes_max=each.bytes_wanted,
                    extents_max=extents_max,
                )
                for each in wanted
            ]

    def _read(self, wanted: Sequence[PartitionRead]) -> list[FoundRuns]:
        """Look the positions up once, and read."""
        slices = [
            plan_slices(extents, each.offset, each.bytes_wanted)
            for each, extents in zip(wanted, self._find_all(wanted), strict=True)
        ]
        done = self._perform_all(plan_reads(slices))
        return [_joined(done, number, len(of_reader)) for number, of_reader in enumerate(slices)]

    def _perform_all(self, reads: Sequence[ObjectRead]) -> "SliceResults":
        done: SliceResults = {}
        deadline, size = self._timer() + READ_S_MAX, 0
        for start in range(0, len(reads), self._store.reads_at_once):
            together = reads[start : start + self._store.reads_at_once]
            for results in self._performed(together):
                done |= results
            size += sum(each.length for each in together)
            if self._timer() >= deadline or size >= READ_BYTES_MAX:
                break
        return done

    def _performed(self, reads: Sequence[ObjectRead]) -> "Iterable[SliceResults]":
        return map(self._perform, reads) if len(reads) == 1 else self._read_pool.map(self._perform, reads)

    @cached_property
    def _read_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._store.reads_at_once, thread_name_prefix="millpond-fan")

    def _read_one(self, piece: Slice) -> Run:
        [found] = self._perform(ObjectRead((SliceOf(0, 0, piece),))).values()
        if isinstance(found, MillpondError):
            raise found
        return found

    def _perform(self, read: ObjectRead) -> "SliceResults":
        if read.key is None:
            return {
                (part.reader, part.place): self._run(part.slice, _inline(part.slice)) for part in read.parts
            }
        try:
            data = self._store.read(read.key, read.position, read.length)
        except CorruptObject as error:
            if len(read.parts) > 1:  # the object is cut short: some parts may be intact
                return self._perform_each(read)
            return {(part.reader, part.place): error for part in read.parts}
        except MillpondError as error:
            return {(part.reader, part.place): error for part in read.parts}
        view_bytes_min = read.length * VIEW_SHARE_MIN
        results: SliceResults = {}
        for reader, place, piece in read.parts:
            start = piece.position - read.position
            view = data[start : start + piece.length]
            is_view = piece.length >= view_bytes_min
            results[reader, place] = self._run(piece, view if is_view else memoryview(bytearray(view)))
        return results

    def _perform_each(self, read: ObjectRead) -> "SliceResults":
        """Read each part by itself."""
        return {
            place: result
            for part in read.parts
            for place, result in self._perform(ObjectRead((part,))).items()
        }

    def _run(self, piece: Slice, data: memoryview) -> Run | MillpondError:
        """Check and stamp. An extent whose batches are already stamped keeps its own offsets: it may have gaps."""
        extent = piece.extent
        try:
            following = self._check_and_stamp(data, piece.base_offset, extent.epoch, extent.stamped)
        except CorruptBatch as error:
            return _damaged(piece, error.facts.get("reason"))
        if following > piece.end_offset:
            return _damaged(piece, "its batches hold more offsets than the catalog says")
        return Run(piece.base_offset, piece.end_offset, data)


SliceResults = dict[tuple[int, int], Run | MillpondError]
"""The result of each slice that was read, by the number of its reader and its place among that reader's slices."""


def _joined(done: SliceResults, reader: int, count: int) -> FoundRuns:
    """The runs of a reader, as far as they follow each other. An error counts if nothing precedes it."""
    runs: list[Run] = []
    for place in range(count):
        result = done.get((reader, place))
        if not isinstance(result, Run):
            return runs or result
        runs.append(result)
    return runs


def _inline(piece: Slice) -> memoryview:
    assert piece.extent.inline is not None, "an extent without an object carries its bytes"
    return memoryview(bytearray(piece.extent.inline[piece.start : piece.start + piece.length]))


def _still_missing(missing: object) -> CorruptObject:
    assert isinstance(missing, ObjectMissing)
    error = CorruptObject(
        key=missing.facts.get("key"), position=0, reason="the catalog refers to it, but it is gone"
    )
    error.__cause__ = missing
    return error


def _damaged(piece: Slice, reason: object) -> CorruptObject:
    return CorruptObject(key=piece.extent.key or "(inline)", position=piece.position, reason=reason)
