"""`millpond settings`: shows every setting, its current value, and what it means."""

from pathlib import Path

import click

from millpond.cli.options import json_option, load_settings, settings_options
from millpond.cli.output import print_json
from millpond.model.urls import redacted_url
from millpond.setting_types import HIDDEN, SECRET
from millpond.settings import kind_of, meaning_of, variable_of


@click.command(epilog="\b\nExample:\n  MILLPOND_RETENTION=1d millpond settings --json")
@settings_options
@json_option
def settings(data_dir: Path | None, config: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """Show the effective value of every setting, from flags, environment, file and defaults. Secrets, and passwords in
    URLs, are left out."""
    shown = _without_secrets(load_settings(data_dir, config, assignments).shown())
    if as_json:
        print_json(shown)
        return
    width = max(map(len, shown))
    for name, value in shown.items():
        click.echo(f"{name:<{width}}  {value or '(default)'}")
        click.echo(f"{'':<{width}}    {meaning_of(name)} ({kind_of(name).name}; {variable_of(name)})")


def _without_secrets(shown: dict[str, str]) -> dict[str, str]:
    urls = {name: redacted_url(shown[name]) for name in ("catalog", "storage")}
    return shown | urls | {name: HIDDEN for name in shown if kind_of(name) is SECRET and shown[name]}
