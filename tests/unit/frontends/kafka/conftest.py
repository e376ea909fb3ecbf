"""A broker with its Kafka interface on a free port, and a client that is connected to it."""

from contextlib import AsyncExitStack

import pytest
from tests.unit.frontends.kafka.wire import Client

from millpond.testing import running_broker


class Face:
    """One broker and one connection, with the few sentences that its tests keep saying."""

    def __init__(self, broker, client):
        self.broker, self.client, self.log = broker, client, broker.log
        self.send = client.send

    async def topic(self, name="orders", partitions=1, **overrides):
        named = {key.replace("_", "."): value for key, value in overrides.items()}
        return await self.log.create_topic(name, partitions, named)

    async def fill(self, name="orders", count=5, partition=0):
        await self.broker.produce(name, *[b"%d" % number for number in range(count)], partition=partition)


@pytest.fixture
async def serving():
    """`await serving(**settings)` gives a interface; whatever was started is stopped after the test."""
    async with AsyncExitStack() as stack:

        async def start(**settings):
            broker = await stack.enter_async_context(running_broker(kafka=True, **settings))
            client = await stack.enter_async_context(Client(broker.kafka.listener))
            return Face(broker, client)

        yield start


@pytest.fixture
async def interface(serving):
    return await serving()
