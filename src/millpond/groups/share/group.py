"""A share group as a pure state machine: no I/O, no clock, no randomness.

    epoch           rises when members or subscribed topics change
    target epoch    that for which the assignor has decided which member reads which partitions
    member epoch    the target epoch whose assignment a member has received; it names this epoch in its requests

    Empty ──join──▶ Stable ──no members──▶ Empty

Members share partitions, so that none has to give up a partition before another one receives it. A heartbeat does
everything: it updates the member that sends it, computes a new target if the group has changed, and gives this one
member what its target has.

A method changes the group and returns a response, or raises an error. What has to be stored before the response is sent
is in `take_changes`. `next_deadline_ms` returns when to call `tick`. Rules and errors are those of Kafka 4.3.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millpond.groups.classic.messages import LeaveRequest
from millpond.groups.consumer.messages import JOIN_EPOCH, LEAVE_EPOCH, GroupChanges, StoredGroup, Topics
from millpond.groups.limits import GroupLimits
from millpond.groups.share.checks import check_heartbeat
from millpond.groups.share.members import ShareMember
from millpond.groups.share.messages import (
    ShareGroupDescription,
    ShareGroupPhase,
    ShareHeartbeat,
    ShareHeartbeatResponse,
    ShareMemberDescription,
)
from millpond.groups.share.state import ShareGroupState
from millpond.model.errors import (
    FencedMemberEpoch,
    GroupFull,
    GroupNotEmpty,
    MillpondError,
    NotCoordinator,
    UnknownMember,
)
from millpond.model.share_groups import ShareGroupConfig


class ShareGroup:
    """`state` is its data; other classes may read it and must not change it."""

    def __init__(self, group_id: str, limits: GroupLimits, state: ShareGroupState | None = None) -> None:
        self.state = state or ShareGroupState(group_id, limits)
        self._limits = limits

    @classmethod
    def restored(cls, group_id: str, limits: GroupLimits, stored: StoredGroup, now_ms: int) -> "ShareGroup":
        """The group as another coordinator stored it. The sessions of its members start again."""
        state = ShareGroupState.restored(group_id, limits, stored)
        for member_id in state.members:
            state.sessions.set(member_id, now_ms + state.session_timeout_ms)
        return cls(group_id, limits, state)

    # -- queries ----------------------------------------------------------------------------------------------

    @property
    def phase(self) -> ShareGroupPhase:
        return self.state.phase

    @property
    def member_count(self) -> int:
        return len(self.state.members)

    @property
    def is_dead(self) -> bool:
        return self.state.is_dead

    def is_idle(self) -> bool:
        """Whether the group can be removed from memory and loaded again without losing anything, once its changes are
        stored."""
        return not self.state.members

    def next_deadline_ms(self) -> int | None:
        """The next time at which something changes without an event; None if nothing will."""
        return self.state.sessions.next_ms()

    def subscribed_topics(self) -> frozenset[str]:
        """Includes topics that do not exist."""
        return self.state.topic_names()

    def describe(self, topics: Topics) -> ShareGroupDescription:
        """Partitions of deleted topics are left out."""
        state = self.state
        members = tuple(
            ShareMemberDescription(
                member.member_id,
                member.client_id,
                member.client_host,
                member.rack_id,
                member.epoch,
                member.topic_names,
                tuple(sorted(each for each in member.assigned if topics.with_id(each.topic_id) is not None)),
            )
            for _, member in sorted(state.members.items())
        )
        return ShareGroupDescription(state.group_id, state.phase, state.epoch, state.target_epoch, members)

    def take_changes(self) -> GroupChanges | None:
        """What has changed since the last call; None if nothing has."""
        return self.state.take_changes()

    # -- events -----------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: ShareHeartbeat, topics: Topics, config: ShareGroupConfig, now_ms: int
    ) -> ShareHeartbeatResponse:
        """A member joins, reports that it is alive, or leaves."""
        self._check_alive()
        check_heartbeat(request, self._limits)
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request, config)
        before = self._joining(request) if request.member_epoch == JOIN_EPOCH else self._current(request)
        self.state.session_timeout_ms = config.session_timeout_ms
        member = self._advance(before, _described(before, request), topics, now_ms)
        self.state.sessions.set(member.member_id, now_ms + config.session_timeout_ms)
        needs_assignment = _needs_assignment(request, before, member)
        return ShareHeartbeatResponse(
            member.member_id,
            member.epoch,
            config.heartbeat_interval_ms,
            tuple(sorted(member.assigned)) if needs_assignment else None,
            member.topic_names,
        )

    def begin_empty(self) -> None:
        """Begin an epoch of a group without members, so that it exists from now on. An administrator moves its
        positions. Raises `GroupNotEmpty`."""
        self._check_alive()
        if self.state.members:
            raise GroupNotEmpty(group=self.state.group_id)
        self.state.epoch += 1

    def leave(self, leaving: Sequence[LeaveRequest], _: int) -> list[MillpondError | None]:
        """LeaveGroup is a request of the classic protocol, which has no members here."""
        self._check_alive()
        return [UnknownMember(group=self.state.group_id, member_id=each.member_id) for each in leaving]

    def tick(self, now_ms: int) -> None:
        """Remove the members whose session has ended."""
        late = list(self.state.sessions.take_due(now_ms))
        for member_id in late:
            self.state.remove(member_id)
        self.state.epoch += bool(late)

    def kill(self) -> None:
        """The group was deleted or has moved."""
        self.state.kill()

    # -- steps of a heartbeat ---------------------------------------------------------------------------------

    def _joining(self, request: ShareHeartbeat) -> ShareMember:
        """A new member, or one that joins again, after an error."""
        members, limit = self.state.members, self._limits.share_members_max
        member = members.get(request.member_id)
        if member is None and len(members) >= limit:
            raise GroupFull(group=self.state.group_id, limit=limit)
        return member or ShareMember(request.member_id, request.client_id, request.client_host)

    def _current(self, request: ShareHeartbeat) -> ShareMember:
        """The member that sends a heartbeat. If the response to its last one was lost, it still names the epoch before
        that."""
        member = self.state.find(request.member_id)
        if request.member_epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpoch(
                group=self.state.group_id,
                member_id=member.member_id,
                current=member.epoch,
                epoch=request.member_epoch,
            )
        return member

    def _advance(self, before: ShareMember, member: ShareMember, topics: Topics, now_ms: int) -> ShareMember:
        """Update the member, then the target if the group has changed, and give the member what its target has."""
        state = self.state
        state.put(member)
        topics_changed = state.update(topics)
        # A new member had no topics before.
        if topics_changed or before.topic_names != member.topic_names:
            state.epoch += 1
        if state.epoch > state.target_epoch and state.may_assign(now_ms):
            state.assign(now_ms)
        if member.epoch != state.target_epoch:
            target = state.target(member.member_id)
            member = replace(member, epoch=state.target_epoch, previous_epoch=member.epoch, assigned=target)
            state.put(member)
        return member

    def _leave(self, request: ShareHeartbeat, config: ShareGroupConfig) -> ShareHeartbeatResponse:
        member = self.state.find(request.member_id)
        self.state.remove(member.member_id)
        self.state.epoch += 1
        return ShareHeartbeatResponse(member.member_id, LEAVE_EPOCH, config.heartbeat_interval_ms)

    def _check_alive(self) -> None:
        if self.state.is_dead:
            raise NotCoordinator(group=self.state.group_id)


def _described(member: ShareMember, request: ShareHeartbeat) -> ShareMember:
    """The member as its request describes it. None means unchanged."""
    names = None if request.topic_names is None else tuple(sorted(set(request.topic_names)))
    values: dict[str, Any] = {
        "client_id": request.client_id,
        "client_host": request.client_host,
        "rack_id": request.rack_id,
        "topic_names": names,
    }
    given = {name: value for name, value in values.items() if value is not None}
    changed = {name: value for name, value in given.items() if getattr(member, name) != value}
    return replace(member, **changed) if changed else member


def _needs_assignment(request: ShareHeartbeat, before: ShareMember, member: ShareMember) -> bool:
    """A member receives its assignment when it changes, and when it may not know it: if it joins, if the response to
    its last heartbeat was lost, or if it describes itself completely, as clients do after an error."""
    is_complete = request.topic_names is not None
    return is_complete or request.member_epoch != before.epoch or member.assigned != before.assigned
