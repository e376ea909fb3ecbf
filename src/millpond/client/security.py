"""How a client proves who it is, and checks that the broker is the right one: one value that its connections share.

A secret is in no repr and in no error. Credentials are sent over TLS or to this machine, and to no other address.
"""

import base64
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from millpond.client import arguments
from millpond.model.addresses import is_loopback, split_address
from millpond.model.errors import InvalidArgument, MillpondError, Unavailable

AUTHORIZATION: Final = "authorization"
SERVER_NAME_OPTION: Final = "grpc.ssl_target_name_override"

CallMetadata = tuple[tuple[str, str], ...]
TokenFunction = Callable[[], str]
AuthorizationFunction = Callable[[], str]
"""Returns the value of the `authorization` header."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS to brokers, by files in PEM form. `ca` holds the certificates of the authorities to trust; without it, those
    of this machine are trusted. `certificate` (with its chain) and `key` prove who the client is to a broker that asks
    for a certificate. `server_name` is the name in the brokers' certificates, if it is not the host of their address.
    The files are read when a client is created."""

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        for name in ("ca", "certificate", "key"):
            arguments.optional(arguments.path, name, getattr(self, name))
        arguments.optional(arguments.label, "server_name", self.server_name)
        if self.certificate is not None and self.key is None:
            raise arguments.out_of_range(
                "certificate", str(self.certificate), "the file of its key beside it"
            )
        if self.key is not None and self.certificate is None:
            raise arguments.out_of_range("key", str(self.key), "the file of its certificate beside it")


TlsArgument = bool | str | os.PathLike[str] | Tls | None
"""False: no TLS. True: TLS that trusts the authorities of this machine. A path: TLS that trusts the authorities in this
file. None: as the environment says, else False."""
TokenArgument = str | TokenFunction | None
"""A token, or a function that returns the current one. It is called before each request, on the event loop, so it must
not block."""


@dataclass(frozen=True, slots=True, repr=False)
class SecurityArguments:
    """What a public call passes on: `tls`, `username`, `password` and `token`, not checked yet."""

    tls: TlsArgument = None
    username: str | None = None
    password: str | None = None
    token: TokenArgument = None


@dataclass(frozen=True, slots=True, repr=False)
class TlsChannels:
    """The files of a `Tls`, read and checked."""

    credentials: grpc.ChannelCredentials
    server_name: str | None


@dataclass(frozen=True, slots=True, repr=False)
class Security:
    """TLS and credentials of one client, read and checked."""

    tls: TlsChannels | None = None
    authorization: AuthorizationFunction | None = None

    def check_address(self, address: str) -> None:
        """Refuse to send credentials where others could read them."""
        if self.authorization is None or self.tls is not None or is_loopback(split_address(address)[0]):
            return
        raise InvalidArgument(
            f"Credentials are not sent to {address} without TLS, because others could read them. Turn TLS on: set tls "
            "to the path of the CA's certificate, or to True (--tls-ca or --tls; MILLPOND_TLS_CA or MILLPOND_TLS).",
            argument="tls",
            value="False",
            expected="TLS, to send credentials to another machine",
        )

    def open_channel(self, address: str, options: list[tuple[str, Any]]) -> grpc.aio.Channel:
        self.check_address(address)
        if self.tls is None:
            return grpc.aio.insecure_channel(address, options=options)
        name = self.tls.server_name
        named = [] if name is None else [(SERVER_NAME_OPTION, name)]
        return grpc.aio.secure_channel(address, self.tls.credentials, options=[*options, *named])

    def metadata(self) -> CallMetadata | None:
        """The metadata of the next call."""
        return None if self.authorization is None else ((AUTHORIZATION, self.authorization()),)


def load_security(given: SecurityArguments) -> Security:
    """`tls` must not be None: the sources are merged already."""
    tls = _tls_of(given.tls)
    return Security(None if tls is None else _channels(tls), _authorization(given))


def _tls_of(given: TlsArgument) -> Tls | None:
    if isinstance(given, Tls):
        return given
    assert given is None or isinstance(given, bool), "checked when the sources were merged"
    return Tls() if given else None


# -- credentials -------------------------------------------------------------------------------------------------------


def _authorization(given: SecurityArguments) -> AuthorizationFunction | None:
    if given.token is not None:
        return _bearer(given.token)
    if given.username is None and given.password is None:
        return None
    if given.username is None:
        raise arguments.secret_refused("password", "a username beside it")
    if given.password is None:
        raise arguments.out_of_range("username", given.username, "a password beside it")
    return _basic(given.username, given.password)


def _basic(username: str, password: str) -> AuthorizationFunction:
    header = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
    return lambda: header


def _bearer(token: str | TokenFunction) -> AuthorizationFunction:
    if isinstance(token, str):
        header = f"Bearer {token}"
        return lambda: header
    return lambda: f"Bearer {_current(token)}"


def _current(function: TokenFunction) -> str:
    """An error of the function may pass, so the call that needs the token may be repeated."""
    try:
        found = function()
    except MillpondError:
        raise
    except Exception as error:
        raise Unavailable(f"The function `token` failed: {type(error).__name__}.") from error
    try:
        return arguments.token("token", found)
    except TypeError as error:
        raise arguments.secret_refused("token", f"a function that returns text ({error})") from None


# -- files -------------------------------------------------------------------------------------------------------------


def _channels(tls: Tls) -> TlsChannels:
    ca = _trusted(tls.ca)
    certificate, key = _identity(tls)
    return TlsChannels(grpc.ssl_channel_credentials(ca, key, certificate), tls.server_name)


def _trusted(ca: str | os.PathLike[str] | None) -> bytes | None:
    """The certificates to trust. None lets gRPC trust the ones that it brings along."""
    if ca is None:
        system = ssl.get_default_verify_paths().cafile
        return None if system is None else Path(system).read_bytes()
    content = _content("tls", ca)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=content.decode("ascii", "replace")
        )
    except (ssl.SSLError, ValueError) as error:
        raise arguments.out_of_range("tls", str(ca), "a file with certificates in PEM form") from error
    return content


def _identity(tls: Tls) -> tuple[bytes | None, bytes | None]:
    """The certificate chain and the key, which must belong together."""
    if tls.certificate is None or tls.key is None:
        return None, None
    chain, key = _content("certificate", tls.certificate), _content("key", tls.key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        expected = f"a certificate in PEM form, and in {str(tls.key)!r} its key without a password"
        raise arguments.out_of_range("certificate", str(tls.certificate), expected) from error
    return chain, key


def _content(name: str, path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        expected = f"a file that can be read ({error.strerror or error})"
        raise arguments.out_of_range(name, str(path), expected) from error
