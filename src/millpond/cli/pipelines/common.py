"""Shared by all pipeline commands: the location of the data, the Spark session, and the output of the result."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from millpond.cli.options import Command, json_option, load_settings, name_and_value, settings_options
from millpond.cli.output import print_json, print_note, stderr_is_terminal
from millpond.cli.packages import install_command, listed, missing_from
from millpond.model.errors import NotInstalled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millpond.spark.pipelines.job import PipelineJob, Report
    from millpond.spark.place import Place


WITHOUT_SPARK: Final = frozenset({"history"})
"""Commands that only read the catalog."""

topics_argument = click.argument("topics", nargs=-1, metavar="[TOPIC]...")


@dataclass(frozen=True)
class Choices:
    """The values of the common options."""

    place: "Place"
    master: str | None
    spark_config: dict[str, str]
    fast_start: bool
    is_dry_run: bool
    verbose: bool
    as_json: bool


def pipeline_options(command: Command) -> Command:
    """Adds the options for the location of the data and for Spark, `--dry-run` and `--json`. The command
    receives one `Choices`."""
    options = (
        click.option(
            "--master",
            envvar="MILLPOND_SPARK_MASTER",
            show_envvar=True,
            help="Spark master: local[4], spark://host:7077, yarn, k8s://…; all cores of this machine unless set.",
        ),
        click.option(
            "--spark-conf",
            multiple=True,
            metavar="NAME=VALUE",
            callback=name_and_value,
            help="Spark configuration property, e.g. spark.driver.memory=4g; repeatable.",
        ),
        click.option(
            "--fast-start/--no-fast-start",
            default=True,
            show_default=True,
            help="Start Spark in half the time; jobs that aggregate much data run slower.",
        ),
        click.option("--verbose", is_flag=True, help="Show Spark's own log."),
        click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing."),
        json_option,
    )

    def with_choices(
        data_dir: Path | None,
        config: Path | None,
        assignments: tuple[str, ...],
        master: str | None,
        spark_conf: list[tuple[str, str]],
        fast_start: bool,
        dry_run: bool,
        verbose: bool,
        as_json: bool,
        **others: Any,
    ) -> Any:
        check_installed(click.get_current_context())
        place = place_of(data_dir, config, assignments)
        return command(
            choices=Choices(place, master, dict(spark_conf), fast_start, dry_run, verbose, as_json), **others
        )

    with_choices.__doc__ = command.__doc__
    with_choices.__name__ = command.__name__
    # options that the command itself declared come first
    with_choices.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    decorated: Command = with_choices
    for option in reversed(options):
        decorated = option(decorated)
    return settings_options(decorated)


def check_installed(context: click.Context) -> None:
    """Raises `NotInstalled`, listing everything that is missing, before the command does anything."""
    from millpond.spark.sessions import JAVA, java_command

    if context.info_name in WITHOUT_SPARK:
        return
    missing, advice = [], []
    if packages := missing_from("spark"):
        missing.append(listed(packages))
        advice.append(install_command("spark", "tables"))
    if java_command() is None:
        missing.append(JAVA)
        advice.append("install a Java runtime (Debian: apt install openjdk-21-jre-headless) or set JAVA_HOME")
    if missing:
        raise NotInstalled(
            purpose=f"`{context.command_path}`", what=" and ".join(missing), advice="; ".join(advice)
        )


def place_of(data_dir: Path | None, config: Path | None, assignments: tuple[str, ...]) -> "Place":
    """The catalog and store that a broker with these settings uses."""
    from millpond.catalog.open import CATALOG_FILE, sqlite_url
    from millpond.spark.place import Place

    settings = load_settings(data_dir, config, assignments)
    catalog = settings.catalog or sqlite_url(settings.data_dir / CATALOG_FILE)
    return Place(catalog, settings.storage_url())


@contextmanager
def job_of(choices: Choices) -> Iterator["PipelineJob"]:
    """A job whose Spark session starts on first use and ends with the command."""
    from millpond.spark.pipelines.job import PipelineJob

    sessions = _Sessions(choices)
    bar = ProgressBar(hidden=choices.as_json or not stderr_is_terminal())
    try:
        yield PipelineJob(choices.place, sessions.get, is_dry_run=choices.is_dry_run, progress=bar)
    finally:
        bar.close()
        sessions.stop()


class _Sessions:
    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._spark: SparkSession | None = None
        self._is_ours = True
        self._folder = tempfile.TemporaryDirectory(prefix="millpond-spark-", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name) / "jvm.log"

    def get(self) -> "SparkSession":
        if self._spark is None:
            from pyspark.sql import SparkSession

            from millpond.spark import session

            self._is_ours = SparkSession.getActiveSession() is None
            if stderr_is_terminal() and not self._choices.as_json:
                print_note("Starting Spark …")
            chosen = self._choices
            self._spark = session(
                "millpond-pipeline",
                master=chosen.master,
                config=chosen.spark_config,
                fast_start=chosen.fast_start,
                log_level="ERROR",
                jvm_log=None if chosen.verbose else self._log,
            )
        return self._spark

    def stop(self) -> None:
        if self._spark is not None and self._is_ours:
            self._spark.stop()
        self._folder.cleanup()


class ProgressBar:
    """A `Progress` on the terminal: one bar at a time, and a new one for each new activity."""

    def __init__(self, *, hidden: bool) -> None:
        self._hidden = hidden
        self._what: tuple[str, int] | None = None
        self._bar: Any = None

    def __call__(self, done: int, total: int, what: str) -> None:
        if self._hidden or total <= 0:
            return
        if self._what != (what, total):
            self.close()
            self._what = (what, total)
            self._bar = click.progressbar(length=total, label=what, file=sys.stderr)
            self._bar.__enter__()
        self._bar.update(done - self._bar.pos)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
        self._bar = self._what = None


INDENT: Final = "  "


def show(report: "Report", choices: Choices, *, title: str) -> None:
    """Print a report: as JSON for programs, or as an indented list."""
    if choices.as_json:
        print_json(report)
        return
    click.echo(title + (" (dry run: nothing was done)" if choices.is_dry_run else ""))
    for line in _lines(report, 1):
        click.echo(line)


def _lines(facts: dict[str, Any], depth: int) -> Iterator[str]:
    for name, value in facts.items():
        label = INDENT * depth + name.replace("_", " ")
        if isinstance(value, dict):
            yield f"{label}:"
            yield from _lines(value, depth + 1)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{label}:"
            for each in value:
                yield INDENT * (depth + 1) + ", ".join(
                    f"{n.replace('_', ' ')} {_text(v)}" for n, v in each.items()
                )
        else:
            yield f"{label}: {_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_text, value)) or "none"
    return "none" if value is None else str(value)
