"""The topic `__consumer_offsets`, which exists only for Kafka clients: it has 50 partitions, no records, and cannot be
written or changed.

Kafka keeps committed offsets in it, so tools expect it in Metadata, and older monitoring tools read it. Here the
catalog keeps the offsets. The leader of a partition is the broker that owns the coordinator shard of the same number.
"""

import uuid
from typing import Final

from millpond.model.errors import InvalidTopicName
from millpond.model.ids import CONSUMER_OFFSETS, TopicId
from millpond.model.topics import Topic
from millpond.topology import TopicRegistry

CONSUMER_OFFSETS_TOPIC: Final = Topic(
    id=TopicId(uuid.UUID("a8f0c1d2-6c6f-4e67-9d5b-6f6666736574").bytes),
    name=CONSUMER_OFFSETS,
    partitions=50,
    created_at=0,
    overrides={"cleanup.policy": "compact"},
)
"""The number of partitions is Kafka's default."""


def find_internal(topics: TopicRegistry, name: str | None, topic_id: bytes | None = None) -> Topic | None:
    """The internal topic, if a request names it or has its id. A topic of this name in the catalog, which earlier
    versions could create, is an ordinary one."""
    if topic_id == CONSUMER_OFFSETS_TOPIC.id or (name == CONSUMER_OFFSETS and not topics.knows(name)):
        return CONSUMER_OFFSETS_TOPIC
    return None


def all_topics(topics: TopicRegistry) -> list[Topic]:
    """The topics for Kafka clients, sorted by name."""
    found = topics.all()
    if not topics.knows(CONSUMER_OFFSETS):
        found.append(CONSUMER_OFFSETS_TOPIC)
    return sorted(found, key=lambda topic: topic.name)


def check_not_internal(topics: TopicRegistry, name: str) -> None:
    """Raises `InvalidTopicName` for a request that would write or change the internal topic."""
    if find_internal(topics, name) is not None:
        raise InvalidTopicName(f"Topic {name!r} is internal: it is empty, and cannot be changed.", name=name)
