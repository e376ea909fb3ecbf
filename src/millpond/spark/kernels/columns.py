"""Converts scanned records to Arrow arrays. A compiled loop copies the bytes of each column once,
contiguously."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from millpond.spark.kernels.arrays import Int64s
from millpond.spark.kernels.copying import copy_bytes
from millpond.spark.kernels.scan import VARINT_BYTES, read_varint

MICROSECONDS: Final = 1_000
TIMESTAMP_MS_MAX: Final = (2**63 - 1) // MICROSECONDS
COLUMN_BYTES_MAX: Final = 2**31 - 1
"""Limit of Arrow's plain binary arrays, whose offsets are 32 bits wide. Callers split rows well below it."""


def binary_column(data: NDArray[np.uint8], at: Int64s, length: Int64s, kind: Any) -> Any:
    """One value for each row: `data[at : at + length]`, null where the length is negative."""
    rows = len(at)
    offsets = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(np.maximum(length, 0), out=offsets[1:])
    if offsets[-1] > COLUMN_BYTES_MAX:
        raise OverflowError(f"{offsets[-1]} bytes do not fit one Arrow array")
    values = np.empty(offsets[-1], dtype=np.uint8)
    _gather(data, at, offsets, values)
    buffers = [_validity(length), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(values)]
    return pa.Array.from_buffers(kind, rows, buffers)


def timestamp_column(milliseconds: Int64s, kind: Any) -> Any:
    """Microseconds. A time outside their range (past the year 294,000) becomes the last one within it."""
    if np.any((milliseconds < -TIMESTAMP_MS_MAX) | (milliseconds > TIMESTAMP_MS_MAX)):
        milliseconds = np.clip(milliseconds, -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX)
    return pa.Array.from_buffers(kind, len(milliseconds), [None, pa.py_buffer(milliseconds * MICROSECONDS)])


def headers_column(
    data: NDArray[np.uint8], at: Int64s, end: Int64s, count: NDArray[np.int32], kind: Any
) -> tuple[Any, int]:
    """(a list of (key, value) for each row, null where a record has no headers; the first row whose headers
    are damaged, or -1). If a row is damaged, the column is None."""
    total = int(count.sum())
    if total > COLUMN_BYTES_MAX:
        raise OverflowError(f"{total} headers do not fit one Arrow array")
    fields = np.empty((4, total), dtype=np.int64)
    damaged = int(_find_headers(data, at, end, count, fields))
    if damaged >= 0:
        return None, damaged
    struct = kind.value_type
    key = _as_text(binary_column(data, fields[0], fields[1], pa.binary()), struct.field(0).type)
    value = binary_column(data, fields[2], fields[3], struct.field(1).type)
    entries = pa.StructArray.from_arrays([key, value], fields=[struct.field(0), struct.field(1)])
    offsets = np.zeros(len(count) + 1, dtype=np.int32)
    np.cumsum(count, out=offsets[1:])
    buffers = [_validity(count.astype(np.int64) - 1), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(count), buffers, children=[entries]), -1


def _as_text(names: Any, kind: Any) -> Any:
    """Producers may send any bytes as a header key, but Arrow's readers trust that text is UTF-8: invalid
    bytes are replaced."""
    try:
        return names.cast(kind)
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], kind)


def _validity(length: Int64s) -> Any:
    """A bitmap in which rows with a negative length are null; None if no row is."""
    present = length >= 0
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


@njit(cache=True, nogil=True)
def _gather(data: Any, at: Any, offsets: Any, out: Any) -> None:
    for row in range(len(at)):
        copy_bytes(out, offsets[row], data, at[row], offsets[row + 1] - offsets[row])


@njit(cache=True, nogil=True)
def _find_headers(data: Any, at: Any, end: Any, count: Any, fields: Any) -> int:
    """Fill in the positions and lengths of keys and values. Returns -1, or the row that is damaged."""
    found = 0
    for row in range(len(at)):
        position = at[row]
        stop = end[row]
        for _ in range(count[row]):
            key_length, position = read_varint(data, position, stop, VARINT_BYTES)
            if position < 0 or key_length < 0 or key_length > stop - position:
                return row
            fields[0, found] = position
            fields[1, found] = key_length
            position += key_length
            value_length, position = read_varint(data, position, stop, VARINT_BYTES)
            if position < 0 or value_length < -1 or value_length > stop - position:
                return row
            fields[2, found] = position
            fields[3, found] = value_length
            position += max(value_length, 0)
            found += 1
        if position != stop:
            return row
    return -1
