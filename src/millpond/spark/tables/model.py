"""What a table of any format is to the pipeline: positions that move in the same commit as the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from millpond.model.topics import Topic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

DAY: Final = "day"
"""The column, or the hidden partition, of a table that is partitioned by day."""


class Format(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


@dataclass(frozen=True, slots=True)
class Held:
    """How far a table has got with a topic: the next offset of each partition."""

    topic_id: str
    """In hexadecimal digits; what a table of this topic, and not of an older one of the same name, holds."""
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One Parquet file, as the commit needs to know it. `path` is relative to the table."""

    path: str
    day: str | None
    """YYYY-MM-DD in UTC, if the table is partitioned by day."""
    rows: int
    bytes: int
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)
    """The least and greatest values of some columns: offsets as they are, timestamps in microseconds."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where and how tasks write a table's files. Travels to the executors."""

    root: str
    """An absolute path, or a URL that pyarrow knows."""
    folder: str
    by_day: bool


class Overtaken(Exception):  # named for what happened
    """Somebody else has committed to the table since its state was read. Nothing of ours was."""


class Table(Protocol):
    """One table. Its methods run on the driver; `target` is what the tasks are told."""

    @property
    def target(self) -> Target: ...

    def held(self, topics: Sequence[Topic]) -> dict[str, Held]:
        """Read the table's newest state, which the next `commit` then relies on. Topics it does not know are not in
        the answer; neither is anything if there is no table yet. A topic of the same name and another id
        is answered with that other id (or an empty one, where only the difference is known) and no offsets."""

    def check_schema(self, schema: "pa.Schema") -> None:
        """Raise `InvalidRequest` if the table exists and its columns are others."""

    def commit(
        self, schema: "pa.Schema", files: Sequence[WrittenFile], positions: Mapping[str, Held]
    ) -> None:
        """Add the files and move the positions, both or neither; makes the table if there is none. `positions` are
        all partitions of the topics concerned. Raises `Overtaken` if the table has changed since `held`."""

    def listed(self, files: Sequence[WrittenFile]) -> set[str]:
        """The paths of those among these files that the table's newest version has."""

    def version(self) -> str:
        """The newest version or snapshot id; empty if there is no table."""

    def small_files(self, smaller_than: int) -> int:
        """How many files are smaller than so many bytes."""

    def compact(self, spark: "SparkSession", smaller_than: int) -> int:
        """Rewrite small files as larger ones. Returns how many were replaced; 0 if the format offers no way."""

    def read(self, spark: "SparkSession") -> "DataFrame":
        """The table as it is now."""
