"""Times that tables can hold: the years 1 to 9999 in UTC.

A record may carry any 64-bit timestamp, and a value any time that its encoding allows. Beyond these years the
libraries for Delta and Iceberg fail at the commit, for the whole step and at every attempt, so such rows are
treated as bad.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

DAY_US: Final = 24 * 60 * 60 * 1_000_000
FIRST_DAY: Final = -719_162
"""The first day of the year 1, in days from 1970."""
LAST_DAY: Final = 2_932_896
FIRST_US: Final = FIRST_DAY * DAY_US
LAST_US: Final = (LAST_DAY + 1) * DAY_US - 1_000
"""The last whole millisecond, because Delta's statistics round up to milliseconds."""


def record_errors(timestamps: "pa.Array") -> "pa.Array":
    """What is wrong with the timestamps of records; null if nothing is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(_outside(timestamps)):
        return pa.nulls(len(timestamps), pa.string())
    shown = pc.binary_join_element_wise(
        "time out of range: ", timestamps.cast(pa.int64()).cast(pa.string()), " microseconds from 1970", ""
    )
    return pc.if_else(_mask(len(timestamps), _outside(timestamps)), shown, pa.scalar(None, pa.string()))


def value_errors(decoded: "pa.Array") -> "pa.Array":
    """The same for times anywhere in decoded values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    outside = _outside(decoded)
    if not len(outside):
        return pa.nulls(len(decoded), pa.string())
    return pc.if_else(_mask(len(decoded), outside), "a time in the value is out of range", None)


def clamped(timestamps: "pa.Array") -> "pa.Array":
    """The nearest times that a table can hold."""
    import pyarrow as pa
    import pyarrow.compute as pc

    number = timestamps.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    held = pc.min_element_wise(pc.max_element_wise(number, FIRST_US), LAST_US)
    return pc.if_else(pc.is_null(number), number, held).cast(pa.timestamp("us", "UTC"))


def _outside(values: "pa.Array") -> "pa.Array":
    """The rows that have a time out of range, directly or in their fields, elements or entries. A row may
    occur twice."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_timestamp(kind):
        number = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        return _rows_beyond(number, FIRST_US, LAST_US)
    if pa.types.is_date32(kind):
        return _rows_beyond(values.cast(pa.int32()), FIRST_DAY, LAST_DAY)
    if pa.types.is_struct(kind):
        found = [_outside(child) for child in values.flatten()]
        return pa.concat_arrays([pa.array([], pa.int64()), *found])
    if pa.types.is_map(kind):
        return _outside(values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pc.list_parent_indices(values).take(_outside(values.flatten())).cast(pa.int64())
    return pa.array([], pa.int64())


def _rows_beyond(number: "pa.Array", first: int, last: int) -> "pa.Array":
    import pyarrow as pa
    import pyarrow.compute as pc

    beyond = pc.or_(pc.less(number, first), pc.greater(number, last))
    return pc.indices_nonzero(pc.fill_null(beyond, False)).cast(pa.int64())


def _mask(rows: int, marked: "pa.Array") -> "pa.Array":
    import numpy as np
    import pyarrow as pa

    mask = np.zeros(rows, dtype=bool)
    mask[marked.to_numpy()] = True
    return pa.array(mask)
