"""Checks the `Host` header of requests while the broker listens on loopback only.

A web page from another origin can have its own name resolved to 127.0.0.1, and could then read and write here
as if it came from this broker (DNS rebinding). Its browser still sends the page's host name in `Host`.
"""

import re
from collections.abc import Iterable
from typing import Final

from millpond.frontends.web.errors import HttpError
from millpond.model.addresses import is_loopback

HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::[0-9]*)?")
NAME_SHOWN_MAX: Final = 100
KNOWN_MAX: Final = 100
"""Maximum number of accepted host names that are remembered and not checked again."""


class Hosts:
    """`listening` is the bound address, `advertised` the address (`host:port`) that clients receive. A broker
    that listens beyond loopback accepts every host name."""

    def __init__(self, listening: str, advertised: str) -> None:
        self._any = not is_loopback(listening)
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
                    f"This broker is not {host[:NAME_SHOWN_MAX]!r}: it listens on loopback, and accepts only loopback "
                    "names and the name that it advertises.",
                )
            if len(self._known) < KNOWN_MAX:
                self._known.add(host)

    def _is_ours(self, name: str) -> bool:
        return bool(name) and (name == self._advertised or is_loopback(name))


def _name_of(host: str) -> str:
    """The host without the port and without the brackets of an IPv6 address. Empty if it is not a host."""
    found = HOST.fullmatch(host)
    return found[1].strip("[]").lower() if found else ""
