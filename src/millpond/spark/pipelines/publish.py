"""`publish`: appends the rows of a table or of a SQL query to a topic, through the sink: all rows or none.

With an id it happens once: a repeated run with the same id and version, after a crash or by mistake, changes
nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millpond.catalog import partitions, sinks
from millpond.catalog import topics as catalog_topics
from millpond.model.errors import InvalidRequest, UnknownTopic
from millpond.model.topics import Topic
from millpond.spark.pipelines.job import PipelineJob, Report, run_recorded
from millpond.spark.pipelines.sql import SqlRequest, frame_of, one_line
from millpond.spark.pipelines.table import place_options
from millpond.spark.sessions import make_active
from millpond.spark.sink.schema import HEADERS
from millpond.spark.sink.topics import create
from millpond.spark.tables.formats.open import find_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WHOLE_ROW: Final = "to_json(struct(*), map('ignoreNullFields', 'false'))"
"""Keeps nulls, so that every message has every field."""
UNCONVERTED_TYPES: Final = ("string", "binary")
NESTED: Final = ("struct", "array", "map")


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """Where rows go, and what makes the write idempotent."""

    topic: str
    create_partitions: int = 0
    """Partition count with which to create a missing topic; 0: a missing topic is an error."""
    create_config: Mapping[str, str] = field(default_factory=dict)
    compression: str = "none"
    id: str = ""
    """The publisher that numbers its writes. Without an id, every run appends."""
    version: int = 0
    """A version that is not higher than the last one of the same id into the same topic is skipped."""


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """Either a table or a statement. `key`, `value`, `headers`, `partition` and `timestamp` are SQL
    expressions over its columns. Without a value, each message is its row as JSON."""

    target: PublishTarget
    table: str = ""
    """Location of a table. Delta, Iceberg and Parquet are detected; other formats have to be named."""
    format: str = ""
    """A format that Spark can read: csv, json, orc, parquet, text."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of that format."""
    statement: str = ""
    """SQL over topics and tables, as in pipeline `sql`."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Names for tables in the statement."""
    key: str = ""
    value: str = ""
    headers: str = ""
    partition: str = ""
    timestamp: str = ""


def run(job: PipelineJob, request: PublishRequest) -> Report:
    if bool(request.table) == bool(request.statement):
        raise InvalidRequest(reason="give a table or a statement, and not both")
    return run_recorded(
        job,
        "publish",
        [request.target.topic],
        lambda: write_rows(job, lambda: _messages(job, request), request.target),
    )


def _messages(job: PipelineJob, request: PublishRequest) -> "DataFrame":
    rows = _rows(job, request)
    expressions = {
        "key": request.key,
        "value": request.value or WHOLE_ROW,
        "headers": request.headers,
        "partition": request.partition,
        "timestamp": request.timestamp,
    }
    given = {name: text for name, text in expressions.items() if text}
    return as_sink_columns(rows.selectExpr(*(f"({text}) AS {name}" for name, text in given.items())))


def _rows(job: PipelineJob, request: PublishRequest) -> "DataFrame":
    if request.statement:
        return frame_of(job, SqlRequest(request.statement, tables=request.tables))
    if request.format:
        return job.spark.read.format(request.format).options(**request.options).load(request.table)
    return find_table(request.table).read(job.spark)


def as_sink_columns(messages: "DataFrame") -> "DataFrame":
    """Convert keys and values that are neither text nor bytes to text, nested ones to JSON; convert the other
    columns to the sink's types."""
    columns = [
        _as_sink_column(name, messages.schema[name].dataType.simpleString()) for name in messages.columns
    ]
    return messages.selectExpr(*columns)


def _as_sink_column(name: str, kind: str) -> str:
    if name in ("key", "value"):
        if kind in UNCONVERTED_TYPES:
            return name
        return (
            f"to_json({name}) AS {name}" if kind.startswith(NESTED) else f"CAST({name} AS STRING) AS {name}"
        )
    if name == "headers":
        return f"CAST({name} AS {HEADERS}) AS {name}"
    return {"partition": "CAST(partition AS INT) AS partition"}.get(
        name, f"CAST({name} AS TIMESTAMP) AS {name}"
    )


def write_rows(job: PipelineJob, messages: "Callable[[], DataFrame]", target: PublishTarget) -> Report:
    """Append messages to a topic, or report what that would write. `messages` is called only if there is
    work."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no type information
    from pyspark.errors import PySparkException

    if _is_done(job, target):
        return _report(job, target, skipped=True)
    try:
        topic = _find_or_create(job, target)
        frame = messages()
        if job.is_dry_run:
            [(count, size)] = frame.selectExpr("count(*)", f"coalesce(sum({_size(frame)}), 0)").collect()
            return _report(job, target, rows=count, bytes=size)
        return _write(job, frame, target, topic)
    except (PySparkException, Py4JJavaError) as error:
        raise InvalidRequest(reason=one_line(error)) from error


def _write(job: PipelineJob, frame: "DataFrame", target: PublishTarget, topic: Topic | None) -> Report:
    from pyspark.sql import Observation
    from pyspark.sql.functions import expr

    assert topic is not None, "only a dry run goes without its topic"
    make_active(job.spark)
    before = _ends(job, topic)
    seen = Observation()
    observed = frame.observe(
        seen, expr("count(*)").alias("rows"), expr(f"sum({_size(frame)})").alias("bytes")
    )
    observed.write.format("millpond").options(**_sink_options(job, target)).mode("append").save()
    after = _ends(job, topic)
    moved = {
        str(number): [before[number], after[number]] for number in after if after[number] > before[number]
    }
    return _report(job, target, rows=seen.get["rows"], bytes=seen.get["bytes"] or 0, partitions=moved)


def _size(messages: "DataFrame") -> str:
    """The size of a message's key and value, as a SQL expression."""
    columns = [name for name in ("key", "value") if name in messages.columns]
    return " + ".join(f"coalesce(octet_length({name}), 0)" for name in columns)


def _report(job: PipelineJob, target: PublishTarget, **found: object) -> Report:
    """`partitions` holds the offsets between which the rows lie; other producers may have appended there too."""
    nothing = {"rows": 0, "bytes": 0, "partitions": {}, "skipped": False}
    return {"topic": target.topic, **nothing, **found, "dry_run": job.is_dry_run}


def _is_done(job: PipelineJob, target: PublishTarget) -> bool:
    if not target.id:
        return False
    with job.database.read() as tx:
        newest = sinks.newest_batch(tx, sinks.batch_sink(target.id, target.topic))
    return newest is not None and newest >= target.version


def _find_or_create(job: PipelineJob, target: PublishTarget) -> Topic | None:
    """Find or create the topic. None if a dry run would have to create it."""
    try:
        with job.database.read() as tx:
            return catalog_topics.find(tx, target.topic)
    except UnknownTopic:
        if not target.create_partitions:
            raise
    if job.is_dry_run:
        return None
    count, config = target.create_partitions, target.create_config
    return create(job.database, target.topic, count, config, now_ms=job.clock.now_ms())


def _ends(job: PipelineJob, topic: Topic) -> dict[int, int]:
    with job.database.read() as tx:
        return {row.topic_partition.partition: row.end_offset for row in partitions.of_topic(tx, topic.id)}


def _sink_options(job: PipelineJob, target: PublishTarget) -> dict[str, str]:
    options = {
        **place_options(job.place),
        "topic": target.topic,
        "kafka.compression.type": target.compression,
    }
    if target.id:
        options |= {"txnAppId": target.id, "txnVersion": str(target.version)}
    return options
