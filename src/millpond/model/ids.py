"""Identifiers. Tables and object keys contain ids; a topic's name is only for users."""

import os
import re
import uuid
from typing import Final, NamedTuple, NewType

from millpond.model.errors import InvalidTopicName

TopicId = NewType("TopicId", bytes)
"""Sixteen random bytes: Kafka's topic id."""

Session = NewType("Session", str)
"""Identifies one run of one writing process. Never reused, so a key that contains it always belongs to one
writer."""

AUDIT_TOPIC: Final = "__audit"
"""With `audit_topic=true` only brokers write it."""
CONSUMER_OFFSETS: Final = "__consumer_offsets"
RESERVED_TOPICS: Final = frozenset({CONSUMER_OFFSETS, "__transaction_state", "__share_group_state"})
"""Kafka's internal topics. Clients treat these names in their own way, so no topic can be created under them."""
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class TopicPartition(NamedTuple):
    """Identifies one partition everywhere in the engine. Sorts in the catalog's lock order."""

    topic_id: TopicId
    partition: int


def new_topic_id() -> TopicId:
    return TopicId(uuid.uuid4().bytes)


def new_session() -> Session:
    return Session(os.urandom(8).hex())


def check_topic_name(name: str) -> str:
    """Kafka's rule for legal names. Names never become part of a path, but `..` is refused anyway."""
    if TOPIC_NAME.fullmatch(name) is None or name in (".", ".."):
        raise InvalidTopicName(name=name)
    return name


def check_new_topic_name(name: str) -> str:
    """The rule for names of new topics."""
    if name in RESERVED_TOPICS:
        message = f"Topic name {name!r} is reserved: it is the name of an internal topic of Kafka."
        raise InvalidTopicName(message, name=name)
    return check_topic_name(name)
