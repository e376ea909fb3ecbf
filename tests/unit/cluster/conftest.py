"""Several brokers in this process on one data directory, as workers of one machine are."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.shards import owned_shards

from millpond.broker import Broker
from millpond.catalog.schema import COORDINATOR_SHARDS
from millpond.settings import Settings
from millpond.topology import refresh_requests

HANG_S = 60.0


class Brokers:
    """Brokers that share a directory. A killed one stops to renew and to be heard of, but its objects remain."""

    def __init__(self, path, stack):
        self.path = path
        self._stack = stack
        self._added = []

    async def add(self, clock=None, **settings):
        chosen = {
            "data_dir": self.path,
            "kafka_listen": "127.0.0.1:0",
            "grpc_listen": "127.0.0.1:0",
            "http_listen": "",
            "lease": 30_000,
            "group_initial_rebalance_delay": 0,
            "disk_reserve": 1024 * 1024,
            **settings,
        }
        broker = Broker(Settings(**chosen), clock=clock, listen=True, supervised=True, maintain=False)
        await self._stack.enter_async_context(broker)
        await until(lambda: all(self._knows(each, broker) for each in self._added))
        self._added.append(broker)
        return broker

    @staticmethod
    def _knows(broker, newcomer):
        """Or is dead by now."""
        if broker._stopping is not None or broker._services is None or broker._services.done():
            return True
        return newcomer.session in broker.topology.current.members


async def two(brokers, partitions=0):
    """Two brokers that share the coordinator shards, and a topic "t" if it shall have partitions."""
    first, second = await brokers.add(), await brokers.add()
    await until(lambda: len(owned_shards(second)) == COORDINATOR_SHARDS // 2)
    if partitions:
        await first.log.create_topic("t", partitions)
    return first, second


def owned(broker):
    """The partitions that it serves, without those that it has handed over and is about to forget."""
    return {partition.topic_partition for partition in broker.log.partitions() if not partition.in_handover}


async def until(check, seconds=HANG_S):
    """Wait for something that comes by itself."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.01)


@pytest.fixture
def long_refresh_timeout(monkeypatch):
    """A broker that answers late has looked all the same."""
    monkeypatch.setattr(refresh_requests, "REFRESH_TIMEOUT_S", 30.0)


@pytest.fixture
async def brokers(tmp_path, long_refresh_timeout):
    async with AsyncExitStack() as stack:
        yield Brokers(tmp_path, stack)
