"""`millpond pipeline history`: shows the runs that are recorded in the catalog, newest first."""

from dataclasses import asdict

import click

from millpond.catalog import pipelines
from millpond.cli.output import print_json, print_table, time_text
from millpond.cli.pipelines.common import Choices, pipeline_options


@click.command(epilog="\b\nExample:\n  millpond pipeline history --limit 5")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of runs."
)
@pipeline_options
def history(limit: int, choices: Choices) -> None:
    """Show past pipeline runs, their topics and results."""
    from millpond.spark.place import prepare

    with prepare(choices.place).read() as tx:
        runs = pipelines.newest(tx, limit)
    if choices.as_json:
        print_json([asdict(run) for run in runs])
    elif not runs:
        click.echo("No pipeline has run yet. Try: millpond pipeline verify")
    else:
        rows = [
            (
                time_text(run.started_at),
                run.pipeline,
                ", ".join(run.topics) or "all",
                run.state,
                _seconds(run),
            )
            for run in runs
        ]
        print_table(("STARTED", "PIPELINE", "TOPICS", "STATE", "SECONDS"), rows)


def _seconds(run: pipelines.PipelineRun) -> str:
    return "" if run.ended_at is None else f"{(run.ended_at - run.started_at) / 1000:.1f}"
