"""`millpond context`: names for clusters, with their address, TLS and credentials, in a file of this user."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from millpond.cli.options import json_option
from millpond.cli.output import print_json, print_table
from millpond.cli.suggestions import SuggestingGroup
from millpond.client.contexts import (
    FIELDS,
    NAME,
    NAME_FORM,
    PATHS,
    SECRETS,
    ConnectionContext,
    StoredContexts,
    contexts_path,
    load_contexts,
    save_contexts,
)
from millpond.client.secret_files import check_private
from millpond.client.sources import source_of_context
from millpond.model.addresses import DEFAULT_ADDRESS, parse_addresses
from millpond.model.errors import InvalidArgument

EPILOG: Final = """\b
Examples:
  millpond context set prod --address broker:9999 --tls-ca ca.pem --token-file prod.token
  millpond context use prod
  millpond topic list
  millpond --context staging topic list

\b
The file holds no password and no token, only the paths of the files that do.
"""

name_argument = click.argument("name", metavar="CONTEXT")
FILE: Final = click.Path(exists=True, dir_okay=False, resolve_path=True)


@click.group(cls=SuggestingGroup, epilog=EPILOG)
def context() -> None:
    """Named clusters: their address, TLS and credentials."""


@context.command("list", epilog="\b\nExample:\n  millpond context list")
@json_option
def list_contexts(as_json: bool) -> None:
    """List all contexts. The current one has a star."""
    stored = load_contexts(_path())
    if as_json:
        print_json([_facts(name, stored) for name in stored.contexts])
    elif not stored.contexts:
        click.echo("There are no contexts. `millpond context set NAME --address HOST:PORT` creates one.")
    else:
        rows = [_row(name, each, stored.current) for name, each in stored.contexts.items()]
        print_table(("CURRENT", "CONTEXT", "ADDRESS", "TLS", "CREDENTIALS"), rows)


@context.command(epilog="\b\nExamples:\n  millpond context show\n  millpond context show prod --json")
@click.argument("name", metavar="[CONTEXT]", required=False)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Show a context; the current one unless another is named."""
    stored = load_contexts(_path())
    chosen = name or stored.current
    if chosen is None:
        raise _refused("", f"{_path()} names no current context; `millpond context use` chooses one")
    facts = _facts(chosen, stored)
    if as_json:
        print_json(facts)
        return
    width = max(map(len, facts))
    for key, value in facts.items():
        click.echo(f"{key:<{width}}  {value}")


@context.command(
    "set",
    epilog="\b\nExamples:\n  millpond context set prod --address broker:9999 --tls-ca ca.pem --token-file prod.token\n"
    "  millpond context set prod --username alice --password-file prod.password --reset token_file",
)
@name_argument
@click.option(
    "--address", metavar="HOST:PORT", help="gRPC address of a broker, or several, separated by commas."
)
@click.option("--tls/--no-tls", default=None, help="Connect with TLS; on with --tls-ca.")
@click.option("--tls-ca", "ca", type=FILE, metavar="FILE", help="Certificates of the authorities to trust.")
@click.option("--certificate", type=FILE, metavar="FILE", help="Certificate of the client.")
@click.option("--key", type=FILE, metavar="FILE", help="Key of the client's certificate.")
@click.option("--server-name", metavar="NAME", help="Name in the certificates of the brokers.")
@click.option("--username", metavar="NAME", help="User name.")
@click.option("--password-file", type=FILE, metavar="FILE", help="File that holds the password.")
@click.option("--token-file", type=FILE, metavar="FILE", help="File that holds a token.")
@click.option(
    "--reset", multiple=True, type=click.Choice(FIELDS), metavar="FIELD", help="Field to remove; repeatable."
)
@json_option
def set_context(name: str, reset: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Create a context, or change the fields of one that exists."""
    if not NAME.fullmatch(name):
        raise click.UsageError(f"{name!r}: a context has {NAME_FORM}")
    stored = load_contexts(_path())
    changes = {key: value for key, value in given.items() if value is not None}
    changed = replace(stored.contexts.get(name, ConnectionContext()), **dict.fromkeys(reset), **changes)
    _check(name, changed)
    stored = replace(stored, contexts={**stored.contexts, name: changed})
    _save(stored, f"set {name}", _facts(name, stored), as_json)


@context.command(epilog="\b\nExamples:\n  millpond context use prod\n  millpond context use --none")
@click.argument("name", metavar="[CONTEXT]", required=False)
@click.option("--none", "is_none", is_flag=True, help="Use no context.")
@json_option
def use(name: str | None, is_none: bool, as_json: bool) -> None:
    """Make a context the current one: commands use it unless another address or context is given."""
    if (name is None) != is_none:
        raise click.UsageError("give the name of a context, or --none")
    stored = load_contexts(_path())
    if name is not None:
        _context(name, stored)
    _save(replace(stored, current=name), f"current context: {name or '-'}", {"current": name}, as_json)


@context.command(epilog="\b\nExample:\n  millpond context delete prod")
@name_argument
@json_option
def delete(name: str, as_json: bool) -> None:
    """Delete a context. The files that it names stay."""
    stored = load_contexts(_path())
    _context(name, stored)
    left = {each: found for each, found in stored.contexts.items() if each != name}
    current = None if stored.current == name else stored.current
    _save(StoredContexts(current, left), f"deleted {name}", {"context": name, "deleted": True}, as_json)


# -- the file ----------------------------------------------------------------------------------------------------------


def _path() -> Path:
    return contexts_path(os.environ)


def _save(stored: StoredContexts, done: str, facts: dict[str, Any], as_json: bool) -> None:
    save_contexts(_path(), stored)
    if as_json:
        print_json(facts)
    else:
        click.echo(done)


def _context(name: str, stored: StoredContexts) -> ConnectionContext:
    found = stored.contexts.get(name)
    if found is None:
        raise _refused(name, "a context that exists; `millpond context list` shows them")
    return found


def _refused(name: str, expected: str) -> InvalidArgument:
    return InvalidArgument(argument="context", value=repr(name), expected=expected)


def _check(name: str, context: ConnectionContext) -> None:
    """Refuse what a client would refuse."""
    try:
        parse_addresses(context.address or DEFAULT_ADDRESS)
    except ValueError as error:
        raise click.UsageError(f"--address: expected {error}") from error
    for key in SECRETS.values():
        if (file := getattr(context, key)) is not None:
            check_private(f"{key} of context {name!r}", Path(file))
    source_of_context(context)


def _facts(name: str, stored: StoredContexts) -> dict[str, Any]:
    return {"context": name, "current": name == stored.current, **_context(name, stored).facts()}


def _row(name: str, context: ConnectionContext, current: str | None) -> tuple[str, ...]:
    tls = context.tls if context.tls is not None else any(getattr(context, key) for key in PATHS[:3])
    who = context.username or context.token_file or context.certificate
    return (
        "*" if name == current else "",
        name,
        context.address or "-",
        "yes" if tls else "no",
        who or "-",
    )
