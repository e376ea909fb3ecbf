"""How commands connect to a broker, and how topic and group names complete in a shell.

Options count most, then the environment, then a context: the one that MILLPOND_CONTEXT names, or else the current one.
Its TLS and credentials count only with its own address. But a context that `--context` names counts more than the
environment, with any address.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypedDict

import click
from click.shell_completion import CompletionItem

from millpond.cli.options import CONTEXT, given_options
from millpond.client import Admin
from millpond.client.contexts import ConnectionContext, contexts_path, find_context, load_contexts
from millpond.client.secret_files import TokenFile
from millpond.client.security import SecurityArguments, TlsArgument, TokenArgument
from millpond.client.sources import (
    ConnectionSource,
    has_address,
    merge,
    password_from_file,
    source_of_call,
    source_of_context,
    source_of_environment,
)
from millpond.model.addresses import DEFAULT_ADDRESS, parse_addresses
from millpond.model.errors import MillpondError, Unreachable
from millpond.model.variables import CONTEXT_VARIABLE

CONNECT_TIMEOUT_S: Final = 3.0
COMPLETION_S: Final = 0.5
OPTIONS_KEY: Final = "millpond.client-options"

NamesOf = Callable[[Admin], list[str]]


def check_reachable(address: str, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
    """Fail immediately, with a short reason, if no broker listens at the address: the client library would
    keep retrying. Of several addresses, one that responds is enough."""
    *others, last = parse_addresses(address)
    for each in others:
        with contextlib.suppress(Unreachable):
            return _check_reachable(each, timeout_s)
    return _check_reachable(last, timeout_s)


def _check_reachable(address: str, timeout_s: float) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreachable(address=address, reason=reason) from error


@contextlib.contextmanager
def admin_of(address: str, timeout: float, context: click.Context | None = None) -> Iterator[Admin]:
    check_reachable(address, min(timeout, CONNECT_TIMEOUT_S))
    with Admin(address=address, timeout=timeout, **client_options(context)) as admin:
        yield admin


# -- TLS and credentials -----------------------------------------------------------------------------------------------


class ClientOptions(TypedDict, total=False):
    """Arguments of every client."""

    tls: TlsArgument
    username: str | None
    password: str | None
    token: TokenArgument


def client_options(context: click.Context | None = None, *, is_own_address: bool = False) -> ClientOptions:
    """TLS and credentials of a command, by default the one that runs. They are read once: a file may be a pipe.
    `is_own_address` says that the command connects to an address that no option, variable or context names."""
    context = context or click.get_current_context()
    if OPTIONS_KEY not in context.meta:
        _, chosen = merge(_sources(context, is_own_address))
        context.meta[OPTIONS_KEY] = ClientOptions(
            tls=chosen.tls, username=chosen.username, password=chosen.password, token=chosen.token
        )
    found: ClientOptions = context.meta[OPTIONS_KEY]
    return found


def address_of_context(context: click.Context, *, is_current_used: bool) -> str | None:
    """The address of the context that is named; else, if `is_current_used`, of the current one."""
    found = _named_context(given_options(context)) or (_current_context() if is_current_used else None)
    return None if found is None else found.address


def _sources(context: click.Context, is_own_address: bool) -> list[ConnectionSource]:
    """In the order in which they count."""
    given = given_options(context)
    sources = [_source_of_options(given), source_of_environment(os.environ)]
    if CONTEXT in given or not (is_own_address or has_address(sources)):
        found = _named_context(given) or _current_context()
        if found is not None:
            sources.insert(1 if CONTEXT in given else 2, source_of_context(found))
    return sources


def _source_of_options(given: Mapping[str, Any]) -> ConnectionSource:
    """Secrets are in files: other users of a machine can see the options of a command."""
    if given.get("tls") is False and "tls_ca" in given:
        raise click.UsageError("give --tls-ca or --no-tls, not both")
    password, token = _path(given, "password_file"), _path(given, "token_file")
    return source_of_call(
        given.get("address"),
        SecurityArguments(
            given.get("tls_ca", given.get("tls")),
            given.get("username"),
            None if password is None else password_from_file("--password-file", password),
            None if token is None else TokenFile("--token-file", token),
        ),
    )


def _path(given: Mapping[str, Any], name: str) -> Path | None:
    return None if name not in given else Path(given[name])


def _named_context(given: Mapping[str, Any]) -> ConnectionContext | None:
    for source, name in (
        ("--context", given.get(CONTEXT)),
        (CONTEXT_VARIABLE, os.environ.get(CONTEXT_VARIABLE)),
    ):
        if name:
            return find_context(contexts_path(os.environ), name, source)
    return None


def _current_context() -> ConnectionContext | None:
    path = contexts_path(os.environ)
    name = load_contexts(path).current
    return None if name is None else find_context(path, name, f"current context of {path}")


# -- completion --------------------------------------------------------------------------------------------------------


def complete_topic(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _complete(context, incomplete, lambda admin: [topic.name for topic in admin.list_topics()])


def complete_group(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _complete(context, incomplete, lambda admin: [group.name for group in admin.list_groups()])


def _complete(context: click.Context, incomplete: str, names_of: NamesOf) -> list[CompletionItem]:
    """Completion waits for half a second at most; without a broker there is nothing to offer."""
    try:
        address = context.params.get("address") or DEFAULT_ADDRESS
        with admin_of(address, COMPLETION_S, context) as admin:
            return [CompletionItem(name) for name in names_of(admin) if name.startswith(incomplete)]
    except MillpondError:
        return []
