"""What a client sends and gets."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from millpond.model.errors import InvalidRecord
from millpond.records import NO_TIMESTAMP, Header, Record

TIMESTAMP_MS_MAX: Final = 2**62

Headers = Mapping[str, bytes | None] | Iterable[Header]
"""By name, or (name, value) pairs where a name comes more than once."""

_WAITING: Final = threading.Lock()

ReadFrom = int | Mapping[int, int]
"""A position: the number of the message to read next, or one for each partition."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was read. Its number is its place in its partition, counted from 1."""

    number: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = NO_TIMESTAMP
    partition: int = 0


class Placed(NamedTuple):
    """Where a message went."""

    partition: int
    number: int


class Sent:
    """A message on its way, for code without an event loop: `result` waits until it is durable.

    As little as a future can be, since there is one for each message: waiting costs something, being told does not.
    """

    __slots__ = ("_error", "_event", "_placed")

    def __init__(self) -> None:
        self._placed: Placed | None = None
        self._error: BaseException | None = None
        self._event: threading.Event | None = None

    def done(self) -> bool:
        return self._placed is not None or self._error is not None

    def result(self, timeout: float | None = None) -> Placed:
        """Where the message went. Raises what it was refused with, or TimeoutError when the time is up; it may then
        still be stored."""
        if not self.done():
            with _WAITING:
                event = self._event = self._event or threading.Event()
            if not self.done() and not event.wait(timeout):
                raise TimeoutError
        if self._error is not None:
            raise self._error
        assert self._placed is not None, "it is done"
        return self._placed

    def set_result(self, placed: Placed) -> None:
        self._placed = placed
        if self._event is not None:
            self._event.set()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        if self._event is not None:
            self._event.set()


class Polled(NamedTuple):
    """What a poll found, and where the next one reads from. `read_from` can be given to a new consumer as it is."""

    messages: list[Message]
    read_from: int | dict[int, int]


def message_of(record: Record, partition: int) -> Message:
    return Message(record.offset + 1, record.value, record.key, record.headers, record.timestamp, partition)


def record_of(value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int | None) -> Record:
    """Checked here, where the mistake is made: what is in a batch already would fail its neighbours."""
    return Record(
        _bytes("value", value),
        _bytes("key", key),
        _headers(headers) if headers else (),
        NO_TIMESTAMP if timestamp_ms is None else _timestamp(timestamp_ms),
    )


def _bytes(name: str, given: object) -> bytes | None:
    """Refuses what is not bytes: text has an encoding, and only the application knows which."""
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"{name} must be bytes, not {type(given).__name__}: encode it, e.g. text.encode()")


def _headers(headers: Headers) -> tuple[Header, ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked = tuple((name, _bytes(f"header {name!r}", value)) for name, value in pairs)
    for name, _ in checked:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecord(reason=f"header name {name!r} is not valid Unicode") from error
    return checked


def _timestamp(timestamp_ms: int) -> int:
    if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise InvalidRecord(reason=f"timestamp {timestamp_ms}")
    return timestamp_ms
