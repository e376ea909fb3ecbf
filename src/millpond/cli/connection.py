"""How commands connect to a broker, and how topic and group names complete in a shell."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Final

import click
from click.shell_completion import CompletionItem

from millpond.client import Admin
from millpond.model.addresses import DEFAULT_ADDRESS, parse_addresses
from millpond.model.errors import MillpondError, Unreachable

CONNECT_TIMEOUT_S: Final = 3.0
COMPLETION_S: Final = 0.5

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
def admin_of(address: str, timeout: float) -> Iterator[Admin]:
    check_reachable(address, min(timeout, CONNECT_TIMEOUT_S))
    with Admin(address=address, timeout=timeout) as admin:
        yield admin


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
        with admin_of(context.params.get("address") or DEFAULT_ADDRESS, COMPLETION_S) as admin:
            return [CompletionItem(name) for name in names_of(admin) if name.startswith(incomplete)]
    except MillpondError:
        return []
