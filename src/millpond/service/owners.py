"""Owners of partitions and coordinators of groups, for clients that asked the wrong broker.

A broker stores the addresses of its interfaces in the catalog when it joins. All lookups here use the topology that
this broker last read.
"""

from collections.abc import Mapping
from typing import NamedTuple

from millpond.catalog import coordinators
from millpond.catalog.topology import LiveBroker
from millpond.model.errors import MillpondError, NotCoordinator, NotOwner
from millpond.model.ids import Session, TopicPartition
from millpond.topology import TopologyView, addresses_of

InterfaceAddresses = Mapping[str, str]
"""The address of each interface of a broker: `{"kafka": "host:port", "grpc": …, "http": …}`."""


class Leader(NamedTuple):
    node_id: int
    epoch: int


class Owners:
    def __init__(self, view: TopologyView, session: Session) -> None:
        self._view = view
        self._session = session

    def explain(self, error: MillpondError, topic_partition: TopicPartition) -> MillpondError:
        """The error to respond with. A `NotOwner` error gets the addresses of the owner, if it is known."""
        return NotOwner(**_facts(self.addresses(topic_partition))) if isinstance(error, NotOwner) else error

    def explain_coordinator(self, error: NotCoordinator, group_id: str) -> NotCoordinator:
        return NotCoordinator(group=group_id, **_facts(self._remote_addresses(self.coordinator(group_id))))

    def addresses(self, topic_partition: TopicPartition) -> InterfaceAddresses:
        """The addresses of the broker that owns a partition; empty if that is this broker or is unknown."""
        owner = self._view.current.partitions.get(topic_partition)
        return self._remote_addresses(self._view.current.member(owner.session)) if owner is not None else {}

    def owner(self, topic_partition: TopicPartition) -> str | None:
        """The session that owns a partition."""
        owner = self._view.current.partitions.get(topic_partition)
        return owner.session if owner is not None else None

    def by_session(self) -> dict[str, InterfaceAddresses]:
        return {each.session: addresses_of(each) for each in self._view.current.members.values()}

    def leader(self, topic_partition: TopicPartition) -> Leader | None:
        """The node id and epoch of the owner of a partition, if it is known."""
        owner = self._view.current.partitions.get(topic_partition)
        member = self._view.current.member(owner.session) if owner is not None else None
        return Leader(member.node_id, owner.epoch) if owner is not None and member is not None else None

    def shard_leader(self, shard: int) -> Leader | None:
        """The node id and epoch of the owner of a coordinator shard, if it is known."""
        owner = self._view.current.shards.get(shard)
        member = self._view.current.member(owner.session) if owner is not None else None
        return Leader(member.node_id, owner.epoch) if owner is not None and member is not None else None

    def coordinator(self, name: str) -> LiveBroker | None:
        """The broker that coordinates a group or a transactional id."""
        owner = self._view.current.shards.get(coordinators.shard_of(name))
        return self._view.current.member(owner.session) if owner is not None else None

    def _remote_addresses(self, member: LiveBroker | None) -> InterfaceAddresses:
        return addresses_of(member) if member is not None and member.session != self._session else {}


def _facts(addresses: InterfaceAddresses) -> dict[str, str]:
    """Fields of an error that redirects a client."""
    return {f"owner_{interface}": address for interface, address in addresses.items()}
