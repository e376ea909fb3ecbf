"""The context of a request that a handler receives: client, version, and the services it may use."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from millpond.frontends.kafka.limits import KafkaLimits
from millpond.groups import GroupLimits, Groups
from millpond.log import Log, TransactionLimits, Transactions
from millpond.model.addresses import split_address
from millpond.model.clock import Clock
from millpond.model.ids import TopicId, TopicPartition
from millpond.protocol import NO_UUID
from millpond.security import SecurityView
from millpond.service import ClusterAdministration, Owners, SecurityAdministration
from millpond.topology import addresses_of


class Node(NamedTuple):
    """A broker's id and the address at which clients reach it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Services:
    """The components that the Kafka interface uses."""

    log: Log
    groups: Groups
    transactions: Transactions
    clock: Clock
    node: Node
    owners: Owners
    cluster: ClusterAdministration
    security: SecurityView
    security_administration: SecurityAdministration
    listener: str
    cluster_id: str
    auto_create_topics: bool
    default_partitions: int
    limits: KafkaLimits
    group_limits: GroupLimits
    transaction_limits: TransactionLimits


class KafkaCall(NamedTuple):
    """The context of one request. A tuple, because one is created per request and tuples take a third of the
    time to create."""

    services: Services
    version: int
    client_id: str
    client_host: str

    def topic_partition(self, name: str, topic_id: bytes, number: int, *, by_id: bool) -> TopicPartition:
        """Resolve a partition from a request: newer versions send the topic's id, older ones its name."""
        topics = self.services.log.topics
        return topics.partition(topics.with_id(TopicId(topic_id)).name if by_id else name, number)

    async def ensure_known(self, names: Iterable[str | None] = (), ids: Iterable[bytes] = ()) -> None:
        """Await this before looking up topics: another broker may just have created the unknown ones. Reads
        the catalog at most once, however many topics are unknown."""
        topics = self.services.log.topics
        if not all(name is None or topics.knows(name) for name in names) or not all(
            topic_id == NO_UUID or topics.knows_id(TopicId(topic_id)) for topic_id in ids
        ):
            await self.services.log.catch_up()

    def nodes(self) -> list[Node]:
        """The brokers that Kafka clients can reach. Always includes this broker, even if the last catalog
        read does not."""
        services = self.services
        found = {services.node.id: services.node}
        for member in services.cluster.members():
            if (address := addresses_of(member).get("kafka")) is not None and member.node_id not in found:
                found[member.node_id] = Node(member.node_id, *split_address(address))
        return [found[number] for number in sorted(found)]

    @property
    def log(self) -> Log:
        return self.services.log

    @property
    def groups(self) -> Groups:
        return self.services.groups

    @property
    def transactions(self) -> Transactions:
        return self.services.transactions
