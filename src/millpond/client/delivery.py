"""What a subscriber is given: a delivery, what is known of its message, and the answer to it."""

import asyncio
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final

from millpond.client import arguments
from millpond.stubs import queue_pb2 as pb

if TYPE_CHECKING:
    from millpond.client.link import Link

_WAITING: Final = threading.Lock()


class Outcome(Enum):
    """What became of an answer. Only `OK` is certain; after any other the message may come again, to anybody."""

    OK = "ok"
    """Durable."""
    STALE = "stale"
    """Too late: answered before, delivered again since, or given out by a broker that no longer owns the partition."""
    UNKNOWN = "unknown"
    """No such delivery."""
    NOT_OWNER = "not_owner"
    """The partition moved to another broker before the answer was durable."""
    LOST = "lost"
    """The connection broke before the broker said what became of it."""

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
    """An answer on its way. `await` it on the event loop, or ask for its `result` anywhere else; or do neither, and
    `flush` the subscriber from time to time. It never raises: a refused answer is an `Outcome`."""

    __slots__ = ("_event", "_waiter", "outcome")

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        """None while it is on its way."""
        self._event: threading.Event | None = None
        self._waiter: asyncio.Future[Outcome] | None = None

    def done(self) -> bool:
        return self.outcome is not None

    def result(self, timeout: float | None = None) -> Outcome:
        """Waits; TimeoutError when the time is up."""
        if self.outcome is None:
            with _WAITING:
                event = self._event = self._event or threading.Event()
            if self.outcome is None and not event.wait(arguments.patience("timeout", timeout)):
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
        """Once. Whoever has not asked yet finds it."""
        self.outcome = outcome
        if self._event is not None:
            self._event.set()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(outcome)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Everything about a delivery but its body."""

    topic: str
    partition: int
    number: int
    """Its place in the partition, counted from 1."""
    id: str
    """One for each message of the cluster."""
    key: bytes | None
    attributes: Mapping[str, bytes | None]
    """The message's headers; of those with the same name the last."""
    retry_count: int
    """How many deliveries of it have failed before this one, by the broker's count."""
    publish_time_ms: int
    age_s: float
    """Since it was published, when this was asked for."""


class Kind(IntEnum):
    ACK = 0
    NACK = 1
    EXTEND = 2


ACK: Final = Kind.ACK
NACK: Final = Kind.NACK
EXTEND: Final = Kind.EXTEND
"""By these names: Python 3.11 takes ten times as long to find a member in its class."""


class BaseDelivery:
    """A message that was given to this subscriber, to be answered. `value` is None if the message has none, or if it is
    large and was left out: `data` knows."""

    __slots__ = (
        *("_answer", "_raw", "ack_id", "deadline", "epoch"),
        *("is_live", "key", "link", "number", "partition", "size", "value"),
    )

    def __init__(self, link: "Link", partition: int, epoch: int, raw: pb.Delivery, deadline: float) -> None:
        self.link = link
        self._raw = raw
        self._answer: Acknowledgement | None = None
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
        """When the broker has certainly given it up."""
        self.is_live = True
        """Whether it waits to be taken, and is still worth it."""

    @property
    def metadata(self) -> Metadata:
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
        return self._answer is not None

    def ack(self) -> Acknowledgement:
        """It has been dealt with. The first answer counts; later ones return it."""
        if self._answer is None:
            self._answer = self.link.answer(ACK, self)
        return self._answer

    def nack(self, delay: float | None = None) -> Acknowledgement:
        """It has not been dealt with: it will come again, to anybody, after `delay` seconds, or after the
        subscription's backoff. Later messages of its key wait for it."""
        arguments.optional(arguments.real, "delay", delay)
        if self._answer is None:
            self._answer = self.link.answer(NACK, self, delay)
        return self._answer

    def take_as_acked(self, acknowledgement: Acknowledgement) -> None:
        """It was acknowledged in a transaction."""
        self._answer = acknowledgement

    def extend(self, seconds: float) -> Acknowledgement:
        """Dealing with it takes longer: it is not given to anybody else for so long from now on."""
        duration_s = arguments.real("seconds", seconds)
        return self.link.answer(EXTEND, self, duration_s)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.link.topic}/{self.partition}/{self.number}>"


class AsyncDelivery(BaseDelivery):
    __slots__ = ()

    async def data(self) -> bytes | None:
        """The body, wherever it is: in the message, in the log if it was too large to be delivered, or in the object
        store if the message refers to it."""
        return await self.link.body_of(self, self._raw)
