"""`millpond pipeline run`: maintains topics and tables until it is stopped."""

import signal
import threading
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millpond.cli.options import as_milliseconds
from millpond.cli.output import print_json, print_note
from millpond.cli.pipelines.common import Choices, job_of, pipeline_options, topics_argument
from millpond.cli.pipelines.tables import table_request
from millpond.model.errors import InvalidSettings

if TYPE_CHECKING:
    from millpond.spark.pipelines.job import Report
    from millpond.spark.pipelines.table import TableRequest


@click.command(
    epilog="\b\nExamples:\n  millpond pipeline run --every 1m --tables tables.toml\n  millpond pipeline run --rounds 1"
)
@topics_argument
@click.option(
    "--every",
    "every_ms",
    default="1m",
    show_default=True,
    metavar="DURATION",
    callback=as_milliseconds,
    help="Time between the starts of two rounds.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help="Number of rounds after which to stop; runs until interrupted unless set.",
)
@click.option(
    "--tables",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="TOML file with [[table]] entries: topic, path, format, value, schema …",
)
@pipeline_options
def run(
    topics: tuple[str, ...], every_ms: int, rounds: int | None, tables: Path | None, choices: Choices
) -> None:
    """Keep topics merged, compacted and retained, and tables fresh, in one Spark session. Ctrl-C ends it after the
    duty that is under way."""
    from millpond.spark.pipelines import schedule

    request = schedule.ScheduleRequest(
        topics=topics,
        tables=tuple(_read_tables(tables)) if tables else (),
        every_s=every_ms / 1000,
        rounds=rounds,
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with job_of(choices) as job:
        for report in schedule.run(job, request, sleep=stop.wait, stop=stop.is_set):
            _show(report, choices)


def _read_tables(path: Path) -> "list[TableRequest]":
    try:
        entries: list[dict[str, Any]] = tomllib.loads(path.read_text()).get("table", [])
        return [table_request(**entry) for entry in entries]
    except (tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
        raise InvalidSettings(name="--tables", value=str(path), reason=str(error)) from error


def _show(report: "Report", choices: Choices) -> None:
    if choices.as_json:
        print_json(report)
        return
    failed = {
        name: each["error"] for name, each in report.items() if isinstance(each, dict) and "error" in each
    }
    done = [name for name, each in report.items() if isinstance(each, dict) and name not in failed]
    click.echo(f"round {report['round']}: {', '.join(done)} done in {report['seconds']:.1f} s")
    for name, error in failed.items():
        print_note(f"millpond: {name} failed and will be tried again: {error}")
