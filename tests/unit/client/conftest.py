"""A broker in this process and clients of it."""

from functools import partial

import pytest

from millpond import AsyncAdmin, AsyncConsumer, AsyncProducer
from millpond.testing import SimulatedClock, running_broker


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

    async def create(self, topic, partitions=1, **configs):
        names = {name.replace("_", "."): value for name, value in configs.items()}
        await self.broker.log.create_topic(topic, partitions, names)


@pytest.fixture
async def setting():
    clock = SimulatedClock()
    async with running_broker(grpc=True, kafka=True, clock=clock) as broker:
        yield Setting(broker, clock)
