"""`millpond pipeline`: jobs over topics, on Spark."""

from importlib import import_module
from typing import Final

import click

from millpond.cli.suggestions import SuggestingGroup

COMMAND_MODULES: Final = {
    "table": ("tables", "A topic as a Parquet, Delta or Iceberg table, kept up to date exactly once."),
    "sql": ("tables", "SQL over topics and tables."),
    "publish": ("publish_replay", "A table or a query into a topic, exactly once."),
    "replay": ("publish_replay", "A range of a topic into another topic."),
    "merge": ("maintenance", "Merge small extents into segments."),
    "compact": ("maintenance", "Keep the latest record of each key."),
    "retain": ("maintenance", "Expire what is past its retention."),
    "verify": ("maintenance", "Read everything back and say what is lost or damaged."),
    "run": ("schedule", "Keep all topics merged, compacted, retained, and their tables fresh."),
    "history": ("history", "Show what has run."),
}
"""Command name to its module and its line of help."""


class PipelineGroup(SuggestingGroup):
    """Imports a command when it is called, as `millpond` itself does."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMAND_MODULES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMAND_MODULES:
            return None
        command = getattr(import_module(f"millpond.cli.pipelines.{COMMAND_MODULES[name][0]}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMAND_MODULES.items()])


@click.group(
    cls=PipelineGroup,
    epilog="\b\nExamples:\n"
    "  millpond pipeline sql 'SELECT partition, count(*) FROM orders GROUP BY partition'\n"
    "  millpond pipeline table orders ./tables/orders --format delta --value json --schema 'id BIGINT, total DOUBLE'\n"
    "  millpond pipeline run --every 1m",
)
def pipeline() -> None:
    """Jobs over topics, on Spark. They talk to catalog and store directly: no broker need be running, and running
    ones are not disturbed. Needs Java 17 or 21 and `pip install 'millpond[spark,tables]'`."""
