"""The topics that groups can subscribe to, as values that do not change while a group works with them."""

from collections.abc import Iterable

from millpond.groups.consumer.messages import SubscribableTopic
from millpond.model.ids import TopicId
from millpond.model.topics import Topic
from millpond.topology import TopicRegistry


class SubscribableTopics:
    """The topics at one time. See `Topics` in `consumer/messages.py`."""

    def __init__(self, topics: Iterable[Topic]) -> None:
        found = [SubscribableTopic(topic.id, topic.name, topic.partitions) for topic in topics]
        self._by_name = {topic.name: topic for topic in found}
        self._by_id = {topic.topic_id: topic for topic in found}

    def find(self, name: str) -> SubscribableTopic | None:
        return self._by_name.get(name)

    def with_id(self, topic_id: TopicId) -> SubscribableTopic | None:
        return self._by_id.get(topic_id)

    def names(self) -> Iterable[str]:
        return self._by_name.keys()


class CurrentTopics:
    """The topics that this broker knows now. They are copied when a group needs them and they have changed."""

    def __init__(self, registry: TopicRegistry) -> None:
        self._registry = registry
        self._copied_at = registry.changes
        self._topics = SubscribableTopics(registry.all())

    def get(self) -> SubscribableTopics:
        """The same object as before, if nothing has changed."""
        if self._registry.changes != self._copied_at:
            self._copied_at = self._registry.changes
            self._topics = SubscribableTopics(self._registry.all())
        return self._topics
