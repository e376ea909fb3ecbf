"""A broker with subscriptions, in this process, and the few sentences that tests of it keep saying."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.loop_time import LoopClock

from millpond.broker import Broker
from millpond.model.ids import TopicPartition
from millpond.queues import Deliveries, PartitionLost, Revocation
from millpond.records import Record
from millpond.security import OPEN_ACCESS
from millpond.settings import Settings

QUICK = {"ack_timeout_ms": 60_000, "backoff_ms": 20, "backoff_max_ms": 100}
HOUR_MS = 3_600_000
"""No lease is renewed meanwhile: a test may be about the next write, whoever's it is."""
WAIT_SECONDS_MAX = 60
ROUNDS = 5
TURNS = 20


class Held:
    """One delivery as a test looks at it."""

    def __init__(self, ack_id, partition, delivered):
        self.ack_id, self.partition = ack_id, partition
        self.value, self.key = delivered.record.value, delivered.record.key
        self.headers = dict(delivered.record.headers)
        self.attempts, self.offset = delivered.delivery.attempts, delivered.delivery.offset

    def __repr__(self):
        return f"{self.value!r} at {self.offset}, attempt {self.attempts}"


class Worker:
    """A consumer that is attached. It remembers what it was told besides deliveries."""

    def __init__(self, stage, attachment):
        self.stage, self.attachment = stage, attachment
        self.revoked, self.lost = [], []

    def grant(self, messages=100, size=None):
        self.attachment.grant(messages, size)
        return self

    async def take(self, count=1, seconds=WAIT_SECONDS_MAX):
        """At least so many deliveries."""
        held = []
        async with asyncio.timeout(seconds):
            while len(held) < count:
                for event in await self.attachment.take(None):
                    held += self._look_at(event)
        return held

    async def nothing(self, seconds=0.15):
        """Nothing is delivered while this time passes."""
        await self.stage.advance_time(seconds)
        events = await self.attachment.take(0)
        assert [held for event in events for held in self._look_at(event)] == []

    def _look_at(self, event):
        if isinstance(event, Deliveries):
            return [Held(ack_id, event.partition, delivered) for ack_id, delivered in event.deliveries]
        if isinstance(event, Revocation):
            self.revoked += event.ack_ids
        if isinstance(event, PartitionLost):
            self.lost.append(event.error)
        return []

    async def ack(self, *held, **named):
        return await self.attachment.ack([each.ack_id for each in held], **named)

    async def nack(self, *held, delay_ms=None, reason=""):
        return await self.attachment.nack([each.ack_id for each in held], delay_ms, reason)

    async def extend(self, *held, by_ms=1_000):
        return await self.attachment.extend([each.ack_id for each in held], by_ms)

    def leave(self, *, graceful=True):
        self.stage.broker.queues.detach(self.attachment, graceful=graceful)


class Stage:
    def __init__(self, stack, folder, loop_time):
        self._stack, self.folder, self.loop_time = stack, folder, loop_time
        self.clock = LoopClock(loop_time)

    async def begin(self, **chosen):
        settings = Settings(**{"data_dir": self.folder, "lease": HOUR_MS, "disk_reserve": 0, **chosen})
        self.broker = Broker(settings, clock=self.clock, maintain=False)
        await self._stack.enter_async_context(self.broker)
        return self

    async def restart(self):
        """As after a restart."""
        await self.broker.stop()
        return await self.begin()

    async def assert_running(self):
        """None of the broker's services has ended."""
        await self.settle()
        assert not self.broker._services.done()

    async def advance_time(self, seconds):
        """Time passes, for the broker's clock and its timers, and what is due by then has happened."""
        self.loop_time.advance(seconds)
        await self.settle()

    async def settle(self):
        """What is ready has happened, on the loop and on the threads that write and read the catalog and the store."""
        for _ in range(ROUNDS):
            for _ in range(TURNS):
                await asyncio.sleep(0)
            await self.broker.log.writer.run(lambda tx: None)
            await self.broker.log.read(lambda tx: None)
            await self.broker.log.in_pool(lambda: None)

    async def topic(self, name="orders", partitions=1, **configs):
        return await self.broker.log.create_topic(name, partitions, configs)

    async def subscribe(self, name="billing", topic="orders", start=None, **values):
        named = {} if start is None else {"start": start}
        return await self.broker.queues.create(topic, name, {**QUICK, **values}, **named)

    async def worker(self, consumer="worker", name="billing", topic="orders", grant=100):
        worker = Worker(self, await self.broker.queues.attach(topic, name, consumer))
        return worker.grant(grant) if grant else worker

    async def publish(self, *values, key=None, topic="orders", partition=0, headers=()):
        records = [Record(value, key, headers) for value in values]
        return await self.broker.messages.produce(topic, records, partition, access=OPEN_ACCESS)

    async def floor(self, name="billing", topic="orders", partition=0, member=""):
        """As it is stored."""
        found = await self.broker.queues.find(topic, name)
        return (await self.broker.queues.floors(found))[member, partition]

    async def values(self, topic, partition=0):
        return [record.value for record in await self.broker.read(topic, partition=partition)]

    def dispatcher(self, partition=0):
        [queue] = [
            active.queues[partition]
            for active in self.broker.queues._active_subscriptions.all()
            if partition in active.queues
        ]
        return queue.dispatcher

    def topic_partition(self, topic="orders", partition=0):
        return TopicPartition(self.broker.log.topics.named(topic).id, partition)


def values(held):
    return [each.value for each in held]


def queue_of(stage, partition=0):
    [active] = stage.broker.queues._active_subscriptions.all()
    return active.queues[partition]


def gated(function):
    """The function, which waits when it is called; an event that it was called, and one that it may go on."""
    entered, opened = asyncio.Event(), asyncio.Event()

    async def waiting(*given, **named):
        entered.set()
        await opened.wait()
        return await function(*given, **named)

    return waiting, entered, opened


class ReadGate:
    """Once it is closed, reads of the log wait until it is opened."""

    def __init__(self):
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

    def close(self, stage, monkeypatch):
        feed = stage.broker.queues._feed
        self._read = feed.read
        monkeypatch.setattr(feed, "read", self._gated)

    async def _gated(self, *given):
        self.entered.set()
        await self.opened.wait()
        return await self._read(*given)


@pytest.fixture
def gate():
    gate = ReadGate()
    yield gate
    gate.opened.set()


@pytest.fixture
async def stage(tmp_path, loop_time):
    async with AsyncExitStack() as stack:
        started = await Stage(stack, tmp_path, loop_time).begin()
        await started.topic()
        yield started


@pytest.fixture
def eventually():
    async def wait_until(condition, seconds=WAIT_SECONDS_MAX):
        async with asyncio.timeout(seconds):
            while not await condition():
                await asyncio.sleep(0.01)

    return wait_until
