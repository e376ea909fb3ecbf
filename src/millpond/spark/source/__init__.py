"""The source `millpond`: topics as DataFrames and as streams, a superset of Spark's own source for Kafka.

options         the user's options, checked                log_bounds what can be read now
positions       where a read starts and ends               planning   which task reads what (pure)
batch, stream   what Spark calls, on the driver            tasks      what executors do
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["reader", "schema", "stream_reader"]


def schema(options: Mapping[str, str]) -> "StructType":
    """The columns. Rejects options that are wrong for any read, so that the user sees the error at `load()`."""
    from millpond.spark.source.fields import full_schema
    from millpond.spark.source.options import parse_options

    return full_schema(include_headers=parse_options(options).include_headers)


def reader(options: Mapping[str, str], schema: "StructType") -> "DataSourceReader":
    from millpond.spark.source.batch import BatchReader
    from millpond.spark.source.fields import check_schema
    from millpond.spark.source.options import parse_options

    return BatchReader(parse_options(options), check_schema(schema))


def stream_reader(options: Mapping[str, str], schema: "StructType") -> "DataSourceStreamReader":
    from millpond.spark.source.fields import check_schema
    from millpond.spark.source.options import parse_options
    from millpond.spark.source.stream import StreamReader

    return StreamReader(parse_options(options), check_schema(schema))
