"""Where a client's address, TLS and credentials come from: the call, else the environment, else a context.

A context that `MILLPOND_CONTEXT` names counts only where neither the call nor the environment has an address: its
credentials belong to its own address. A password counts only for the user name of its source, if that has one.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from millpond.client import arguments
from millpond.client.contexts import ConnectionContext, contexts_path, find_context
from millpond.client.secret_files import TokenFile, read_secret
from millpond.client.security import Security, SecurityArguments, Tls, TokenArgument, load_security
from millpond.model.addresses import DEFAULT_ADDRESS
from millpond.model.variables import (
    ADDRESS_VARIABLE,
    CLIENT_VARIABLES,
    CONTEXT_VARIABLE,
    PASSWORD_FILE_VARIABLE,
    PASSWORD_VARIABLE,
    TLS_CA_VARIABLE,
    TLS_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    USERNAME_VARIABLE,
)

SWITCH: Final = {
    **dict.fromkeys(("true", "on", "yes", "1"), True),
    **dict.fromkeys(("false", "off", "no", "0"), False),
    "proxy": None,  # a value of the broker's setting of the same name, which says nothing to clients
}

ServerAddresses = str | Sequence[str] | None
"""`host:port`, or several; None uses MILLPOND_ADDRESS from the environment, else the address of the context that
MILLPOND_CONTEXT names, else 127.0.0.1:9999."""


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionSource:
    """The checked values of one source; None where it has none. `tls` has the files, `is_tls` whether TLS is on."""

    addresses: tuple[str, ...] | None = None
    is_tls: bool | None = None
    tls: Tls | None = None
    username: str | None = None
    password: str | None = None
    token: TokenArgument = None


def resolve(
    address: ServerAddresses, given: SecurityArguments, environment: Mapping[str, str] = os.environ
) -> tuple[tuple[str, ...], Security]:
    """The addresses to try first, and the security of a client that was created with these arguments."""
    sources = [source_of_call(address, given), source_of_environment(environment)]
    name = environment.get(CONTEXT_VARIABLE)
    if name and not has_address(sources):
        sources.append(source_of_context(find_context(contexts_path(environment), name, CONTEXT_VARIABLE)))
    addresses, merged = merge(sources)
    security = load_security(merged)
    for each in addresses:
        security.check_address(each)
    return addresses, security


def has_address(sources: Iterable[ConnectionSource]) -> bool:
    return any(each.addresses is not None for each in sources)


# -- the sources -------------------------------------------------------------------------------------------------------


def source_of_call(address: ServerAddresses, given: SecurityArguments) -> ConnectionSource:
    return _checked(
        ConnectionSource(
            None if address is None else tuple(arguments.addresses("address", address)),
            *_tls(given.tls),
            arguments.optional(arguments.username, "username", given.username),
            arguments.optional(arguments.password, "password", given.password),
            given.token
            if callable(given.token)
            else arguments.optional(arguments.token, "token", given.token),
        ),
        "token",
        "username",
    )


def _tls(given: object) -> tuple[bool | None, Tls | None]:
    """Whether TLS is on, and its files."""
    if given is None or isinstance(given, bool):
        return given, None
    if isinstance(given, Tls):
        return True, given
    if isinstance(given, str | os.PathLike) and str(given):
        return True, Tls(ca=given)
    if isinstance(given, str):
        raise arguments.out_of_range("tls", given, "True, False, the path of a CA file, or a Tls")
    raise TypeError(f"tls must be a bool, the path of a CA file or a Tls, not {type(given).__name__}")


def source_of_environment(environment: Mapping[str, str]) -> ConnectionSource:
    """An empty variable counts as not set."""
    found = {name: environment[name] for name in CLIENT_VARIABLES if environment.get(name)}
    address = found.get(ADDRESS_VARIABLE)
    switch = found.get(TLS_VARIABLE)
    ca = found.get(TLS_CA_VARIABLE)
    is_on = None if switch is None else arguments.choice(TLS_VARIABLE, switch.lower(), SWITCH)
    return _checked(
        ConnectionSource(
            None if address is None else tuple(arguments.addresses(ADDRESS_VARIABLE, address)),
            is_on if is_on is not None or ca is None else True,
            None if ca is None else Tls(ca=ca),
            arguments.optional(arguments.username, USERNAME_VARIABLE, found.get(USERNAME_VARIABLE)),
            _secret(found, PASSWORD_VARIABLE, PASSWORD_FILE_VARIABLE, arguments.password, password_from_file),
            _secret(found, TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, arguments.token, TokenFile),
        ),
        TOKEN_VARIABLE,
        USERNAME_VARIABLE,
    )


def _secret(
    found: Mapping[str, str],
    variable: str,
    file_variable: str,
    check: Callable[[str, object], str],
    read: Callable[[str, Path], arguments.Checked],
) -> str | arguments.Checked | None:
    """A secret that is in a variable, or in the file that another variable names."""
    if variable in found and file_variable in found:
        raise arguments.secret_refused(variable, f"no {file_variable} beside it")
    if file_variable in found:
        return read(file_variable, Path(found[file_variable]))
    return arguments.optional(check, variable, found.get(variable))


def password_from_file(name: str, path: Path) -> str:
    return arguments.password(name, read_secret(name, path))


def source_of_context(context: ConnectionContext) -> ConnectionSource:
    has_files = any((context.ca, context.certificate, context.key, context.server_name))
    tls = Tls(context.ca, context.certificate, context.key, context.server_name) if has_files else None
    address, password, token = context.address, context.password_file, context.token_file
    return _checked(
        ConnectionSource(
            None if address is None else tuple(arguments.addresses("address of the context", address)),
            context.tls if context.tls is not None or tls is None else True,
            tls,
            arguments.optional(arguments.username, "username of the context", context.username),
            None if password is None else password_from_file("password_file of the context", Path(password)),
            None if token is None else TokenFile("token_file of the context", Path(token)),
        ),
        "token_file of the context",
        "username",
    )


def _checked(source: ConnectionSource, token: str, username: str) -> ConnectionSource:
    """A source has a token or a user name; `token` and `username` are what it calls them."""
    if source.token is not None and (source.username is not None or source.password is not None):
        raise arguments.secret_refused(token, f"no {username} or password beside it")
    return source


# -- together ----------------------------------------------------------------------------------------------------------


def merge(sources: Sequence[ConnectionSource]) -> tuple[tuple[str, ...], SecurityArguments]:
    """The values that count, of sources in the order in which they count. `tls` is False or a `Tls`."""
    addresses = next((each.addresses for each in sources if each.addresses is not None), (DEFAULT_ADDRESS,))
    is_tls = next((each.is_tls for each in sources if each.is_tls is not None), False)
    tls = next((each.tls for each in sources if each.tls is not None), Tls())
    return addresses, replace(_credentials(sources), tls=tls if is_tls else False)


def _credentials(sources: Iterable[ConnectionSource]) -> SecurityArguments:
    username = password = None
    for each in sources:
        if each.token is not None:
            if username is None and password is None:
                return SecurityArguments(token=each.token)
            continue
        is_of_user = username is None or each.username in (None, username)
        username = username or each.username
        if password is None and is_of_user:
            password = each.password
    return SecurityArguments(username=username, password=password)
