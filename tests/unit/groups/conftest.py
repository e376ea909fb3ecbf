"""Groups over a real broker's log, whose catalog can be held up or refuse, with clients that behave."""

import asyncio
import struct
from contextlib import AsyncExitStack
from itertools import count

import pytest
from tests.shards import owned_shards

from millpond.groups import (
    CommitSender,
    GroupLimits,
    Groups,
    JoinRequest,
    LeaveRequest,
    Protocol,
    SyncRequest,
)
from millpond.model.errors import MemberIdRequired
from millpond.model.ids import TopicPartition
from millpond.testing import SimulatedClock, running_broker

START_MS = 1_700_000_000_000
DELAY_MS = 3_000


def subscription(*topics):
    """What a Kafka consumer says under its protocol."""
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 3, len(topics)) + names + struct.pack(">i", -1)


class FaultyLog:
    """The broker's log; reads and writes can be held up, and refused."""

    def __init__(self, log):
        self._log, self.topics = log, log.topics
        self.reads = self.writes = 0
        self.may_read, self.may_write = asyncio.Event(), asyncio.Event()
        self.may_read.set()
        self.may_write.set()
        self.error = None

    async def read(self, function):
        self.reads += 1
        await self.may_read.wait()
        self._check()
        return await self._log.read(function)

    async def write(self, operation):
        await self.may_write.wait()
        self.writes += 1
        self._check()
        return await self._log.write(operation)

    def _check(self):
        if self.error is not None:
            raise self.error


class Client:
    """A consumer: it remembers what it was told."""

    def __init__(self, stage, name, **options):
        self.stage, self.name, self.options = stage, name, options
        self.group_id = options.pop("group_id", "readers")
        self.member_id, self.generation = "", -1
        self.joined = None

    @property
    def identity(self):
        return CommitSender(self.member_id, self.generation, self.options.get("instance_id"))

    async def join(self, **changes):
        request = {
            "member_id": self.member_id,
            "client_id": self.name,
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [Protocol("range", subscription("orders"))],
        }
        request |= self.options | changes
        try:
            joined = await self.stage.groups.join(self.group_id, JoinRequest(**request))
        except MemberIdRequired as error:
            self.member_id = error.facts["member_id"]
            return await self.join(**changes)
        self.member_id, self.generation, self.joined = joined.member_id, joined.generation, joined
        return joined

    async def sync(self, **assignments):
        given = {member_id: work.encode() for member_id, work in assignments.items()}
        if self.joined.members and not given:
            given = {each.member_id: each.member_id.encode() for each in self.joined.members}
        instance_id = self.options.get("instance_id")
        request = SyncRequest(self.member_id, self.generation, instance_id, assignments=given)
        return (await self.stage.groups.sync(self.group_id, request)).assignment

    async def heartbeat(self):
        await self.stage.groups.heartbeat(self.group_id, self.identity)

    async def leave(self):
        [error] = await self.stage.groups.leave(self.group_id, [LeaveRequest(self.member_id)])
        return error

    async def commit(self, *offsets):
        return await self.stage.groups.commit_offsets(self.group_id, offsets, self.identity)


class Stage:
    def __init__(self, broker, clock, limits, **options):
        self.broker, self.clock, self.limits, self.options = broker, clock, limits, options
        self.log = FaultyLog(broker.log)
        self.epochs = owned_shards(broker)
        self.numbers = count(1)
        self.restart()

    def restart(self):
        """Another coordinator over the same catalog; nothing is in its memory."""
        self.groups = Groups(
            self.log,
            self.broker.session,
            self.epochs.get,
            clock=self.clock,
            limits=self.limits,
            new_id=lambda name: f"{name}-{next(self.numbers)}",
            **self.options,
        )

    def client(self, name, **options):
        return Client(self, name, **options)

    async def topic(self, name="orders", partitions=2):
        topic = await self.broker.log.create_topic(name, partitions)
        return [TopicPartition(topic.id, number) for number in range(partitions)]

    def group(self, group_id="readers"):
        return self.groups._loaded_groups._groups[group_id].group

    def advance_time(self, milliseconds):
        self.clock.advance(milliseconds)
        self.groups.tick()

    async def waiting(self, number):
        await self.until(lambda: len(self.groups._loaded_groups._waiting) == number)

    async def settle(self):
        """Everything that is ready on the loop has run."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def until(self, condition):
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.001)

    async def join(self, *clients):
        """The next generation of exactly these; the group must not know of others."""
        joins = [asyncio.create_task(client.join()) for client in clients]
        if all(client.generation < 0 for client in clients):
            await self.waiting(len(clients))
            self.advance_time(DELAY_MS)
            self.advance_time(DELAY_MS)
        return await asyncio.gather(*joins)

    async def form(self, *clients):
        """A stable generation of exactly these. Each is assigned its own id."""
        await self.join(*clients)
        return await asyncio.gather(*(client.sync() for client in clients))

    def rows(self, sql, *parameters):
        with self.broker.database.read() as tx:
            return tx.rows(sql, parameters)

    def stored(self, group_id="readers"):
        return self.rows("SELECT state, generation FROM groups WHERE group_id = ?", group_id)


@pytest.fixture
async def start():
    async with AsyncExitStack() as stack:

        async def started(folder=None, *, clock=None, limits=None, **options):
            clock = clock or SimulatedClock(START_MS)
            broker = await stack.enter_async_context(running_broker(folder, clock=clock))
            return Stage(broker, clock, limits or GroupLimits(initial_rebalance_delay_ms=DELAY_MS), **options)

        yield started


@pytest.fixture
async def stage(start):
    return await start()
