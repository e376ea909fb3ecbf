"""Requests to a group, its responses, and the effects it asks for. Plain values, independent of the wire format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from millpond.groups.classic.members import GroupMember, Protocol
from millpond.groups.classic.snapshot import Snapshot
from millpond.model.errors import MillpondError


class GroupPhase(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """`member_id` is empty the first time. `require_known_id`: a new dynamic member must join again with the id that
    it receives. `can_skip_assignment`: the client supports a response that makes it leader without assigning."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[Protocol]
    instance_id: str | None = None
    require_known_id: bool = True
    can_skip_assignment: bool = True

    def member(self, member_id: str) -> GroupMember:
        return GroupMember(
            member_id=member_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.distinct_protocols(),
            instance_id=self.instance_id,
        )

    def distinct_protocols(self) -> tuple[Protocol, ...]:
        """Each name once, because a member has one vote."""
        found: dict[str, Protocol] = {}
        for each in self.protocols:
            found.setdefault(each.name, each)
        return tuple(found.values())


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """Only the leader sends `assignments`. Protocol type and name are compared if they are set."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """A member that leaves, or an instance that an administrator removes (then without a member id)."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """`members` is what the leader needs to assign partitions; it is empty for all other members."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str | None
    leader: str
    members: tuple[GroupMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    protocol_type: str
    protocol: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Description:
    """`protocol` is set only while the group is stable."""

    group_id: str
    state: GroupPhase
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[GroupMember, ...] = ()
    generation: int = 0


@dataclass(frozen=True, slots=True)
class GroupResponse:
    ticket: int
    outcome: Joined | Synced | MillpondError


@dataclass(frozen=True, slots=True)
class Restart:
    """A static member that was restarted, and the member it replaced."""

    member_id: str
    former: GroupMember
    can_skip_assignment: bool


@dataclass(frozen=True, slots=True, eq=False)
class SaveSnapshot:
    """Store the snapshot, then call `saved` with the result."""

    snapshot: Snapshot
    restart: Restart | None = None


GroupEffect = GroupResponse | SaveSnapshot
