"""The topics that a sink writes to. Each task looks up each topic once."""

from collections.abc import Mapping, Sequence
from typing import Final

from millpond.catalog import published_settings, topics, writers
from millpond.catalog.database import Database
from millpond.model.clock import SystemClock
from millpond.model.errors import TopicExists, UnknownTopic
from millpond.model.ids import check_topic_name
from millpond.model.topics import Topic
from millpond.spark.sink.options import TopicCreation

BROKER: Final = "broker"
"""The kind of writer that owns partitions."""


class TopicNumbers:
    """Numbers topics in the order in which they are first used."""

    def __init__(self, database: Database, creation: TopicCreation) -> None:
        self._database = database
        self._creation = creation
        self._numbers: dict[str, int] = {}
        self._known: list[Topic] = []

    @property
    def known(self) -> Sequence[Topic]:
        return self._known

    def number_of(self, name: str) -> int:
        """Raises `UnknownTopic` unless the topic exists or may be created."""
        if name not in self._numbers:
            self._known.append(find_or_create(self._database, name, self._creation))
            self._numbers[name] = len(self._known) - 1
        return self._numbers[name]


def find_or_create(database: Database, name: str, creation: TopicCreation) -> Topic:
    """Find the topic, or create it according to the brokers' settings, which are in the catalog. Options take
    precedence."""
    check_topic_name(name)
    try:
        with database.read() as tx:
            return topics.find(tx, name)
    except UnknownTopic:
        partitions = _created_partitions(database, name, creation)
    try:
        return create(database, name, partitions, {}, now_ms=SystemClock().now_ms())
    except TopicExists:  # another task created it first
        with database.read() as tx:
            return topics.find(tx, name)


def _created_partitions(database: Database, name: str, creation: TopicCreation) -> int:
    with database.read() as tx:
        settings = published_settings.read(tx)
    if creation.creates is False:
        raise UnknownTopic(f"There is no topic {name!r}, and option createTopics is false.", topic=name)
    if creation.creates is None and not settings.auto_create_topics:
        reason = "the brokers' setting auto_create_topics is false: create it first, or set option createTopics to true"
        raise UnknownTopic(f"There is no topic {name!r}, and {reason}.", topic=name)
    return creation.partitions or settings.default_partitions


def create(
    database: Database, name: str, partitions: int, config: Mapping[str, str], *, now_ms: int
) -> Topic:
    """Create a topic that a running broker serves immediately. If no broker runs, the next one that starts
    will own it."""
    with database.write() as tx:
        brokers = [session for session, kind, _ in writers.living(tx) if kind == BROKER]
        return topics.create(tx, name, partitions, config, now_ms=now_ms, owner=min(brokers, default=None))
