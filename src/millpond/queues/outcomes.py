"""What a dispatcher says: answers to consumers, deliveries, and what is to be stored. Plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from millpond.queues.settled import SettledChange
from millpond.queues.tracked import Message


class Answer(StrEnum):
    """What an acknowledgement, a refusal or an extension came to."""

    OK = "ok"
    STALE = "stale"
    """Settled already, delivered again since, or of an earlier owner."""
    UNKNOWN = "unknown"
    """Never delivered."""
    NOT_OWNER = "not_owner"
    """Another broker has the partition now."""


OK: Final = Answer.OK
"""By this name where it is said for every message: Python 3.11 takes long to find a member in its class."""


class Delivery(NamedTuple):
    offset: int
    consumer: str
    attempts: int
    """How many deliveries have failed before."""
    token: int


class Revoked(NamedTuple):
    """Deliveries of a key, from `offset` on, that the consumer must forget: an earlier one failed."""

    consumer: str
    offset: int
    token: int


class KeyStanding(NamedTuple):
    """Why a key does not move: its first message, how many wait, the reason, whose turn it is, and until when."""

    key: int
    offset: int
    waiting: int
    why: str
    consumer: str
    until: int


class Retry(NamedTuple):
    attempts: int
    not_before: int


class Dead(NamedTuple):
    offset: int
    attempts: int
    dropped: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be stored, all of it absolute: storing it twice is storing it once."""

    settled: SettledChange
    retries: Mapping[int, Retry]
    forgotten: Sequence[int]
    """Those of which no retry is to be kept: settled now, or let go by an operator."""
    dead: Sequence[Dead]
    messages: Sequence[Message]
