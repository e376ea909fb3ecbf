"""A share group in a small world: the real `Groups` over a catalog in memory, virtual time, topics, and members that
behave as Kafka's do. Saves can be held up and can fail, responses can be lost, coordinators die between a change and
its save.

The world knows what each member reads as the member sees it, and checks after every event that this is stored.
"""

import asyncio
from itertools import count
from types import SimpleNamespace

from tests.unit.groups.consumer.group_world import QUIET, ROUND_MS, ROUNDS, TURNS, MemoryCatalog, MemoryStore
from tests.unit.groups.consumer_topics import KnownTopics
from tests.unit.groups.share.simple_model import check as check_balance

from millpond.groups import JOIN_EPOCH, GroupLimits, Groups, ShareHeartbeat
from millpond.groups.consumer.assignors import AssignableMember
from millpond.groups.consumer.messages import LEAVE_EPOCH
from millpond.groups.loaded_groups import LoadedGroups
from millpond.groups.share.group import ShareGroup
from millpond.groups.share.stored import decode_header, decode_member
from millpond.model.errors import FencedMemberEpoch, GroupFull, GroupNotEmpty, UnknownMember
from millpond.model.ids import TopicPartition
from millpond.testing import SimulatedClock

GROUP = "workers"
LIMITS = GroupLimits(share_members_max=4, instant_target_size_max=12)
"""Targets of three members with four partitions are instant, of larger groups not."""
NAMES = ("a", "b", "c", "d", "e")


class ShareClient:
    """A member. It describes itself completely when it joins and after errors. A request whose response is lost is
    repeated as it was, or it describes itself completely."""

    def __init__(self, world, member_id, topics):
        self.world, self.member_id, self.topics = world, member_id, topics
        self.epoch = JOIN_EPOCH
        self.assigned = frozenset()
        self.is_complete = True
        self.described = ()
        """The topics that the group knows."""
        self.request = None
        self.sent = None
        self.is_refused = False

    @property
    def is_member(self):
        return self.epoch != JOIN_EPOCH

    def beat(self, *, repeats=False):
        if self.sent is not None:
            return
        if not repeats or self.request is None:
            self.request = ShareHeartbeat(
                self.member_id,
                self.epoch,
                self.member_id,
                "here",
                topic_names=self.topics if self.is_complete else None,
            )
        self.sent = asyncio.ensure_future(self.world.groups.share_heartbeat(GROUP, self.request))
        self.sent.add_done_callback(self.receive)

    def receive(self, sent):
        if sent is not self.sent:  # the response is lost
            return sent.cancelled() or sent.exception()
        self.sent = None
        error = sent.exception()
        if isinstance(error, UnknownMember | FencedMemberEpoch):
            self.epoch, self.assigned, self.is_complete = JOIN_EPOCH, frozenset(), True
        elif isinstance(error, QUIET):
            self.is_complete = True
        elif isinstance(error, GroupFull):
            self.is_refused = True
        elif error is not None:
            raise error
        else:
            self.described = self.request.topic_names or self.described
            self.is_complete, self.is_refused = self.described != self.topics, False
            self.apply(sent.result())
        return None

    def apply(self, response):
        self.world.check_progress(self, response)
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = frozenset(response.assignment)

    def lose(self):
        """The response will not arrive, and the member does not know what became of the request."""
        self.sent, self.is_complete = None, True

    def subscribe(self, topics):
        self.topics, self.is_complete = topics, True


class ShareWorld:
    def __init__(self):
        self.clock = SimulatedClock(0)
        self.topics = KnownTopics({"t1": 4, "t2": 2})
        self.catalog = MemoryCatalog()
        self.members = {}
        self.numbers = count(1)
        self.restart()

    # -- what can happen --------------------------------------------------------------------------------------

    async def play(self, event):
        kind, *arguments = event
        await getattr(self, f"on_{kind}")(*arguments)
        await self.settle()
        self.check()

    async def on_start(self, name, topics):
        if name not in self.members:
            self.members[name] = ShareClient(self, f"{name}{next(self.numbers)}", topics)
            self.members[name].beat()

    async def on_beat(self, name):
        if member := self.members.get(name):
            member.beat()

    async def on_lose(self, name, repeats):
        """The response is lost. The member may send the same request once more."""
        if member := self.members.get(name):
            member.beat()
            await self.settle(1)
            member.lose()
            if repeats:
                member.beat(repeats=True)

    async def on_subscribe(self, name, topics):
        if member := self.members.get(name):
            member.subscribe(topics)

    async def on_die(self, name):
        self.members.pop(name, None)

    async def on_leave(self, name):
        member = self.members.get(name)
        if member is not None and member.sent is None:
            del self.members[name]
            leaving = ShareHeartbeat(member.member_id, LEAVE_EPOCH, member.member_id, "here")
            await self.tolerate(self.groups.share_heartbeat(GROUP, leaving))

    async def on_begin(self):
        """An administrator moves positions, which only works without members."""
        await self.tolerate(self.groups.begin_empty_share_group(GROUP))

    async def on_topic(self, name, partitions):
        topic = self.topics.find(name)
        if partitions == 0 or topic is None or partitions > topic.partitions:
            self.topics = self.topics.changed(**{name: partitions})

    async def on_hold(self, holds):
        (self.catalog.may_save.clear if holds else self.catalog.may_save.set)()

    async def on_fail(self):
        self.catalog.fails = True

    async def on_crash(self, saves_first):
        """The coordinator dies before it has responded, before or after its saves in flight succeed."""
        for member in self.members.values():
            if member.sent is not None:
                member.lose()
        if saves_first:
            self.catalog.may_save.set()
            await self.settle()
        self.catalog.epoch += 1
        self.catalog.may_save.set()
        await self.settle()
        self.restart()

    async def on_wait(self, milliseconds):
        end = self.now + milliseconds
        deadlines = self.groups._loaded_groups._deadlines
        while (due := deadlines.next_ms()) is not None and due <= end:
            self.clock.advance(max(0, due - self.now))
            self.groups.tick()
            assert deadlines.next_ms() != due, "it must not be woken for nothing"
            await self.settle()
            self.check()
        self.clock.advance(end - self.now)

    async def on_round(self):
        """Time passes, and every member sends a heartbeat."""
        await self.on_wait(ROUND_MS)
        for member in list(self.members.values()):
            member.beat()
            await self.settle()
            self.check()

    # -- what must hold ---------------------------------------------------------------------------------------

    def check_progress(self, member, response):
        """A response rests on what is stored: another coordinator would say the same."""
        stored = self.catalog.stored
        assert response.member_epoch >= member.epoch, "epochs of members do not go back"
        assert response.member_epoch <= decode_header(stored.state).target_epoch
        if response.assignment is not None and member.member_id in stored.members:
            kept, _ = decode_member(member.member_id, stored.members[member.member_id])
            if kept.epoch == response.member_epoch:
                assert kept.assigned == frozenset(response.assignment)

    def check(self):
        assert not self.catalog.problems
        group = self.group
        if isinstance(group, ShareGroup) and not self.is_saving and not group.is_dead:
            check_restored(group, self.catalog.stored, self.now)

    async def check_settled(self):
        """Without other events, all members soon read what they are to read, and heartbeats change nothing any more."""
        self.catalog.may_save.set()
        self.catalog.fails = False
        for _ in range(ROUNDS):
            await self.play(("round",))
        before = self.catalog.saves, self.catalog.stored, [each.assigned for each in self.members.values()]
        await self.play(("round",))
        assert before == (
            self.catalog.saves,
            self.catalog.stored,
            [each.assigned for each in self.members.values()],
        ), "a heartbeat changed something"
        members = [each for each in self.members.values() if not each.is_refused]
        assert len(members) == min(len(self.members), LIMITS.share_members_max)
        assert all(each.is_member for each in members)
        self._check_assigned(members)

    def _check_assigned(self, members):
        """Every partition of a subscribed topic has its readers, and every member its share; see `simple_model`."""
        found = {each.member_id: frozenset(map(self.topics.find, each.topics)) - {None} for each in members}
        partitions = {topic.topic_id: topic.partitions for topics in found.values() for topic in topics}
        assignable = [
            AssignableMember(member_id, None, frozenset(topic.topic_id for topic in topics), frozenset())
            for member_id, topics in found.items()
        ]
        assigned = {each.member_id: each.assigned for each in members}
        if assignable:
            check_balance(assignable, partitions, assigned)
        read = set().union(*assigned.values())
        assert read == {
            TopicPartition(topic_id, number)
            for topic_id, size in partitions.items()
            for number in range(size)
        }
        if isinstance(self.group, ShareGroup):
            assert self.group.state.members.keys() == assigned.keys()

    # -- inside -----------------------------------------------------------------------------------------------

    @property
    def now(self):
        return self.clock.monotonic_ms()

    @property
    def group(self):
        loaded = self.groups._loaded_groups._groups.get(GROUP)
        return None if loaded is None else loaded.group

    @property
    def is_saving(self):
        return self.groups._loaded_groups._groups[GROUP].is_saving

    def get(self):
        """As `CurrentTopics` does."""
        return self.topics

    def restart(self):
        log = SimpleNamespace(topics=SimpleNamespace(changes=0, all=lambda: ()))
        self.groups = Groups(log, None, lambda _: None, clock=self.clock, limits=LIMITS, new_id=str)
        self.groups._store = store = ShareStore(self.catalog)
        self.groups._topics = self
        self.groups._loaded_groups = LoadedGroups(store, self, clock=self.clock, limits=LIMITS, new_id=str)

    async def settle(self, turns=TURNS):
        for _ in range(turns):
            await asyncio.sleep(0)

    async def tolerate(self, request):
        """A request of which nobody awaits the outcome."""
        task = asyncio.ensure_future(request)
        await self.settle()
        if task.done() and not isinstance(
            task.exception(), (*QUIET, UnknownMember, GroupNotEmpty, type(None))
        ):
            raise task.exception()
        task.cancel()


class ShareStore(MemoryStore):
    async def read(self, _):
        """No offsets are committed under the name of the group."""
        return False


def check_restored(group, stored, now):
    """Another coordinator knows the same of the group."""
    if stored is None:
        assert not group.state.members
        return
    ours, other = group.state, ShareGroup.restored(GROUP, LIMITS, stored, now).state
    for name in ("epoch", "target_epoch", "session_timeout_ms", "members", "fingerprint"):
        assert getattr(other, name) == getattr(ours, name), name
    assert all(other.target(member_id) == ours.target(member_id) for member_id in ours.members)
    assert ours.targets.keys() <= ours.members.keys()
    assert other.topic_names() == ours.topic_names()
    assert len(ours.sessions) == len(ours.members)
