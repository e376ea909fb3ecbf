"""The port checks of `millpond doctor`: free, used by a Millpond broker, or used by another program."""

import json
import socket
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from millpond.cli.checks import CheckResult
from millpond.cli.connection import ClientOptions
from millpond.client import Admin
from millpond.model.addresses import INTERFACES, join_address, split_address
from millpond.model.errors import AuthenticationFailed, MillpondError, NotAuthorized
from millpond.setting_types import TLS_ON
from millpond.settings import Settings

ASK_S: Final = 1.0


def check_interface_ports(settings: Settings, options: ClientOptions) -> Iterator[CheckResult]:
    """`options` has the TLS and credentials for a broker that is running."""
    known = _by_certificate(settings)
    by_grpc = partial(_by_grpc, options=options)
    asked: Mapping[str, Callable[[str], set[str]]] = {"grpc": by_grpc, "http": _by_http}
    if settings.tls == TLS_ON:
        asked = {}
    for interface, ask in asked.items():
        address = getattr(settings, f"{interface}_listen")
        if address and not address.endswith(":0"):
            known |= ask(address)
    for interface in INTERFACES:
        yield _check_interface_port(settings, interface, known)


def _check_interface_port(settings: Settings, interface: str, known: set[str]) -> CheckResult:
    check = f"{interface} port"
    try:
        address = settings.address(interface)
    except MillpondError as error:
        return CheckResult(
            check, "problem", str(error), f"set {interface}_listen to an address of this machine"
        )
    if address is None:
        return CheckResult(check, "ok", "off")
    shown = join_address(*address)
    try:
        _bind(*address)
    except OSError as error:
        if shown in known:
            return CheckResult(check, "ok", f"{shown} is a Millpond that answers")
        found = f"{shown} cannot be had: {error.strerror or error}"
        return CheckResult(
            check, "problem", found, f"stop what uses it, or choose another: --{interface} 127.0.0.1:PORT"
        )
    return CheckResult(check, "ok", f"{shown} is free")


def _bind(host: str, port: int) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind(address)
        trial.listen(1)


def _by_certificate(settings: Settings) -> set[str]:
    """The addresses at which a listener has the certificate of these settings. It needs no credentials."""
    if settings.tls != TLS_ON:
        return set()
    try:
        own = ssl.PEM_cert_to_DER_cert(_first(Path(settings.tls_certificate).read_text()))
    except (OSError, ValueError):
        return set()
    listens = [settings.listens(interface) for interface in INTERFACES]
    return {each for each in listens if each and not each.endswith(":0") and _presented(each) == own}


def _presented(address: str) -> bytes | None:
    """The certificate of a listener in DER, which is compared and therefore not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(split_address(address), timeout=ASK_S) as plain,
            context.wrap_socket(plain) as secured,
        ):
            return secured.getpeercert(binary_form=True)
    except OSError:
        return None


def _first(chain: str) -> str:
    """The first certificate of a PEM file."""
    begin, end = chain.index("-----BEGIN CERT"), chain.index("-----END CERT")
    return chain[begin : chain.index("\n", end) + 1]


def _by_grpc(address: str, options: ClientOptions) -> set[str]:
    """The addresses that a Millpond broker reports for itself; empty if none responds."""
    try:
        with Admin(address=address, timeout=ASK_S, **options) as admin:
            return set(admin.describe_broker().listeners.values())
    except (AuthenticationFailed, NotAuthorized):
        return {address}  # a broker, which reports nothing to this user
    except MillpondError:
        return set()


def _by_http(address: str) -> set[str]:
    try:
        with urllib.request.urlopen(f"http://{address}/", timeout=ASK_S) as response:  # from the settings
            facts = json.load(response)
        return set(facts["listeners"].values()) if facts["name"] == "millpond" else set()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return set()
