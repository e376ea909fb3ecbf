"""Batches as a table for compiled loops: the position of each batch's uncompressed records, and its header
fields.

Uncompressed batches are referred to in place; compressed ones are decompressed into buffers behind them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from millpond.model.errors import CorruptBatch, InvalidInput
from millpond.reading.visible import PlacedBatch
from millpond.records import HEADER_SIZE, BatchHeader, Buffer, Codec, decompress

NO_APPEND_TIME: Final = -1
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Limit for one batch. Brokers decompress batches of up to a quarter of it, so nothing larger has to be
readable."""
RECORD_BYTES_MIN: Final = 7
OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Sections:
    """One row per batch. `data[start:end]` are the batch's records, uncompressed."""

    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    count: NDArray[np.int64]
    base_offset: NDArray[np.int64]
    last_delta: NDArray[np.int64]
    base_timestamp: NDArray[np.int64]
    append_time: NDArray[np.int64]
    """The timestamp of every record if the broker set it, else -1."""


def to_sections(
    batches: Sequence[PlacedBatch], *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Sections:
    """The sections of these batches, in order. Copies nothing if all lie in one buffer and none is
    compressed."""
    pile = _SectionPile(decompressed_bytes_max)
    for batch in batches:
        pile.add(batch)
    return pile.sections()


def to_section_groups(
    batches: Iterable[PlacedBatch], *, bytes_max: int, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Sections]:
    """The same for many batches, in groups: a group ends once it holds `bytes_max` of uncompressed data."""
    pile = _SectionPile(decompressed_bytes_max)
    for batch in batches:
        pile.add(batch)
        if pile.plain_bytes >= bytes_max:
            yield pile.sections()
            pile = _SectionPile(decompressed_bytes_max)
    if pile.headers:
        yield pile.sections()


class _SectionPile:
    """Buffers to place one after another, and each batch's span in the result."""

    def __init__(self, decompressed_bytes_max: int) -> None:
        self.headers: list[BatchHeader] = []
        self.plain_bytes = 0
        self._limit = decompressed_bytes_max
        self._buffers: list[Buffer] = []
        self._at: dict[int, int] = {}
        self._spans: list[tuple[int, int]] = []
        self._total = 0

    def add(self, batch: PlacedBatch) -> None:
        buffer, position, header = batch
        if header.codec is Codec.NONE:
            if id(buffer) not in self._at:
                self._at[id(buffer)] = self._append_buffer(buffer)
            start = self._at[id(buffer)] + position + HEADER_SIZE
            end = start + header.size - HEADER_SIZE
        else:
            plain = _decompressed(batch, self._limit)
            start = self._append_buffer(plain)
            end = start + len(plain)
        self.headers.append(header)
        self._spans.append((start, end))
        self.plain_bytes += end - start

    def sections(self) -> Sections:
        buffers, spans, headers = self._buffers or [b""], self._spans, self.headers
        data = np.frombuffer(buffers[0] if len(buffers) == 1 else b"".join(buffers), dtype=np.uint8)
        return Sections(
            data,
            _int64s(start for start, _ in spans),
            _int64s(end for _, end in spans),
            _int64s(_checked_count(header, span) for header, span in zip(headers, spans, strict=True)),
            _int64s(header.base_offset for header in headers),
            _int64s(header.last_offset_delta for header in headers),
            _int64s(header.base_timestamp for header in headers),
            _int64s(h.max_timestamp if h.has_append_time else NO_APPEND_TIME for h in headers),
        )

    def _append_buffer(self, buffer: Buffer) -> int:
        start = self._total
        self._buffers.append(buffer)
        self._total += len(buffer)
        return start


def _decompressed(batch: PlacedBatch, limit: int) -> bytes:
    buffer, position, header = batch
    packed = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    try:
        return decompress(header.codec, packed, limit)
    except InvalidInput as error:
        offset = header.base_offset
        raise CorruptBatch(
            reason=f"the batch at offset {offset} cannot be unpacked ({error})", offset=offset
        ) from error


def _checked_count(header: BatchHeader, span: tuple[int, int]) -> int:
    """The record count, checked against what the bytes could hold, because arrays are allocated from it."""
    count, most = header.record_count, (span[1] - span[0]) // RECORD_BYTES_MIN
    if not 0 <= count <= min(most, header.last_offset_delta + 1) or header.last_offset > OFFSET_MAX:
        offset = header.base_offset
        raise CorruptBatch(reason=f"the batch at offset {offset} claims {count} records", offset=offset)
    return count


def _int64s(values: object) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)  # type: ignore[call-overload, no-any-return]  # any iterable of int
