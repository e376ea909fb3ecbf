"""`spark.read.format("millpond")`: Spark discovers data sources in modules named `pyspark_…`.

Importing this module must be fast and must never raise, whatever is not installed: every Spark session
imports it.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Topics as DataFrames, as streams and as a sink; see `millpond.spark`."""

    @classmethod
    def name(cls) -> str:
        return "millpond"

    def schema(self) -> "StructType":
        from millpond.spark.source import schema

        return schema(self.options)

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from millpond.spark.source import reader

        return reader(self.options, schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802  # Spark's name
        from millpond.spark.source import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
        from millpond.spark.sink import writer

        return writer(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamArrowWriter":  # noqa: N802
        from millpond.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
