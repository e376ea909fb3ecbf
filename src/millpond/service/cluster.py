"""Cluster administration: what each broker owns, draining a broker, and rebalancing."""

from collections import Counter
from dataclasses import dataclass

from millpond.catalog import topology, writers
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.topology import LiveBroker, Topology
from millpond.log import Log
from millpond.model.errors import InvalidRequest
from millpond.model.ids import Session
from millpond.security import Access
from millpond.security.audit import AuditLog
from millpond.service.owners import InterfaceAddresses
from millpond.topology import Peers, TopologyView, addresses_of, machine_of


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    node_id: int
    session: Session
    addresses: InterfaceAddresses
    machine: str
    is_draining: bool
    partitions: int
    shards: int
    lease_ms: int
    """Remaining time of its lease; negative if it has expired and no broker has declared this one dead yet."""
    is_answering: bool


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    version: int
    brokers: list[BrokerStatus]
    partitions: int
    unowned: int


class ClusterAdministration:
    def __init__(self, log: Log, view: TopologyView, peers: Peers, session: Session, audit: AuditLog) -> None:
        self._log = log
        self._audit = audit
        self._view = view
        self._peers = peers
        self._session = session

    def members(self) -> list[LiveBroker]:
        """Sorted by node id, as this broker last read them."""
        return list(self._view.current.members.values())

    async def refresh(self) -> None:
        """Read the catalog's changes now, because another broker has requested it."""
        await self._log.catalog_view.refresh_on_request()

    async def status(self) -> ClusterStatus:
        found, leases = await self._log.read(lambda tx: (topology.read(tx), writers.lease_remaining_ms(tx)))
        return _cluster_status(found, leases, self._session)

    async def drain(self, node_id: int, *, access: Access, undo: bool = False) -> ClusterStatus:
        """Make a broker hand over what it owns. It keeps running, and redirects clients to the new owners."""

        def drain(tx: CatalogTransaction) -> None:
            topology.bump_version(tx)
            members = topology.members(tx)
            found = [each.session for each in members if each.node_id == node_id]
            if not found:
                raise InvalidRequest(reason=f"there is no broker {node_id}")
            if not undo and not any(each.node_id != node_id and not each.leaving for each in members):
                raise InvalidRequest(reason=f"there is no other broker to take what broker {node_id} owns")
            topology.set_leaving(tx, found[0], leaving=not undo)

        await self._log.write(drain, own_commit=True)
        self._record(access, "drain undone" if undo else "broker drained", f"broker {node_id}")
        return await self._changed()

    async def rebalance(self, *, access: Access) -> ClusterStatus:
        """Make every broker check again what it should hand over."""
        await self._log.write(topology.bump_version, own_commit=True)
        self._record(access, "rebalance requested", "cluster")
        return await self._changed()

    def _record(self, access: Access, change: str, name: str) -> None:
        self._audit.changed(access.principal, access.host, change, name)

    async def _changed(self) -> ClusterStatus:
        await self._log.refresh()
        await self._peers.notify_all_and_wait()
        return await self.status()


def _cluster_status(found: Topology, leases: dict[Session, int], session: Session) -> ClusterStatus:
    partitions = Counter(each.session for each in found.partitions.values())
    shards = Counter(each.session for each in found.shards.values())
    brokers = [
        BrokerStatus(
            each.node_id,
            each.session,
            addresses_of(each),
            machine_of(each),
            each.leaving,
            partitions[each.session],
            shards[each.session],
            leases.get(each.session, 0),
            each.session == session,
        )
        for each in found.members.values()
    ]
    owned = sum(each.partitions for each in brokers)
    return ClusterStatus(found.version, brokers, len(found.partitions), len(found.partitions) - owned)
