"""A consumer group of the consumer protocol as a pure state machine: no I/O, no clock, no randomness.

    epoch           rises when members or subscribed topics change
    target epoch    that for which the assignor has computed a target: which member is to own which partitions
    member epoch    the target epoch that a member has reached; it names this epoch in its requests

    Empty ──join──▶ Assigning ──target──▶ Reconciling ──all members have theirs──▶ Stable
      ▲                 ▲                      │                                      │
      └──no members─────┴──────────────────────┴────── members or topics change ──────┘

A heartbeat does everything: it updates the member that sends it, computes a new target if the group has changed, and
takes this one member a step towards it (`reconciliation`). No member waits for a rebalance of the others.

A method changes the group and returns a response, or raises an error. What has to be stored before the response is sent
is in `take_changes`. `next_deadline_ms` returns when to call `tick`. Rules and errors are those of Kafka 4.4.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from millpond.groups.classic.group import ClassicGroup, NewId
from millpond.groups.classic.messages import Joined, JoinRequest, LeaveRequest, Synced, SyncRequest
from millpond.groups.classic.snapshot import Snapshot
from millpond.groups.consumer.checks import check_heartbeat
from millpond.groups.consumer.classic_members import ClassicMembers
from millpond.groups.consumer.members import ConsumerMember, MemberState
from millpond.groups.consumer.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    PAUSE_EPOCH,
    ConsumerGroupDescription,
    ConsumerGroupPhase,
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
    GroupChanges,
    MemberDescription,
    StoredGroup,
    Topics,
)
from millpond.groups.consumer.migration import downgraded, upgraded_state
from millpond.groups.consumer.reconciliation import Owned, Reconciliation
from millpond.groups.consumer.state import ConsumerGroupState
from millpond.groups.consumer.subscriptions import MayDescribe
from millpond.groups.limits import GroupLimits
from millpond.model.errors import (
    FencedMemberEpoch,
    GroupFull,
    IllegalGeneration,
    InvalidRequest,
    MillpondError,
    NotCoordinator,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
)
from millpond.model.group_configs import GroupConfig
from millpond.model.ids import TopicPartition


class ConsumerGroup:
    """One method for each event and each transition, more than 20 in all. `state` is its data; other classes may read
    it and must not change it."""

    def __init__(
        self, group_id: str, limits: GroupLimits, new_id: NewId, state: ConsumerGroupState | None = None
    ) -> None:
        self.state = state or ConsumerGroupState(group_id, limits)
        self._limits = limits
        self._new_id = new_id
        self._classic = ClassicMembers(self.state, limits, new_id, self._advance)

    @classmethod
    def restored(
        cls, group_id: str, limits: GroupLimits, new_id: NewId, stored: StoredGroup, now_ms: int
    ) -> "ConsumerGroup":
        """The group as another coordinator stored it. The sessions and rebalance timeouts of its members start
        again."""
        state = ConsumerGroupState.restored(group_id, limits, stored)
        group = cls(group_id, limits, new_id, state)
        group._start_sessions(now_ms)
        return group

    @classmethod
    def upgraded(
        cls, classic: ClassicGroup, topics: Topics, limits: GroupLimits, new_id: NewId, now_ms: int
    ) -> "ConsumerGroup":
        """A classic group, continued with this protocol. If it has members, they stay. Raises `UnknownGroup` with the
        reason if that is not possible. The caller kills the classic group when a member of this protocol has
        joined."""
        group = cls(classic.state.group_id, limits, new_id, upgraded_state(classic.state, topics, limits))
        group._start_sessions(now_ms)
        return group

    # -- queries ----------------------------------------------------------------------------------------------

    @property
    def phase(self) -> ConsumerGroupPhase:
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
        dues = (self.state.sessions.next_ms(), self.state.progress.next_ms())
        return min((due for due in dues if due is not None), default=None)

    def subscribed_topics(self) -> frozenset[str]:
        """Includes topics that do not exist."""
        return self.state.subscriptions.names()

    def describe(self, topics: Topics) -> ConsumerGroupDescription:
        """Partitions of deleted topics are left out."""
        state = self.state

        def existing(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
            return tuple(sorted(each for each in partitions if topics.with_id(each.topic_id) is not None))

        members = tuple(
            MemberDescription(
                member.member_id,
                member.client_id,
                member.client_host,
                member.instance_id,
                member.rack_id,
                member.epoch,
                member.topic_names,
                member.topic_regex or None,
                existing(member.assigned),
                existing(state.target(member.member_id)),
                member.classic is not None,
            )
            for _, member in sorted(state.members.items())
        )
        return ConsumerGroupDescription(
            state.group_id, state.phase, state.epoch, state.target_epoch, state.assignor, members
        )

    def is_classic(self, member_id: str) -> bool:
        """Whether the member uses the classic protocol."""
        member = self.state.members.get(member_id)
        return member is not None and member.classic is not None

    def downgrade(self, topics: Topics) -> Snapshot | None:
        """The group for the classic protocol, once all of its members use that, if the migration policy allows it. To
        be asked for after each event. A restored `ClassicGroup` then begins with a rebalance."""
        state = self.state
        is_due = 0 < state.classic_members == len(state.members)
        allowed = self._limits.consumer_migration_policy.allows_downgrade
        return downgraded(state, topics) if is_due and allowed else None

    def empty_snapshot(self) -> Snapshot | None:
        """The group for the classic protocol, if it has no members: an empty group uses the protocol of the next
        member."""
        return None if self.state.members else Snapshot(self.state.epoch, "")

    def take_changes(self) -> GroupChanges | None:
        """What has changed since the last call; None if nothing has."""
        return self.state.take_changes()

    # -- events -----------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerHeartbeat,
        topics: Topics,
        config: GroupConfig,
        now_ms: int,
        can_describe: MayDescribe,
    ) -> ConsumerHeartbeatResponse:
        """A member joins, reports that it is alive and what it owns, leaves, or pauses."""
        self._check_alive()
        check_heartbeat(self.state.group_id, request, self._limits)
        if request.member_epoch < JOIN_EPOCH:
            return self._depart(request, config)
        former = self._predecessor(request) if request.member_epoch == JOIN_EPOCH else self._current(request)
        self.state.subscriptions.check_regex(request.topic_regex or "")
        self.state.session_timeout_ms = config.session_timeout_ms
        before = self._admit(request, former)
        described = _described(before, request)
        member = self._advance(before, described, request.owned, topics, now_ms, can_describe)
        self.state.sessions.set(member.member_id, now_ms + config.session_timeout_ms)
        connected_again = self.state.is_connected_again(member.member_id, request.connection)
        self.state.connections[member.member_id] = request.connection
        needs_assignment = connected_again or _needs_assignment(request, before, member)
        return ConsumerHeartbeatResponse(
            member.member_id,
            member.epoch,
            config.heartbeat_interval_ms,
            tuple(sorted(member.assigned)) if needs_assignment else None,
        )

    def join(self, request: JoinRequest, topics: Topics, config: GroupConfig, now_ms: int) -> Joined:
        """A member of the classic protocol joins. It does not wait for others."""
        self._check_alive()
        self.state.session_timeout_ms = config.session_timeout_ms
        return self._classic.join(request, topics, now_ms)

    def sync(self, request: SyncRequest, now_ms: int) -> Synced:
        self._check_alive()
        return self._classic.sync(request, now_ms)

    def heartbeat_classic(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> None:
        """Raises `RebalanceInProgress` if the member is to join again."""
        self._check_alive()
        self._classic.heartbeat(member_id, instance_id, generation, now_ms)

    def leave(self, leaving: Sequence[LeaveRequest], now_ms: int) -> list[MillpondError | None]:
        """Remove members, as an administrator may. Returns the error of each, in order; None for success."""
        self._check_alive()
        outcomes: list[MillpondError | None] = []
        removed = 0
        for each in leaving:
            holder = self.state.holder(each.instance_id) if not each.member_id else None
            try:
                member_id = holder.member_id if holder is not None else each.member_id
                if member_id in self.state.expected:
                    self.state.expected.clear(member_id)
                    outcomes.append(None)
                    continue
                self.state.remove(self.state.find(member_id, each.instance_id).member_id)
                removed += 1
                outcomes.append(None)
            except MillpondError as error:
                outcomes.append(error)
        self.state.epoch += removed > 0
        return outcomes

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        topic_partitions: Sequence[TopicPartition],
        now_ms: int,
        *,
        transactional: bool,
    ) -> list[MillpondError | None]:
        """Returns the error of each partition, in order; None if the member may commit it. A member may commit in its
        epoch, and in earlier ones what it has owned since then (KIP-1251). Raises errors that concern all of them."""
        self._check_alive()
        accepted: list[MillpondError | None] = [None] * len(topic_partitions)
        if epoch < 0 and not self.state.members:
            return accepted
        if transactional and epoch < 0 and not member_id and instance_id is None:
            return accepted  # a transaction is fenced by its producer
        member = self.state.find(member_id, instance_id)
        if epoch == member.epoch:
            return accepted
        stale = self._stale(member, epoch, transactional=transactional)
        if epoch > member.epoch or member.classic is not None:
            raise stale
        owned_since = {**member.assigned, **member.pending}
        return [
            None if owned_since.get(each, epoch + 1) <= epoch else stale.copy() for each in topic_partitions
        ]

    def check_fetch(self, member_id: str, epoch: int) -> None:
        """Raises unless a member may read committed offsets in this epoch. A request that names no member may."""
        if not member_id and epoch < 0:
            return
        self._check_alive()
        member = self.state.find(member_id, None)
        if epoch != member.epoch:
            raise self._stale(member, epoch, transactional=False)

    def tick(self, now_ms: int) -> None:
        """Remove the members whose time is up."""
        state = self.state
        late = [*state.sessions.take_due(now_ms), *state.progress.take_due(now_ms)]
        for member_id in dict.fromkeys(late):
            state.remove(member_id)
        state.epoch += bool(late)

    def kill(self) -> None:
        """The group was deleted or has moved."""
        self.state.kill()

    # -- steps of a heartbeat ---------------------------------------------------------------------------------

    def _predecessor(self, request: ConsumerHeartbeat) -> ConsumerMember | None:
        """The member as which a joining one continues: itself, or the former member of its instance."""
        state = self.state
        member, holder = state.members.get(request.member_id), state.holder(request.instance_id)
        if holder is None or holder is member:
            if member is None and len(state.members) >= self._limits.members_max:
                raise GroupFull(group=state.group_id, limit=self._limits.members_max)
            return member
        if member is not None:
            raise InvalidRequest(reason=f"member {request.member_id!r} has another instance id")
        if holder.classic is None and not holder.is_paused:
            raise UnreleasedInstance(
                group=state.group_id, holder=holder.member_id, instance_id=request.instance_id
            )
        return holder

    def _current(self, request: ConsumerHeartbeat) -> ConsumerMember:
        """The member that sends a heartbeat. If the response to its last one was lost, it still names the epoch before
        that. It may then own less than it is assigned, because it advances only when it has given up the rest. Without
        a report it is fenced, as in Kafka, unless it has connected again: librdkafka repeats heartbeats as they were.
        """
        state = self.state
        member = self._member(request)
        owned, epoch = request.owned, request.member_epoch
        if epoch == member.epoch:
            return member
        is_repeated = owned is None and state.is_connected_again(member.member_id, request.connection)
        is_confirmed = owned is not None and owned <= member.assigned.keys()
        lost_response = epoch < member.epoch and epoch == member.previous_epoch
        if not lost_response or not (is_repeated or is_confirmed):
            raise FencedMemberEpoch(
                group=state.group_id, member_id=member.member_id, current=member.epoch, epoch=epoch
            )
        return member

    def _member(self, request: ConsumerHeartbeat) -> ConsumerMember:
        member = self.state.find(request.member_id, request.instance_id)
        if member.classic is not None:
            raise UnknownMember(group=self.state.group_id, member_id=request.member_id)
        return member

    def _admit(self, request: ConsumerHeartbeat, former: ConsumerMember | None) -> ConsumerMember:
        """The member before this heartbeat, under the id that it has now."""
        if former is None:
            member_id = request.member_id or self._new_id(request.instance_id or request.client_id)
            return ConsumerMember(member_id, request.client_id, request.client_host)
        if former.classic is None and not former.is_paused:
            return former
        member_id = request.member_id or self._new_id(request.instance_id or request.client_id)
        if member_id != former.member_id:
            former = self.state.rename(former.member_id, member_id)
        return replace(former, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)

    def _advance(
        self,
        before: ConsumerMember,
        member: ConsumerMember,
        owned: Owned,
        topics: Topics,
        now_ms: int,
        may_describe: MayDescribe | None = None,
    ) -> ConsumerMember:
        """Update the member, then the target if the group has changed, and take the member a step towards it."""
        state = self.state
        is_new = member.member_id not in state.members
        state.put(member)
        resubscribed = (before.topic_names, before.topic_regex) != (member.topic_names, member.topic_regex)
        if may_describe is None:
            topics_changed = state.subscriptions.update(topics, now_ms)
        else:
            topics_changed = state.subscriptions.update(topics, now_ms, member.topic_regex, may_describe)
        self._update_target(now_ms, must=is_new or resubscribed, may=topics_changed)
        reconciliation = Reconciliation(
            state.target(member.member_id),
            state.target_epoch,
            state.subscriptions.topics_of(member),
            resubscribed or topics_changed,
            lambda partition: state.is_free(member.member_id, partition),
        )
        after = reconciliation.step(member, owned)
        state.put(after)
        if after.state is not MemberState.UNREVOKED:
            state.progress.clear(after.member_id)
        elif after.pending is not before.pending:
            self._limit_progress(after, now_ms)
        return after

    def _update_target(self, now_ms: int, *, must: bool, may: bool) -> None:
        """Begin an epoch if the group has changed, and compute the target if it is not that of the epoch, unless it is
        too early. What `may` begin an epoch needs none of its own if one has begun since the last target."""
        state = self.state
        may = may or state.preferred_assignor() != state.assignor
        if must or (may and state.epoch == state.target_epoch):
            state.epoch += 1
        if state.epoch > state.target_epoch and state.may_assign(now_ms):
            state.assign(now_ms)

    def _start_sessions(self, now_ms: int) -> None:
        state = self.state
        for member in state.members.values():
            classic = member.classic
            timeout_ms = classic.session_timeout_ms if classic is not None else state.session_timeout_ms
            state.sessions.set(member.member_id, now_ms + timeout_ms)
            if member.state is MemberState.UNREVOKED and not member.is_paused:
                self._limit_progress(member, now_ms)

    def _limit_progress(self, member: ConsumerMember, now_ms: int) -> None:
        timeout_ms = max(member.rebalance_timeout_ms, self._limits.rebalance_timeout_min_ms)
        self.state.progress.set(member.member_id, now_ms + timeout_ms)

    def _depart(self, request: ConsumerHeartbeat, config: GroupConfig) -> ConsumerHeartbeatResponse:
        """A member leaves, or pauses: then its assignment and its session stay, and another process may continue as
        the same instance."""
        state = self.state
        member = self._member(request)
        if request.member_epoch == LEAVE_EPOCH:
            state.remove(member.member_id)
            state.epoch += 1
        elif member.instance_id is None:
            raise InvalidRequest(reason="a member without an instance id cannot pause")
        elif not member.is_paused:
            state.put(replace(member, epoch=PAUSE_EPOCH, pending={}))
            state.progress.clear(member.member_id)
        return ConsumerHeartbeatResponse(member.member_id, request.member_epoch, config.heartbeat_interval_ms)

    def _stale(self, member: ConsumerMember, epoch: int, *, transactional: bool) -> MillpondError:
        if transactional or member.classic is not None:
            return IllegalGeneration(group=self.state.group_id, generation=epoch, current=member.epoch)
        return StaleMemberEpoch(group=self.state.group_id, member_id=member.member_id, epoch=epoch)

    def _check_alive(self) -> None:
        if self.state.is_dead:
            raise NotCoordinator(group=self.state.group_id)


def _described(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """The member as its request describes it. In a heartbeat None means unchanged, in a join none."""
    names = None if request.topic_names is None else tuple(sorted(set(request.topic_names)))
    timeout_ms = request.rebalance_timeout_ms
    values: dict[str, Any] = {
        "rack_id": request.rack_id,
        "topic_names": names,
        "topic_regex": request.topic_regex,
        "assignor": request.assignor,
    }
    if request.member_epoch == JOIN_EPOCH:
        values |= {"topic_names": names or (), "topic_regex": request.topic_regex or ""}
    else:
        values = {name: value for name, value in values.items() if value is not None}
    values |= {
        "client_id": request.client_id,
        "client_host": request.client_host,
        "instance_id": request.instance_id or member.instance_id,
        "rebalance_timeout_ms": timeout_ms if timeout_ms >= 0 else member.rebalance_timeout_ms,
        "classic": None,
    }
    changed = {name: value for name, value in values.items() if getattr(member, name) != value}
    return replace(member, **changed) if changed else member


def _needs_assignment(request: ConsumerHeartbeat, before: ConsumerMember, member: ConsumerMember) -> bool:
    """A member receives its assignment when it changes, and when it may not know it: if it joins, if the response to
    its last heartbeat was lost, or if it describes itself completely, as clients do after an error. librdkafka does not
    after a timeout, but connects again, and Kafka's coordinator does not tell it its assignment then."""
    has_subscription = request.topic_names is not None or request.topic_regex is not None
    is_complete = request.rebalance_timeout_ms >= 0 and has_subscription and request.owned is not None
    if is_complete or request.member_epoch == JOIN_EPOCH or request.member_epoch != before.epoch:
        return True
    return member.assigned.keys() != before.assigned.keys()
