"""Which hosts requests may name while only this machine can reach the port.

A page from elsewhere can have its own name resolved to 127.0.0.1 and then reads and writes here as if it were ours
(DNS rebinding). Its browser still says in `Host` which name it asked for.
"""

import re
from collections.abc import Iterable
from typing import Final

from millpond.frontends.web.errors import Refused
from millpond.model.addresses import is_loopback

HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::[0-9]*)?")
NAME_SHOWN_MAX: Final = 100
KNOWN_MAX: Final = 100
"""Hosts that were found right and need not be looked at again."""


class Hosts:
    """`listening` is the address that was bound, `advertised` the one (`host:port`) that clients are told. Whoever
    listens beyond loopback has said that anybody may come, under whatever name."""

    def __init__(self, listening: str, advertised: str) -> None:
        self._any = not is_loopback(listening)
        self._advertised = _name_of(advertised)
        self._known: set[str] = set()

    def check(self, named: Iterable[str]) -> None:
        """`named` are the `Host` headers of a request: none in HTTP/1.0."""
        for host in named:
            if self._any or host in self._known:
                continue
            if not self._is_ours(_name_of(host)):
                raise Refused(
                    403,
                    "ForeignHost",
                    f"This broker is not {host[:NAME_SHOWN_MAX]!r}: it listens on loopback, and answers under such a "
                    "name or the one it advertises.",
                )
            if len(self._known) < KNOWN_MAX:
                self._known.add(host)

    def _is_ours(self, name: str) -> bool:
        return bool(name) and (name == self._advertised or is_loopback(name))


def _name_of(host: str) -> str:
    """Without the port, and without the brackets of an IPv6 address. Empty if it is no host."""
    found = HOST.fullmatch(host)
    return found[1].strip("[]").lower() if found else ""
