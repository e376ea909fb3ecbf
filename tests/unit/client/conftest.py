"""A broker in this process and clients of it."""

from functools import partial

import pytest

from millpond import AsyncAdmin, AsyncConsumer, AsyncProducer
from millpond.testing import SimulatedClock, running_broker

SESSION_MS = 45_000
"""Of members of groups."""


class Setting:
    """`producer`, `consumer` and `admin` know the broker's address."""

    def __init__(self, broker, clock):
        self.broker, self.clock = broker, clock
        self.address = broker.listeners["grpc"]
        self.producer = partial(AsyncProducer, address=self.address)
        self.consumer = partial(AsyncConsumer, address=self.address)
        self.admin = partial(AsyncAdmin, address=self.address)

    async def produce(self, topic, *values, **named):
        async with self.producer(topic) as producer:
            return [(await producer.send(value, **named)).number for value in values]

    async def crash(self, consumer):
        """As if its process had ended: its connections are gone, and its session in a group expires."""
        await consumer._connections.close()
        if consumer._member is not None:
            consumer._member._heartbeats.cancel()
        self.expire_sessions()

    def expire_sessions(self):
        self.clock.advance(SESSION_MS)
        self.broker.groups.tick()

    async def create(self, topic, partitions=1, **configs):
        names = {name.replace("_", "."): value for name, value in configs.items()}
        await self.broker.log.create_topic(topic, partitions, names)


@pytest.fixture
async def setting():
    clock = SimulatedClock()
    async with running_broker(grpc=True, kafka=True, clock=clock) as broker:
        yield Setting(broker, clock)
