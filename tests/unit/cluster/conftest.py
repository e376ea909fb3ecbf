"""Several brokers in this process on one data directory, as workers of one machine are."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from millpond.broker import Broker
from millpond.cluster import nudges
from millpond.settings import Settings


class Brokers:
    """Brokers that share a directory. A killed one stops to renew and to be heard of, but its objects remain."""

    def __init__(self, path, stack):
        self.path = path
        self._stack = stack
        self._added = []

    async def add(self, **settings):
        chosen = {
            "data_dir": self.path,
            "kafka_listen": "127.0.0.1:0",
            "grpc_listen": "127.0.0.1:0",
            "http_listen": "",
            "lease": 6_000,
            "group_initial_rebalance_delay": 0,
            **settings,
        }
        broker = Broker(Settings(**chosen), listen=True, supervised=True, maintain=False)
        await self._stack.enter_async_context(broker)
        await until(lambda: all(self._knows(each, broker) for each in self._added), seconds=20.0)
        self._added.append(broker)
        return broker

    @staticmethod
    def _knows(broker, newcomer):
        """Or is dead by now."""
        if broker._stopping is not None or broker._services is None or broker._services.done():
            return True
        return newcomer.session in broker.log.topology.members


async def until(check, seconds=10.0):
    """Wait for something that comes by itself."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.01)


@pytest.fixture
def patient_nudges(monkeypatch):
    """A broker that answers late has looked all the same."""
    monkeypatch.setattr(nudges, "NUDGE_TIMEOUT_S", 30.0)


@pytest.fixture
async def brokers(tmp_path, patient_nudges):
    async with AsyncExitStack() as stack:
        yield Brokers(tmp_path, stack)
