"""Several brokers in this process on one data directory, as workers of one machine are."""

import asyncio
import contextlib
from contextlib import AsyncExitStack

import pytest

from millpond.broker import Broker
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
            "lease": 1_000,
            "group_initial_rebalance_delay": 0,
            **settings,
        }
        broker = Broker(Settings(**chosen), listen=True, supervised=True, maintain=False)
        await self._stack.enter_async_context(broker)
        with contextlib.suppress(TimeoutError):  # unless one of them is dead by now
            await until(lambda: all(self._know(each, broker) for each in self._added), seconds=2.0)
        self._added.append(broker)
        return broker

    @staticmethod
    def _know(broker, newcomer):
        return broker._stopping is not None or newcomer.session in broker.log.topology.members


async def until(check, seconds=10.0):
    """Wait for something that comes by itself."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.01)


@pytest.fixture
async def brokers(tmp_path):
    async with AsyncExitStack() as stack:
        yield Brokers(tmp_path, stack)
