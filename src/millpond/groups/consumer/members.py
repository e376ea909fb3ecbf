"""A member of a consumer group, as a value: each step of the machine replaces it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from millpond.groups.classic.members import Protocol
from millpond.groups.consumer.messages import PAUSE_EPOCH
from millpond.model.ids import TopicPartition


class MemberState(StrEnum):
    STABLE = "stable"
    """It has everything that its target gave it at its epoch."""
    UNREVOKED = "unrevoked"
    """It was asked to give up partitions and has not confirmed it."""
    UNRELEASED = "unreleased"
    """Its target has partitions that other members have not given up."""


@dataclass(frozen=True, slots=True)
class ClassicSupport:
    """What the coordinator knows of a member that uses the classic protocol. `protocols` are in order of preference,
    each name once."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]

    def supports(self, protocol: str) -> bool:
        return any(each.name == protocol for each in self.protocols)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """`topic_names` are sorted, each once; `topic_regex` is empty if there is none. `epoch` is the member's, -2 while a
    static member pauses; `previous_epoch` the one before its last step. `assigned` and `pending` (asked to be given up)
    have the epoch since which the member has each partition. `classic` is None unless the member uses the classic
    protocol."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] = ()
    topic_regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Mapping[TopicPartition, int] = field(default_factory=dict)
    pending: Mapping[TopicPartition, int] = field(default_factory=dict)
    classic: ClassicSupport | None = None

    @property
    def is_paused(self) -> bool:
        return self.epoch == PAUSE_EPOCH

    def is_settled(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch
