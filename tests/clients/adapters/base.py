"""What every Kafka client can do, in the words the scenarios use. Adapters only translate: no scenario is in them.

All of it is synchronous. Numbers of Kafka's errors come back as `Refused`, whatever a library calls them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

REQUEST_BYTES_MAX = 16 * 1024 * 1024
"""Clients would refuse large messages themselves; here the broker is to decide."""
SESSION_TIMEOUT_MS = 6_000
"""The shortest that Kafka allows."""
STATIC_SESSION_TIMEOUT_MS = 45_000
"""For a member to be away and come back as a new process, on a busy machine, too."""
HEARTBEAT_MS = 300
RECONNECT_MS = 100
FETCH_WAIT_MS = 100

Header = tuple[str, bytes]
Place = tuple[str, int]
"""Topic and partition."""


def session_timeout_ms(instance_id: str | None) -> int:
    return SESSION_TIMEOUT_MS if instance_id is None else STATIC_SESSION_TIMEOUT_MS


class Message(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int


class Refused(Exception):
    """The broker refused, with one of Kafka's numbers."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(f"{code}: {message}")


class Producer(Protocol):
    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        timestamp: int | None = None,
        partition: int = 0,
    ) -> None:
        """Hand a message over; it travels with others."""

    def flush(self) -> list[int]:
        """Wait for all answers; the offsets of what was sent since the last flush, in order (-1: not told).
        `Refused` if one of them was."""

    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def send_offsets(self, offsets: Mapping[Place, int], consumer: "Consumer") -> None: ...
    def close(self) -> None: ...


class Consumer(Protocol):
    rebalances: int
    """How often this member was given partitions."""

    def poll(self, seconds: float) -> list[Message]:
        """What has come, waiting for the first at most so long."""

    def commit(self) -> None:
        """What was polled is done."""

    def committed(self, place: Place) -> int | None: ...
    def assignment(self) -> frozenset[Place]: ...
    def seek(self, place: Place, offset: int) -> None: ...
    def offset_at(self, place: Place, timestamp: int) -> int | None: ...
    def close(self) -> None:
        """A member leaves its group, unless it is static."""


class Admin(Protocol):
    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] = ...) -> None: ...
    def add_partitions(self, name: str, total: int) -> None: ...
    def delete_topic(self, name: str) -> None: ...
    def topics(self) -> Mapping[str, int]:
        """Names with their numbers of partitions."""

    def configs(self, name: str) -> Mapping[str, str]: ...
    def broker_configs(self, node_id: int) -> Mapping[str, str]: ...
    def alter(self, name: str, key: str, value: str) -> None: ...
    def delete_records(self, place: Place, before: int) -> None: ...
    def close(self) -> None: ...


class Client(Protocol):
    """One client library."""

    name: str

    def producer(
        self,
        address: str,
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        transactional_id: str | None = None,
    ) -> Producer:
        """A transactional one has begun its life already: whoever had the id before is fenced."""

    def consumer(
        self,
        address: str,
        *,
        topics: Iterable[str] = (),
        group: str | None = None,
        instance_id: str | None = None,
        places: Iterable[Place] = (),
        read_committed: bool = False,
    ) -> Consumer:
        """A member of a group that subscribes to topics, or one by itself that reads places from their start."""

    def admin(self, address: str) -> Admin: ...
