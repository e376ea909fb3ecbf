"""Divides ranges of offsets into what Spark calls input partitions: one for each task."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from pyspark.sql.datasource import InputPartition

from millpond.catalog.database import Database
from millpond.spark.source.options import SourceOptions
from millpond.spark.source.planning import ReadRange, arrange, cut, split_bytes
from millpond.spark.source.range_sizes import range_parts


class Split(InputPartition):
    """The ranges that one task reads, in order."""

    def __init__(self, ranges: tuple[ReadRange, ...]) -> None:
        super().__init__(ranges)

    @property
    def ranges(self) -> tuple[ReadRange, ...]:
        return cast("tuple[ReadRange, ...]", self.value)


def plan_splits(
    database: Database, ranges: Sequence[ReadRange], options: SourceOptions, *, cores: int | None = None
) -> list[Split]:
    """Empty ranges are left out. `cores` is only an estimate: a cluster may have more."""
    parts_of_ranges = [(each, range_parts(database, each)) for each in ranges if each.offsets > 0]
    total = sum(range_part.bytes for _, several in parts_of_ranges for range_part in several)
    bytes_wanted = split_bytes(total, cores or os.cpu_count() or 1)
    pieces = [
        piece
        for each, several in parts_of_ranges
        for piece in cut(replace(each, bytes=0), several, bytes_wanted)
    ]
    tasks = arrange(
        pieces,
        bytes_wanted=bytes_wanted,
        min_partitions=options.min_partitions,
        records_max=options.records_per_partition_max,
    )
    return [Split(ranges) for ranges in tasks]
