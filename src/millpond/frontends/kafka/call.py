"""The context of a request that a handler receives: client, version, and the services it may use."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from millpond.frontends.kafka.authentication import ClientAuthenticator, ConnectionAuthentication
from millpond.frontends.kafka.internal_topics import CONSUMER_OFFSETS_TOPIC
from millpond.frontends.kafka.limits import KafkaLimits
from millpond.frontends.kafka.rights import Right
from millpond.frontends.kafka.share_sessions import ShareSessions
from millpond.groups import GroupLimits, Groups
from millpond.log import Log, TransactionLimits, Transactions
from millpond.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from millpond.model.addresses import split_address
from millpond.model.clock import Clock
from millpond.model.errors import UnknownPartition
from millpond.model.ids import CONSUMER_OFFSETS, TopicId, TopicPartition
from millpond.model.topics import Topic
from millpond.protocol import NO_UUID
from millpond.queues import ShareConsumers
from millpond.security import OPEN_ACCESS, Access, SecurityView
from millpond.service import (
    AuditedTopicChanges,
    ClusterAdministration,
    ConfigAdministration,
    Owners,
    SecurityAdministration,
    ShareGroups,
)
from millpond.topology import BrokerConfigs, addresses_of

NOT_IN_CATALOG: Final = frozenset({NO_UUID, CONSUMER_OFFSETS_TOPIC.id})


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
    share_consumers: ShareConsumers
    share_sessions: ShareSessions
    clock: Clock
    node: Node
    owners: Owners
    cluster: ClusterAdministration
    topic_changes: AuditedTopicChanges
    security: SecurityView
    authenticator: ClientAuthenticator
    max_reauth_ms: int
    security_administration: SecurityAdministration
    listener: str
    cluster_id: str
    config_administration: ConfigAdministration
    share_groups: ShareGroups
    limits: KafkaLimits
    group_limits: GroupLimits
    transaction_limits: TransactionLimits

    @property
    def broker_configs(self) -> BrokerConfigs:
        """The dynamic configs of this broker."""
        return self.config_administration.broker


class KafkaCall(NamedTuple):
    """The context of one request. A tuple, because one is created per request and tuples take a third of the
    time to create."""

    services: Services
    version: int
    client_id: str
    client_host: str
    access: Access
    authentication: ConnectionAuthentication

    def allows(self, right: Right, name: str = CLUSTER_NAME) -> bool:
        return self.access.allows(right.operation, right.resource, name)

    def require(self, right: Right, name: str = CLUSTER_NAME) -> None:
        """Raises `NotAuthorized`, whether or not the resource exists."""
        self.access.require(right.operation, right.resource, name)

    def require_topic(
        self, right: Right, name: str, topic_id: bytes = NO_UUID, *, by_id: bool = False
    ) -> None:
        """`require` for a topic that a request names or, in newer versions, gives by its id. An unknown id is not
        refused here: ids cannot be guessed, so a client may learn that one is unknown."""
        if self.access is OPEN_ACCESS:
            return
        if by_id:
            topics = self.services.log.topics
            if not topics.knows_id(TopicId(topic_id)):
                return
            name = topics.with_id(TopicId(topic_id)).name
        self.require(right, name)

    def allows_somewhere(self, right: Right) -> bool:
        """Whether the client may have this right on some resource."""
        return self.access.allows_somewhere(right.operation, right.resource)

    def operations(self, resource: ResourceType, name: str) -> int:
        """The operations that the client may perform on a resource, as Kafka's bit field."""
        return self.access.operations(resource, name)

    def cluster_operations(self) -> int:
        """Like `operations`; no bits for a client that may not describe the cluster."""
        found = self.access.operations(ResourceType.CLUSTER)
        return found if found >> AclOperation.DESCRIBE & 1 else 0

    def find_topic(self, name: str, topic_id: bytes, *, by_id: bool) -> Topic:
        """Resolve a topic from a request: newer versions send its id, older ones its name."""
        topics = self.services.log.topics
        return topics.with_id(TopicId(topic_id)) if by_id else topics.named(name)

    def topic_partition(self, name: str, topic_id: bytes, number: int, *, by_id: bool) -> TopicPartition:
        """The same for a partition."""
        topic = self.find_topic(name, topic_id, by_id=by_id)
        if not 0 <= number < topic.partitions:
            raise UnknownPartition(topic=topic.name, partition=number)
        return TopicPartition(topic.id, number)

    async def ensure_known(
        self, right: Right | None, names: Iterable[str | None] = (), ids: Iterable[bytes] = ()
    ) -> None:
        """Await this before looking up topics: another broker may just have created the unknown ones. Reads
        the catalog at most once, however many topics are unknown, and not for names without the right. Without
        a right to check, the client may know of every topic."""
        topics = self.services.log.topics
        if any(
            name is not None
            and not topics.knows(name)
            and name != CONSUMER_OFFSETS
            and (right is None or self.allows(right, name))
            for name in names
        ) or not all(topic_id in NOT_IN_CATALOG or topics.knows_id(TopicId(topic_id)) for topic_id in ids):
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
    def share_groups(self) -> ShareGroups:
        return self.services.share_groups

    @property
    def transactions(self) -> Transactions:
        return self.services.transactions
