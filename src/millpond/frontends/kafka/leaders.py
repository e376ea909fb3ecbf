"""The leaders of partitions, for responses to clients."""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.internal_topics import CONSUMER_OFFSETS_TOPIC
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.service import Leader


class Leaders:
    """Valid for one request. A partition has one owner, which is its leader and its only replica: the store keeps the
    copies."""

    def __init__(self, call: KafkaCall) -> None:
        self._log = call.log
        self._owners = call.services.owners
        self._self = call.services.node.id
        self._reachable = {node.id for node in call.nodes()}

    def of(self, topic_partition: TopicPartition) -> Leader | None:
        """None if there is no leader that clients can reach. For partitions that this broker serves, its own state is
        newer than what it has read from the catalog."""
        try:
            return Leader(self._self, self._log.partition(topic_partition).epoch)
        except MillpondError:
            found = self._owners.leader(topic_partition)
        is_known = found is not None and found.node_id != self._self and found.node_id in self._reachable
        return found if is_known else None

    def of_topic(self, topic: Topic, number: int) -> Leader | None:
        """Also for the internal topic."""
        if topic is not CONSUMER_OFFSETS_TOPIC:
            return self.of(TopicPartition(topic.id, number))
        found = self._owners.shard_leader(number)
        return found if found is not None and found.node_id in self._reachable else None
