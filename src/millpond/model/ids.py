"""The names of things. An id is what tables and object keys hold; a topic's name is only for people."""

import os
import re
import uuid
from typing import NamedTuple, NewType

from millpond.model.errors import InvalidTopicName

TopicId = NewType("TopicId", bytes)
"""Sixteen random bytes: what Kafka calls a topic id."""

Session = NewType("Session", str)
"""One life of one writing process. Never reused, so a key that carries it belongs to one writer for ever."""

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class TopicPartition(NamedTuple):
    """Names one partition everywhere in the engine; sorts in the catalog's lock order."""

    topic_id: TopicId
    partition: int


def new_topic_id() -> TopicId:
    return TopicId(uuid.uuid4().bytes)


def new_session() -> Session:
    return Session(os.urandom(8).hex())


def check_topic_name(name: str) -> str:
    """Kafka's rule for legal names. Names never reach a path, but `..` is refused all the same."""
    if TOPIC_NAME.fullmatch(name) is None or name in (".", ".."):
        raise InvalidTopicName(name=name)
    return name
