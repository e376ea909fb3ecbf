"""The columns of the source, with the names of Spark's Kafka source. To read fewer columns, pass a schema
with fewer."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millpond.model.errors import InvalidSettings

HEADERS: Final = "headers"
TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def full_schema(*, include_headers: bool) -> StructType:
    names = [name for name in TYPES if include_headers or name != HEADERS]
    return StructType([StructField(name, TYPES[name]) for name in names])


def check_schema(schema: StructType) -> StructType:
    """Raises `InvalidSettings` for an unknown column, or one of another type."""
    for field in schema.fields:
        expected = TYPES.get(field.name)
        if expected is None:
            raise _refused(field, f"the columns are {', '.join(TYPES)}")
        if not _is_same(field.dataType, expected):
            raise _refused(field, f"its type is {expected.simpleString()}")
    return schema


def _is_same(given: DataType, expected: DataType) -> bool:
    """Nullability is ignored."""
    return given.simpleString() == expected.simpleString()


def _refused(field: StructField, reason: str) -> InvalidSettings:
    value = f"{field.name} {field.dataType.simpleString()}"
    return InvalidSettings(
        f"The schema cannot have {value!r}: {reason}.", name="schema", value=value, reason=reason
    )
