"""The messages that a client sends and receives."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from millpond.client import arguments
from millpond.client.reprs import bytes_repr
from millpond.records import NO_TIMESTAMP, Header, Record

MessageHeaders = Mapping[str, bytes | None] | Iterable[Header]
"""By name, or (name, value) pairs if a name occurs more than once."""

NO_HEADERS: Final[tuple[Header, ...]] = ()
_WAITING: Final = threading.Lock()

ReadFrom = int | Mapping[int, int]
"""A position: the number of the message to read next, or one for each partition."""
NextPosition = int | dict[int, int]
"""The same, as a consumer returns it."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was read. Its number is its position in its partition, counted from 1; its offset is the same
    position as Kafka counts, from 0."""

    number: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = NO_TIMESTAMP
    partition: int = 0
    topic: str = ""

    @property
    def offset(self) -> int:
        """Its position in the partition as Kafka counts, from 0."""
        return self.number - 1

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, partition={self.partition}, number={self.number}, "
            f"key={bytes_repr(self.key)}, value={bytes_repr(self.value)}, headers={self.headers!r:.200}, "
            f"timestamp_ms={self.timestamp_ms})"
        )


class Placed(NamedTuple):
    """Where a message is stored: its partition, and its number there, which counts from 1."""

    partition: int
    number: int

    @property
    def offset(self) -> int:
        """Its position in the partition as Kafka counts, from 0."""
        return self.number - 1


class Sent:
    """A message in flight, for code without an event loop: `result` waits until it is durable.

    It is a minimal future, since there is one for each message: only waiting has a cost, setting the result
    has none.
    """

    __slots__ = ("_error", "_event", "_placed")

    def __init__(self) -> None:
        self._placed: Placed | None = None
        self._error: BaseException | None = None
        self._event: threading.Event | None = None

    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._placed is not None or self._error is not None

    def result(self, timeout: float | None = None) -> Placed:
        """The partition and number of the message. Raises the error that refused it, or TimeoutError when the
        time is up; the message may then still be stored."""
        if not self.done():
            with _WAITING:
                event = self._event = self._event or threading.Event()
            if not self.done() and not event.wait(arguments.optional_seconds("timeout", timeout)):
                raise TimeoutError
        if self._error is not None:
            raise self._error
        assert self._placed is not None, "it is done"
        return self._placed

    def set_result(self, placed: Placed) -> None:
        """Of the library itself."""
        self._placed = placed
        if self._event is not None:
            self._event.set()

    def set_exception(self, error: BaseException) -> None:
        """Of the library itself."""
        self._error = error
        if self._event is not None:
            self._event.set()


class Polled(NamedTuple):
    """The messages that a poll found, and the position of the next poll, by topic if the consumer has a list of them.
    `read_from` can be passed to a new consumer as it is."""

    messages: list[Message]
    read_from: NextPosition | dict[str, NextPosition]


def message_of(record: Record, topic: str, partition: int) -> Message:
    return Message(
        record.offset + 1, record.value, record.key, record.headers, record.timestamp, partition, topic
    )


def record_of(
    value: bytes | None, key: bytes | None, headers: MessageHeaders | None, timestamp_ms: int | None
) -> Record:
    """Checked here, at the call: an invalid record in a batch would fail the other messages of the batch."""
    return Record(
        arguments.content("value", value),
        arguments.content("key", key),
        () if headers is None or headers is NO_HEADERS else arguments.headers("headers", headers),
        NO_TIMESTAMP if timestamp_ms is None else arguments.timestamp("timestamp_ms", timestamp_ms),
    )


def records_of(values: Iterable[bytes | None]) -> Iterable[Record]:
    """One record for each value. A list or tuple is checked immediately; other iterables may be larger than
    memory."""
    checked = arguments.values("values", values)
    records = (Record(arguments.content("value", value)) for value in checked)
    return list(records) if isinstance(values, list | tuple) else records
