"""The addresses that a broker publishes in its catalog row when it joins."""

import json
from collections.abc import Mapping
from typing import Any, Final

from millpond.catalog.topology import LiveBroker

MACHINE: Final = "machine"
BOUND: Final = "bound"


def encode_address(addresses: Mapping[str, str], *, machine: str, bound: Mapping[str, str]) -> str:
    """The value of the catalog row: the address of each interface, the broker's machine, and the addresses it listens
    on."""
    return json.dumps({**addresses, MACHINE: machine, BOUND: dict(bound)})


def addresses_of(member: LiveBroker) -> dict[str, str]:
    """The address of each interface of a broker."""
    return {name: value for name, value in _decode_address(member).items() if name not in (MACHINE, BOUND)}


def machine_of(member: LiveBroker) -> str:
    machine: str = _decode_address(member).get(MACHINE, "")
    return machine


def bound_of(member: LiveBroker) -> dict[str, str]:
    """The addresses that a broker listens on."""
    bound: dict[str, str] = _decode_address(member).get(BOUND, {})
    return bound


def _decode_address(member: LiveBroker) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(member.address) if member.address else {}
    return found
