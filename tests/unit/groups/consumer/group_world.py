"""A group in a small world: the real `Groups` over a catalog in memory, virtual time, topics, and clients that behave
as Kafka's do. Saves can be held up and can fail, responses can be lost, coordinators die between a change and its save.

The world knows what each client owns as the client sees it, and checks after every event that no two own a partition.
"""

import asyncio
import contextlib
from itertools import count
from types import SimpleNamespace

from tests.unit.groups.consumer.group_clients import ClassicClient, ConsumerClient
from tests.unit.groups.consumer_topics import KnownTopics

from millpond.groups import CommitSender, GroupLimits, Groups, LeaveRequest
from millpond.groups.classic.snapshot import Snapshot
from millpond.groups.consumer.group import ConsumerGroup
from millpond.groups.consumer.messages import StoredGroup
from millpond.groups.consumer.stored import decode_header
from millpond.groups.loaded_groups import LoadedGroups
from millpond.groups.share.messages import SHARE
from millpond.groups.share.stored import decode_header as decode_share_header
from millpond.groups.store import GroupOwnership
from millpond.model.errors import CatalogUnavailable, NotCoordinator
from millpond.model.ids import TopicPartition
from millpond.testing import SimulatedClock

GROUP = "readers"
LIMITS = GroupLimits(
    initial_rebalance_delay_ms=1_000, initial_rebalance_wait_max_ms=1_000, instant_target_size_max=12
)
"""Targets of three members with four partitions are instant, of larger groups not."""
TURNS = 16
"""Of the event loop, until nothing is ready."""
ROUNDS = 60
ROUND_MS = 4_000
"""All rounds together are longer than every timeout, one after the other."""
NAMES = ("a", "b", "c", "d", "e")
KINDS = {"consumer": ConsumerClient, "classic": ClassicClient, "eager": ClassicClient}
QUIET = (NotCoordinator, CatalogUnavailable)


class MemoryCatalog:
    """What is stored of the group. `epoch` is that of the coordinator that may write."""

    def __init__(self):
        self.epoch = 1
        self.stored = None
        self.saves = 0
        self.may_save = asyncio.Event()
        self.may_save.set()
        self.fails = False
        self.problems = []

    async def save(self, epoch, change):
        await self.may_save.wait()
        if epoch != self.epoch:
            raise NotCoordinator(group=GROUP)
        if self.fails:
            self.fails = False
            raise CatalogUnavailable(reason="away")
        former, self.stored = self.stored, change(self.stored)
        self.saves += 1
        if epoch_of(self.stored) < reached(former):
            self.problems.append(f"epochs went back from {former} to {self.stored}")


class MemoryStore:
    """`GroupStore` of one coordinator."""

    def __init__(self, catalog):
        self._catalog, self._epoch = catalog, catalog.epoch

    def coordinates(self, _):
        return self._epoch == self._catalog.epoch

    def ownership(self, group_id):
        if not self.coordinates(group_id):
            raise NotCoordinator(group=group_id)
        return GroupOwnership(group_id, 0, self._epoch)

    async def load(self, _):
        return self._catalog.stored

    async def save(self, ownership, snapshot):
        await self._catalog.save(ownership.epoch, lambda _: snapshot)

    async def save_changes(self, ownership, changes):
        def changed(former):
            has_former = isinstance(former, StoredGroup) and not changes.complete
            stored = former if has_former else StoredGroup(0, "", {}, changes.type)
            members = {**stored.members, **changes.members}
            members = {member_id: text for member_id, text in members.items() if text is not None}
            assert changes.is_empty == (not members)
            assert changes.state is not None or stored.state, "the first save has everything"
            assert stored.type == changes.type
            return StoredGroup(changes.epoch, changes.state or stored.state, members, changes.type)

        await self._catalog.save(ownership.epoch, changed)


class World:
    def __init__(self):
        self.clock = SimulatedClock(0)
        self.topics = KnownTopics({"t1": 4, "t2": 2})
        self.catalog = MemoryCatalog()
        self.clients = {}
        self.numbers = count(1)
        self.restart()

    # -- what can happen --------------------------------------------------------------------------------------

    async def play(self, event):
        kind, *arguments = event
        await getattr(self, f"on_{kind}")(*arguments)
        await self.settle()
        self.check()

    async def on_start(self, name, kind, is_static, topics, regex, assignor):
        if name not in self.clients:
            number = next(self.numbers)
            make = KINDS[kind]
            self.clients[name] = make(self, f"{name}{number}", name if is_static else None, topics)
            self.clients[name].configure(kind, regex, assignor)
            self.clients[name].beat()

    async def on_beat(self, name, reports):
        if client := self.clients.get(name):
            client.reports = reports
            client.beat()

    async def on_lose(self, name, repeats):
        """The response is lost. The client may send the same request once more."""
        if client := self.clients.get(name):
            client.beat()
            await self.settle(1)
            client.lose()
            if repeats:
                client.repeat()

    async def on_finish(self, name):
        if client := self.clients.get(name):
            client.finish()

    async def on_subscribe(self, name, topics):
        if client := self.clients.get(name):
            client.subscribe(topics)

    async def on_die(self, name):
        self.clients.pop(name, None)

    async def on_leave(self, name, pauses):
        client = self.clients.get(name)
        if client is not None and client.is_idle:
            del self.clients[name]
            client.leave(pauses=pauses)

    async def on_replace(self, name):
        """All consumers of the new protocol leave, so that the group becomes a classic one, and one comes again."""
        for each, client in list(self.clients.items()):
            if isinstance(client, ConsumerClient):
                await self.on_leave(each, pauses=False)
                await self.settle()
        await self.on_start(name, "consumer", False, ("t1", "t2"), "", None)

    async def on_remove(self, name):
        """An administrator removes the member, which does not know it yet."""
        if client := self.clients.get(name):
            client.remove()
            with contextlib.suppress(*QUIET):
                await self.tolerate(self.groups.leave(GROUP, [LeaveRequest(client.member_id)]))

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
        for client in self.clients.values():
            client.lose()
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
            self.tick()
            assert deadlines.next_ms() != due, "it must not be woken for nothing"
            await self.settle()
            self.check()
        self.clock.advance(end - self.now)

    async def on_commit(self, name):
        client, group = self.clients.get(name), self.group
        if isinstance(client, ConsumerClient) and client.is_member and isinstance(group, ConsumerGroup):
            await self._check_commits(client, group)

    async def on_round(self):
        """Time passes, and every client does what it is to do."""
        await self.on_wait(ROUND_MS)
        for client in list(self.clients.values()):
            client.finish()
            client.beat()
            await self.settle()
            self.check()

    # -- what must hold ---------------------------------------------------------------------------------------

    def check(self):
        assert not self.catalog.problems
        owners = self.owners()
        shared = {each: names for each, names in owners.items() if len(names) > 1}
        assert not shared, f"two owners: {shared}"
        group = self.group
        if isinstance(group, ConsumerGroup) and not self.is_saving and not group.is_dead:
            check_restored(group, self.catalog.stored, self.now)

    async def check_settled(self):
        """Without other events, each partition soon has one owner, and heartbeats change nothing any more."""
        self.catalog.may_save.set()
        self.catalog.fails = False
        for _ in range(ROUNDS):
            await self.play(("round",))
        before = self.catalog.saves, self.catalog.stored, self.owners()
        await self.play(("round",))
        assert before == (self.catalog.saves, self.catalog.stored, self.owners()), (
            "a heartbeat changed something"
        )
        assert all(each.is_member for each in self.clients.values())
        subscribed = {each for client in self.clients.values() for each in client.subscribed()}
        assert self.owners().keys() == subscribed
        for client in self.clients.values():
            assert client.owned <= client.subscribed()
        self._check_balance()

    def _check_balance(self):
        subscriptions = {client.subscribed() for client in self.clients.values()}
        group = self.group
        if isinstance(group, ConsumerGroup) and len(subscriptions) == 1 and group.state.assignor == "uniform":
            sizes = [len(client.owned) for client in self.clients.values()]
            assert max(sizes) - min(sizes) <= 1
        if isinstance(group, ConsumerGroup):
            chosen = [client.assignor for client in self.clients.values() if client.assignor is not None]
            most = max(map(chosen.count, chosen), default=0)
            assert not chosen or chosen.count(group.state.assignor) == most
            assert {each.member_id for each in self.clients.values()} == group.state.members.keys()

    async def _check_commits(self, client, group):
        """A member may commit what it owns, in each epoch since it does; others may not, in earlier epochs."""
        for each, since in client.owned_since.items():
            for epoch in {since, client.epoch}:
                assert await self._commit(client, epoch, each) is None, f"{client.member_id} owns {each}"
        member = group.state.members.get(client.member_id)
        if member is None:
            return
        for each, [owner] in self.owners().items():
            if owner != client.member_id:
                error = await self._commit(client, member.epoch - 1, each)
                assert error is not None, f"{each} is {owner}'s"

    async def _commit(self, client, epoch, topic_partition):
        sender = CommitSender(client.member_id, epoch, client.instance_id)
        [error] = await self.groups.check_member(GROUP, sender, [topic_partition])
        return error

    def owners(self):
        """The clients that own each partition, as they see it. A client that was removed without its own doing learns
        of it later; it is not counted."""
        found = {}
        for client in self.clients.values():
            for each in client.owned if not client.is_removed else ():
                if self.topics.with_id(each.topic_id) is not None:
                    found.setdefault(each, []).append(client.member_id)
        return found

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
        new_id = lambda name: f"{name}-{next(self.numbers)}"  # noqa: E731
        self.groups = Groups(log, None, lambda _: None, clock=self.clock, limits=LIMITS, new_id=new_id)
        self.groups._store = store = MemoryStore(self.catalog)
        self.groups._topics = self
        self.groups._loaded_groups = LoadedGroups(store, self, clock=self.clock, limits=LIMITS, new_id=new_id)

    def tick(self):
        before = members_of(self.group)
        self.groups.tick()
        self._remove(before - members_of(self.group))

    async def settle(self, turns=TURNS):
        for _ in range(turns):
            await asyncio.sleep(0)
        if self.group is not None and not isinstance(self.group, ConsumerGroup):
            classic = {each.member_id for each in self.clients.values() if isinstance(each, ClassicClient)}
            self._remove(classic - members_of(self.group))

    def _remove(self, member_ids):
        for client in self.clients.values():
            if client.member_id in member_ids:
                client.remove()

    async def tolerate(self, request):
        task = asyncio.create_task(request)
        await self.settle()
        task.cancel()


def members_of(group):
    if group is None:
        return set()
    members = group.state.members if isinstance(group, ConsumerGroup) else group.state.roster
    return {each if isinstance(each, str) else each.member_id for each in members}


def check_restored(group, stored, now):
    """Another coordinator knows the same of the group."""
    if stored is None or isinstance(stored, Snapshot):
        assert not group.state.members
        return
    ours, other = group.state, ConsumerGroup.restored(GROUP, LIMITS, None, stored, now).state
    for name in ("epoch", "target_epoch", "assignor", "session_timeout_ms", "members", "classic_members"):
        assert getattr(other, name) == getattr(ours, name), name
    for name in ("_instances", "_holders", "_supporters"):
        assert getattr(other, name) == getattr(ours, name), name
    assert +other._assignors == +ours._assignors
    assert all(other.target(member_id) == ours.target(member_id) for member_id in ours.members)
    assert ours.targets.keys() <= ours.members.keys()
    assert other.subscriptions.resolved == ours.subscriptions.resolved
    assert other.subscriptions.fingerprint == ours.subscriptions.fingerprint
    assert other.subscriptions.names() == ours.subscriptions.names()


def partitions_of_topic(topic):
    return {TopicPartition(topic.topic_id, number) for number in range(topic.partitions)}


def epoch_of(stored):
    return stored.generation if isinstance(stored, Snapshot) else stored.epoch


def reached(stored):
    """The newest epoch that a member may be in. A group of the consumer protocol may have begun others, which do not
    count when it becomes a classic one."""
    if stored is None:
        return 0
    if isinstance(stored, Snapshot):
        return stored.generation
    decode = decode_share_header if stored.type == SHARE else decode_header
    return decode(stored.state).target_epoch
