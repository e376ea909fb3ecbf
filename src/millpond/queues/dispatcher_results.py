"""Plain values that a dispatcher returns: results of acknowledgements, deliveries, and changes to store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from millpond.queues.dispatcher_state import TrackedMessage
from millpond.queues.settled_offsets import SettledChange


class AckResult(StrEnum):
    """The result of an ack, a nack or an extend."""

    OK = "ok"
    STALE = "stale"
    """Already settled, redelivered since, or delivered by an earlier owner."""
    UNKNOWN = "unknown"
    """Never delivered."""
    NOT_OWNER = "not_owner"
    """Another broker owns the partition now."""


OK: Final = AckResult.OK
"""An alias for hot paths: Python 3.11 is slow to look up an enum member in its class."""


class QueueDelivery(NamedTuple):
    offset: int
    consumer: str
    attempts: int
    """Number of earlier deliveries that failed."""
    token: int


class Revoked(NamedTuple):
    """A delivery that the consumer must discard, because an earlier one of the same key failed."""

    consumer: str
    offset: int
    token: int


class KeyStatus(NamedTuple):
    """Why a key is not delivered: its first message, how many messages wait, the reason, the consumer that holds or
    owns the key, and until when it waits."""

    key: int
    offset: int
    waiting: int
    why: str
    consumer: str
    until: int


class FailingMessage(NamedTuple):
    """A message that has failed and is not settled: what it waits for (one of: ready, leased, delayed, blocked,
    settling), and until when (0 if it does not wait for a time)."""

    offset: int
    attempts: int
    why: str
    until: int
    reasons: tuple[str, ...]


class Retry(NamedTuple):
    attempts: int
    not_before: int
    reasons: tuple[str, ...] = ()
    """Why its last deliveries failed, the oldest first."""


class Dead(NamedTuple):
    offset: int
    attempts: int
    dropped: bool
    reasons: tuple[str, ...] = ()
    """As in `Retry`."""


@dataclass(frozen=True, slots=True)
class StateChanges:
    """What is to be stored. All values are absolute, so storing them twice does no harm."""

    settled: SettledChange
    retries: Mapping[int, Retry]
    forgotten: Sequence[int]
    """Offsets whose retry is to be removed: settled now, or released by an operator."""
    dead: Sequence[Dead]
    messages: Sequence[TrackedMessage]
