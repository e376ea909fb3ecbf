"""The columns that a sink accepts: those of Spark's Kafka sink, plus `timestamp`. Checked before anything is
written."""

from typing import TYPE_CHECKING, Final

from millpond.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HEADERS: Final = "array<struct<key:string,value:binary>>"
TYPES: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}


def check_schema(schema: "StructType", *, topic: str | None) -> None:
    """Raises `InvalidRequest` that names the missing, unknown or wrongly typed column."""
    given = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    if len(given) < len(schema.fields):
        raise InvalidRequest(reason=f"a column is there twice: {', '.join(schema.fieldNames())}")
    for name, kind in given.items():
        if name not in TYPES:
            raise InvalidRequest(reason=f"a sink has no column {name!r}: its columns are {', '.join(TYPES)}")
        if kind not in TYPES[name]:
            expected = " or ".join(TYPES[name])
            raise InvalidRequest(reason=f"column {name!r} is of type {kind}, and must be {expected}")
    if "value" not in given:
        raise InvalidRequest(reason="the required column 'value' is not there")
    if topic is None and "topic" not in given:
        raise InvalidRequest(
            reason="no topic is given: set the option topic, or give the rows a column 'topic'"
        )
