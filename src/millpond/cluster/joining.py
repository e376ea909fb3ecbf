"""How a broker comes and goes: it gets a number, registers, and takes what nobody serves; at the end it is buried."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millpond.catalog import topology, writers
from millpond.catalog.database import Database, Transaction
from millpond.catalog.topology import Member
from millpond.model.clock import Clock
from millpond.model.errors import InvalidSettings
from millpond.model.ids import Session

ANY_NODE_ID: Final = 0
MACHINE: Final = "machine"


@dataclass(frozen=True, slots=True)
class Identity:
    """What others are told of a broker. `node_id` 0 takes the smallest number that is free."""

    session: Session
    addresses: Mapping[str, str]
    machine: str
    node_id: int = ANY_NODE_ID


def join(database: Database, identity: Identity, *, lease_ms: int, clock: Clock, alone: bool) -> int:
    """Register and adopt what has no living owner; returns the node id. `alone` says that no other broker can be
    running on this catalog. What living brokers have too much of they give away themselves."""
    with database.write() as tx:
        now_ms = clock.now_ms()
        if alone:
            writers.bury_other_brokers(tx, identity.session, now_ms)
        for other in _predecessors(tx, identity):
            writers.bury(tx, other.session, now_ms)
        _bury_silent_namesakes(tx, identity, now_ms)
        topology.move(tx)
        node_id = _take_node_id(tx, identity.node_id)
        writers.register(
            tx,
            identity.session,
            kind="broker",
            address=json.dumps({**identity.addresses, MACHINE: identity.machine}),
            lease_ms=lease_ms,
            wall_ms=now_ms,
            node_id=node_id,
        )
        topology.adopt(tx)
    return node_id


def leave(database: Database, session: Session, *, clock: Clock) -> None:
    """The last act: nothing of this session can be committed from here on."""
    with database.write() as tx:
        writers.bury(tx, session, clock.now_ms())
        topology.move(tx)
        topology.adopt(tx)


def addresses_of(member: Member) -> dict[str, str]:
    """Where each face of a broker is reached."""
    found: dict[str, str] = json.loads(member.address) if member.address else {}
    found.pop(MACHINE, None)
    return found


def machine_of(member: Member) -> str:
    found: dict[str, str] = json.loads(member.address) if member.address else {}
    return found.get(MACHINE, "")


def _predecessors(tx: Transaction, identity: Identity) -> list[Member]:
    """Those whose ports these were: two processes of a machine cannot have them."""
    addresses = set(identity.addresses.items())
    return [
        other
        for other in topology.members(tx)
        if machine_of(other) == identity.machine and not addresses.isdisjoint(addresses_of(other).items())
    ]


def _bury_silent_namesakes(tx: Transaction, identity: Identity, now_ms: int) -> None:
    """One that had the wanted number, died elsewhere, and has been silent for a lease. If nobody else lives, nobody
    else would ever say so, and its number would be taken for ever."""
    namesakes = {each.session for each in topology.members(tx) if each.node_id == identity.node_id}
    silent = [each for each in writers.expired_brokers(tx, identity.session) if each in namesakes]
    if silent:
        tx.cut_off(silent)
        writers.bury_expired_brokers(tx, silent, now_ms)


def _take_node_id(tx: Transaction, wanted: int) -> int:
    taken = {each.node_id for each in topology.members(tx)}
    if wanted == ANY_NODE_ID:
        return next(number for number in range(1, len(taken) + 2) if number not in taken)
    if wanted in taken:
        reason = "a broker with this number is running, or was a lease ago"
        raise InvalidSettings(name="node_id", value=str(wanted), reason=reason)
    return wanted
