"""Reads stored records: from catalog rows to stamped runs. Synchronous code for the threads of lagging readers.

Merging and compaction replace objects while readers run, so a missing object is not an error: the offset is
looked up again. The CRC of every batch is checked: corrupt bytes are never returned.

Shortly before the end of a log there are many small objects, and each read of a remote store takes tens of
milliseconds. So several reads run concurrently, and after a second the reader receives what was read so far:
otherwise it could time out and start over for ever.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final

from millpond.catalog import extents as catalog_extents
from millpond.catalog.database import Database
from millpond.model.errors import CorruptBatch, CorruptObject, ObjectMissing
from millpond.model.extents import Extent
from millpond.model.ids import TopicPartition
from millpond.objects.store import ObjectStore
from millpond.reading.plan import ObjectRead, Slice, plan_reads, slice_extent
from millpond.reading.runs import Run
from millpond.records import check_crc, stamp_run, walk

Settle = Callable[[bytearray, int, int, bool], int]
"""See `check_and_stamp`."""

LOOK_UPS_MAX: Final = 5
"""How often an offset is looked up if its object was replaced each time."""
READ_S_MAX: Final = 1.0
"""After this no further reads are started."""


def check_and_stamp(data: bytearray, base_offset: int, epoch: int, stamped: bool) -> int:
    """Check every batch. Unless the batches are already stamped, assign consecutive offsets from
    `base_offset` on, and the epoch. Stamped batches must be in the order of their offsets, possibly with
    gaps. Returns the offset that follows them. Raises `CorruptBatch`."""
    following = base_offset
    for position, header in walk(data):
        check_crc(data, position, header)
        if stamped and (header.base_offset < following or header.last_offset_delta < 0):
            raise misplaced(header.base_offset, header.last_offset_delta, following)
        following = header.next_offset
    return following if stamped else stamp_run(data, base_offset, epoch)


def misplaced(base_offset: int, last_offset_delta: int, following: int) -> CorruptBatch:
    """A batch's base offset is outside its checksum: only the neighbouring batches reveal a wrong one."""
    last = base_offset + last_offset_delta
    return CorruptBatch(reason=f"a batch holds offsets {base_offset} to {last} where {following} is next")


ReadRuns = Callable[[TopicPartition, int, int], list[Run]]
"""`StoreReader.read_runs`: partition, offset, bytes wanted."""
ReadExtentFrom = Callable[[Extent, int, int], Run]
"""`StoreReader.read_from`: extent, offset, bytes wanted."""


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
        for attempt in range(LOOK_UPS_MAX):
            extents = self.find_extents(topic_partition, offset, bytes_wanted)
            try:
                return self._runs(plan_reads(extents, offset, bytes_wanted))
            except ObjectMissing as missing:
                if attempt + 1 == LOOK_UPS_MAX:
                    key = missing.facts.get("key")
                    raise CorruptObject(
                        key=key, position=0, reason="the catalog refers to it, but it is gone"
                    ) from missing
        raise AssertionError("unreachable: the last attempt raises")

    def find_extents(self, topic_partition: TopicPartition, offset: int, bytes_max: int) -> list[Extent]:
        with self._database.read() as tx:
            return catalog_extents.find(
                tx, topic_partition, offset, bytes_max=bytes_max, extents_max=self._extents_per_read
            )

    def read_extent(self, extent: Extent) -> Run:
        """All of one extent, stamped and checked. Raises `ObjectMissing` if it was replaced."""
        whole = Slice(extent, 0, extent.length, extent.base_offset, extent.end_offset)
        return self._perform(ObjectRead((whole,)))[0]

    def read_from(self, extent: Extent, offset: int, bytes_wanted: int) -> Run:
        """A range of one extent that begins at or before `offset`."""
        return self._perform(ObjectRead((slice_extent(extent, offset, bytes_wanted),)))[0]

    def close(self) -> None:
        """Call it when there are no more readers. Waits for reads in flight whose callers have failed."""
        if "_read_pool" in vars(self):
            self._read_pool.shutdown(cancel_futures=True)

    def _runs(self, reads: Sequence[ObjectRead]) -> list[Run]:
        runs: list[Run] = []
        deadline = self._timer() + READ_S_MAX
        for start in range(0, len(reads), self._store.reads_at_once):
            for found in self._performed(reads[start : start + self._store.reads_at_once]):
                runs += found
            if self._timer() >= deadline:
                break
        return runs

    def _performed(self, reads: Sequence[ObjectRead]) -> Iterable[list[Run]]:
        return map(self._perform, reads) if len(reads) == 1 else self._read_pool.map(self._perform, reads)

    @cached_property
    def _read_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._store.reads_at_once, thread_name_prefix="millpond-fan")

    def _perform(self, read: ObjectRead) -> list[Run]:
        if read.key is None:
            return [_run(piece, _inline(piece), self._check_and_stamp) for piece in read.slices]
        data = self._store.read(read.key, read.position, read.end - read.position)
        return [_run(piece, _slice_data(data, read, piece), self._check_and_stamp) for piece in read.slices]


def _inline(piece: Slice) -> bytearray:
    assert piece.extent.inline is not None, "an extent without an object carries its bytes"
    return bytearray(piece.extent.inline[piece.start : piece.start + piece.length])


def _slice_data(data: bytes, read: ObjectRead, piece: Slice) -> bytearray:
    start = piece.extent.position + piece.start - read.position
    return bytearray(memoryview(data)[start : start + piece.length])


def _run(piece: Slice, data: bytearray, check_and_stamp: Settle) -> Run:
    """Check and stamp. An extent whose batches are already stamped keeps its own offsets: it may have gaps."""
    extent = piece.extent
    try:
        following = check_and_stamp(data, piece.base_offset, extent.epoch, extent.stamped)
    except CorruptBatch as error:
        raise _damaged(piece, error.facts.get("reason")) from error
    if following > piece.end_offset:
        raise _damaged(piece, "its batches hold more offsets than the catalog says")
    return Run(piece.base_offset, piece.end_offset, data)


def _damaged(piece: Slice, reason: object) -> CorruptObject:
    position = piece.extent.position + piece.start
    return CorruptObject(key=piece.extent.key or "(inline)", position=position, reason=reason)
