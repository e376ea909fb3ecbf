"""Requests to a consumer group, its responses, and what has to be stored. Plain values, independent of the wire
format."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from millpond.groups.consumer_protocol import CONSUMER
from millpond.model.ids import TopicId, TopicPartition

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
PAUSE_EPOCH: Final = -2
"""A static member leaves for a while: its successor of the same instance continues with its assignment."""


class ConsumerGroupPhase(StrEnum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class SubscribableTopic(NamedTuple):
    topic_id: TopicId
    name: str
    partitions: int


class Topics(Protocol):
    """The topics as last read from the catalog. A new object for every change: one that is unchanged is the same."""

    def find(self, name: str) -> SubscribableTopic | None: ...

    def with_id(self, topic_id: TopicId) -> SubscribableTopic | None: ...

    def names(self) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A heartbeat of a member; it also joins (epoch 0), leaves (-1) and pauses (-2). None means unchanged: for
    `owned` since the last heartbeat that named it, for the others since the last request."""

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicPartition] | None = None
    connection: object = None
    """Is another object for another connection of the client."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatResponse:
    """`assignment` is None if the member keeps what it has."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """`is_classic`: the member uses the classic protocol while the group migrates."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    topic_names: tuple[str, ...]
    topic_regex: str | None
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    is_classic: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    group_id: str
    phase: ConsumerGroupPhase
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[MemberDescription, ...]

    @property
    def state(self) -> ConsumerGroupPhase:
        return self.phase

    @property
    def protocol_type(self) -> str:
        return CONSUMER

    @property
    def protocol(self) -> str:
        return self.assignor


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A consumer group or a share group as it is stored, by its `type`. `state` and the values of `members`, by member
    id, are JSON. Among the members are rows of regular expressions (`stored.regex_row`)."""

    epoch: int
    state: str
    members: Mapping[str, str]
    type: str = CONSUMER


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """What has changed since the last changes were taken, and must be stored before a response is sent. `state` is
    None if it has not changed. A member with the value None is removed. If they are `complete`, nothing else of the
    group stays stored."""

    epoch: int
    is_empty: bool
    state: str | None
    members: Mapping[str, str | None]
    complete: bool = False
    type: str = CONSUMER

    def followed_by(self, later: "GroupChanges") -> "GroupChanges":
        """Both as one. Only the first changes of a group are complete."""
        state = self.state if later.state is None else later.state
        members = {**self.members, **later.members}
        return GroupChanges(later.epoch, later.is_empty, state, members, self.complete, self.type)
