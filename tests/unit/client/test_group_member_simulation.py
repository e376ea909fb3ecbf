"""Members of this library against the group machine, over a network that delays and loses: heartbeats, take-overs,
commits and polls overlap in many ways. Time is turns of the event loop, so a seed always runs in the same way.

The network keeps the requests of a member in order, as a connection does: one that was given up is lost, or has arrived
before the next one."""

import asyncio
import contextlib
import itertools
import random
from collections import Counter

import pytest
from tests.unit.groups.consumer_topics import KnownTopics, topic_id

from millpond.client import group_membership
from millpond.client.group_membership import GroupMembership
from millpond.client.membership_state import LOST
from millpond.frontends.rpc.convert import uuid_text
from millpond.frontends.rpc.groups import heartbeat_of, heartbeat_response
from millpond.groups import GroupLimits, LeaveRequest
from millpond.groups.consumer.group import ConsumerGroup
from millpond.model.errors import MillpondError, Unavailable
from millpond.model.group_configs import GroupConfig
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.stubs import admin_pb2

SEEDS = range(20)
PARTITIONS = 4
MEMBERS = 3
LIVES = 3
"""Of each member. It leaves after all but the last one."""
POLLS = 20
SETTLING_POLLS = 200
ATTEMPTS = 3
WITHOUT_PAUSES = GroupConfig(heartbeat_interval_ms=0)
TOPICS = KnownTopics({"t": PARTITIONS})
TOPIC = Topic(topic_id("t"), "t", PARTITIONS, created_at=0)
ALL = Counter(range(PARTITIONS))


class World:
    """The coordinator, the network, and what each member reads. With `removals`, members are removed from the group
    while they read. They cannot know that at once, but can commit nothing any more."""

    def __init__(self, seed, *, removals):
        self.draw = random.Random(seed)
        self.removals = removals
        self.is_calm = False
        self.group = ConsumerGroup("g", GroupLimits(), new_id=str)
        self.committed = dict.fromkeys(range(PARTITIONS), 1)
        self.members = []
        self.problems = []

    async def turns(self, most=5):
        for _ in range(self.draw.randrange(most)):
            await asyncio.sleep(0)

    def happens(self, share):
        return not self.is_calm and self.draw.random() < share

    async def call(self, name, request, _):
        """As `CoordinatorCalls`."""
        for _ in range(ATTEMPTS):
            await self.turns()
            if self.happens(0.1):
                continue
            found = self._heartbeat(request) if name == "GroupHeartbeat" else self._commit(request)
            await self.turns()
            if not self.happens(0.15):
                return found
        raise Unavailable(reason="lost")

    def _heartbeat(self, request):
        beat = heartbeat_of(request, "host")
        found = self.group.heartbeat(beat, TOPICS, WITHOUT_PAUSES, 0, lambda _: True)
        assigned = found.assignment
        numbers = None if assigned is None else [each.partition for each in assigned]
        return heartbeat_response(found, [(TOPIC, numbers)] if numbers else numbers)

    def _commit(self, request):
        wanted = [TopicPartition(TOPIC.id, number) for number in request.read_from]
        sender = request.member_id, None, request.member_epoch
        for error in self.group.check_commit(*sender, wanted, 0, transactional=False):
            if error is not None:
                raise error
        for each in wanted:
            owners = [
                member.member_id
                for member in self.group.state.members.values()
                if each in member.assigned or each in member.pending
            ]
            at = request.read_from[each.partition]
            if owners != [request.member_id] or at < self.committed[each.partition]:
                self.problems.append(f"{request.member_id} commits {each.partition} of {owners} at {at}")
            self.committed[each.partition] = at
        return admin_pb2.CommitPositionsResponse()

    @property
    def reading(self):
        return Counter(itertools.chain(*(each.reader.positions for each in self.members)))

    def check_reading(self):
        if not self.removals and max(self.reading.values(), default=0) > 1:
            self.problems.append(f"read by several: {[each.reader.positions for each in self.members]}")

    def remove(self, membership):
        self.group.leave([LeaveRequest(membership._membership.member_id)], 0)


class Reader:
    """As `TopicReader`."""

    topic = "t"
    is_outdated = False

    def __init__(self, world):
        self.positions = {}
        self._world = world

    async def take_over(self, _, numbers):
        await self._world.turns(20)
        if self._world.happens(0.1):
            return False
        if self._world.happens(0.05):
            raise Unavailable(reason="away")
        kept = {number: self._world.committed[number] for number in numbers}
        await self._world.turns(20)
        self.positions |= kept
        self._world.check_reading()
        return True

    def give_up(self, _, number):
        self.positions.pop(number, None)


class Member:
    """As `AsyncConsumer`: a poll commits what the one before has returned."""

    def __init__(self, world):
        self.world = world
        self.reader = Reader(world)
        self.membership = GroupMembership("g", ["t"], world)
        world.members.append(self)

    async def poll(self):
        await self._save()
        for _ in range(2):
            if self.membership.must_follow([self.reader]):
                await self._save()
                await self.membership.follow([self.reader])
            await self.world.turns()
        for number in self.reader.positions:
            self.reader.positions[number] += 1

    async def _save(self):
        if not self.reader.positions:
            return
        request = admin_pb2.CommitPositionsRequest(
            group="g", topic="t", topic_id=uuid_text(TOPIC.id), read_from=self.reader.positions
        )
        with contextlib.suppress(*LOST):
            await self.membership.commit(request)

    async def live(self):
        for _ in range(POLLS):
            polling = asyncio.ensure_future(self.poll())
            if self.world.happens(0.1):
                await self.world.turns(40)
                polling.cancel()  # as `asyncio.timeout` does
            with contextlib.suppress(MillpondError, asyncio.CancelledError):
                await polling
            await self.world.turns(40)
            if self.world.removals and self.world.happens(0.1):
                self.world.remove(self.membership)

    async def leave(self):
        self.reader.positions.clear()
        await self.membership.leave()
        self.world.members.remove(self)
        self.world.remove(self.membership)  # in case the coordinator has not heard it


async def come_and_go(world):
    for _ in range(LIVES - 1):
        member = Member(world)
        await member.live()
        await member.leave()
    await Member(world).live()


async def settle(world):
    for _ in range(SETTLING_POLLS):
        if world.reading == ALL and all(each.reader.positions for each in world.members):
            return
        for each in world.members:
            await each.poll()
    world.problems.append(f"never settled: {world.reading}")


@pytest.mark.parametrize("removals", [False, True], ids=["", "removals"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_partition_is_read_by_one_member_and_committed_by_its_owner(seed, removals, monkeypatch):
    numbers = itertools.count()
    monkeypatch.setattr(group_membership, "_new_member_id", lambda: f"m{next(numbers)}")
    world = World(seed, removals=removals)
    await asyncio.gather(*(come_and_go(world) for _ in range(MEMBERS)))
    world.is_calm = True
    await settle(world)
    for each in tuple(world.members):
        await each.leave()
    assert world.problems == []
    assert min(world.committed.values()) > 1
