"""Converts Spark's columns to the arrays that the kernels take. The columns are those of Spark's Kafka sink,
plus `timestamp`."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millpond.model.errors import InvalidRequest
from millpond.spark.kernels.encode import NO_PARTITION, ByteColumn, Rows

if TYPE_CHECKING:
    from collections.abc import Callable

US_PER_MS: Final = 1_000


def read_rows(table: pa.Table, *, topic: NDArray[np.int32], now_ms: int) -> Rows:
    """The rows of a table; `topic` is each row's topic number. Rows without a timestamp get `now_ms`."""
    count = table.num_rows
    headers = _column(table, "headers")
    header_start, header_end = _header_spans(headers, count)
    header_key, header_value = _header_columns(headers)
    return Rows(
        topic=topic,
        partition=_partitions(_column(table, "partition"), count),
        timestamp=_timestamps(_column(table, "timestamp"), count, now_ms),
        key=_bytes(_column(table, "key"), count),
        value=_bytes(_column(table, "value"), count),
        header_start=header_start,
        header_end=header_end,
        header_key=header_key,
        header_value=header_value,
    )


def number_topics(table: pa.Table, number_of: "Callable[[str], int]") -> NDArray[np.int32]:
    """Each row's topic as a number; `number_of` is called once per name."""
    names = _column(table, "topic")
    if names is None or names.null_count:
        raise InvalidRequest(reason="a row has no topic: its column is null, and there is no option topic")
    encoded = names.dictionary_encode()
    numbers = np.array([number_of(name) for name in encoded.dictionary.to_pylist()], dtype=np.int32)
    indices: NDArray[np.int32] = encoded.indices.to_numpy()
    return numbers[indices]


def _column(table: pa.Table, name: str) -> Any:
    """The column as one array, or None. Spark's column names are case-insensitive."""
    found = [at for at, given in enumerate(table.column_names) if given.lower() == name]
    if not found:
        return None
    column = table.column(found[0]).combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _partitions(column: Any, count: int) -> NDArray[np.int32]:
    if column is None:
        return np.full(count, NO_PARTITION, dtype=np.int32)
    filled: NDArray[np.int32] = pc.fill_null(column, NO_PARTITION).to_numpy()
    return filled.astype(np.int32)


def _timestamps(column: Any, count: int, now_ms: int) -> NDArray[np.int64]:
    if column is None:
        return np.full(count, now_ms, dtype=np.int64)
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    filled: NDArray[np.int64] = pc.fill_null(micros, now_ms * US_PER_MS).to_numpy()
    return filled // US_PER_MS


def _header_spans(column: Any, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if column is None:
        return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    offsets = column.offsets.to_numpy().astype(np.int64)
    null = column.is_null().to_numpy(zero_copy_only=False)
    return offsets[:-1], np.where(null, offsets[:-1], offsets[1:])


def _header_columns(column: Any) -> tuple[ByteColumn, ByteColumn]:
    if column is None:
        return _bytes(None, 0), _bytes(None, 0)
    key, value = column.values.flatten()
    return _bytes(key, len(key)), _bytes(value, len(value))


def _bytes(column: Any, count: int) -> ByteColumn:
    """A view of the column's own bytes. All views are read-only, so that the kernels are compiled only once."""
    if column is None:
        return ByteColumn(_view(None), np.zeros(count + 1, dtype=np.int64), np.ones(count, dtype=np.bool_))
    null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else np.zeros(count, np.bool_)
    return ByteColumn(_view(column.buffers()[2]), _offsets(column), null)


def _offsets(column: Any) -> NDArray[np.int64]:
    """The start of each row and the end of the last one. A slice of an array shares the buffers of the whole
    array."""
    is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column) + 1, dtype=np.int64)
    offsets: NDArray[Any] = np.frombuffer(buffer, dtype=np.int64 if is_large else np.int32)
    return offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)


def _view(buffer: Any) -> NDArray[np.uint8]:
    data = np.frombuffer(buffer if buffer is not None and buffer.size else b"", dtype=np.uint8)
    data.setflags(write=False)
    return data
