"""`millpond settings`: every setting, its value here, and what it means."""

import json
from pathlib import Path

import click

from millpond.cli.options import load_settings, settings_options
from millpond.settings import ENVIRONMENT_PREFIX, kind_of, meaning_of


@click.command()
@settings_options
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def settings(data_dir: Path | None, config: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """Show all settings as they would be used with these flags, environment and file."""
    shown = load_settings(data_dir, config, assignments).shown()
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    width = max(map(len, shown))
    for name, value in shown.items():
        click.echo(f"{name:<{width}}  {value or '(default)'}")
        click.echo(
            f"{'':<{width}}    {meaning_of(name)} ({kind_of(name).name}; {ENVIRONMENT_PREFIX}{name.upper()})"
        )
