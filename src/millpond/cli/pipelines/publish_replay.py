"""`millpond pipeline publish | replay`: append rows to a topic from a table, a query or another topic."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from millpond.cli.options import Command, name_and_value
from millpond.cli.pipelines.common import Choices, job_of, pipeline_options, show

if TYPE_CHECKING:
    from millpond.spark.pipelines.publish import PublishTarget
    from millpond.spark.pipelines.replay import ReplayBound


def target_options(command: Command) -> Command:
    """Adds the options for writing to a topic. The command builds a `PublishTarget` from them with `_target`."""
    options = (
        click.option(
            "--create",
            type=click.IntRange(min=1),
            metavar="PARTITIONS",
            help="Create the topic if it does not exist.",
        ),
        click.option(
            "--topic-config",
            multiple=True,
            metavar="NAME=VALUE",
            callback=name_and_value,
            help="Config of the topic if it is created; repeatable.",
        ),
        click.option(
            "--compression",
            type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
            default="none",
            show_default=True,
        ),
        click.option(
            "--id",
            "name",
            default="",
            help="Id that makes this run idempotent: a second run with the same id and version changes nothing.",
        ),
        click.option(
            "--version",
            type=click.IntRange(min=0),
            default=0,
            help="Version of this run; a higher one is a new run.",
            show_default=True,
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    epilog="\b\nExamples:\n"
    "  millpond pipeline publish prices --table ./tables/prices --key sku\n"
    "  millpond pipeline publish totals --sql 'SELECT key, count(*) AS n FROM orders GROUP BY key' --key key --create 4"
)
@click.argument("topic")
@click.option(
    "--table",
    default="",
    help="Path of a Delta, Iceberg or Parquet table, or, with --format, of anything Spark reads.",
)
@click.option("--format", default="", help="Format of the table: csv, json, orc, parquet, text …")
@click.option(
    "--option",
    multiple=True,
    metavar="NAME=VALUE",
    callback=name_and_value,
    help="Reader option of the format; repeatable.",
)
@click.option("--sql", "statement", default="", help="SQL statement over topics and tables.")
@click.option(
    "--name",
    "tables",
    multiple=True,
    metavar="NAME=PATH",
    callback=name_and_value,
    help="Table to use in the statement; repeatable.",
)
@click.option("--key", default="", help="SQL expression for the key.")
@click.option("--value", default="", help="SQL expression for the value; the row as JSON unless set.")
@click.option(
    "--headers", default="", help="SQL expression for the headers: an array of structs of key and value."
)
@click.option("--partition", default="", help="SQL expression for the partition; chosen by key unless set.")
@click.option(
    "--timestamp", default="", help="SQL expression for the timestamp; the current time unless set."
)
@target_options
@pipeline_options
def publish(
    topic: str,
    option: list[tuple[str, str]],
    tables: list[tuple[str, str]],
    choices: Choices,
    **given: Any,
) -> None:
    """Send a table, or the result of a statement, to TOPIC: all rows or none."""
    from millpond.spark.pipelines import publish as pipeline

    target = _target(topic, given)
    request = pipeline.PublishRequest(target, options=dict(option), tables=dict(tables), **given)
    with job_of(choices) as job:
        report = pipeline.run(job, request)
    show(report, choices, title=f"Published to {topic}")


@click.command(
    epilog="\b\nExamples:\n"
    "  millpond pipeline replay orders orders-again --create-like --from-time 2026-11-01T00:00:00\n"
    "  millpond pipeline replay orders large --where 'length(value) > 1000' --from 0=500 --to 0=900 --create 1"
)
@click.argument("source")
@click.argument("target")
@click.option(
    "--from", "start", multiple=True, metavar="[PARTITION=]OFFSET", help="First offset to copy; repeatable."
)
@click.option(
    "--to",
    "end",
    multiple=True,
    metavar="[PARTITION=]OFFSET",
    help="Offset at which to stop (exclusive); repeatable.",
)
@click.option("--from-time", type=click.DateTime(), help="Earliest timestamp to copy, in UTC.")
@click.option("--to-time", type=click.DateTime(), help="Timestamp at which to stop (exclusive), in UTC.")
@click.option(
    "--where", default="", help="SQL condition over key, value, topic, partition, offset, timestamp, headers."
)
@click.option("--key", default="", help="SQL expression for new keys.")
@click.option("--keep-partitions", is_flag=True, help="Keep the partition of each record.")
@click.option(
    "--create-like",
    is_flag=True,
    help="Create the target with the configs of the source if it does not exist.",
)
@target_options
@pipeline_options
def replay(
    source: str,
    target: str,
    start: tuple[str, ...],
    end: tuple[str, ...],
    from_time: datetime | None,
    to_time: datetime | None,
    keep_partitions: bool,
    create_like: bool,
    choices: Choices,
    **given: Any,
) -> None:
    """Copy a range of topic SOURCE to topic TARGET. Timestamps and headers are kept."""
    from millpond.spark.pipelines import replay as pipeline

    into = _target(target, given)
    request = pipeline.ReplayRequest(
        source,
        into,
        start=_bounds(start, from_time),
        end=_bounds(end, to_time),
        keeps_partitions=keep_partitions,
        creates_target=create_like,
        **given,
    )
    with job_of(choices) as job:
        report = pipeline.run(job, request)
    show(report, choices, title=f"Replayed {source} to {target}")


def _target(topic: str, given: dict[str, Any]) -> "PublishTarget":
    """Removes its options from `given`."""
    from millpond.spark.pipelines.publish import PublishTarget

    return PublishTarget(
        topic,
        create_partitions=given.pop("create") or 0,
        create_config=dict(given.pop("topic_config")),
        compression=given.pop("compression"),
        id=given.pop("name"),
        version=given.pop("version"),
    )


def _bounds(offsets: tuple[str, ...], time: datetime | None) -> "ReplayBound":
    from millpond.spark.pipelines.replay import ReplayBound

    if offsets and time is not None:
        raise click.UsageError("Give offsets or a time, and not both.")
    return ReplayBound(
        _offsets(offsets), None if time is None else int(time.replace(tzinfo=UTC).timestamp() * 1000)
    )


def _offsets(given: tuple[str, ...]) -> Mapping[int, int]:
    from millpond.spark.pipelines.replay import ALL_PARTITIONS

    found: dict[int, int] = {}
    for each in given:
        partition, equals, offset = each.rpartition("=")
        if not offset.isdecimal() or (equals and not partition.isdecimal()):
            raise click.UsageError(f"{each!r}: write it as OFFSET, or as PARTITION=OFFSET.")
        found[int(partition) if equals else ALL_PARTITIONS] = int(offset)
    return found
