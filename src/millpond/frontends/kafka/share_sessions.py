"""Share sessions (KIP-932): which partitions a member fetches from this broker, without naming them in each request.

A session is of a group's member, and lives in memory. Epoch 0 opens it, or replaces the member's former one; each
request then has the next epoch, so that a lost request or response is noticed; -1 closes it. The connection that opened
a session ends it. Locks belong to the member, not to the session: replacing it keeps them. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakSet

from millpond.frontends.kafka.errors import KafkaError
from millpond.model.ids import TopicPartition
from millpond.protocol import ErrorCode
from millpond.queues import MemberName

OPENING_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 0x7FFF_FFFF
SESSIONS_MAX: Final = 2_000
"""Share sessions of a broker; Kafka's `group.share.max.share.sessions`."""
PARTITIONS_MAX: Final = 10_000
"""Partitions of a share session."""
ALL_PARTITIONS_MAX: Final = 500_000
"""Partitions of all share sessions of a broker together, which bounds their memory."""


@dataclass(slots=True)
class ShareSession:
    connection: object
    """The connection that opened it."""
    epoch: int = 1
    """The next request must have it."""
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    first: int = 0
    """How often a partition was the first to give messages. Epochs do not count that: those of fetches may all be
    even."""

    def rotated(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Some of its partitions, in an order in which each of them comes first in its turn."""
        start = self.first % max(1, len(partitions))
        self.first += 1
        return [*partitions[start:], *partitions[:start]]


class ShareSessions:
    def __init__(
        self,
        sessions_max: int = SESSIONS_MAX,
        partitions_max: int = PARTITIONS_MAX,
        all_partitions_max: int = ALL_PARTITIONS_MAX,
    ) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._all_partitions_max = all_partitions_max
        self._sessions: dict[MemberName, ShareSession] = {}
        self._of_connection: dict[object, dict[MemberName, None]] = {}
        """The members whose sessions each connection opened."""
        self._partitions = 0
        """Of all sessions."""
        self._lost: WeakSet[object] = WeakSet()
        """Lost connections: a request of theirs may still be running."""

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self,
        name: MemberName,
        epoch: int,
        added: Iterable[TopicPartition],
        forgotten: Iterable[TopicPartition],
        connection: object,
        *,
        acknowledges: bool,
    ) -> Sequence[TopicPartition]:
        """A ShareFetch. Returns the partitions to fetch: of the last request none, as it only acknowledges."""
        if epoch == FINAL_EPOCH:
            self.find(name)
            return ()
        if epoch == OPENING_EPOCH:
            session = self._open(name, connection, acknowledges=acknowledges)
        else:
            session = self._continue(name, epoch)
        partitions = dict(session.partitions)
        for each in forgotten:
            partitions.pop(each, None)
        partitions |= dict.fromkeys(added)
        if len(partitions) > self._partitions_max:
            message = f"a share session has at most {self._partitions_max} partitions"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        more = len(partitions) - len(session.partitions)
        if more > 0 and self._partitions + more > self._all_partitions_max:
            message = f"share sessions have at most {self._all_partitions_max} partitions together"
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, message)
        self._partitions += more
        session.partitions = partitions
        return list(partitions)

    def acknowledge(self, name: MemberName, epoch: int) -> None:
        """A ShareAcknowledge. It cannot open a session."""
        if epoch == OPENING_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "an acknowledgement opens no session")
        if epoch == FINAL_EPOCH:
            self.find(name)
        else:
            self._continue(name, epoch)

    def find(self, name: MemberName) -> ShareSession:
        session = self._sessions.get(name)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the member has no share session here")
        return session

    def is_current(self, name: MemberName, session: ShareSession) -> bool:
        """Whether this is the member's session: it is neither closed nor replaced."""
        return self._sessions.get(name) is session

    def close(self, name: MemberName) -> None:
        session = self._sessions.pop(name, None)
        if session is not None:
            self._partitions -= len(session.partitions)
            members = self._of_connection[session.connection]
            del members[name]
            if not members:
                del self._of_connection[session.connection]

    def close_all_of(self, connection: object) -> list[MemberName]:
        """Close the sessions that a connection opened, which is lost. Returns their members."""
        self._lost.add(connection)
        names = list(self._of_connection.get(connection, ()))
        for name in names:
            self.close(name)
        return names

    def _open(self, name: MemberName, connection: object, *, acknowledges: bool) -> ShareSession:
        if acknowledges:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a request that opens a session acknowledges nothing")
        if connection in self._lost:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the connection is lost")
        if name not in self._sessions and len(self._sessions) >= self._sessions_max:
            message = f"the broker has {self._sessions_max} share sessions"
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, message)
        self.close(name)
        session = self._sessions[name] = ShareSession(connection)
        self._of_connection.setdefault(connection, {})[name] = None
        return session

    def _continue(self, name: MemberName, epoch: int) -> ShareSession:
        session = self.find(name)
        if epoch != session.epoch:
            message = f"the epoch is {epoch} instead of {session.epoch}"
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, message)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session
