"""Quotas in Kafka's model: a rate of bytes for a user, a client id, or a user with a client id.

`security/quotas.py` limits clients by them. Each broker counts by itself, as in Kafka.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from millpond.model.errors import InvalidRequest

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
QUOTA_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
EVERY_NAME: Final = ""
"""In place of a name: every user, or every client id, that has no quota of its own. No name is empty."""
NAME_CHARACTERS_MAX: Final = 255


class QuotaEntity(NamedTuple):
    """Whom a quota limits. None is not part of the entity: `QuotaEntity("alice", None)` is alice with all her clients
    together, and `QuotaEntity("alice", EVERY_NAME)` each client id of alice by itself."""

    user: str | None
    client_id: str | None

    def as_text(self) -> str:
        """The form in which it is stored."""
        return json.dumps(list(self))

    @classmethod
    def from_text(cls, text: str) -> "QuotaEntity":
        return cls(*json.loads(text))

    def __str__(self) -> str:
        parts = (("user", self.user), ("client id", self.client_id))
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


def check_quota(entity: QuotaEntity, changes: QuotaChanges) -> None:
    """Raises `InvalidRequest`."""
    if entity == QuotaEntity(None, None):
        raise InvalidRequest(reason="a quota needs a user, a client id, or both")
    if any(name is not None and len(name) > NAME_CHARACTERS_MAX for name in entity):
        raise InvalidRequest(reason=f"a name in a quota has at most {NAME_CHARACTERS_MAX} characters")
    for key, value in changes.items():
        if key not in QUOTA_KEYS:
            raise InvalidRequest(reason=f"{key!r} is not a supported quota; use {' or '.join(QUOTA_KEYS)}")
        if value is not None and not (math.isfinite(value) and value >= 1 and value == int(value)):
            raise InvalidRequest(reason=f"{key} is {value}, and must be a whole number of bytes above 0")
