"""The topics that a sink writes to, looked up once by each task."""

from collections.abc import Mapping, Sequence
from typing import Final

from millpond.catalog import topics, writers
from millpond.catalog.database import Database
from millpond.model.clock import SystemClock
from millpond.model.errors import TopicExists, UnknownTopic
from millpond.model.topics import Topic

BROKER: Final = "broker"
"""The kind of writer that owns partitions."""


class Topics:
    """Numbers topics in the order they are asked for. `created_partitions` is None if unknown ones are an error."""

    def __init__(self, database: Database, created_partitions: int | None) -> None:
        self._database = database
        self._created_partitions = created_partitions
        self._numbers: dict[str, int] = {}
        self._known: list[Topic] = []

    @property
    def known(self) -> Sequence[Topic]:
        return self._known

    def number_of(self, name: str) -> int:
        """Raises `UnknownTopic` unless the topic is there or may be created."""
        if name not in self._numbers:
            self._known.append(find_or_create(self._database, name, self._created_partitions))
            self._numbers[name] = len(self._known) - 1
        return self._numbers[name]


def find_or_create(database: Database, name: str, created_partitions: int | None) -> Topic:
    try:
        with database.read() as tx:
            return topics.find(tx, name)
    except UnknownTopic:
        if created_partitions is None:
            raise
    try:
        return create(database, name, created_partitions, {}, now_ms=SystemClock().now_ms())
    except TopicExists:  # another task was quicker
        with database.read() as tx:
            return topics.find(tx, name)


def create(
    database: Database, name: str, partitions: int, config: Mapping[str, str], *, now_ms: int
) -> Topic:
    """Make a topic that a running broker serves at once. Without one, the next that starts will own it."""
    with database.write() as tx:
        brokers = [session for session, kind, _ in writers.living(tx) if kind == BROKER]
        return topics.create(tx, name, partitions, config, now_ms=now_ms, owner=min(brokers, default=None))
