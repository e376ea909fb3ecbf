"""Decodes JSON values through Spark's own `from_json`, which reports values that it could not parse.

The mode is PERMISSIVE with a column for the corrupt record: it holds the text of a value that is not JSON,
not an object, or contains something that does not fit a column's type. Fields that are not in the schema are
left out; missing ones are null.

Spark stops at the end of the first object and ignores what follows. So each value is parsed a second time,
inside an array and followed by a random marker that no producer can know: only if the marker is the second
element is the value exactly one object. That parse builds no values.
"""

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from millpond.model.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

CORRUPT: Final = "_millpond_corrupt"
DECODED: Final = "_millpond_decoded"
REASON: Final = "_millpond_reason"


def parse_ddl(spark: "SparkSession", ddl: str) -> "StructType":
    """Raises `InvalidRequest`, with a one-line reason, if it is not a DDL list of columns."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        found = spark.createDataFrame([], ddl).schema
    except PySparkException as error:
        first = str(error).strip().splitlines()[0]
        raise InvalidRequest(
            reason=f"{ddl!r} is no list of columns such as 'id INT, name STRING': {first}"
        ) from error
    assert isinstance(found, StructType)
    return found


def column_type(spark: "SparkSession", ddl: str) -> "pa.DataType":
    import pyarrow as pa

    schema = spark.createDataFrame([], parse_ddl(spark, ddl)).toArrow().schema
    return pa.struct(list(schema))


def decode(frame: "DataFrame", schema: "StructType") -> "DataFrame":
    """Adds the decoded struct and, for a bad value, the reason. Null stays null and is not an error."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    with_corrupt = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text = f.col("value").cast("string")
    parsed = f.from_json(text, with_corrupt, options)
    fields = [f.col(f"_parsed.`{field.name}`").alias(field.name) for field in schema.fields]
    return (
        frame.withColumn("_parsed", f.when(f.is_valid_utf8(text) & _is_one(text), parsed))
        .withColumn(DECODED, f.when(f.col("_parsed").isNotNull(), f.struct(*fields)))
        .withColumn(REASON, _reason())
        .drop("_parsed")
    )


def _is_one(text: "Column") -> "Column":
    """Whether the whole text is exactly one JSON object or null."""
    from pyspark.sql import functions as f

    mark = f"m{uuid4().hex}"
    wrapped = f.concat(f.lit("["), text, f.lit(f',{{"{mark}":true}}]'))
    elements = f.from_json(wrapped, f"ARRAY<STRUCT<{mark}: BOOLEAN>>")
    return f.get(elements, f.lit(1))[mark]  # referenced once, so parsed once


def _reason() -> "Column":
    from pyspark.sql import functions as f

    bad = f.col("value").isNotNull() & (f.col("_parsed").isNull() | f.col(f"_parsed.{CORRUPT}").isNotNull())
    return f.when(bad, f.lit("it is no JSON object of the given schema"))
