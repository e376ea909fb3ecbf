"""Options that several commands share: the sources of settings, the broker to connect to, and the output
format."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from millpond.cli.output import print_note
from millpond.cli.variables import warn_of_misspelt_variables, warn_of_unknown_variables
from millpond.model.addresses import DEFAULT_ADDRESS, parse_addresses
from millpond.model.errors import InvalidSettings
from millpond.model.principals import USER, Principal
from millpond.model.units import parse_bytes, parse_duration_ms

if TYPE_CHECKING:
    from millpond.settings import RenamedSetting, Settings

Command = Callable[..., Any]

DEFAULT_TIMEOUT_S: Final = 10.0
CONNECTION_KEY: Final = "millpond.connection"
CONTEXT: Final = "context"
"""The parameter of `millpond --context`."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def settings_options(command: Command) -> Command:
    options = (
        click.option("--data-dir", type=click.Path(path_type=Path), help="Directory of the data."),
        click.option("--config", type=click.Path(path_type=Path), help="TOML file with settings."),
        click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="NAME=VALUE",
            help="Value of any setting, e.g. retention=10s; `millpond settings` lists them; repeatable.",
        ),
    )
    return _with(options, command)


def broker_options(command: Command) -> Command:
    options = (
        click.option(
            "--address",
            metavar="HOST:PORT",
            default=DEFAULT_ADDRESS,
            envvar="MILLPOND_ADDRESS",
            show_default=True,
            show_envvar=True,
            callback=check_address,
            help="gRPC address of the broker, or of several brokers of a cluster, separated by commas.",
        ),
        click.option(
            "--timeout",
            metavar="SECONDS",
            type=click.FloatRange(min=0.001),
            default=DEFAULT_TIMEOUT_S,
            show_default=True,
            help="Maximum time to wait for a response, in seconds.",
        ),
    )
    return _with(options, security_options(command))


def security_options(command: Command) -> Command:
    """TLS and credentials, as files. `connection.client_options` returns what was chosen, so that a command does not
    take these options as parameters."""
    options = (
        click.option(
            "--tls/--no-tls",
            default=None,
            expose_value=False,
            callback=keep,
            help="Connect with TLS; on with --tls-ca. [env var: MILLPOND_TLS]",
        ),
        _file_option("--tls-ca", "Certificates of the authorities to trust. [env var: MILLPOND_TLS_CA]"),
        click.option(
            "--username",
            metavar="NAME",
            expose_value=False,
            callback=keep,
            help="User name; needs a password. [env var: MILLPOND_USERNAME]",
        ),
        _file_option("--password-file", "File that holds the password. [env var: MILLPOND_PASSWORD_FILE]"),
        _file_option("--token-file", "File that holds a token. [env var: MILLPOND_TOKEN_FILE]"),
    )
    return _with(options, command)


def _file_option(name: str, text: str) -> Callable[[Command], Command]:
    kind = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option(name, type=kind, metavar="FILE", expose_value=False, callback=keep, help=text)


def keep(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Keep an option of the connection for `connection.client_options`."""
    if value is not None:
        given_options(context)[parameter.name or ""] = value
    return value


def given_options(context: click.Context) -> dict[str, Any]:
    """The options of the connection that were given, by parameter. Commands and their groups share them."""
    found: dict[str, Any] = context.meta.setdefault(CONNECTION_KEY, {})
    return found


def check_address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The address to connect to. A context that --context names counts more than the environment; other contexts count
    less."""
    if not context.resilient_parsing:  # set while a shell completes a word
        warn_of_misspelt_variables(os.environ)
    source = context.get_parameter_source(parameter.name or "")
    if source is ParameterSource.COMMANDLINE:
        given_options(context)["address"] = value
    elif source is ParameterSource.DEFAULT or CONTEXT in given_options(context):
        from millpond.cli.connection import (
            address_of_context,
        )  # imported here, because it loads the client library

        value = address_of_context(context, is_current_used=value is not None) or value
    try:
        return None if value is None else ",".join(parse_addresses(value))
    except ValueError as error:
        raise click.BadParameter(f"write it as HOST:PORT, for example {DEFAULT_ADDRESS}") from error


def as_bytes(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """For options that are a size: `8MiB`."""
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def as_milliseconds(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """For options that are a duration: `90s`."""
    try:
        return parse_duration_ms(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def as_seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """For options that are a duration of more than 0, and may be absent."""
    if value is None:
        return None
    milliseconds = as_milliseconds(context, parameter, value)
    if not milliseconds:
        raise click.BadParameter("a duration of more than 0 is needed")
    return milliseconds / 1000


def as_principal(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """For users: `alice` and `User:alice` are the same."""
    if value is None:
        return None
    try:
        return str(Principal.parse(value if ":" in value else f"{USER}:{value}"))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def name_and_value(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> list[tuple[str, str]]:
    """For repeatable options that are written NAME=VALUE."""
    pairs = [each.partition("=") for each in given]
    for name, equals, value in pairs:
        if not equals or not name:
            raise click.BadParameter(f"{name + equals + value!r}: write it as NAME=VALUE")
    return [(name, value) for name, _, value in pairs]


def warn_of_renamed(setting: "RenamedSetting") -> None:
    """Print one line to standard error for a setting that was given under its former name."""
    print_note(
        f"millpond: warning: the setting {setting.old} ({setting.source}) is now called {setting.new}; "
        "the old name will be removed."
    )


def load_settings(
    data_dir: Path | None,
    config: Path | None,
    assignments: tuple[str, ...],
    on_renamed: "Callable[[RenamedSetting], None]" = warn_of_renamed,
    **listening: str | None,
) -> "Settings":
    """`listening` holds the shorthand options for settings such as kafka_listen."""
    from millpond.settings import load  # imported here, because it loads half of the broker

    warn_of_unknown_variables(os.environ)
    flags = dict(_split(assignment) for assignment in assignments)
    flags.update({name: value for name, value in listening.items() if value is not None})
    if data_dir is not None:
        flags["data_dir"] = str(data_dir)
    return load(flags, file=config, on_renamed=on_renamed)


def _split(assignment: str) -> tuple[str, str]:
    name, equals, value = assignment.partition("=")
    if not equals:
        raise InvalidSettings(name="--set", value=assignment, reason="write it as NAME=VALUE")
    return name.strip().replace("-", "_"), value.strip()


def _with(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
