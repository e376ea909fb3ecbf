"""Several brokers in this process, on one SQLite directory, as a supervisor's workers are."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

from tests.shards import owned_shards

from millpond.broker import Broker
from millpond.settings import Settings

LOOK_SECONDS = 0.02
SECONDS_MAX = 60.0
"""Only what hangs takes so long, also on a busy machine."""


class Near:
    """Brokers come and go; `brokers` are those that are there, in the order in which they came."""

    def __init__(self, folder, **settings):
        self._folder = folder
        interfaces = dict.fromkeys(("kafka_listen", "grpc_listen", "http_listen"), "127.0.0.1:0")
        self._settings = {
            "lease": 10_000,
            "group_initial_rebalance_delay": 0,
            "disk_reserve": 1024 * 1024,
            **interfaces,
            **settings,
        }
        self.brokers = []

    async def add(self, count=1):
        for _ in range(count):
            settings = Settings(data_dir=self._folder, **self._settings)
            broker = Broker(settings, listen=True, supervised=True)
            await broker.start()
            self.brokers.append(broker)

    async def remove(self, broker):
        self.brokers.remove(broker)
        await broker.stop()

    async def settled(self):
        """Waits until everything is shared evenly, and every broker knows; the standing."""
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                standing = await self.brokers[0].cluster.status()
                owned = [len(each.log.partitions()) for each in self.brokers]
                versions = {each.topology.current.version for each in self.brokers}
                shards = [len(owned_shards(each)) for each in self.brokers]
                if (
                    sum(owned) == standing.partitions
                    and max(owned) - min(owned) <= 1
                    and max(shards) - min(shards) <= 1
                    and versions == {standing.version}
                ):
                    return standing
                await asyncio.sleep(LOOK_SECONDS)

    def owner(self, topic, partition):
        """The broker that serves a partition."""
        topic_partition = self.brokers[0].log.topics.partition(topic, partition)
        return next(each for each in self.brokers if each.log.owns(topic_partition))

    def addresses(self, interface):
        return [each.listeners[interface] for each in self.brokers]


@asynccontextmanager
async def near_brokers(folder, count, **settings):
    near = Near(folder, **settings)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_stop, near)
        await near.add(count)
        yield near


async def _stop(near):
    for broker in list(near.brokers):
        await near.remove(broker)
