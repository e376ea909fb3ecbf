"""Which partition of which subscription a queue serves."""

from dataclasses import dataclass, field

from millpond.catalog.subscriptions import StateKey, StoredSubscription
from millpond.model.ids import TopicPartition


@dataclass(slots=True)
class SubscribedPartition:
    """Shared by the parts of a `PartitionQueue`, which replaces `subscription` when it is altered."""

    subscription: StoredSubscription
    state_key: StateKey
    topic: str
    topic_partition: TopicPartition = field(init=False)

    def __post_init__(self) -> None:
        self.topic_partition = TopicPartition(self.subscription.topic_id, self.state_key.partition)
