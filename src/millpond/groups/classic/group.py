"""A consumer group as a pure state machine: no I/O, no clock, no randomness.

    Empty ──join──▶ PreparingRebalance ──all have joined, or time is up──▶ CompletingRebalance
      ▲                 ▲       │                                            │          │
      └───no members────┼───────┘                                            │   leader's assignment
                        ├──────── a member joins, leaves, or dies ◀──────────┘      is stored
                        └───────── a member (re)joins, leaves, or dies ◀── Stable ◀─────┘

A new generation takes two steps. While it is prepared, joins wait, so that all members receive the same generation at
the same time. Then one of them, the leader, assigns the partitions, and syncs wait until the assignment is stored. A
member proves that it is alive by heartbeats, except while one of its requests is pending here.

An event is a method call with the current time. Joins and syncs carry a ticket, and each ticket gets exactly one
`GroupResponse` in `take_effects()`, now or later. The caller stores each `SaveSnapshot` it finds there and then calls
`saved` with the result. `next_deadline_ms` returns when to call `tick`. Rules and errors are those of Kafka 4.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from millpond.groups.classic.messages import (
    Description,
    GroupEffect,
    GroupPhase,
    JoinRequest,
    LeaveRequest,
    Restart,
    SaveSnapshot,
    SyncRequest,
)
from millpond.groups.classic.snapshot import Snapshot
from millpond.groups.classic.state import ClassicGroupState
from millpond.groups.consumer_protocol import CONSUMER, subscribed_topics
from millpond.groups.deadlines import NamedDeadlines
from millpond.groups.limits import GroupLimits
from millpond.model.errors import (
    GroupFull,
    GroupNotEmpty,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    MillpondError,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)

NewId = Callable[[str], str]
"""Creates a unique member id that starts with the client's or the instance's name."""


class ClassicGroup:
    """One method for each event and each transition, more than 20 in all: only this class changes `state.phase`, so
    that the machine can be read in one file. `state` is its data; other classes may read it and must not change it."""

    def __init__(self, group_id: str, limits: GroupLimits, new_id: NewId) -> None:
        self.state = ClassicGroupState(group_id, limits)
        self._limits = limits
        self._new_id = new_id
        self._storing: SaveSnapshot | None = None
        self._first_rebalance = False
        self._has_new_joiner = False
        self._join_latest_ms = 0

    @classmethod
    def restored(
        cls, group_id: str, limits: GroupLimits, new_id: NewId, snapshot: Snapshot, now_ms: int
    ) -> "ClassicGroup":
        """The group as another coordinator stored it. The sessions of its members start again. If it has members and no
        protocol, it was a consumer protocol group, and its first generation is prepared."""
        group = cls(group_id, limits, new_id)
        state = group.state
        state.generation, state.protocol_type = snapshot.generation, snapshot.protocol_type
        state.protocol, state.leader = snapshot.protocol, snapshot.leader
        state.phase = GroupPhase.STABLE if snapshot.members else GroupPhase.EMPTY
        for member in snapshot.members:
            state.roster.put(member)
            state.keep_alive(member.member_id, now_ms)
        if len(state.roster) > limits.members_max or (snapshot.members and snapshot.protocol is None):
            group._prepare(now_ms)
        return group

    # -- queries ----------------------------------------------------------------------------------------------

    def take_effects(self) -> list[GroupEffect]:
        effects, self.state.effects = self.state.effects, []
        return effects

    def next_deadline_ms(self) -> int | None:
        """The next time at which something changes without an event; None if nothing will."""
        state = self.state
        dues = (state.sessions.next_ms(), state.join_due_ms, state.sync_due_ms)
        return min((due for due in dues if due is not None), default=None)

    @property
    def member_count(self) -> int:
        return len(self.state.roster)

    @property
    def is_dead(self) -> bool:
        return self.state.phase is GroupPhase.DEAD

    def is_idle(self) -> bool:
        """Whether the group can be removed from memory and loaded again without losing anything."""
        return self.state.phase is GroupPhase.EMPTY and not self.state.expected

    def describe(self) -> Description:
        state = self.state
        protocol = state.protocol if state.phase is GroupPhase.STABLE else None
        return Description(
            state.group_id,
            state.phase,
            state.protocol_type,
            protocol or "",
            tuple(state.roster),
            state.generation,
        )

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members subscribe to; None if a member's metadata cannot be parsed. Raises `GroupNotEmpty`
        for other protocol types, whose metadata only their members can read."""
        state = self.state
        if state.phase is GroupPhase.EMPTY:
            return frozenset()
        if state.protocol_type != CONSUMER:
            raise GroupNotEmpty(group=state.group_id)
        return subscribed_topics(member.metadata(state.protocol) for member in state.roster)

    # -- events -----------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, ticket: int, now_ms: int) -> None:
        try:
            self._check_join(request, now_ms)
            if request.member_id in self.state.expected and request.instance_id is None:
                self._admit(request, request.member_id, ticket, now_ms)
            elif request.member_id:
                self._rejoin(request, ticket, now_ms)
            else:
                self._join_new(request, ticket, now_ms)
        except MillpondError as error:
            self.state.respond(ticket, error)

    def sync(self, request: SyncRequest, ticket: int, now_ms: int) -> None:
        state = self.state
        try:
            state.check_generation(request.member_id, request.instance_id, request.generation)
            self._check_protocol(request)
            if state.phase is GroupPhase.PREPARING:
                raise RebalanceInProgress(group=state.group_id)
            state.unsynced.discard(request.member_id)
            if state.phase is GroupPhase.STABLE:
                state.respond(ticket, state.sync_response(request.member_id))
            else:
                self._wait_for_assignment(request, ticket)
        except MillpondError as error:
            state.respond(ticket, error)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        state = self.state
        state.check_generation(member_id, instance_id, generation)
        state.keep_alive(member_id, now_ms)
        if state.phase is GroupPhase.PREPARING:
            raise RebalanceInProgress(group=state.group_id)

    def leave(self, leaving: Sequence[LeaveRequest], now_ms: int) -> list[MillpondError | None]:
        """Returns the error of each, in order; None for success."""
        outcomes = [self._leave_one(each) for each in leaving]
        if any(outcome is None for outcome in outcomes):
            if self.state.phase in (GroupPhase.STABLE, GroupPhase.COMPLETING):
                self._prepare(now_ms)
            elif self.state.phase is GroupPhase.PREPARING:
                self._complete_join_if_all_joined(now_ms)
        return outcomes

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, *, transactional: bool
    ) -> None:
        """Raises unless this member may commit offsets now. A commit outside a transaction also counts as a heartbeat.
        A transaction is fenced by its producer, so the group checks only the member and generation it names, if any."""
        state = self.state
        if generation < 0 and state.phase is GroupPhase.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            state.check_generation(member_id, instance_id, generation)
        elif not transactional:
            raise UnknownMember(group=state.group_id, member_id=member_id)
        if transactional:
            return
        if state.phase is GroupPhase.COMPLETING:
            raise RebalanceInProgress(group=state.group_id)
        state.keep_alive(member_id, now_ms)

    def saved(self, save: SaveSnapshot, error: MillpondError | None, now_ms: int) -> None:
        """The result of storing a `SaveSnapshot`. If the group has changed since, the result no longer matters."""
        if save.restart is not None:
            self._restart_saved(save.restart, error, now_ms)
        elif save is self._storing:
            if error is None:
                self._stabilize(save.snapshot, now_ms)
            else:
                self.state.respond_to_syncs(lambda _: error.copy(), now_ms)
                self._prepare(now_ms)

    def tick(self, now_ms: int) -> None:
        """Process everything that is due now."""
        state = self.state
        for member_id in state.sessions.take_due(now_ms):
            self._end_session(member_id, now_ms)
        if state.sync_due_ms is not None and state.sync_due_ms <= now_ms:
            self._end_sync(now_ms)
        if state.join_due_ms is not None and state.join_due_ms <= now_ms:
            self._end_join(now_ms)

    def rebalance(self, now_ms: int) -> None:
        """Members must join again, because the group has just taken over from the consumer protocol."""
        if self.state.phase is GroupPhase.STABLE:
            self._prepare(now_ms)

    def kill(self, error: MillpondError | None = None) -> None:
        """The group was deleted, has moved or has changed its protocol. Pending requests receive the error, by default
        `NotCoordinator`."""
        state = self.state
        state.phase, self._storing = GroupPhase.DEAD, None
        state.join_due_ms = state.sync_due_ms = None
        state.sessions = NamedDeadlines()
        for member in state.roster:
            state.fail_pending(member.member_id, error or NotCoordinator(group=state.group_id))

    # -- joining ----------------------------------------------------------------------------------------------

    def _check_join(self, request: JoinRequest, now_ms: int) -> None:
        state = self.state
        low, high = self._limits.session_timeout_min_ms, self._limits.session_timeout_max_ms
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(timeout_ms=request.session_timeout_ms, min_ms=low, max_ms=high)
        if state.phase is GroupPhase.DEAD:
            raise NotCoordinator(group=state.group_id)
        if not self._has_room_for(request.member_id):
            if request.member_id in state.roster:
                state.remove_member(request.member_id)
                self._complete_join_if_all_joined(now_ms)
            raise GroupFull(group=state.group_id, limit=self._limits.members_max)
        if not self._supports_protocols(request):
            raise InconsistentProtocol(group=state.group_id)

    def _has_room_for(self, member_id: str) -> bool:
        """While a rebalance is prepared, pending joins are counted, so that a group that is too large removes the
        members that join last."""
        state = self.state
        if not member_id and len(state.expected) >= self._limits.members_max:
            return False
        if state.phase is GroupPhase.PREPARING:
            return member_id in state.joining or len(state.joining) < self._limits.members_max
        return member_id in state.roster or len(state.roster) < self._limits.members_max

    def _supports_protocols(self, request: JoinRequest) -> bool:
        state = self.state
        if state.phase is GroupPhase.EMPTY:
            return bool(request.protocol_type and request.protocols)
        same_type = request.protocol_type == state.protocol_type
        return same_type and state.roster.all_support_one_of(request.protocols)

    def _join_new(self, request: JoinRequest, ticket: int, now_ms: int) -> None:
        state = self.state
        member_id = self._new_id(request.client_id if request.instance_id is None else request.instance_id)
        holder = state.roster.holder(request.instance_id)
        if holder is not None:
            self._restart(request, holder, member_id, ticket, now_ms)
        elif request.instance_id is None and request.require_known_id:
            state.expected.add(member_id)
            self._has_new_joiner = True  # it will soon join with its id
            state.sessions.set(member_id, now_ms + request.session_timeout_ms)
            raise MemberIdRequired(group=state.group_id, member_id=member_id)
        else:
            self._admit(request, member_id, ticket, now_ms)

    def _admit(self, request: JoinRequest, member_id: str, ticket: int, now_ms: int) -> None:
        state = self.state
        state.expected.discard(member_id)
        if not len(state.roster):
            state.protocol_type = request.protocol_type
        state.wait_to_join(request, member_id, ticket)
        state.leader = state.leader or member_id
        self._has_new_joiner = True
        state.new_members.add(member_id)
        state.sessions.set(member_id, now_ms + self._limits.new_member_timeout_ms)
        self._rebalance(now_ms)

    def _rejoin(self, request: JoinRequest, ticket: int, now_ms: int) -> None:
        """An unchanged join in CompletingRebalance, or in Stable from a member other than the leader, is a retry whose
        response was lost; it receives the same response again. Any other join starts a rebalance or takes part in it.
        The leader of a stable group joins again to request a new assignment."""
        state = self.state
        member = state.check_member(request.member_id, request.instance_id)
        is_leader = member.member_id == state.leader
        has_response = state.phase is GroupPhase.COMPLETING or (
            state.phase is GroupPhase.STABLE and not is_leader
        )
        if has_response and member.protocols == request.distinct_protocols():
            state.respond(ticket, state.join_response(member.member_id))
            return
        state.wait_to_join(request, member.member_id, ticket)
        self._rebalance(now_ms)

    # -- static members that restart --------------------------------------------------------------------------

    def _restart(self, request: JoinRequest, holder: str, member_id: str, ticket: int, now_ms: int) -> None:
        """A static member was restarted: its new id replaces the former one and keeps its assignment."""
        state = self.state
        former = state.rename_member(holder, member_id, now_ms)
        state.wait_to_join(request, member_id, ticket)
        if state.phase is GroupPhase.STABLE and state.roster.elect_protocol() == state.protocol:
            restart = Restart(member_id, former, request.can_skip_assignment)
            state.effects.append(SaveSnapshot(state.snapshot(), restart))
        else:  # in CompletingRebalance the leader may already have assigned partitions to the former id
            self._rebalance(now_ms)

    def _restart_saved(self, restart: Restart, error: MillpondError | None, now_ms: int) -> None:
        """If a rebalance has started since, the member takes part in it, and its join stays pending."""
        state = self.state
        member_id = restart.member_id
        if state.phase is not GroupPhase.STABLE or member_id not in state.joining:
            return
        ticket = state.joining.pop(member_id)
        if error is not None:
            state.respond(ticket, error.copy())
            state.rename_member(member_id, restart.former.member_id, now_ms)
            state.roster.put(restart.former)
            return
        state.keep_alive(member_id, now_ms)
        joined = state.join_response(member_id)
        if member_id == state.leader:  # an assignment it sent now would reach no member
            joined = replace(joined, skip_assignment=True)
            if not restart.can_skip_assignment:  # then it must not learn that it is the leader
                joined = replace(joined, skip_assignment=False, members=(), leader=restart.former.member_id)
        state.respond(ticket, joined)

    # -- creating a generation --------------------------------------------------------------------------------

    def _rebalance(self, now_ms: int) -> None:
        if self.state.phase is GroupPhase.PREPARING:
            self._complete_join_if_all_joined(now_ms)
        else:
            self._prepare(now_ms)

    def _prepare(self, now_ms: int) -> None:
        state = self.state
        state.respond_to_syncs(lambda _: RebalanceInProgress(group=state.group_id), now_ms)
        self._storing = state.sync_due_ms = None
        self._first_rebalance = state.phase is GroupPhase.EMPTY
        state.phase = GroupPhase.PREPARING
        wait_ms = state.rebalance_timeout_ms()
        if self._first_rebalance:
            delay_ms = self._limits.initial_rebalance_delay_ms
            longest_ms = min(wait_ms, delay_ms * self._limits.initial_rebalance_delays_max)
            self._has_new_joiner = False
            state.join_due_ms = now_ms + delay_ms
            self._join_latest_ms = now_ms + max(delay_ms, longest_ms)
        else:
            state.join_due_ms = now_ms + wait_ms
            self._complete_join_if_all_joined(now_ms)

    def _complete_join_if_all_joined(self, now_ms: int) -> None:
        if not self._first_rebalance and self.state.all_joined():
            self._complete_join(now_ms)

    def _end_join(self, now_ms: int) -> None:
        """The join phase ends, unless this is a new group that members keep joining. So a single member starts almost
        immediately, and members that start together share the first generation."""
        due_ms = min(now_ms + self._repeated_wait_ms(), self._join_latest_ms)
        if self._first_rebalance and self._has_new_joiner and due_ms > now_ms:
            self._has_new_joiner = False
            self.state.join_due_ms = due_ms
        else:
            self._complete_join(now_ms)

    def _repeated_wait_ms(self) -> int:
        """Members arrive at irregular intervals, and each one that is missed causes another rebalance, which takes a
        heartbeat interval."""
        delay_ms = self._limits.initial_rebalance_delay_ms
        return min(2 * delay_ms, max(delay_ms, self._limits.initial_rebalance_wait_max_ms))

    def _complete_join(self, now_ms: int) -> None:
        """Create the next generation. Dynamic members that have not joined are removed. Static members may be slow to
        start, so only the end of their session removes them."""
        state = self.state
        state.join_due_ms = None
        for member in state.roster:
            if member.member_id not in state.joining and member.instance_id is None:
                state.remove_member(member.member_id)
        if len(state.roster) and not self._elect_leader():
            state.join_due_ms = now_ms + state.rebalance_timeout_ms()
            return
        state.generation += 1
        if len(state.roster):
            self._begin_sync(now_ms)
        else:
            state.phase, state.protocol = GroupPhase.EMPTY, None
            state.effects.append(SaveSnapshot(state.snapshot()))

    def _elect_leader(self) -> bool:
        """Keep the leader or choose another among the members that have joined. Returns False if none has joined."""
        state = self.state
        if state.leader not in state.joining:
            here = (each.member_id for each in state.roster if each.member_id in state.joining)
            state.leader = next(here, state.leader)
        return state.leader in state.joining

    def _begin_sync(self, now_ms: int) -> None:
        state = self.state
        state.phase = GroupPhase.COMPLETING
        state.protocol = state.roster.elect_protocol()
        state.new_members.clear()
        state.sync_due_ms = now_ms + state.rebalance_timeout_ms()
        for member in state.roster:
            state.unsynced.add(member.member_id)
            state.keep_alive(member.member_id, now_ms)
            if (ticket := state.joining.pop(member.member_id, None)) is not None:
                state.respond(ticket, state.join_response(member.member_id))

    # -- assignment -------------------------------------------------------------------------------------------

    def _check_protocol(self, request: SyncRequest) -> None:
        state = self.state
        same_type = request.protocol_type in (None, state.protocol_type)
        if not same_type or request.protocol not in (None, state.protocol):
            raise InconsistentProtocol(group=state.group_id)

    def _wait_for_assignment(self, request: SyncRequest, ticket: int) -> None:
        state = self.state
        state.fail_superseded(state.syncing.get(request.member_id))
        state.syncing[request.member_id] = ticket
        if request.member_id == state.leader and self._storing is None:
            assignments = request.assignments
            members = (
                replace(each, assignment=assignments.get(each.member_id, b"")) for each in state.roster
            )
            self._storing = SaveSnapshot(replace(state.snapshot(), members=tuple(members)))
            state.effects.append(self._storing)

    def _stabilize(self, snapshot: Snapshot, now_ms: int) -> None:
        state = self.state
        state.phase, self._storing = GroupPhase.STABLE, None
        for member in snapshot.members:
            state.roster.put(member)
        state.respond_to_syncs(state.sync_response, now_ms)

    def _end_sync(self, now_ms: int) -> None:
        """Remove members that received the generation and never requested their assignment."""
        state = self.state
        state.sync_due_ms = None
        if state.unsynced:
            for member_id in sorted(state.unsynced):
                state.remove_member(member_id)
            self._prepare(now_ms)

    # -- leaving ----------------------------------------------------------------------------------------------

    def _leave_one(self, leaving: LeaveRequest) -> MillpondError | None:
        state = self.state
        member_id = leaving.member_id or state.roster.holder(leaving.instance_id) or ""
        if member_id in state.expected:
            state.expected.remove(member_id)
            state.sessions.clear(member_id)
            return None
        try:
            state.check_member(member_id, leaving.instance_id)
        except MillpondError as error:
            return error
        state.remove_member(member_id)
        return None

    def _end_session(self, member_id: str, now_ms: int) -> None:
        state = self.state
        waits = member_id in state.joining or member_id in state.syncing
        if member_id in state.expected:
            state.expected.remove(member_id)
        elif member_id in state.new_members or not waits:
            state.remove_member(member_id)
            if state.phase is not GroupPhase.PREPARING:
                self._prepare(now_ms)
        else:
            return  # its response will restart the session
        if state.phase is GroupPhase.PREPARING and state.all_joined():
            self._complete_join(now_ms)
