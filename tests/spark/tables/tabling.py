"""Jobs and what is in tables, for the tests of this folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.topics import append, serving

from millpond.records import Record
from millpond.spark.pipelines.job import PipelineJob
from millpond.spark.place import Place
from millpond.spark.tables.formats.open import find_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def job_on(path: Path, spark: "SparkSession", **options) -> PipelineJob:
    return PipelineJob(Place.at(path), lambda: spark, **options)


def rows_of(path: Path | str, spark: "SparkSession", *columns: str) -> list[tuple]:
    """All rows, in order of their origin."""
    frame = find_table(str(path)).read(spark)
    return [
        tuple(row) for row in frame.orderBy("topic", "partition", "offset").selectExpr(*columns).collect()
    ]


def origins_of(path: Path | str, spark: "SparkSession") -> list[tuple[int, int]]:
    return rows_of(path, spark, "partition", "offset")


async def fill_with(
    path: Path, topic: str, values: Sequence[bytes | None], *, partitions: int = 1, per_batch: int = 10_000
) -> None:
    """Records with these values, in turn into each partition; key k<n>."""
    async with serving(path) as broker:
        await broker.log.create_topic(topic, partitions, {})
        for partition in range(partitions):
            mine = [
                Record(value, b"k%d" % n) for n, value in enumerate(values) if n % partitions == partition
            ]
            for start in range(0, len(mine), per_batch):
                await append(broker, topic, partition, mine[start : start + per_batch])
