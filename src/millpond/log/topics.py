"""The topics this broker knows: a cache over the catalog's rows, with each one's configs worked out once."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from millpond.model.errors import UnknownPartition, UnknownTopic
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.topics import Topic, TopicConfig


class TopicRegistry:
    def __init__(self, broker_defaults: Mapping[str, str]) -> None:
        self._broker_defaults = dict(broker_defaults)
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[TopicId, Topic] = {}
        self._configs: dict[TopicId, TopicConfig] = {}

    def replace_all(self, topics: Iterable[Topic]) -> None:
        """Take the catalog's list."""
        self._by_name, self._by_id, self._configs = {}, {}, {}
        for topic in topics:
            self.put(topic)

    def put(self, topic: Topic) -> Topic:
        known = replace(topic, broker_defaults=self._broker_defaults)
        self._by_name[known.name] = known
        self._by_id[known.id] = known
        self._configs[known.id] = known.config()
        return known

    def all(self) -> list[Topic]:
        return sorted(self._by_name.values(), key=lambda topic: topic.name)

    def named(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopic(topic=name)
        return topic

    def with_id(self, topic_id: TopicId) -> Topic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopic(topic=topic_id.hex())
        return topic

    def config(self, topic_id: TopicId) -> TopicConfig:
        self.with_id(topic_id)
        return self._configs[topic_id]

    def partition(self, name: str, number: int) -> TopicPartition:
        topic = self.named(name)
        if not 0 <= number < topic.partitions:
            raise UnknownPartition(topic=name, partition=number)
        return TopicPartition(topic.id, number)
