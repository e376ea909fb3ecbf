"""Requests to a share group and its responses. Plain values, independent of the wire format."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from millpond.model.ids import TopicPartition

SHARE: Final = "share"
"""The type of a share group, and its protocol type."""
ASSIGNOR: Final = "simple"


class ShareGroupPhase(StrEnum):
    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A heartbeat of a member; it also joins (epoch 0) and leaves (-1). None means unchanged."""

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    rack_id: str | None = None
    topic_names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShareHeartbeatResponse:
    """`assignment` is None if the member keeps what it has. `topic_names` are those that the member subscribes to."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: tuple[TopicPartition, ...] | None = None
    topic_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    member_id: str
    client_id: str
    client_host: str
    rack_id: str | None
    member_epoch: int
    topic_names: tuple[str, ...]
    assigned: tuple[TopicPartition, ...]

    @property
    def instance_id(self) -> None:
        """Share groups have no static members."""


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    group_id: str
    phase: ShareGroupPhase
    group_epoch: int
    assignment_epoch: int
    members: tuple[ShareMemberDescription, ...]

    @property
    def state(self) -> ShareGroupPhase:
        return self.phase

    @property
    def protocol_type(self) -> str:
        return SHARE

    @property
    def protocol(self) -> str:
        return ASSIGNOR
