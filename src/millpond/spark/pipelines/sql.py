"""`sql`: a query over topics, and over tables made from them.

Spark's own analysis determines which topics a statement names. It reports the first relation that it cannot
find; that topic becomes a view, and the analysis runs again. So only topics that are mentioned are planned,
and names inside strings, comments and common table expressions are never taken for topics. A view shows the
topic as it was when it was planned.

Only queries are accepted. Spark executes any other statement as soon as it receives it, so every statement is
first analysed in a position where the grammar allows only a query: as a common table expression.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millpond.model.errors import InvalidRequest, MillpondError, UnknownTopic
from millpond.spark.pipelines.job import PipelineJob
from millpond.spark.pipelines.table import place_options
from millpond.spark.tables.columns import ORIGIN, table_schema
from millpond.spark.tables.formats.open import find_table
from millpond.spark.tables.values import jsons

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, Row, SparkSession

ROWS_MAX: Final = 10_000
VIEWS_MAX: Final = 100
NOT_FOUND: Final = "TABLE_OR_VIEW_NOT_FOUND"
ONLY_A_QUERY: Final = "WITH _millpond AS (\n{}\n) SELECT * FROM _millpond"
LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@dataclass(frozen=True, slots=True)
class SqlRequest:
    statement: str
    limit: int = 100
    json_schemas: Mapping[str, str] = field(default_factory=dict)
    """Topic to DDL: its view has the fields of its JSON values as columns. A value that does not match has
    nulls."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Table name to location."""
    values_are_text: bool = False
    """Show keys and values of topics as text."""


@dataclass(frozen=True, slots=True)
class SqlResult:
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool
    """There are more rows than the limit."""


def run_sql(job: PipelineJob, request: SqlRequest) -> SqlResult:
    if not 1 <= request.limit <= ROWS_MAX:
        raise InvalidRequest(reason=f"a limit of {request.limit} rows is outside the range 1 to {ROWS_MAX}")
    from pyspark.errors import PySparkException

    try:
        frame = frame_of(job, request)
        rows = _collected(frame, request.limit + 1)
    except PySparkException as error:
        raise InvalidRequest(reason=one_line(error)) from error
    shown = tuple(tuple(row) for row in rows[: request.limit])
    return SqlResult(tuple(frame.columns), shown, len(rows) > request.limit)


def _collected(frame: "DataFrame", limit: int) -> "list[Row]":
    from pyspark.errors import PySparkException

    try:
        with _quiet():
            return frame.limit(limit).collect()
    except PySparkException:
        raise
    except (ValueError, OverflowError) as error:  # Python's datetime range is smaller than Spark's
        reason = f"a time in the result is outside the years 1 to 9999 ({error}): cast it to a string"
        raise InvalidRequest(reason=reason) from error


def frame_of(job: PipelineJob, request: SqlRequest) -> "DataFrame":
    """The result as a DataFrame, not computed yet, in its own Spark session, so that its views exist only
    there. Errors of Spark's analysis are raised unchanged."""
    spark = job.spark.newSession()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    views = _Views(job, request, spark)
    views.check_names()
    with _quiet():
        return _analysed(views, request.statement)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Spark's loggers: Spark prints every analysis error with its stack, but here these errors either
    name a missing view or are reported by us."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _analysed(views: "_Views", statement: str) -> "DataFrame":
    from pyspark.errors import AnalysisException, ParseException

    alone = statement.rstrip("; \n\t\r")
    for _ in range(VIEWS_MAX + 1):
        try:
            views.spark.sql(ONLY_A_QUERY.format(alone))
            return views.spark.sql(alone)
        except ParseException as error:
            raise InvalidRequest(reason=f"this is not a query: {one_line(error)}") from error
        except AnalysisException as error:
            parts = missing_relation(error)
            if not parts:
                raise
            views.add(parts)
    raise InvalidRequest(reason=f"the statement names more than {VIEWS_MAX} topics")


def missing_relation(error: "PySparkException") -> list[str]:
    """The parts of the name that the analysis did not find; empty if the error is another one."""
    if not (error.getCondition() or "").startswith(NOT_FOUND):
        return []
    quoted = (error.getMessageParameters() or {}).get("relationName", "")
    return [part.replace("``", "`") for part in quoted.strip("`").split("`.`")]


def one_line(error: Exception) -> str:
    """Spark's error message without stacks and suggestions, or our own error's message if a task raised one."""
    text = str(error).partition("\n: ")[2] or str(error)  # before it: the call that caused a Java error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("millpond.model.errors.")]
    if ours:
        return ours[-1].partition(": ")[2]
    position = next((line for line in lines if line.startswith("== SQL")), "")
    first = lines[0].removeprefix("pyspark.errors.exceptions.").partition(" SQLSTATE")[0]
    return first if not position else f"{first.rstrip(' .')}."


class _Views:
    """The views of one statement. Spark's names are case-insensitive, and topic names are not."""

    def __init__(self, job: PipelineJob, request: SqlRequest, spark: "SparkSession") -> None:
        self._job = job
        self._request = request
        self.spark = spark

    def check_names(self) -> None:
        topics = {topic.name for topic in self._job.topics()}
        for name in self._request.json_schemas:
            if name not in topics:
                raise UnknownTopic(topic=name)

    def add(self, parts: list[str]) -> None:
        """Create a view of the table or topic of this name. A view's name is one identifier, even if it
        contains dots."""
        name = ".".join(parts)
        if len(parts) > 1:
            raise InvalidRequest(
                reason=f"write the name of topic {self._find(name)!r} in backquotes: `{name}`"
            )
        if name in self._request.tables:
            frame = find_table(self._request.tables[name]).read(self.spark)
        else:
            frame = self._topic(self._find(name))
        frame.createOrReplaceTempView(f"`{name}`")

    def _find(self, name: str) -> str:
        names = [topic.name for topic in self._job.topics()]
        alike = [each for each in names if each.lower() == name.lower()]
        if len(alike) > 1:
            both = " and ".join(repr(each) for each in alike[:2])
            reason = f"topics {both} differ in upper and lower case only: SQL cannot tell them apart"
            raise InvalidRequest(reason=reason)
        if not alike:
            raise UnknownTopic(topic=name)
        return alike[0]

    def _topic(self, name: str) -> "DataFrame":
        reader = self.spark.read.format("millpond").options(**place_options(self._job.place))
        frame = reader.options(
            subscribe=name,
            startingOffsets="earliest",
            endingOffsets="latest",
            includeHeaders="true",
            **{"kafka.isolation.level": "read_committed"},
        ).load()
        if name in self._request.json_schemas:
            return _decoded(frame, self._request.json_schemas[name])
        if self._request.values_are_text:
            return frame.withColumns({each: frame[each].cast("string") for each in ("key", "value")})
        return frame


def _decoded(frame: "DataFrame", ddl: str) -> "DataFrame":
    """Columns as in a table with this schema; the decoded value is one column if its fields clash with
    others."""
    from pyspark.sql import functions as f

    spark = frame.sparkSession
    found = jsons.decode(frame, jsons.parse_ddl(spark, ddl))
    try:
        table_schema(jsons.column_type(spark, ddl), keys_are_text=False, is_nested=False)
    except MillpondError:
        return found.select(*ORIGIN, f.col(jsons.DECODED).alias("value"))
    return found.select(*ORIGIN, f.col(f"{jsons.DECODED}.*"))
