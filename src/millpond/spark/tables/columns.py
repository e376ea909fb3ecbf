"""The columns of tables: the origin of each row, then its value. Also the columns of the quarantine."""

from typing import TYPE_CHECKING, Final

from millpond.model.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

ORIGIN: Final = ("topic", "partition", "offset", "timestamp", "key", "headers")
VALUE: Final = "value"
ERROR: Final = "error"


def origin(*, keys_are_text: bool) -> "list[pa.Field]":
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "key": pa.string() if keys_are_text else pa.binary(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return [pa.field(name, types[name]) for name in ORIGIN]


def table_schema(value: "pa.DataType", *, keys_are_text: bool, is_nested: bool) -> "pa.Schema":
    """A struct's fields become separate columns, unless `is_nested` keeps them together in `value`."""
    import pyarrow as pa

    before = origin(keys_are_text=keys_are_text)
    if is_nested or not pa.types.is_struct(value):
        return pa.schema([*before, pa.field(VALUE, value)])
    clashes = [child.name for child in value if child.name.lower() in (*ORIGIN, "day")]
    if clashes:
        reason = (
            f"field {clashes[0]!r} of the value has the name of a column of every table: "
            "ask for the value in one column (nested)"
        )
        raise InvalidRequest(reason=reason)
    return pa.schema([*before, *value])


def quarantine_schema() -> "pa.Schema":
    """What is kept of a record whose value or key cannot be decoded, or whose timestamps are out of range."""
    import pyarrow as pa

    kept = [each for each in origin(keys_are_text=False) if each.name != "headers"]
    return pa.schema([*kept, pa.field(VALUE, pa.binary()), pa.field(ERROR, pa.string())])


def nullable(kind: "pa.DataType") -> "pa.DataType":
    """The same type, with nulls allowed everywhere, because a record without a value is a row too. Integers
    get at least 32 bits, the smallest size in Iceberg."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, nullable(child.type)) for child in kind])
    if pa.types.is_map(kind):
        return pa.map_(nullable(kind.key_type), nullable(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", nullable(kind.value_type)))
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    return kind
