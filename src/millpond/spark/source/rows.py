"""Converts records of one partition to Arrow: one compiled pass decodes many batches, and the rows are cut
into record batches.

Only the requested columns are built. A column with the same value in every row is built once.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.model.errors import CorruptBatch
from millpond.spark.kernels.columns import binary_column, headers_column, timestamp_column
from millpond.spark.kernels.scan import Scan, scan
from millpond.spark.kernels.sections import Sections
from millpond.spark.source.offsets import NamedPartition

ROWS_PER_BATCH: Final = 10_000
CREATE_TIME, APPEND_TIME = 0, 1

Column = Callable[[Sections, Scan, slice, Any], Any]


class RowMaker:
    """`schema` is an Arrow schema with names of `fields.TYPES`; every record batch has exactly this schema."""

    def __init__(self, name: NamedPartition, schema: Any) -> None:
        self._schema = schema
        self._constants = {
            "topic": pa.array([name.topic] * ROWS_PER_BATCH, pa.string()),
            "partition": pa.array(np.full(ROWS_PER_BATCH, name.partition, dtype=np.int32)),
        }

    def record_batches(self, sections: Sections, start: int, end: int) -> Iterator[Any]:
        """The records with offsets from `start` up to `end`. Raises `CorruptBatch` with the offset of the
        damaged batch."""
        found = scan(sections)
        low, high = np.searchsorted(found.offset, (start, end))
        for first in range(int(low), int(high), ROWS_PER_BATCH):
            rows = slice(first, min(first + ROWS_PER_BATCH, int(high)))
            arrays = [self._column(field, sections, found, rows) for field in self._schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: Any, sections: Sections, found: Scan, rows: slice) -> Any:
        if field.name in self._constants:
            return self._constants[field.name].slice(0, rows.stop - rows.start)
        return COLUMNS[field.name](sections, found, rows, field.type)


def _key(sections: Sections, found: Scan, rows: slice, kind: Any) -> Any:
    return binary_column(sections.data, found.key_at[rows], found.key_length[rows], kind)


def _value(sections: Sections, found: Scan, rows: slice, kind: Any) -> Any:
    return binary_column(sections.data, found.value_at[rows], found.value_length[rows], kind)


def _offset(sections: Sections, found: Scan, rows: slice, kind: Any) -> Any:
    return pa.array(found.offset[rows], kind)


def _timestamp(sections: Sections, found: Scan, rows: slice, kind: Any) -> Any:
    return timestamp_column(found.timestamp[rows], kind)


def _timestamp_type(sections: Sections, found: Scan, rows: slice, kind: Any) -> Any:
    types = np.where(sections.append_time >= 0, APPEND_TIME, CREATE_TIME).astype(np.int32)
    return pa.array(types[found.section[rows]], kind)


def _headers(sections: Sections, found: Scan, rows: slice, kind: Any) -> Any:
    column, damaged = headers_column(
        sections.data, found.headers_at[rows], found.end[rows], found.header_count[rows], kind
    )
    if damaged >= 0:
        offset = int(found.offset[rows.start + damaged])
        raise CorruptBatch(
            reason=f"the headers of the record at offset {offset} are not whole", offset=offset
        )
    return column


COLUMNS: Final[dict[str, Column]] = {
    "key": _key,
    "value": _value,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
}
