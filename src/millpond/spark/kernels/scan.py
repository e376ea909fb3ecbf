"""Finds every field of every record in many batches, in one compiled pass.

Nothing in the bytes is trusted. Each length is checked against the bytes left before it is used, and claimed
values are never added or multiplied first, because the result may overflow. It rejects what
`records.iter_records` rejects. Positions in the result point into the sections' data; only the columns a
reader asks for are copied later (`columns.py`).
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from millpond.model.errors import CorruptBatch
from millpond.records.reader import HEADER_BYTES_MIN
from millpond.records.varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX
from millpond.spark.kernels.arrays import Int32s, Int64s
from millpond.spark.kernels.sections import Sections

NULL: Final = -1
"""The length of a null field."""
VARINT_BYTES, VARLONG_BYTES = np.int64(VARINT_BYTES_MAX), np.int64(VARLONG_BYTES_MAX)
"""Maximum encoded size of a 32-bit and of a 64-bit number."""
HEADER_BYTES: Final = np.int64(HEADER_BYTES_MIN)
INT64_MIN: Final = np.int64(-(2**63))


class Scan(NamedTuple):
    """One row per record, in order. A length of -1 means null. The record's bytes, length prefix included,
    run from `start` to `end`, and its headers from `headers_at` to `end`."""

    section: Int32s
    offset: Int64s
    timestamp: Int64s
    key_at: Int64s
    key_length: Int64s
    value_at: Int64s
    value_length: Int64s
    headers_at: Int64s
    header_count: Int32s
    start: Int64s
    end: Int64s


def scan(sections: Sections) -> Scan:
    """Raises `CorruptBatch` with the `offset` of the batch that cannot be decoded."""
    total = int(sections.count.sum()) if len(sections.count) else 0
    fields = np.empty((9, total), dtype=np.int64)
    small = np.empty((2, total), dtype=np.int32)
    bad = _scan(
        sections.data,
        sections.start,
        sections.end,
        sections.count,
        sections.base_offset,
        sections.last_delta,
        sections.base_timestamp,
        sections.append_time,
        fields,
        small,
    )
    if bad >= 0:
        offset = int(sections.base_offset[bad])
        raise CorruptBatch(reason=f"the records of the batch at offset {offset} are not whole", offset=offset)
    return Scan(
        section=small[0],
        offset=fields[0],
        timestamp=fields[1],
        key_at=fields[2],
        key_length=fields[3],
        value_at=fields[4],
        value_length=fields[5],
        headers_at=fields[6],
        header_count=small[1],
        start=fields[7],
        end=fields[8],
    )


@njit(cache=True, nogil=True)
def read_varint(data: Any, at: int, end: int, bytes_max: Any) -> tuple[Any, int]:
    """(zigzag-decoded value, position after it). The position is -1 if no number of at most `bytes_max` bytes
    is there."""
    result = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(bytes_max):
        if at >= end:
            return 0, -1
        byte = data[at]
        at += 1
        result |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            if shift == np.uint64(63) and byte > 1:
                return 0, -1  # more than 64 bits
            return np.int64(result >> np.uint64(1)) ^ -np.int64(result & np.uint64(1)), at
        shift += np.uint64(7)
    return 0, -1


@njit(cache=True, nogil=True)
def _scan(
    data: Any,
    starts: Any,
    ends: Any,
    counts: Any,
    base_offsets: Any,
    last_deltas: Any,
    base_timestamps: Any,
    append_times: Any,
    fields: Any,
    small: Any,
) -> int:
    """-1, or the number of the damaged section."""
    row = 0
    for section in range(len(starts)):
        at = starts[section]
        section_end = ends[section]
        delta_before = -1
        for _ in range(counts[section]):
            start = at
            length, at = read_varint(data, at, section_end, VARINT_BYTES)
            if at < 0 or length < 1 or length > section_end - at:
                return section
            end = at + length
            timestamp_delta, at = read_varint(data, at + 1, end, VARLONG_BYTES)
            if at < 0:
                return section
            delta, at = read_varint(data, at, end, VARINT_BYTES)
            if at < 0 or delta <= delta_before or delta > last_deltas[section]:
                return section
            key_length, at = read_varint(data, at, end, VARINT_BYTES)
            if at < 0 or key_length < -1 or key_length > end - at:
                return section
            key_at = at
            at += max(key_length, 0)
            value_length, at = read_varint(data, at, end, VARINT_BYTES)
            if at < 0 or value_length < -1 or value_length > end - at:
                return section
            value_at = at
            at += max(value_length, 0)
            header_count, at = read_varint(data, at, end, VARINT_BYTES)
            if at < 0 or header_count < 0 or header_count > (end - at) // HEADER_BYTES:
                return section
            if header_count == 0 and at != end:
                return section
            small[0, row] = section
            small[1, row] = header_count
            fields[0, row] = base_offsets[section] + delta
            if append_times[section] >= 0:
                fields[1, row] = append_times[section]
            else:
                base = base_timestamps[section]
                timestamp = base + timestamp_delta
                has_wrapped = ((base ^ timestamp) & (timestamp_delta ^ timestamp)) < 0
                if has_wrapped or timestamp == INT64_MIN:
                    return section
                fields[1, row] = timestamp
            fields[2, row] = key_at
            fields[3, row] = key_length
            fields[4, row] = value_at
            fields[5, row] = value_length
            fields[6, row] = at
            fields[7, row] = start
            fields[8, row] = end
            row += 1
            delta_before = delta
            at = end
        if at != section_end:
            return section
    return -1
