"""`millpond security`: creates what a broker needs for authentication and TLS."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from millpond.cli.options import json_option, load_settings, settings_options
from millpond.cli.output import print_json
from millpond.cli.security_snippets import ADMIN, snippets
from millpond.cli.suggestions import SuggestingGroup

if TYPE_CHECKING:
    from millpond.security.development_ca import DevelopmentFiles
    from millpond.settings import Settings

DEFAULT_FOLDER: Final = Path("millpond-security")
CONFIG_NAME: Final = "millpond.toml"
CreateAdmin = Callable[["Settings"], str]
"""Creates the user `admin` in the catalog and returns its password."""


class InitResult(NamedTuple):
    files: "DevelopmentFiles"
    config: Path
    password: str


def security_commands(create_admin: CreateAdmin, reset_admin: CreateAdmin) -> click.Group:
    """The group of commands, with the functions that create the administrator in the catalog."""

    @click.group(cls=SuggestingGroup)
    def security() -> None:
        """Create certificates, users and settings for a broker that authenticates its clients."""

    @security.command(epilog="\b\nExample:\n  millpond security init --host broker-1.example")
    @click.option(
        "--dir",
        "folder",
        type=click.Path(path_type=Path),
        default=DEFAULT_FOLDER,
        show_default=True,
        help="Folder to create the files in.",
    )
    @click.option(
        "--host",
        "hosts",
        metavar="NAME",
        multiple=True,
        help="Host name or IP address of the broker, in addition to localhost; repeatable.",
    )
    @settings_options
    @json_option
    def init(
        folder: Path,
        hosts: tuple[str, ...],
        data_dir: Path | None,
        config: Path | None,
        assignments: tuple[str, ...],
        as_json: bool,
    ) -> None:
        """Create a development CA, a certificate, a settings file, and the user admin.

        Nothing is overwritten. The password of admin is printed once, and cannot be shown again. The CA is for
        development and tests: in production, use certificates of your own CA.
        """
        settings = load_settings(data_dir, config, assignments)
        try:
            result = initialise(folder.absolute(), hosts, settings, create_admin)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--host") from error
        if as_json:
            print_json(_facts(result))
        else:
            click.echo(_text(result, settings))

    @security.command(
        "reset-admin", epilog="\b\nExample:\n  millpond security reset-admin --config millpond.toml"
    )
    @settings_options
    @json_option
    def reset(
        data_dir: Path | None, config: Path | None, assignments: tuple[str, ...], as_json: bool
    ) -> None:
        """Give the user admin a new password, directly in the catalog.

        Use it when the password is lost. Running brokers learn of it within a second, and close the connections that
        used the old one.
        """
        password = reset_admin(load_settings(data_dir, config, assignments))
        if as_json:
            print_json({"user": ADMIN, "password": password})
        else:
            click.echo(f"User {ADMIN}, password (shown only now): {password}")

    return security


def initialise(
    folder: Path, hosts: Sequence[str], settings: "Settings", create_admin: CreateAdmin
) -> InitResult:
    """Create the files, then the administrator. If one step fails, the files that were created are removed."""
    from millpond.security.development_ca import create_development_files, write_private

    config = folder / CONFIG_NAME
    if config.exists():
        raise FileExistsError(None, "it exists, and is not overwritten", str(config))
    files = create_development_files(folder, hosts)
    with contextlib.ExitStack() as undo:
        for path in (*files, config):
            undo.callback(path.unlink, missing_ok=True)
        write_private(config, _toml(_settings_for(files, settings)).encode())
        password = create_admin(settings)
        undo.pop_all()
    return InitResult(files, config, password)


def _create_admin(settings: "Settings") -> str:
    from millpond.cli.admin_user import create_admin

    return create_admin(settings)


def _reset_admin(settings: "Settings") -> str:
    from millpond.cli.admin_user import reset_admin

    return reset_admin(settings)


def _settings_for(files: "DevelopmentFiles", settings: "Settings") -> dict[str, str]:
    """Those that differ from the defaults, so that the broker uses the catalog with the administrator, and what
    secures it."""
    defaults = type(settings)().shown()
    found = {name: text for name, text in settings.shown().items() if text != defaults[name]}
    if settings.uses_data_dir():
        found["data_dir"] = str(settings.data_dir.absolute())
    return found | {
        "security": "on",
        "tls": "on",
        "tls_certificate": str(files.certificate),
        "tls_key": str(files.key),
        "tls_client_ca": str(files.ca),
        "super_users": f"User:{ADMIN}",
    }


def _toml(values: Mapping[str, str]) -> str:
    """A JSON string is a TOML string."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def _facts(result: InitResult) -> dict[str, str]:
    files = {name: str(path) for name, path in result.files._asdict().items()}
    return {**files, "config": str(result.config), "user": ADMIN, "password": result.password}


def _text(result: InitResult, settings: "Settings") -> str:
    ca = result.files.ca
    created = f"""\
Created in {ca.parent}:
  {ca.name:<16} certificate of the development CA, for clients
  {result.files.ca_key.name:<16} key of the CA: keep it secret
  {result.files.certificate.name:<16} certificate of the broker
  {result.files.key.name:<16} key of the broker: keep it secret
  {result.config.name:<16} settings

User {ADMIN}, password (shown only now): {result.password}"""
    blocks = (f"{each.title}\n\n{each.text}" for each in snippets(settings, result.config, ca))
    return "\n\n".join((created, *blocks))


security = security_commands(_create_admin, _reset_admin)
