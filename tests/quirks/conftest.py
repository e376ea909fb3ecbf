"""A broker of its own for each test, and a client that talks to it."""

from collections.abc import AsyncIterator

import pytest
from tests.quirks.client import Client

from millpond.broker import Broker
from millpond.testing import SimulatedClock, running_broker


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
async def broker(clock: SimulatedClock) -> AsyncIterator[Broker]:
    async with running_broker(kafka=True, clock=clock) as running:
        yield running


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    async with Client(broker) as connected:
        yield connected
