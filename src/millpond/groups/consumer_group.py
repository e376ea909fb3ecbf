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

from collections.abc import Sequence
from dataclasses import replace

from millpond.groups.deadlines import NamedDeadlines
from millpond.groups.group_state import GroupState, NewId
from millpond.groups.limits import GroupLimits
from millpond.groups.messages import GroupPhase, JoinRequest, LeaveRequest, Restart, SaveSnapshot, SyncRequest
from millpond.groups.snapshot import Snapshot
from millpond.model.errors import (
    GroupFull,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    MillpondError,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)


class ConsumerGroup(GroupState):
    def __init__(self, group_id: str, limits: GroupLimits, new_id: NewId) -> None:
        super().__init__(group_id, limits, new_id)
        self._storing: SaveSnapshot | None = None
        self._first_rebalance = False
        self._has_new_joiner = False
        self._join_latest_ms = 0

    @classmethod
    def restored(
        cls, group_id: str, limits: GroupLimits, new_id: NewId, snapshot: Snapshot, now_ms: int
    ) -> "ConsumerGroup":
        """The group as another coordinator stored it. The sessions of its members start again."""
        group = cls(group_id, limits, new_id)
        group.generation, group.protocol_type = snapshot.generation, snapshot.protocol_type
        group.protocol, group.leader = snapshot.protocol, snapshot.leader
        group.state = GroupPhase.STABLE if snapshot.members else GroupPhase.EMPTY
        for member in snapshot.members:
            group.roster.put(member)
            group._keep_alive(member.member_id, now_ms)
        if len(group.roster) > limits.members_max:
            group._prepare(now_ms)
        return group

    # -- events -----------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, ticket: int, now_ms: int) -> None:
        try:
            self._check_join(request, now_ms)
            if request.member_id in self._expected and request.instance_id is None:
                self._admit(request, request.member_id, ticket, now_ms)
            elif request.member_id:
                self._rejoin(request, ticket, now_ms)
            else:
                self._join_new(request, ticket, now_ms)
        except MillpondError as error:
            self._respond(ticket, error)

    def sync(self, request: SyncRequest, ticket: int, now_ms: int) -> None:
        try:
            self._check_generation(request.member_id, request.instance_id, request.generation)
            self._check_protocol(request)
            if self.state is GroupPhase.PREPARING:
                raise RebalanceInProgress(group=self.group_id)
            self._unsynced.discard(request.member_id)
            if self.state is GroupPhase.STABLE:
                self._respond(ticket, self._synced(request.member_id))
            else:
                self._wait_for_assignment(request, ticket)
        except MillpondError as error:
            self._respond(ticket, error)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        self._check_generation(member_id, instance_id, generation)
        self._keep_alive(member_id, now_ms)
        if self.state is GroupPhase.PREPARING:
            raise RebalanceInProgress(group=self.group_id)

    def leave(self, leaving: Sequence[LeaveRequest], now_ms: int) -> list[MillpondError | None]:
        """Returns the error of each, in order; None for success."""
        outcomes = [self._leave_one(each) for each in leaving]
        if any(outcome is None for outcome in outcomes):
            if self.state in (GroupPhase.STABLE, GroupPhase.COMPLETING):
                self._prepare(now_ms)
            elif self.state is GroupPhase.PREPARING:
                self._complete_join_if_all_joined(now_ms)
        return outcomes

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, *, transactional: bool
    ) -> None:
        """Raises unless this member may commit offsets now. A commit outside a transaction also counts as a heartbeat.
        A transaction is fenced by its producer, so the group checks only the member and generation it names, if any."""
        if generation < 0 and self.state is GroupPhase.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self._check_generation(member_id, instance_id, generation)
        elif not transactional:
            raise UnknownMember(group=self.group_id, member_id=member_id)
        if transactional:
            return
        if self.state is GroupPhase.COMPLETING:
            raise RebalanceInProgress(group=self.group_id)
        self._keep_alive(member_id, now_ms)

    def saved(self, save: SaveSnapshot, error: MillpondError | None, now_ms: int) -> None:
        """The result of storing a `SaveSnapshot`. If the group has changed since, the result no longer matters."""
        if save.restart is not None:
            self._restart_saved(save.restart, error, now_ms)
        elif save is self._storing:
            if error is None:
                self._stabilize(save.snapshot, now_ms)
            else:
                self._respond_to_syncs(lambda _: error.copy(), now_ms)
                self._prepare(now_ms)

    def tick(self, now_ms: int) -> None:
        """Process everything that is due now."""
        for member_id in self._sessions.take_due(now_ms):
            self._end_session(member_id, now_ms)
        if self._sync_due_ms is not None and self._sync_due_ms <= now_ms:
            self._end_sync(now_ms)
        if self._join_due_ms is not None and self._join_due_ms <= now_ms:
            self._end_join(now_ms)

    def kill(self) -> None:
        """The group was deleted or has moved: pending requests receive `NotCoordinator`."""
        self.state, self._storing = GroupPhase.DEAD, None
        self._join_due_ms = self._sync_due_ms = None
        self._sessions = NamedDeadlines()
        for member in self.roster:
            self._fail_pending(member.member_id, NotCoordinator(group=self.group_id))

    # -- joining ----------------------------------------------------------------------------------------------

    def _check_join(self, request: JoinRequest, now_ms: int) -> None:
        low, high = self._limits.session_timeout_min_ms, self._limits.session_timeout_max_ms
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(timeout_ms=request.session_timeout_ms, min_ms=low, max_ms=high)
        if self.state is GroupPhase.DEAD:
            raise NotCoordinator(group=self.group_id)
        if not self._has_room_for(request.member_id):
            if request.member_id in self.roster:
                self._remove(request.member_id)
                self._complete_join_if_all_joined(now_ms)
            raise GroupFull(group=self.group_id, limit=self._limits.members_max)
        if not self._supports_protocols(request):
            raise InconsistentProtocol(group=self.group_id)

    def _has_room_for(self, member_id: str) -> bool:
        """While a rebalance is prepared, pending joins are counted, so that a group that is too large removes the
        members that join last."""
        if not member_id and len(self._expected) >= self._limits.members_max:
            return False
        if self.state is GroupPhase.PREPARING:
            return member_id in self._joining or len(self._joining) < self._limits.members_max
        return member_id in self.roster or len(self.roster) < self._limits.members_max

    def _supports_protocols(self, request: JoinRequest) -> bool:
        if self.state is GroupPhase.EMPTY:
            return bool(request.protocol_type and request.protocols)
        same_type = request.protocol_type == self.protocol_type
        return same_type and self.roster.all_support_one_of(request.protocols)

    def _join_new(self, request: JoinRequest, ticket: int, now_ms: int) -> None:
        member_id = self._new_id(request.client_id if request.instance_id is None else request.instance_id)
        holder = self.roster.holder(request.instance_id)
        if holder is not None:
            self._restart(request, holder, member_id, ticket, now_ms)
        elif request.instance_id is None and request.require_known_id:
            self._expected.add(member_id)
            self._has_new_joiner = True  # it will soon join with its id
            self._sessions.set(member_id, now_ms + request.session_timeout_ms)
            raise MemberIdRequired(group=self.group_id, member_id=member_id)
        else:
            self._admit(request, member_id, ticket, now_ms)

    def _admit(self, request: JoinRequest, member_id: str, ticket: int, now_ms: int) -> None:
        self._expected.discard(member_id)
        if not len(self.roster):
            self.protocol_type = request.protocol_type
        self._wait_to_join(request, member_id, ticket)
        self.leader = self.leader or member_id
        self._has_new_joiner = True
        self._new_members.add(member_id)
        self._sessions.set(member_id, now_ms + self._limits.new_member_timeout_ms)
        self._rebalance(now_ms)

    def _rejoin(self, request: JoinRequest, ticket: int, now_ms: int) -> None:
        """An unchanged join in CompletingRebalance, or in Stable from a member other than the leader, is a retry whose
        response was lost; it receives the same response again. Any other join starts a rebalance or takes part in it.
        The leader of a stable group joins again to request a new assignment."""
        member = self._check_member(request.member_id, request.instance_id)
        is_leader = member.member_id == self.leader
        has_response = self.state is GroupPhase.COMPLETING or (
            self.state is GroupPhase.STABLE and not is_leader
        )
        if has_response and member.protocols == request.distinct_protocols():
            self._respond(ticket, self._joined(member.member_id))
            return
        self._wait_to_join(request, member.member_id, ticket)
        self._rebalance(now_ms)

    # -- static members that restart --------------------------------------------------------------------------

    def _restart(self, request: JoinRequest, holder: str, member_id: str, ticket: int, now_ms: int) -> None:
        """A static member was restarted: its new id replaces the former one and keeps its assignment."""
        former = self._rename(holder, member_id, now_ms)
        self._wait_to_join(request, member_id, ticket)
        if self.state is GroupPhase.STABLE and self.roster.elect_protocol() == self.protocol:
            restart = Restart(member_id, former, request.can_skip_assignment)
            self._effects.append(SaveSnapshot(self._snapshot(), restart))
        else:  # in CompletingRebalance the leader may already have assigned partitions to the former id
            self._rebalance(now_ms)

    def _restart_saved(self, restart: Restart, error: MillpondError | None, now_ms: int) -> None:
        """If a rebalance has started since, the member takes part in it, and its join stays pending."""
        member_id = restart.member_id
        if self.state is not GroupPhase.STABLE or member_id not in self._joining:
            return
        ticket = self._joining.pop(member_id)
        if error is not None:
            self._respond(ticket, error.copy())
            self._rename(member_id, restart.former.member_id, now_ms)
            self.roster.put(restart.former)
            return
        self._keep_alive(member_id, now_ms)
        joined = self._joined(member_id)
        if member_id == self.leader:  # an assignment it sent now would reach no member
            joined = replace(joined, skip_assignment=True)
            if not restart.can_skip_assignment:  # then it must not learn that it is the leader
                joined = replace(joined, skip_assignment=False, members=(), leader=restart.former.member_id)
        self._respond(ticket, joined)

    # -- creating a generation --------------------------------------------------------------------------------

    def _rebalance(self, now_ms: int) -> None:
        if self.state is GroupPhase.PREPARING:
            self._complete_join_if_all_joined(now_ms)
        else:
            self._prepare(now_ms)

    def _prepare(self, now_ms: int) -> None:
        self._respond_to_syncs(lambda _: RebalanceInProgress(group=self.group_id), now_ms)
        self._storing = self._sync_due_ms = None
        self._first_rebalance = self.state is GroupPhase.EMPTY
        self.state = GroupPhase.PREPARING
        wait_ms = self._rebalance_timeout_ms()
        if self._first_rebalance:
            delay_ms = self._limits.initial_rebalance_delay_ms
            longest_ms = min(wait_ms, delay_ms * self._limits.initial_rebalance_delays_max)
            self._has_new_joiner = False
            self._join_due_ms = now_ms + delay_ms
            self._join_latest_ms = now_ms + max(delay_ms, longest_ms)
        else:
            self._join_due_ms = now_ms + wait_ms
            self._complete_join_if_all_joined(now_ms)

    def _complete_join_if_all_joined(self, now_ms: int) -> None:
        if not self._first_rebalance and self._all_joined():
            self._complete_join(now_ms)

    def _end_join(self, now_ms: int) -> None:
        """The join phase ends, unless this is a new group that members keep joining. So a single member starts almost
        immediately, and members that start together share the first generation."""
        due_ms = min(now_ms + self._repeated_wait_ms(), self._join_latest_ms)
        if self._first_rebalance and self._has_new_joiner and due_ms > now_ms:
            self._has_new_joiner = False
            self._join_due_ms = due_ms
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
        self._join_due_ms = None
        for member in self.roster:
            if member.member_id not in self._joining and member.instance_id is None:
                self._remove(member.member_id)
        if len(self.roster) and not self._elect_leader():
            self._join_due_ms = now_ms + self._rebalance_timeout_ms()
            return
        self.generation += 1
        if len(self.roster):
            self._begin_sync(now_ms)
        else:
            self.state, self.protocol = GroupPhase.EMPTY, None
            self._effects.append(SaveSnapshot(self._snapshot()))

    def _elect_leader(self) -> bool:
        """Keep the leader or choose another among the members that have joined. Returns False if none has joined."""
        if self.leader not in self._joining:
            here = (each.member_id for each in self.roster if each.member_id in self._joining)
            self.leader = next(here, self.leader)
        return self.leader in self._joining

    def _begin_sync(self, now_ms: int) -> None:
        self.state = GroupPhase.COMPLETING
        self.protocol = self.roster.elect_protocol()
        self._new_members.clear()
        self._sync_due_ms = now_ms + self._rebalance_timeout_ms()
        for member in self.roster:
            self._unsynced.add(member.member_id)
            self._keep_alive(member.member_id, now_ms)
            if (ticket := self._joining.pop(member.member_id, None)) is not None:
                self._respond(ticket, self._joined(member.member_id))

    # -- assignment -------------------------------------------------------------------------------------------

    def _check_protocol(self, request: SyncRequest) -> None:
        same_type = request.protocol_type in (None, self.protocol_type)
        if not same_type or request.protocol not in (None, self.protocol):
            raise InconsistentProtocol(group=self.group_id)

    def _wait_for_assignment(self, request: SyncRequest, ticket: int) -> None:
        self._fail_superseded(self._syncing.get(request.member_id))
        self._syncing[request.member_id] = ticket
        if request.member_id == self.leader and self._storing is None:
            assignments = request.assignments
            members = (replace(each, assignment=assignments.get(each.member_id, b"")) for each in self.roster)
            self._storing = SaveSnapshot(replace(self._snapshot(), members=tuple(members)))
            self._effects.append(self._storing)

    def _stabilize(self, snapshot: Snapshot, now_ms: int) -> None:
        self.state, self._storing = GroupPhase.STABLE, None
        for member in snapshot.members:
            self.roster.put(member)
        self._respond_to_syncs(self._synced, now_ms)

    def _end_sync(self, now_ms: int) -> None:
        """Remove members that received the generation and never requested their assignment."""
        self._sync_due_ms = None
        if self._unsynced:
            for member_id in sorted(self._unsynced):
                self._remove(member_id)
            self._prepare(now_ms)

    # -- leaving ----------------------------------------------------------------------------------------------

    def _leave_one(self, leaving: LeaveRequest) -> MillpondError | None:
        member_id = leaving.member_id or self.roster.holder(leaving.instance_id) or ""
        if member_id in self._expected:
            self._expected.remove(member_id)
            self._sessions.clear(member_id)
            return None
        try:
            self._check_member(member_id, leaving.instance_id)
        except MillpondError as error:
            return error
        self._remove(member_id)
        return None

    def _end_session(self, member_id: str, now_ms: int) -> None:
        waits = member_id in self._joining or member_id in self._syncing
        if member_id in self._expected:
            self._expected.remove(member_id)
        elif member_id in self._new_members or not waits:
            self._remove(member_id)
            if self.state is not GroupPhase.PREPARING:
                self._prepare(now_ms)
        else:
            return  # its response will restart the session
        if self.state is GroupPhase.PREPARING and self._all_joined():
            self._complete_join(now_ms)
