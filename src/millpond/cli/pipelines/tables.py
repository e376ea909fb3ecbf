"""`millpond pipeline table | sql`: topics as tables, and questions to both."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from millpond.cli.options import name_and_value
from millpond.cli.output import print_json, print_table, say
from millpond.cli.pipelines.common import Choices, job_of, pipeline_options, show
from millpond.model.errors import InvalidSettings
from millpond.model.units import parse_bytes

if TYPE_CHECKING:
    from millpond.spark.pipelines.table import TableRequest
    from millpond.spark.tables.values.spec import Values

FORMATS: Final = ("delta", "iceberg", "parquet")
KEYS: Final = ("binary", "string")
KINDS: Final = ("binary", "string", "json", "avro", "confluent-avro", "protobuf")


def table_request(
    *,
    topic: str,
    path: str,
    format: str = "delta",  # noqa: A002  # the word of the option and of the TOML file
    value: str = "binary",
    schema: str = "",
    message: str = "",
    keys: str = "binary",
    on_bad: str = "quarantine",
    partition_by: str = "",
    step: str = "512MiB",
    nested: bool = False,
    restart: bool = False,
    allow_gaps: bool = False,
    small_files: int = 100,
) -> "TableRequest":
    """From options, or from an entry of a TOML file: one word for each thing in both."""
    from millpond.spark.pipelines.table import OnBad, TableRequest
    from millpond.spark.tables.model import Format

    choices: tuple[tuple[str, str, Sequence[str]], ...] = (
        ("format", format, FORMATS),
        ("value", value, KINDS),
        ("keys", keys, KEYS),
        ("on_bad", on_bad, [str(word) for word in OnBad]),
    )
    for name, word, known in choices:
        if word not in known:
            raise InvalidSettings(name=name, value=word, reason=f"choose one of {', '.join(known)}")
    return TableRequest(
        topics=tuple(topic.split(",")),
        location=path,
        format=Format(format),
        values=_values(value, schema, message),
        is_nested=nested,
        keys_are_text=keys == "string",
        on_bad=OnBad(on_bad),
        partition_by=partition_by,
        bytes_per_step=_step_bytes(step),
        restart=restart,
        allow_gaps=allow_gaps,
        small_files_max=small_files,
    )


def _step_bytes(step: str | int) -> int:
    try:
        return parse_bytes(str(step))
    except ValueError as error:
        raise InvalidSettings(name="step", value=str(step), reason=str(error)) from error


def _values(kind: str, schema: str, message: str) -> "Values":
    """A schema is its text, or `@file`; Protobuf's is a descriptor set's file, or the name of a module of protoc's."""
    from millpond.spark.tables.values import spec

    file = Path(schema.removeprefix("@")) if schema.startswith("@") else None
    match kind:
        case "json":
            return spec.json_values(file.read_text() if file else schema)
        case "avro" | "confluent-avro":
            return spec.avro_values(file or schema, is_confluent=kind == "confluent-avro")
        case "protobuf":
            return spec.protobuf_values(file or schema, message)
        case _:
            return spec.Values(spec.Kind(kind))


@click.command(
    epilog="\b\nExamples:\n"
    "  millpond pipeline table orders ./tables/orders --value json --schema 'customer STRING, total DOUBLE'\n"
    "  millpond pipeline table clicks ./tables/clicks --format iceberg --value avro --schema @click.avsc"
)
@click.argument("topic")
@click.argument("path")
@click.option("--format", type=click.Choice(FORMATS), default="delta", show_default=True)
@click.option(
    "--value", type=click.Choice(KINDS), default="binary", show_default=True, help="Format of the values."
)
@click.option(
    "--schema", default="", help="Schema of the values: DDL for JSON, an Avro schema as JSON, or @FILE."
)
@click.option("--message", default="", help="Full name of the Protobuf message.")
@click.option("--keys", type=click.Choice(KEYS), default="binary", show_default=True)
@click.option(
    "--on-bad",
    type=click.Choice(["quarantine", "skip", "fail"]),
    default="quarantine",
    show_default=True,
    help="Action for values that cannot be decoded.",
)
@click.option(
    "--partition-by", type=click.Choice(["day"]), help="Partition the table by the day of the records."
)
@click.option("--step", metavar="SIZE", default="512MiB", show_default=True, help="Maximum bytes per commit.")
@click.option("--nested", is_flag=True, help="Keep decoded fields in one column, `value`.")
@click.option("--restart", is_flag=True, help="Continue although the topic was deleted and created again.")
@click.option("--allow-gaps", is_flag=True, help="Continue although records expired before they were read.")
@pipeline_options
def table(choices: Choices, partition_by: str | None, **options: Any) -> None:
    """Bring the table at PATH up to date with TOPIC (names or patterns, divided by commas). Each record once,
    whenever it is interrupted."""
    from millpond.spark.pipelines import table as pipeline

    request = table_request(partition_by=partition_by or "", **options)
    with job_of(choices) as job:
        report = pipeline.run(job, request)
    show(report, choices, title=f"Table {request.location}")


@click.command(
    epilog="\b\nExamples:\n"
    "  millpond pipeline sql 'SELECT key, count(*) FROM orders GROUP BY key' --text\n"
    "  millpond pipeline sql 'SELECT sum(total) FROM o' --table o=./tables/orders"
)
@click.argument("statement")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of rows."
)
@click.option("--text", is_flag=True, help="Show keys and values of topics as text.")
@click.option(
    "--json-schema",
    multiple=True,
    metavar="TOPIC=DDL",
    callback=name_and_value,
    help="Show the fields of a topic's JSON values as columns; repeatable.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME=PATH",
    callback=name_and_value,
    help="Table to use in the statement; repeatable.",
)
@pipeline_options
def sql(
    statement: str,
    limit: int,
    text: bool,
    json_schema: list[tuple[str, str]],
    tables: list[tuple[str, str]],
    choices: Choices,
) -> None:
    """Query topics with SQL. Each topic is a view of the same name, as of the time the statement is planned."""
    from millpond.spark.pipelines.sql import SqlRequest, run_sql

    request = SqlRequest(
        statement, limit=limit, json_schemas=dict(json_schema), tables=dict(tables), values_are_text=text
    )
    with job_of(choices) as job:
        result = run_sql(job, request)
    if choices.as_json:
        rows = [[_plain(cell) for cell in row] for row in result.rows]
        print_json({"columns": result.columns, "rows": rows, "truncated": result.truncated})
        return
    print_table(result.columns, [[_plain(cell) for cell in row] for row in result.rows])
    if result.truncated:
        say(f"Only the first {limit} rows are shown (--limit).")


def _plain(cell: Any) -> Any:
    """As JSON and people can have it: bytes as text where they are text, in hexadecimal digits otherwise."""
    if isinstance(cell, bytes | bytearray):
        try:
            return bytes(cell).decode()
        except UnicodeDecodeError:
            return "0x" + bytes(cell).hex()
    if cell is None or isinstance(cell, bool | int | float | str):
        return cell
    if isinstance(cell, list | tuple):
        return [_plain(each) for each in cell]
    if isinstance(cell, dict):
        return {str(_plain(name)): _plain(value) for name, value in cell.items()}
    return str(cell)
