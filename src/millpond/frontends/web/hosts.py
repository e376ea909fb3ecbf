"""Checks the `Host` header of requests while the broker listens on loopback only, or has a certificate.

A web page from another origin can have its own name resolved to 127.0.0.1, and could then read and write here
as if it came from this broker (DNS rebinding). Its browser still sends the page's host name in `Host`: a name, never
an IP address.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from millpond.frontends.web.errors import HttpError
from millpond.model.addresses import is_loopback
from millpond.security.listener import ListenerTls

HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::[0-9]*)?")
NAME_SHOWN_MAX: Final = 100
KNOWN_MAX: Final = 100
"""Maximum number of accepted host names that are remembered and not checked again."""


class Hosts:
    """`listening` is the bound address, `advertised` the address (`host:port`) that clients receive. A broker
    that listens beyond loopback accepts every host name if it has no certificate. If it has one, it accepts the
    certificate's names, and beyond loopback every IP address: probes of its health have no name for it."""

    def __init__(self, listening: str, advertised: str, certificate: ListenerTls | None = None) -> None:
        self._any = not is_loopback(listening) and certificate is None
        self._any_address = not is_loopback(listening)
        self._certificate = certificate
        self._advertised = _name_of(advertised)
        self._known: set[str] = set()

    def check(self, named: Iterable[str]) -> None:
        """`named` are the `Host` headers of a request; HTTP/1.0 requests may have none."""
        for host in named:
            if self._any or host in self._known:
                continue
            if not self._is_ours(_name_of(host)):
                raise HttpError(
                    403,
                    "ForeignHost",
                    f"This broker is not {host[:NAME_SHOWN_MAX]!r}: it accepts only {self._accepted()}.",
                )
            if len(self._known) < KNOWN_MAX:
                self._known.add(host)

    def _is_ours(self, name: str) -> bool:
        if not name:
            return False
        if name == self._advertised or is_loopback(name) or (self._any_address and _is_address(name)):
            return True
        return self._certificate is not None and _is_named(name, self._certificate.names)

    def _accepted(self) -> str:
        if self._certificate is not None:
            return "loopback names, the name that it advertises, and the names in its certificate"
        return "loopback names and the name that it advertises, because it listens on loopback"


def _name_of(host: str) -> str:
    """The host without the port and without the brackets of an IPv6 address. Empty if it is not a host."""
    found = HOST.fullmatch(host)
    return found[1].strip("[]").lower() if found else ""


def _is_named(host: str, names: frozenset[str]) -> bool:
    """Whether a host is one of a certificate's names. A wildcard stands for one label."""
    return host in names or (not _is_address(host) and f"*.{host.partition('.')[2]}" in names)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
