"""Key maps: the last offset of each key, and the filter that uses it.

A compaction uses a key map in two steps, with several batches per call: it learns the keys of a dirty range,
then filters batches by what it learned. `PlainKeys` here is a dictionary and needs nothing but Python; the
compiled map in `millpond.spark.kernels.compaction` does the same for some millions of records a second. A
property test compares their results.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from millpond.model.errors import CorruptBatch
from millpond.reading.visible import PlacedBatch
from millpond.records import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, decompress
from millpond.records.varint import NULL_LENGTH, read_varint, read_varlong

NO_TOMBSTONE: Final = -1
INT64_MAX: Final = 2**63 - 1
PLAIN_ENTRY_BYTES: Final = 160
"""Memory of a dictionary entry in addition to the bytes of its key: slot, table, objects of key and offset."""
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum decompressed size of one batch. A larger batch counts as unreadable and stays as it is."""


@dataclass(frozen=True, slots=True)
class BatchFilter:
    """Which records a compaction drops: those below `log_start`, and below `clean_end` those without a key, those
    that a later record of the same key replaces, and tombstones below `tombstones_end`."""

    log_start: int
    clean_end: int
    tombstones_end: int


class FilteredBatch(NamedTuple):
    """What a filter leaves of one batch: the number of records; their uncompressed bytes, or None if all of
    them stay; the newest timestamp among them; and the offset of the first tombstone below the clean end."""

    kept: int
    records: bytes | memoryview | None
    newest_timestamp: int
    first_tombstone: int


class KeyMap(Protocol):
    """The last offset of every key it has learned, within a memory limit. For one thread, and one compaction.

    Batches are whole, hold data (no markers) and come in order of their offsets. A batch that cannot be decoded
    raises `InvalidInput`; a call that raises has learned nothing.
    """

    def collect_keys(self, batches: Sequence[PlacedBatch], start: int, end: int) -> int:
        """Learn the keys of the records from offset `start` up to `end`. Returns `end`, or the offset of the
        first record whose key did not fit. One key always fits, so that a compaction makes progress whatever
        its limit is."""

    def filter_batches(
        self, batches: Sequence[PlacedBatch], batch_filter: BatchFilter
    ) -> Sequence[FilteredBatch]:
        """Return what stays of each batch."""


class PlainKeys:
    """A dictionary, bounded by an estimate of its memory."""

    def __init__(self, bytes_max: int, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> None:
        self._offsets: dict[bytes, int] = {}
        self._room = bytes_max
        self._decompressed_bytes_max = decompressed_bytes_max

    def __len__(self) -> int:
        return len(self._offsets)

    def collect_keys(self, batches: Sequence[PlacedBatch], start: int, end: int) -> int:
        found = [
            (field.offset, data[field.key_at : field.key_end])
            for data, fields in map(self._fields, batches)
            for field in fields
            if start <= field.offset < end and field.key_at != NULL_LENGTH
        ]
        for offset, key in found:
            if key not in self._offsets:
                size = PLAIN_ENTRY_BYTES + len(key)
                if self._offsets and size > self._room:
                    return offset
                self._room -= size
            self._offsets[key] = offset
        return end

    def filter_batches(
        self, batches: Sequence[PlacedBatch], batch_filter: BatchFilter
    ) -> list[FilteredBatch]:
        return [self._filter_batch(batch, batch_filter) for batch in batches]

    def _filter_batch(self, batch: PlacedBatch, batch_filter: BatchFilter) -> FilteredBatch:
        data, fields = self._fields(batch)
        kept = [field for field in fields if self._keeps(data, field, batch_filter)]
        tombstones = (f.offset for f in kept if f.is_tombstone and f.offset < batch_filter.clean_end)
        return FilteredBatch(
            len(kept),
            None if len(kept) == len(fields) else b"".join(data[f.start : f.end] for f in kept),
            max((NO_TIMESTAMP, *(field.timestamp for field in kept))),
            next(tombstones, NO_TOMBSTONE),
        )

    def _keeps(self, data: bytes, field: "_Field", batch_filter: BatchFilter) -> bool:
        if field.offset >= batch_filter.clean_end:
            return True
        if field.offset < batch_filter.log_start or field.key_at == NULL_LENGTH:
            return False
        if field.is_tombstone and field.offset < batch_filter.tombstones_end:
            return False
        return self._offsets.get(data[field.key_at : field.key_end], -1) <= field.offset

    def _fields(self, batch: PlacedBatch) -> tuple[bytes, list["_Field"]]:
        """The uncompressed bytes of a batch's records, and the positions of each record's fields in them."""
        buffer, position, header = batch
        packed = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
        data = decompress(header.codec, packed, max(self._decompressed_bytes_max, len(packed)))
        return data, list(_walk_fields(data, header))


class _Field(NamedTuple):
    """A record inside the bytes of its batch. `key_at` is -1 if it has no key."""

    offset: int
    timestamp: int
    key_at: int
    key_end: int
    is_tombstone: bool
    start: int
    end: int


def _walk_fields(data: bytes, header: BatchHeader) -> Iterator[_Field]:
    """Like `iter_records`, without creating records: only the fields that a filter needs."""
    at, before = 0, -1
    for _ in range(header.record_count):
        start = at
        length, at = read_varint(data, at, len(data))
        end = at + length
        if length < 1 or end > len(data):
            raise CorruptBatch(reason=f"a record of {length} bytes where {len(data) - at} are left")
        timestamp_delta, at = read_varlong(data, at + 1, end)
        delta, at = read_varint(data, at, end)
        key_length, key_at = read_varint(data, at, end)
        key_end = key_at + max(key_length, 0)
        value_length, value_at = read_varint(data, key_end, end)
        if min(key_length, value_length) < NULL_LENGTH or value_at + max(value_length, 0) > end:
            raise CorruptBatch(reason="a key or a value does not fit its record")
        if not before < delta <= header.last_offset_delta:
            raise CorruptBatch(reason=f"offset delta {delta} after {before}")
        timestamp = (
            header.max_timestamp if header.has_append_time else header.base_timestamp + timestamp_delta
        )
        if not -INT64_MAX <= timestamp <= INT64_MAX:
            raise CorruptBatch(reason=f"timestamp {timestamp} does not fit 64 bits")
        if timestamp < 0:
            timestamp = header.newest_timestamp  # it has none: the header holds the append time
        key_start = NULL_LENGTH if key_length == NULL_LENGTH else key_at
        tombstone = value_length == NULL_LENGTH
        yield _Field(header.base_offset + delta, timestamp, key_start, key_end, tombstone, start, end)
        at, before = end, delta
    if at != len(data):
        raise CorruptBatch(reason=f"{len(data) - at} bytes after the last record")
