"""How a broker joins and leaves. On joining it gets a node id, registers, and adopts what has no live owner. On
leaving it is marked dead."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millpond.catalog import published_settings, topology, writers
from millpond.catalog.database import CatalogTransaction, Database
from millpond.catalog.published_settings import PublishedSettings
from millpond.catalog.topology import LiveBroker
from millpond.model.clock import Clock
from millpond.model.errors import InvalidSettings
from millpond.model.ids import Session
from millpond.topology.addresses import addresses_of, bound_of, encode_address, machine_of

ANY_NODE_ID: Final = 0


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What a broker publishes about itself: its advertised addresses, its machine, and the addresses it listens on.
    `node_id` 0 takes the smallest free number."""

    session: Session
    addresses: Mapping[str, str]
    machine: str
    bound: Mapping[str, str]
    node_id: int = ANY_NODE_ID


def join(
    database: Database,
    identity: BrokerIdentity,
    *,
    lease_ms: int,
    clock: Clock,
    sole_broker: bool,
    published: PublishedSettings | None = None,
) -> int:
    """Register and adopt what has no live owner; returns the node id. `sole_broker` means that no other broker can be
    running on this catalog. Live brokers hand over to it by themselves. `published` are settings
    for jobs that use the catalog without a broker."""
    with database.write() as tx:
        tx.disable_lock_timeout()
        now_ms = clock.now_ms()
        if sole_broker:
            writers.mark_other_brokers_dead(tx, identity.session, now_ms)
        for other in _predecessors(tx, identity):
            writers.mark_dead(tx, other.session, now_ms)
        _mark_expired_namesakes_dead(tx, identity, now_ms)
        topology.bump_version(tx)
        node_id = _take_node_id(tx, identity.node_id)
        writers.register(
            tx,
            identity.session,
            kind="broker",
            address=encode_address(identity.addresses, machine=identity.machine, bound=identity.bound),
            lease_ms=lease_ms,
            wall_ms=now_ms,
            node_id=node_id,
        )
        topology.adopt(tx)
        if published is not None:
            published_settings.publish(tx, published)
    return node_id


def leave(database: Database, session: Session, *, clock: Clock) -> None:
    """The last step of a shutdown. After it, this session can commit nothing."""
    with database.write() as tx:
        tx.disable_lock_timeout()
        writers.mark_dead(tx, session, clock.now_ms())
        topology.bump_version(tx)
        topology.adopt(tx)


def _predecessors(tx: CatalogTransaction, identity: BrokerIdentity) -> list[LiveBroker]:
    """Registered brokers that this one replaces: they have the same machine, listen on the same addresses and advertise
    the same addresses. Two processes of a machine cannot listen on the same ports, so such a broker is dead. The
    advertised addresses must match too, because containers on different machines may report one machine name. They
    prove nothing alone, because brokers behind a proxy may share them."""
    if not identity.addresses:
        return []
    endpoint = identity.machine, dict(identity.bound), dict(identity.addresses)
    return [
        other
        for other in topology.members(tx)
        if (machine_of(other), bound_of(other), addresses_of(other)) == endpoint
    ]


def _mark_expired_namesakes_dead(tx: CatalogTransaction, identity: BrokerIdentity, now_ms: int) -> None:
    """Declare brokers dead that have the wanted node id and whose lease has expired. If no other broker is alive, no
    other would do so, and the node id would stay taken for ever."""
    namesakes = {each.session for each in topology.members(tx) if each.node_id == identity.node_id}
    silent = [each for each in writers.expired_brokers(tx, identity.session) if each in namesakes]
    if silent:
        tx.terminate_connections(silent)
        writers.mark_expired_brokers_dead(tx, silent, now_ms)


def _take_node_id(tx: CatalogTransaction, wanted: int) -> int:
    taken = {each.node_id for each in topology.members(tx)}
    if wanted == ANY_NODE_ID:
        return next(number for number in range(1, len(taken) + 2) if number not in taken)
    if wanted in taken:
        reason = "a broker with this number is running, or was a lease ago"
        raise InvalidSettings(name="node_id", value=str(wanted), reason=reason)
    return wanted
