"""Quotas in Kafka's model: rates for a user, a client id, a user with a client id, or an address. And one that Kafka
does not have: stored bytes of topics.

`security/quotas.py` limits clients by the rates, and each broker counts by itself, as in Kafka. `log/topic_quotas.py`
refuses appends to topics that have reached their bytes.
"""

import ipaddress
import json
import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from millpond.model.errors import InvalidRequest
from millpond.model.ids import AUDIT_TOPIC, check_topic_name

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
"""Share of the time of a broker's event loop."""
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
"""Partitions that are created or deleted in a second."""
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
CLIENT_KEYS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
"""Of users and client ids."""
ADDRESS_KEYS: Final = (CONNECTION_CREATION_RATE,)
STORED_BYTES: Final = "stored_bytes"
TOPIC_KEYS: Final = (STORED_BYTES,)
QUOTA_KEYS: Final = (*CLIENT_KEYS, *ADDRESS_KEYS, *TOPIC_KEYS)
WHOLE_NUMBERS: Final = frozenset(
    {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE, STORED_BYTES}
)
ANY_SUFFIX: Final = "*"
"""At the end of the name of a topic: all topics whose names begin with what is before it, together."""
EVERY_NAME: Final = ""
"""In place of a name: every user, client id or address that has no quota of its own. No name is empty."""
NAME_CHARACTERS_MAX: Final = 255
"""A client whose client id is longer counts as one without a client id."""
VALUE_MAX: Final = float(2**53)
"""A higher value counts as this one: tools of Kafka set the highest number there is to mean no limit. A float
has every whole number up to here."""


class QuotaEntity(NamedTuple):
    """Whom a quota limits. None is not part of the entity: `QuotaEntity("alice", None)` is alice with all her clients
    together, and `QuotaEntity("alice", EVERY_NAME)` each client id of alice by itself. An address stands alone, and so
    does a topic, or a prefix of topics such as `orders-*`."""

    user: str | None
    client_id: str | None
    ip: str | None = None
    topic: str | None = None

    def as_text(self) -> str:
        """The form in which it is stored."""
        return json.dumps(list(self))

    @classmethod
    def from_text(cls, text: str) -> "QuotaEntity":
        return cls(*json.loads(text))

    def __str__(self) -> str:
        parts = (
            *(("user", self.user), ("client id", self.client_id)),
            *(("address", self.ip), ("topic", self.topic)),
        )
        return ", ".join(
            f"every {what}" if name == EVERY_NAME else f"{what} {name!r}"
            for what, name in parts
            if name is not None
        )


class ClientQuota(NamedTuple):
    entity: QuotaEntity
    key: str
    value: float


QuotaChanges = Mapping[str, float | None]
"""New values by key; None removes the quota."""


def entities_of(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """The entities that may limit a client, the most specific first. The first one with a quota decides."""
    for user_name in (user, EVERY_NAME):
        for client_name in (client_id, EVERY_NAME, None):
            yield QuotaEntity(user_name, client_name)
    yield QuotaEntity(None, client_id)
    yield QuotaEntity(None, EVERY_NAME)


def keys_of(entity: QuotaEntity) -> tuple[str, ...]:
    """The quotas that an entity may have."""
    if entity.topic is not None:
        return TOPIC_KEYS
    return CLIENT_KEYS if entity.ip is None else ADDRESS_KEYS


def is_prefix(pattern: str) -> bool:
    """Whether the `topic` of an entity is a prefix of names."""
    return pattern.endswith(ANY_SUFFIX)


def covers(pattern: str, topic: str) -> bool:
    """Whether the `topic` of an entity is this one, or a prefix of its name."""
    if is_prefix(pattern):
        return topic.startswith(pattern.removesuffix(ANY_SUFFIX))
    return pattern == topic


def check_quota(entity: QuotaEntity, changes: QuotaChanges) -> None:
    """Raises `InvalidInput`."""
    _check_entity(entity)
    if entity.topic == AUDIT_TOPIC and any(value is not None for value in changes.values()):
        raise InvalidRequest(
            reason=f"{AUDIT_TOPIC!r} has no quota, so that no event is lost; set audit_retention"
        )
    for key, value in changes.items():
        if key not in keys_of(entity):
            choices = " or ".join(keys_of(entity))
            raise InvalidRequest(reason=f"{key!r} is not a quota of {entity}; use {choices}")
        if value is not None:
            _check_value(key, value)


def _check_entity(entity: QuotaEntity) -> None:
    if all(name is None for name in entity):
        raise InvalidRequest(reason="a quota needs a user, a client id, or both, or an address, or a topic")
    if any(name is not None and len(name) > NAME_CHARACTERS_MAX for name in entity):
        raise InvalidRequest(reason=f"a name in a quota has at most {NAME_CHARACTERS_MAX} characters")
    if entity.topic is not None:
        if entity != QuotaEntity(None, None, topic=entity.topic):
            raise InvalidRequest(reason="a quota of a topic has no user, no client id and no address")
        if entity.topic != ANY_SUFFIX:
            check_topic_name(entity.topic.removesuffix(ANY_SUFFIX))
    elif entity.ip is not None:
        if (entity.user, entity.client_id) != (None, None):
            raise InvalidRequest(reason="a quota of an address has no user and no client id")
        if entity.ip != EVERY_NAME and not _is_address(entity.ip):
            raise InvalidRequest(reason=f"{entity.ip!r} is not an IP address")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidRequest(reason=f"{key} is {value}, and must be a number above 0")
    if key in WHOLE_NUMBERS and value != int(value):
        raise InvalidRequest(reason=f"{key} is {value}, and must be a whole number above 0")
