"""`replay`: copies a range of one topic into another, optionally with a filter, new keys or other partitions.

Timestamps and headers are kept. Rows with the same key, or of the same partition if partitions are kept, stay
in order: tasks read ranges of offsets and are committed in that order.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from millpond.catalog import partitions
from millpond.model.errors import InvalidRequest, UnknownPartition
from millpond.model.topics import Topic
from millpond.spark.pipelines.job import PipelineJob, Report, run_recorded
from millpond.spark.pipelines.publish import PublishTarget, as_sink_columns, write_rows
from millpond.spark.pipelines.table import place_options
from millpond.spark.source.offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMESTAMP: Final = "IF(timestamp < timestamp'1970-01-01 00:00:00Z', NULL, timestamp) AS timestamp"
"""A record without a timestamp gets the time of the replay."""
ALL_PARTITIONS: Final = -1
UNNAMED: Final = {"starting": EARLIEST, "ending": LATEST}


@dataclass(frozen=True, slots=True)
class ReplayBound:
    """Offsets by partition, or under `ALL_PARTITIONS` for all partitions; or a time in milliseconds. Neither: no
    bound."""

    offsets: Mapping[int, int] = field(default_factory=dict)
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """`where` and `key` are SQL over the columns of the source: key, value, topic, partition, offset,
    timestamp, headers. `start` is inclusive, `end` is exclusive."""

    source: str
    target: PublishTarget
    start: ReplayBound = field(default_factory=ReplayBound)
    end: ReplayBound = field(default_factory=ReplayBound)
    where: str = ""
    key: str = ""
    keeps_partitions: bool = False
    """Each row goes to the partition it was in. Otherwise keys decide, and rows without a key go round-robin."""
    creates_target: bool = False
    """Create the target with the source's configs and, unless the target sets a count, with as many
    partitions."""


def run(job: PipelineJob, request: ReplayRequest) -> Report:
    source = _source(job, request.source)
    if request.target.topic == source.name:
        raise InvalidRequest(reason=f"topic {source.name!r} cannot be replayed into itself")
    options = _source_options(job, request, source)
    target = _target(request, source)
    return run_recorded(
        job,
        "replay",
        [source.name, target.topic],
        lambda: {"source": source.name, **write_rows(job, lambda: _messages(job, request, options), target)},
    )


def _source(job: PipelineJob, name: str) -> Topic:
    found = job.topics([name])
    if len(found) > 1:
        names = ", ".join(topic.name for topic in found)
        raise InvalidRequest(reason=f"one topic is replayed at a time, and {name!r} means several: {names}")
    return found[0]


def _target(request: ReplayRequest, source: Topic) -> PublishTarget:
    if not request.creates_target:
        return request.target
    count = request.target.create_partitions or source.partitions
    config = {**source.overrides, **request.target.create_config}
    return replace(request.target, create_partitions=count, create_config=config)


def _messages(job: PipelineJob, request: ReplayRequest, options: Mapping[str, str]) -> "DataFrame":
    rows = job.spark.read.format("millpond").options(**options).load()
    if request.where:
        rows = rows.where(request.where)
    key = f"({request.key}) AS key" if request.key else "key"
    columns = [key, "value", "headers", TIMESTAMP, *(["partition"] if request.keeps_partitions else [])]
    return as_sink_columns(rows.selectExpr(*columns))


def _source_options(job: PipelineJob, request: ReplayRequest, source: Topic) -> dict[str, str]:
    options = {**place_options(job.place), "subscribe": source.name, "includeHeaders": "true"}
    options["kafka.isolation.level"] = "read_committed"
    options["startingOffsetsByTimestampStrategy"] = "latest"
    for word, bounds in (("starting", request.start), ("ending", request.end)):
        if bounds.time_ms is not None:
            options[f"{word}Timestamp"] = str(bounds.time_ms)
        elif bounds.offsets:
            options[f"{word}Offsets"] = json.dumps({source.name: _offsets(job, source, bounds, word)})
    return options


def _offsets(job: PipelineJob, source: Topic, bounds: ReplayBound, word: str) -> dict[str, int]:
    """An offset for every partition: a named one is clamped to the log; otherwise the earliest offset for a
    start, and the end of what is committed for an end."""
    unknown = bounds.offsets.keys() - {ALL_PARTITIONS, *range(source.partitions)}
    if unknown:
        raise UnknownPartition(topic=source.name, partition=min(unknown))
    with job.database.read() as tx:
        rows = partitions.of_topic(tx, source.id)
    found = {}
    for row in rows:
        named = bounds.offsets.get(row.topic_partition.partition, bounds.offsets.get(ALL_PARTITIONS))
        found[str(row.topic_partition.partition)] = (
            UNNAMED[word] if named is None else min(max(named, row.log_start), row.end_offset)
        )
    return found
