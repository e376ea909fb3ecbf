"""The state of a group: its members, its generation, pending requests and deadlines.

`ClassicGroup` owns one and has the transitions.
"""

from collections.abc import Callable
from dataclasses import replace

from millpond.groups.classic.members import GroupMember, Roster
from millpond.groups.classic.messages import (
    GroupEffect,
    GroupPhase,
    GroupResponse,
    Joined,
    JoinRequest,
    Synced,
)
from millpond.groups.classic.snapshot import Snapshot
from millpond.groups.deadlines import NamedDeadlines
from millpond.groups.limits import GroupLimits
from millpond.model.errors import (
    FencedInstance,
    IllegalGeneration,
    MillpondError,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)


class ClassicGroupState:
    """The data of a group, and small steps that do not change its `phase`."""

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.phase = GroupPhase.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.roster = Roster()
        self._limits = limits
        self.expected: set[str] = set()
        """Ids issued to new members that have not joined with them yet."""
        self.new_members: set[str] = set()
        """Members whose first join is pending. Only they can time out while a request of theirs is pending."""
        self.unsynced: set[str] = set()
        """Members of the generation that have not requested their assignment."""
        self.joining: dict[str, int] = {}
        self.syncing: dict[str, int] = {}
        self.sessions = NamedDeadlines()
        self.join_due_ms: int | None = None
        self.sync_due_ms: int | None = None
        self.effects: list[GroupEffect] = []

    # -- members ----------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> GroupMember:
        if instance_id is not None:
            holder = self.roster.holder(instance_id)
            if holder is not None and holder != member_id:
                raise FencedInstance(group=self.group_id, instance_id=instance_id)
            if holder is None:
                raise UnknownMember(group=self.group_id, member_id=member_id)
        if member_id not in self.roster:
            raise UnknownMember(group=self.group_id, member_id=member_id)
        return self.roster[member_id]

    def check_generation(self, member_id: str, instance_id: str | None, generation: int) -> None:
        if self.phase is GroupPhase.DEAD:
            raise NotCoordinator(group=self.group_id)
        self.check_member(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGeneration(group=self.group_id, generation=generation, current=self.generation)

    def all_joined(self) -> bool:
        return len(self.joining) == len(self.roster) and not self.expected

    def rebalance_timeout_ms(self) -> int:
        """The longest of all members, at least the configured minimum."""
        return max(self.roster.rebalance_timeout_ms(), self._limits.rebalance_timeout_min_ms)

    def keep_alive(self, member_id: str, now_ms: int) -> None:
        self.sessions.set(member_id, now_ms + self.roster[member_id].session_timeout_ms)

    def remove_member(self, member_id: str) -> None:
        self.roster.remove(member_id)
        self.sessions.clear(member_id)
        self.unsynced.discard(member_id)
        self.new_members.discard(member_id)
        if self.leader == member_id:
            self.leader = self.roster.first()
        self.fail_pending(member_id, UnknownMember(group=self.group_id, member_id=member_id))

    def rename_member(self, member_id: str, new_id: str, now_ms: int) -> GroupMember:
        """Replace the id of a static member. Requests with the former id are fenced."""
        former = self.roster.remove(member_id)
        self.roster.put(replace(former, member_id=new_id))
        if self.leader == member_id:
            self.leader = new_id
        if member_id in self.unsynced:
            self.unsynced.remove(member_id)
            self.unsynced.add(new_id)
        self.new_members.discard(member_id)
        self.sessions.clear(member_id)
        self.keep_alive(new_id, now_ms)
        self.fail_pending(member_id, FencedInstance(group=self.group_id, instance_id=former.instance_id))
        return former

    # -- pending requests and responses -----------------------------------------------------------------------

    def wait_to_join(self, request: JoinRequest, member_id: str, ticket: int) -> None:
        """Store the member as the request describes it. A known member keeps its instance id and its assignment."""
        member = request.member(member_id)
        if member_id in self.roster:
            known = self.roster[member_id]
            member = replace(member, instance_id=known.instance_id, assignment=known.assignment)
        self.roster.put(member)
        self.fail_superseded(self.joining.get(member_id))
        self.joining[member_id] = ticket

    def fail_superseded(self, ticket: int | None) -> None:
        """Respond to a pending request that the same member has sent again; the sender of the first may retry."""
        if ticket is not None:
            self.respond(ticket, RebalanceInProgress(group=self.group_id))

    def fail_pending(self, member_id: str, error: MillpondError) -> None:
        for waiting in (self.joining, self.syncing):
            if (ticket := waiting.pop(member_id, None)) is not None:
                self.respond(ticket, error.copy())

    def respond_to_syncs(self, outcome_of: Callable[[str], Synced | MillpondError], now_ms: int) -> None:
        for member_id, ticket in self.syncing.items():
            self.respond(ticket, outcome_of(member_id))
            self.keep_alive(member_id, now_ms)
        self.syncing.clear()

    def respond(self, ticket: int, outcome: Joined | Synced | MillpondError) -> None:
        self.effects.append(GroupResponse(ticket, outcome))

    def join_response(self, member_id: str) -> Joined:
        assert self.leader is not None, "a generation has a leader"
        members = tuple(self.roster) if member_id == self.leader else ()
        return Joined(member_id, self.generation, self.protocol_type, self.protocol, self.leader, members)

    def sync_response(self, member_id: str) -> Synced:
        return Synced(self.protocol_type, self.protocol, self.roster[member_id].assignment)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.generation, self.protocol_type, self.protocol, self.leader, tuple(self.roster))
