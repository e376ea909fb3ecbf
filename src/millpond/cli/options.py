"""Options that several commands share: where settings come from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from millpond.model.errors import InvalidSettings
from millpond.settings import Settings, load

Command = Callable[..., Any]


def settings_options(command: Command) -> Command:
    options = (
        click.option("--data-dir", type=click.Path(path_type=Path), help="Where data is kept."),
        click.option("--config", type=click.Path(path_type=Path), help="A TOML file with settings."),
        click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="NAME=VALUE",
            help="Any setting, e.g. retention=10s; `millpond settings` lists them.",
        ),
    )
    for option in options:
        command = option(command)
    return command


def load_settings(data_dir: Path | None, config: Path | None, assignments: tuple[str, ...]) -> Settings:
    flags = dict(_split(assignment) for assignment in assignments)
    if data_dir is not None:
        flags["data_dir"] = str(data_dir)
    return load(flags, file=config)


def _split(assignment: str) -> tuple[str, str]:
    name, equals, value = assignment.partition("=")
    if not equals:
        raise InvalidSettings(name="--set", value=assignment, reason="write it as NAME=VALUE")
    return name.strip().replace("-", "_"), value.strip()
