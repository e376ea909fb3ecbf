"""Deliveries: what a subscriber receives, the metadata of their messages, and their acknowledgement (an ack,
nack or extension)."""

import asyncio
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final

from millpond.client import arguments
from millpond.client.reasons import sendable
from millpond.client.reprs import bytes_repr
from millpond.stubs import queue_pb2 as pb

if TYPE_CHECKING:
    from millpond.client.link import SubscribeLink

_WAITING: Final = threading.Lock()


class Outcome(Enum):
    """The result of an acknowledgement. Only `OK` is certain; after any other, the message may be
    redelivered, to any consumer."""

    OK = "ok"
    """The acknowledgement is durable."""
    STALE = "stale"
    """Too late: the delivery was acknowledged before, was redelivered since, or came from a broker that no
    longer owns the partition."""
    UNKNOWN = "unknown"
    """The broker does not know the delivery."""
    NOT_OWNER = "not_owner"
    """The partition moved to another broker before the acknowledgement was durable."""
    LOST = "lost"
    """The connection broke before the broker reported the result."""

    @property
    def is_ok(self) -> bool:
        return self is Outcome.OK


OUTCOMES: Final[Mapping[int, Outcome]] = {
    pb.ANSWER_OK: Outcome.OK,
    pb.ANSWER_STALE: Outcome.STALE,
    pb.ANSWER_UNKNOWN: Outcome.UNKNOWN,
    pb.ANSWER_NOT_OWNER: Outcome.NOT_OWNER,
}


class Acknowledgement:
    """An acknowledgement in flight. `await` it on the event loop, or call its `result` anywhere else; or do neither,
    and `flush` the subscriber from time to time. It never raises: the result of a refused one is an `Outcome`."""

    __slots__ = ("_event", "_waiter", "outcome")

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        """None while it is in flight."""
        self._event: threading.Event | None = None
        self._waiter: asyncio.Future[Outcome] | None = None

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.outcome is not None

    def result(self, timeout: float | None = None) -> Outcome:
        """Waits for the outcome. Raises TimeoutError when the time is up."""
        if self.outcome is None:
            with _WAITING:
                event = self._event = self._event or threading.Event()
            if self.outcome is None and not event.wait(arguments.optional_seconds("timeout", timeout)):
                raise TimeoutError
        assert self.outcome is not None, "it is done"
        return self.outcome

    def __await__(self) -> Generator[Any, None, Outcome]:
        if self.outcome is None:
            if self._waiter is None:
                self._waiter = asyncio.get_running_loop().create_future()
            return (yield from asyncio.shield(self._waiter).__await__())
        return self.outcome

    def settle(self, outcome: Outcome) -> None:
        """Set the outcome, once. Later callers find it."""
        self.outcome = outcome
        if self._event is not None:
            self._event.set()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(outcome)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Everything about a delivery except its body."""

    topic: str
    partition: int
    number: int
    """Its position in the partition, counted from 1."""
    id: str
    """Unique among the messages of the cluster."""
    key: bytes | None
    attributes: Mapping[str, bytes | None]
    """The message's headers; if several have the same name, the last one."""
    retry_count: int
    """How many earlier deliveries of the message have failed, according to the broker."""
    publish_time_ms: int
    age_s: float
    """The time since it was published, when the metadata was read."""

    @property
    def offset(self) -> int:
        """Its position in the partition as Kafka counts, from 0."""
        return self.number - 1


class AckAction(IntEnum):
    ACK = 0
    NACK = 1
    EXTEND = 2


ACK: Final = AckAction.ACK
NACK: Final = AckAction.NACK
EXTEND: Final = AckAction.EXTEND
"""Module constants, because Python 3.11 takes ten times as long to look up an enum member in its class."""


class BaseDelivery:
    """What deliveries with and without an event loop share."""

    __slots__ = (
        *("_acknowledgement", "_raw", "ack_id", "deadline", "epoch"),
        *("is_live", "key", "link", "number", "partition", "size", "value"),
    )

    def __init__(
        self, link: "SubscribeLink", partition: int, epoch: int, raw: pb.Delivery, deadline: float
    ) -> None:
        self.link = link
        self._raw = raw
        self._acknowledgement: Acknowledgement | None = None
        self.partition = partition
        self.epoch = epoch
        self.ack_id = raw.ack_id
        self.number = raw.number
        key, value = raw.key, raw.value
        self.size = len(key) + len(value)
        for header in raw.headers:
            self.size += len(header.name) + len(header.value)
        self.key = key or (key if raw.HasField("key") else None)
        self.value = value or (value if raw.HasField("value") else None)
        self.deadline = deadline
        """When the broker has certainly stopped waiting for its acknowledgement."""
        self.is_live = True
        """Whether it is still valid and waits to be taken."""

    @property
    def topic(self) -> str:
        """The topic that the message was published to."""
        return self.link.topic

    @property
    def offset(self) -> int:
        """Its position in the partition as Kafka counts, from 0."""
        return self.number - 1

    @property
    def metadata(self) -> Metadata:
        """Everything about the delivery except its body."""
        topic, raw = self.link.topic, self._raw
        return Metadata(
            topic,
            self.partition,
            self.number,
            f"{topic}/{self.partition}/{self.number}",
            self.key,
            {header.name: header.value if header.HasField("value") else None for header in raw.headers},
            raw.retry_count,
            raw.timestamp_ms,
            max(0, self.link.now_ms() - raw.timestamp_ms) / 1000,
        )

    @property
    def is_answered(self) -> bool:
        """Whether `ack` or `nack` was called."""
        return self._acknowledgement is not None

    def ack(self) -> Acknowledgement:
        """The message has been processed. The first ack or nack counts; later calls return its `Acknowledgement`."""
        if self._acknowledgement is None:
            self._acknowledgement = self.link.acknowledge(ACK, self)
        return self._acknowledgement

    def nack(self, delay: float | None = None, *, reason: str | None = None) -> Acknowledgement:
        """The message has not been processed: it is redelivered, to any consumer, after `delay` seconds, or
        after the subscription's backoff. Later messages of its key wait for it. The broker keeps the last reasons
        of a message, in one line of 500 bytes each; its dead letter has them in its headers."""
        arguments.optional(arguments.real, "delay", delay)
        arguments.optional(arguments.any_text, "reason", reason)
        if self._acknowledgement is None:
            self._acknowledgement = self.link.acknowledge(NACK, self, delay, sendable(reason or ""))
        return self._acknowledgement

    def take_as_acked(self, acknowledgement: Acknowledgement) -> None:
        """Of the library itself: it was acknowledged in a transaction."""
        self._acknowledgement = acknowledgement

    def extend(self, seconds: float) -> Acknowledgement:
        """Processing takes longer: the message is not redelivered for this many seconds from now."""
        duration_s = arguments.real("seconds", seconds)
        return self.link.acknowledge(EXTEND, self, duration_s)

    def __repr__(self) -> str:
        state = "answered" if self.is_answered else "not answered"
        return (
            f"<{type(self).__name__} topic={self.topic!r} partition={self.partition} number={self.number} "
            f"key={bytes_repr(self.key)} value={bytes_repr(self.value)} retries={self._raw.retry_count} {state}>"
        )


class AsyncDelivery(BaseDelivery):
    """A message that was delivered to this subscriber, to be acknowledged. `value` is None if the message has
    none, or if it is large and was left out: `data` returns it."""

    __slots__ = ()

    async def data(self) -> bytes | None:
        """The body. It is fetched from the log if it was too large to be delivered, or from the object store
        if the message refers to it."""
        return await self.link.body_of(self, self._raw)
