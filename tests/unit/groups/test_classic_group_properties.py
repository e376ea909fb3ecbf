"""The machine under random histories: whatever happens, every request gets one answer and generations are whole."""

import contextlib
from collections import defaultdict
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.groups.classic.group import ClassicGroup
from millpond.groups.classic.members import Protocol
from millpond.groups.classic.messages import (
    GroupPhase,
    GroupResponse,
    Joined,
    JoinRequest,
    LeaveRequest,
    SaveSnapshot,
    Synced,
    SyncRequest,
)
from millpond.groups.limits import GroupLimits
from millpond.model.errors import CatalogUnavailable, MemberIdRequired, MillpondError, UnknownMember

NAMES = ["a", "b", "c", "d", "e"]
LIMITS = GroupLimits(members_max=4, new_member_timeout_ms=60_000)
A_LONG_TIME_MS = 4 * 3_600_000

names = st.sampled_from(NAMES)
events = st.one_of(
    st.tuples(
        st.just("join"),
        names,
        st.sampled_from(["range", "range,robin", "robin,range"]),
        st.booleans(),  # starts anew
        st.booleans(),  # knows of ids that must be asked for
        st.sampled_from([6_000, 20_000]),
    ),
    st.tuples(st.just("join_static"), names, st.sampled_from(["i1", "i2"]), st.booleans()),
    st.tuples(st.just("sync"), names),
    st.tuples(st.just("heartbeat"), names),
    st.tuples(st.just("commit"), names),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("remove"), st.sampled_from(["i1", "i2"])),
    st.tuples(st.just("save"), st.booleans()),
    st.tuples(st.just("hold_saves"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([0, 500, 3_000, 7_000, 30_000])),
    st.tuples(st.just("restart")),
)


class History:
    """Plays events against a group and watches what it says."""

    def __init__(self):
        self.now = 0
        self.numbers, self.tickets = count(1), count()
        self.group = ClassicGroup("readers", LIMITS, lambda name: f"{name}-{next(self.numbers)}")
        self.ids, self.generations = defaultdict(str), defaultdict(lambda: -1)
        self.open = {}
        self.hold, self.saves = False, []
        self.protocols = {}
        self.members = {}
        self.given = {}
        self.stored = None
        self.generation = 0

    def play(self, event):
        kind, *arguments = event
        getattr(self, kind)(*arguments)
        self.look()

    # -- events -----------------------------------------------------------------------------------------------

    def join(self, name, protocols, anew, modern, session_ms, instance=None):
        if anew:
            self.ids[name] = ""
        offered = [Protocol(each, name.encode()) for each in protocols.split(",")]
        request = JoinRequest(
            self.ids[name], name, "", session_ms, 9_000, "consumer", offered, instance, modern, modern
        )
        self.group.join(request, self.ticket(name), self.now)

    def join_static(self, name, instance, anew):
        self.join(name, "range", anew, True, 12_000, instance)

    def sync(self, name):
        assignments = {
            each.member_id: f"{each.member_id}@{self.group.state.generation}".encode()
            for each in self.group.state.roster
        }
        request = SyncRequest(self.ids[name], self.generations[name], assignments=assignments)
        self.group.sync(request, self.ticket(name), self.now)

    def heartbeat(self, name):
        self.tolerate(lambda: self.group.heartbeat(self.ids[name], None, self.generations[name], self.now))

    def commit(self, name):
        self.tolerate(
            lambda: self.group.check_commit(
                self.ids[name], None, self.generations[name], self.now, transactional=False
            )
        )

    def leave(self, name):
        self.group.leave([LeaveRequest(self.ids[name])], self.now)

    def remove(self, instance):
        self.group.leave([LeaveRequest("", instance)], self.now)

    def hold_saves(self, hold):
        self.hold = hold

    def save(self, works):
        if self.saves:
            save = self.saves.pop(0)
            if works:
                self.stored = save.snapshot
            self.group.saved(save, None if works else CatalogUnavailable(reason="away"), self.now)

    def wait(self, milliseconds):
        end = self.now + milliseconds
        while (due := self.group.next_deadline_ms()) is not None and due <= end:
            self.now = max(due, self.now)
            self.group.tick(self.now)
            self.look()
            later = self.group.next_deadline_ms()
            assert later is None or later > self.now, "it must not be woken for nothing"
        self.now = end

    def restart(self):
        """The coordinator dies: whoever waited is told by its connection."""
        self.open.clear()
        self.saves.clear()
        fresh = ClassicGroup("readers", LIMITS, self.group._new_id)
        if self.stored is not None:
            fresh = ClassicGroup.restored("readers", LIMITS, self.group._new_id, self.stored, self.now)
        self.group, self.generation = fresh, fresh.state.generation
        self.protocols, self.members = {}, {}  # what was not stored may be decided otherwise

    # -- what must hold ---------------------------------------------------------------------------------------

    def look(self):
        while effects := self.group.take_effects():
            for effect in effects:
                self.see(effect)
            while not self.hold and self.saves:
                self.save(True)
        group = self.group
        assert group.state.generation >= self.generation
        self.generation = group.state.generation
        instances = [each.instance_id for each in group.state.roster if each.instance_id]
        assert len(set(instances)) == len(instances)
        assert len(group.state.roster) <= LIMITS.members_max or group.state.phase is GroupPhase.PREPARING
        assert (group.state.phase is GroupPhase.EMPTY) <= (len(group.state.roster) == 0)
        if group.state.phase in (GroupPhase.COMPLETING, GroupPhase.STABLE):
            assert group.state.leader in group.state.roster
            assert all(
                group.state.protocol in [p.name for p in each.protocols] for each in group.state.roster
            )
            assert group.next_deadline_ms() is not None

    def see(self, effect):
        if isinstance(effect, SaveSnapshot):
            self.saves.append(effect)
            return
        assert isinstance(effect, GroupResponse)
        name = self.open.pop(effect.ticket)  # fails for a second answer
        match effect.outcome:
            case Joined() as joined:
                self.see_joined(name, joined)
            case Synced() as synced:
                self.see_synced(synced)
            case MemberIdRequired() as error:
                self.ids[name] = error.facts["member_id"]
            case UnknownMember():
                self.ids[name] = ""

    def see_joined(self, name, joined):
        """All who join a generation learn the same of it."""
        self.ids[name], self.generations[name] = joined.member_id, joined.generation
        assert joined.generation == self.group.state.generation
        assert joined.member_id in self.group.state.roster
        assert self.protocols.setdefault(joined.generation, joined.protocol) == joined.protocol
        if joined.members:
            assert joined.leader == joined.member_id
            assert {each.member_id for each in joined.members} == {
                e.member_id for e in self.group.state.roster
            }

    def see_synced(self, synced):
        """What is handed out was stored before, for the generation that is on."""
        assert self.group.state.phase is GroupPhase.STABLE
        assert self.stored is not None
        assert self.stored.generation == self.group.state.generation
        assert synced.assignment in {each.assignment for each in self.stored.members}
        assert synced.protocol == self.stored.protocol

    # -- helpers ----------------------------------------------------------------------------------------------

    def ticket(self, name):
        ticket = next(self.tickets)
        self.open[ticket] = name
        return ticket

    def tolerate(self, event):
        with contextlib.suppress(MillpondError):
            event()


@settings(max_examples=200, deadline=None)
@given(st.lists(events, max_size=60))
def test_every_request_is_answered_once_and_generations_are_whole(history):
    stage = History()
    for event in history:
        stage.play(event)
    stage.hold = False
    while stage.saves:
        stage.play(("save", True))
    stage.wait(A_LONG_TIME_MS)
    assert stage.open == {}, "somebody still waits"
    assert stage.group.state.phase is GroupPhase.EMPTY
    assert stage.group.is_idle()
    assert stage.group.next_deadline_ms() is None


@settings(max_examples=100, deadline=None)
@given(st.lists(events, max_size=40))
def test_a_generation_goes_on_under_another_coordinator(history):
    """Members of a stable generation sync and send heartbeats after a restart as if nothing had happened."""
    stage = History()
    for event in history:
        stage.play(event)
    if stage.group.state.phase is not GroupPhase.STABLE or stage.saves or stage.group.state.joining:
        return
    before = stage.group
    stage.restart()
    assert stage.group.describe() == before.describe()
    assert stage.group.state.leader == before.state.leader
    for member in before.state.roster:
        stage.group.heartbeat(member.member_id, member.instance_id, before.state.generation, stage.now)
        request = SyncRequest(member.member_id, before.state.generation)
        stage.group.sync(request, 0, stage.now)
        [answer] = stage.group.take_effects()
        assert answer.outcome.assignment == member.assignment
