"""The interface between the pipeline and a table of any format: positions move in the same commit as the
data."""

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
class TableProgress:
    """How far a table has read a topic: the next offset of each partition."""

    topic_id: str
    """In hexadecimal digits; distinguishes the topic from an older one of the same name."""
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One Parquet file, as the commit needs it. `path` is relative to the table."""

    path: str
    day: str | None
    """YYYY-MM-DD in UTC, if the table is partitioned by day."""
    rows: int
    bytes: int
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)
    """The minimum and maximum of some columns: offsets as they are, timestamps in microseconds."""


@dataclass(frozen=True, slots=True)
class TableTarget:
    """Where and how tasks write a table's files. It is sent to the executors."""

    root: str
    """An absolute path, or a URL that pyarrow supports."""
    folder: str
    by_day: bool


class Overtaken(Exception):  # named for the event, not as an error
    """Another writer has committed to the table since its state was read. Nothing of ours was committed."""


class Table(Protocol):
    """One table. Its methods run on the driver; tasks receive `target`."""

    @property
    def target(self) -> TableTarget: ...

    def progress(self, topics: Sequence[Topic]) -> dict[str, TableProgress]:
        """Read the table's newest state, on which the next `commit` is based. Topics that the table does not
        know are not in the result; if there is no table yet, the result is empty. For a topic of the same
        name and another id, the result holds that other id (or an empty one, where only the difference is
        known) and no offsets."""

    def check_schema(self, schema: "pa.Schema") -> None:
        """Raise `InvalidRequest` if the table exists and has other columns."""

    def commit(
        self, schema: "pa.Schema", files: Sequence[WrittenFile], positions: Mapping[str, TableProgress]
    ) -> None:
        """Add the files and move the positions, both or neither. Creates the table if there is none.
        `positions` holds all partitions of the topics concerned. Raises `Overtaken` if the table has changed
        since `progress`."""

    def committed_paths(self, files: Sequence[WrittenFile]) -> set[str]:
        """The paths of these files that are in the table's newest version."""

    def version(self) -> str:
        """The newest version or snapshot id; empty if there is no table."""

    def small_files(self, smaller_than: int) -> int:
        """The number of files smaller than this many bytes."""

    def compact(self, spark: "SparkSession", smaller_than: int) -> int:
        """Rewrite small files as larger ones. Returns how many files were replaced; 0 if the format does not
        support it."""

    def read(self, spark: "SparkSession") -> "DataFrame":
        """The table as it is now."""
