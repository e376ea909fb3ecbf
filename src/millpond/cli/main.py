"""`millpond`: the entry point, and how errors become sentences and exit codes."""

import sys

import click

from millpond.cli.demo import demo
from millpond.cli.serve import serve
from millpond.cli.settings import settings
from millpond.model.errors import MillpondError
from millpond.version import __version__

EXIT_FAILED = 1


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="millpond")
def cli() -> None:
    """One durable message log: run it, look at it, try it."""


cli.add_command(serve)
cli.add_command(demo)
cli.add_command(settings)


def main() -> None:
    try:
        cli()
    except MillpondError as error:
        click.echo(f"millpond: {error}", err=True)
        sys.exit(EXIT_FAILED)
