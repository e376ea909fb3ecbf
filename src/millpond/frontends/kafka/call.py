"""What a handler is given beside the request: who asks, in which version, and what it may use to answer."""

from dataclasses import dataclass
from typing import NamedTuple

from millpond.frontends.kafka.limits import KafkaLimits
from millpond.groups import GroupLimits, Groups
from millpond.log import Log, TransactionLimits, Transactions
from millpond.model.clock import Clock
from millpond.model.ids import TopicId, TopicPartition


class Node(NamedTuple):
    """A broker as clients reach it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Services:
    """The parts below this face."""

    log: Log
    groups: Groups
    transactions: Transactions
    clock: Clock
    node: Node
    listener: str
    cluster_id: str
    auto_create_topics: bool
    default_partitions: int
    limits: KafkaLimits
    group_limits: GroupLimits
    transaction_limits: TransactionLimits


class Call(NamedTuple):
    """Made for every request, so it is a tuple: those are made in a third of the time."""

    services: Services
    version: int
    client_id: str
    client_host: str

    def where(self, name: str, topic_id: bytes, number: int, *, by_id: bool) -> TopicPartition:
        """A partition as the request names it: newer versions give the topic's id, older ones its name."""
        topics = self.services.log.topics
        return topics.partition(topics.with_id(TopicId(topic_id)).name if by_id else name, number)

    @property
    def log(self) -> Log:
        return self.services.log

    @property
    def groups(self) -> Groups:
        return self.services.groups

    @property
    def transactions(self) -> Transactions:
        return self.services.transactions
