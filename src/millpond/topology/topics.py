"""The topics this broker knows: a cache over the catalog's rows, with the config of each topic computed once."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from millpond.model.errors import InvalidTopicName, TopicExists, UnknownPartition, UnknownTopic
from millpond.model.ids import TopicId, TopicPartition, check_new_topic_name
from millpond.model.topics import Topic, TopicConfig


class TopicRegistry:
    def __init__(self, broker_defaults: Mapping[str, str]) -> None:
        self.broker_defaults = dict(broker_defaults)
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[TopicId, Topic] = {}
        self._by_unified_name: dict[str, Topic] = {}
        self._configs: dict[TopicId, TopicConfig] = {}
        self.changes = 0
        """Rises with every change, so that a reader can keep what it has computed from the topics."""

    def replace_all(self, topics: Iterable[Topic]) -> None:
        """Replace all topics by the catalog's list."""
        self._by_name, self._by_id, self._by_unified_name, self._configs = {}, {}, {}, {}
        self.changes += 1
        for topic in topics:
            self.put(topic)

    def replace_broker_defaults(self, broker_defaults: Mapping[str, str]) -> None:
        """Other defaults apply to all topics from now on."""
        self.broker_defaults = dict(broker_defaults)
        self.replace_all(list(self._by_name.values()))

    def put(self, topic: Topic) -> Topic:
        known = replace(topic, broker_defaults=self.broker_defaults)
        self._by_name[known.name] = known
        self._by_id[known.id] = known
        self._by_unified_name[_unified(known.name)] = known
        self._configs[known.id] = known.config()
        self.changes += 1
        return known

    def all(self) -> list[Topic]:
        return sorted(self._by_name.values(), key=lambda topic: topic.name)

    def named(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopic(topic=name)
        return topic

    def knows(self, name: str) -> bool:
        return name in self._by_name

    def knows_id(self, topic_id: TopicId) -> bool:
        return topic_id in self._by_id

    def check_new(self, name: str) -> None:
        """Raise if a topic of this name cannot be created, as far as is known here; the catalog decides.
        Kafka refuses names that differ from another only in '.' and '_', because they would be the same name
        in its metrics."""
        if name in self._by_name:
            raise TopicExists(topic=name)
        check_new_topic_name(name)
        close = self._by_unified_name.get(_unified(name))
        if close is not None:
            message = f"Topic name {name!r} differs from {close.name!r} only in '.' and '_'."
            raise InvalidTopicName(message, name=name)

    def with_id(self, topic_id: TopicId) -> Topic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopic(topic=topic_id.hex())
        return topic

    def name_of(self, topic_id: TopicId) -> str:
        """The topic's name for a log line; its id if the topic is not known, as after it was deleted."""
        topic = self._by_id.get(topic_id)
        return topic.name if topic is not None else str(uuid.UUID(bytes=topic_id))

    def config(self, topic_id: TopicId) -> TopicConfig:
        config = self._configs.get(topic_id)
        if config is None:
            raise UnknownTopic(topic=topic_id.hex())
        return config

    def partition(self, name: str, number: int) -> TopicPartition:
        topic = self.named(name)
        if not 0 <= number < topic.partitions:
            raise UnknownPartition(topic=name, partition=number)
        return TopicPartition(topic.id, number)


def _unified(name: str) -> str:
    return name.replace(".", "_")
