"""Who serves what, for clients that asked the wrong broker.

A broker leaves the addresses of its faces in the catalog when it joins; the log keeps the cluster's shape as it read
it last, and that is what is answered from.
"""

from collections.abc import Mapping
from typing import NamedTuple

from millpond.catalog import coordinators
from millpond.catalog.topology import Member
from millpond.cluster import addresses_of
from millpond.log import Log
from millpond.model.errors import MillpondError, NotCoordinator, NotOwner
from millpond.model.ids import Session, TopicPartition

Addresses = Mapping[str, str]
"""Where each face of a broker is reached: `{"kafka": "host:port", "grpc": …, "http": …}`."""


class Leader(NamedTuple):
    node_id: int
    epoch: int


class Owners:
    def __init__(self, log: Log, session: Session) -> None:
        self._log = log
        self._session = session

    def explain(self, error: MillpondError, where: TopicPartition) -> MillpondError:
        """The error to answer with: one that says who owns the partition, if that is known."""
        return NotOwner(**_facts(self.addresses(where))) if isinstance(error, NotOwner) else error

    def explain_coordinator(self, error: NotCoordinator, group_id: str) -> NotCoordinator:
        return NotCoordinator(group=group_id, **_facts(self._elsewhere(self.coordinator(group_id))))

    def addresses(self, where: TopicPartition) -> Addresses:
        """Of the broker that owns a partition, if it is another."""
        owner = self._log.topology.partitions.get(where)
        return self._elsewhere(self._log.topology.member(owner.session)) if owner is not None else {}

    def owner(self, where: TopicPartition) -> str | None:
        """The session that owns a partition."""
        owner = self._log.topology.partitions.get(where)
        return owner.session if owner is not None else None

    def by_session(self) -> dict[str, Addresses]:
        return {each.session: addresses_of(each) for each in self._log.topology.members.values()}

    def leader(self, where: TopicPartition) -> Leader | None:
        """Who serves a partition. What this broker itself serves, it knows better than what it has read."""
        owner = self._log.topology.partitions.get(where)
        member = self._log.topology.member(owner.session) if owner is not None else None
        return Leader(member.node_id, owner.epoch) if owner is not None and member is not None else None

    def coordinator(self, name: str) -> Member | None:
        """Who keeps a group or a transactional id."""
        owner = self._log.topology.shards.get(coordinators.shard_of(name))
        return self._log.topology.member(owner.session) if owner is not None else None

    def _elsewhere(self, member: Member | None) -> Addresses:
        return addresses_of(member) if member is not None and member.session != self._session else {}


def _facts(addresses: Addresses) -> dict[str, str]:
    """For an error that sends a client on."""
    return {f"owner_{face}": address for face, address in addresses.items()}
