"""Processes batch headers in compiled code, so that many small batches cost no more than a few large ones.

It does what `records.batch` does for one batch in Python, but for all batches of a buffer: walk, check,
stamp, and lay out for `scan`. Only the checksum remains one call per batch, because the library is faster
than any compiled loop.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from millpond.model.errors import CorruptBatch, InvalidInput
from millpond.reading.reader import misplaced
from millpond.records import HEADER_SIZE, Buffer, crc32c, decompress
from millpond.records.batch import APPEND_TIME_BIT, CODEC_MASK, CONTROL_BIT, CRC_START, LENGTH_END, MAGIC
from millpond.records.compression import known_codec
from millpond.spark.kernels.sections import (
    DECOMPRESSED_BYTES_MAX,
    NO_APPEND_TIME,
    OFFSET_MAX,
    RECORD_BYTES_MIN,
    Sections,
)

BatchTable = NDArray[np.int64]
"""One column per batch; the constants below number the rows."""
POSITION, SIZE, BASE_OFFSET, LAST_DELTA, ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP, COUNT, CRC = range(9)
ROWS: Final = 9

_HEADER_SIZE, _LENGTH_END, _MAGIC = np.int64(HEADER_SIZE), np.int64(LENGTH_END), np.int64(MAGIC)
_OFFSET_MAX = np.int64(OFFSET_MAX)


def walk_batches(buffer: Buffer) -> BatchTable:
    """The headers of the batches that fill the buffer. Raises `CorruptBatch` as `records.walk` does."""
    data = np.frombuffer(buffer, dtype=np.uint8)
    table = np.empty((ROWS, len(data) // HEADER_SIZE + 1), dtype=np.int64)
    count, stop = _walk(data, table)
    if stop != len(data):
        raise CorruptBatch(reason=f"there is no whole batch of version 2 at byte {stop} of {len(data)}")
    return table[:, :count]


def check_and_stamp(data: memoryview, base_offset: int, epoch: int, stamped: bool) -> int:
    """Check every batch, stamp it, and return the offset that follows, as `reading.reader.check_and_stamp` does."""
    table = walk_batches(data)
    _check_crcs(data, table)
    if not table.shape[1]:
        return base_offset
    if stamped:
        _check_order(table, base_offset)
        return int(table[BASE_OFFSET, -1]) + int(table[LAST_DELTA, -1]) + 1
    return int(_stamp(np.frombuffer(data, dtype=np.uint8), table, base_offset, epoch))


def messages_in_groups(
    buffers: Iterable[Buffer], *, bytes_max: int, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Sections]:
    """All batches except control batches, laid out for `scan`. A group holds up to `bytes_max` of
    uncompressed data, plus at most one batch. Copies nothing where batches are uncompressed and lie in one
    buffer."""
    pile = _BatchPile(decompressed_bytes_max)
    for buffer in buffers:
        for part in _parts(walk_batches(buffer), bytes_max):
            if pile.holds_any and pile.plain_bytes + int(part[SIZE].sum()) > bytes_max:
                yield pile.sections()
                pile = _BatchPile(decompressed_bytes_max)
            pile.add(buffer, part)
    if pile.holds_any:
        yield pile.sections()


def _parts(table: BatchTable, bytes_max: int) -> Iterator[BatchTable]:
    """Message batches, about `bytes_max` at a time; one at a time if any is compressed, because the
    uncompressed size is not known."""
    messages = table[:, table[ATTRIBUTES] & CONTROL_BIT == 0]
    if np.any(messages[ATTRIBUTES] & CODEC_MASK):
        yield from (messages[:, number : number + 1] for number in range(messages.shape[1]))
        return
    ends = np.cumsum(messages[SIZE])
    at = 0
    while at < len(ends):
        before = ends[at] - messages[SIZE, at]
        following = max(at + 1, int(np.searchsorted(ends, before + bytes_max, side="right")))
        yield messages[:, at:following]
        at = following


class _BatchPile:
    """Buffers placed one after another, and the tables of the batches in them."""

    def __init__(self, decompressed_bytes_max: int) -> None:
        self.plain_bytes = 0
        self._limit = decompressed_bytes_max
        self._buffers: list[Buffer] = []
        self._buffer_starts: dict[int, int] = {}
        self._total = 0
        self._tables: list[BatchTable] = []
        self._spans: list[tuple[BatchTable, BatchTable]] = []

    @property
    def holds_any(self) -> bool:
        """True even for a batch that decompresses to nothing: if it claims records, it is damaged and must be
        reported."""
        return bool(self._tables)

    def add(self, buffer: Buffer, table: BatchTable) -> None:
        codec = known_codec(int(table[ATTRIBUTES, 0]) & CODEC_MASK)
        if codec:
            plain = self._decompressed(buffer, table)
            start = np.array([self._append_buffer(plain)])
            end = start + len(plain)
        else:
            start = self._at(buffer) + table[POSITION] + HEADER_SIZE
            end = start + table[SIZE] - HEADER_SIZE
        self._tables.append(table)
        self._spans.append((start, end))
        self.plain_bytes += int((end - start).sum())

    def sections(self) -> Sections:
        joined = self._buffers[0] if len(self._buffers) == 1 else b"".join(self._buffers)
        table = np.concatenate(self._tables, axis=1)
        start, end = (np.concatenate(each) for each in zip(*self._spans, strict=True))
        _check_counts(table, end - start)
        append_time = np.where(table[ATTRIBUTES] & APPEND_TIME_BIT, table[MAX_TIMESTAMP], NO_APPEND_TIME)
        return Sections(
            np.frombuffer(joined, dtype=np.uint8),
            start,
            end,
            table[COUNT],
            table[BASE_OFFSET],
            table[LAST_DELTA],
            table[BASE_TIMESTAMP],
            append_time,
        )

    def _at(self, buffer: Buffer) -> int:
        if id(buffer) not in self._buffer_starts:
            self._buffer_starts[id(buffer)] = self._append_buffer(buffer)
        return self._buffer_starts[id(buffer)]

    def _append_buffer(self, buffer: Buffer) -> int:
        start = self._total
        self._buffers.append(buffer)
        self._total += len(buffer)
        return start

    def _decompressed(self, buffer: Buffer, table: BatchTable) -> bytes:
        position, size = int(table[POSITION, 0]), int(table[SIZE, 0])
        codec = known_codec(int(table[ATTRIBUTES, 0]) & CODEC_MASK)
        try:
            packed = memoryview(buffer)[position + HEADER_SIZE : position + size]
            return decompress(codec, packed, self._limit)
        except InvalidInput as error:
            offset = int(table[BASE_OFFSET, 0])
            reason = f"the batch at offset {offset} cannot be unpacked ({error})"
            raise CorruptBatch(reason=reason, offset=offset) from error


def _check_counts(table: BatchTable, size: BatchTable) -> None:
    """Check that a batch claims no more records than its bytes could hold, because arrays are allocated from
    the count."""
    count = table[COUNT]
    wrong = (count < 0) | (count > np.minimum(size // RECORD_BYTES_MIN, table[LAST_DELTA] + 1))
    wrong |= table[BASE_OFFSET] > OFFSET_MAX - np.maximum(table[LAST_DELTA], 0)
    if wrong.any():
        first = int(np.argmax(wrong))
        offset = int(table[BASE_OFFSET, first])
        reason = f"the batch at offset {offset} claims {count[first]} records"
        raise CorruptBatch(reason=reason, offset=offset)


def _check_order(table: BatchTable, base_offset: int) -> None:
    """The base offset is not covered by a batch's checksum, so a wrong one shows only by comparison with its
    neighbours."""
    out_of_order = int(_first_out_of_order(table, base_offset))
    if out_of_order >= 0:
        before = int(table[BASE_OFFSET, out_of_order - 1]) + int(table[LAST_DELTA, out_of_order - 1]) + 1
        following = before if out_of_order else base_offset
        raise misplaced(
            int(table[BASE_OFFSET, out_of_order]), int(table[LAST_DELTA, out_of_order]), following
        )


def _check_crcs(data: memoryview, table: BatchTable) -> None:
    with memoryview(data) as view:
        starts, ends = table[POSITION] + CRC_START, table[POSITION] + table[SIZE]
        for start, end, expected in zip(starts.tolist(), ends.tolist(), table[CRC].tolist(), strict=True):
            actual = crc32c(view[start:end])
            if actual != expected:
                raise CorruptBatch(reason=f"CRC32C is {actual:08x} where the header says {expected:08x}")


@njit(cache=True, nogil=True)
def _big_endian(data: Any, at: int, size: int) -> Any:
    value = np.uint64(0)
    for index in range(size):
        value = (value << np.uint64(8)) | np.uint64(data[at + index])
    return value


@njit(cache=True, nogil=True)
def _signed(data: Any, at: int, size: int) -> Any:
    shift = np.int64(64 - 8 * size)
    return (np.int64(_big_endian(data, at, size)) << shift) >> shift


@njit(cache=True, nogil=True)
def _walk(data: Any, table: Any) -> tuple[int, int]:
    """(number of batches found, the position where they stop)."""
    at: Any = np.int64(0)
    found = 0
    while at + _HEADER_SIZE <= len(data):
        size = _signed(data, at + 8, 4) + _LENGTH_END
        if size < _HEADER_SIZE or size > len(data) - at or np.int64(data[at + 16]) != _MAGIC:
            break
        table[0, found] = at
        table[1, found] = size
        table[2, found] = _signed(data, at, 8)
        table[3, found] = _signed(data, at + 23, 4)
        table[4, found] = _signed(data, at + 21, 2)
        table[5, found] = _signed(data, at + 27, 8)
        table[6, found] = _signed(data, at + 35, 8)
        table[7, found] = _signed(data, at + 57, 4)
        table[8, found] = np.int64(_big_endian(data, at + 17, 4))
        found += 1
        at += size
    return found, at


@njit(cache=True, nogil=True)
def _first_out_of_order(table: Any, following: int) -> int:
    """-1, or the first batch that does not begin at or after the end of the previous one."""
    for batch in range(table.shape[1]):
        base, delta = table[2, batch], table[3, batch]
        if base < following or delta < 0:
            return batch
        if base > _OFFSET_MAX - 1 - delta:  # no offset is left for a next batch
            return batch + 1 if batch + 1 < table.shape[1] else -1
        following = base + delta + 1
    return -1


@njit(cache=True, nogil=True)
def _stamp(data: Any, table: Any, offset: int, epoch: int) -> int:
    for batch in range(table.shape[1]):
        at = table[0, batch]
        for index in range(8):
            data[at + index] = (offset >> (56 - 8 * index)) & 0xFF
        for index in range(4):
            data[at + 12 + index] = (epoch >> (24 - 8 * index)) & 0xFF
        offset += table[3, batch] + 1
    return offset
