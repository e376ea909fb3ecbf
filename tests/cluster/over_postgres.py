"""Several brokers of this process on one PostgreSQL and one store."""

import asyncio
import secrets
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from millpond.broker import Broker
from millpond.settings import Settings

LEASE_MS = 60_000
"""Long: no broker loses it because the machine stood still. A test that needs a dead broker declares one dead."""


class Databases:
    """New databases on the server that all tests share, for those that do it no harm."""

    def __init__(self, url):
        self._url = url

    def new_url(self):
        name = f"cluster_{secrets.token_hex(6)}"
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return urlsplit(self._url)._replace(path=f"/{name}").geturl()


@pytest.fixture
def databases(postgres_url):
    return Databases(postgres_url)


@asynccontextmanager
async def cluster(catalogs, store, *, parts=None, **settings):
    """A broker for each catalog's address. `parts` are more arguments of `Broker`, one dictionary for each."""
    chosen = {
        "kafka_listen": "",
        "grpc_listen": "127.0.0.1:0",
        "http_listen": "",
        "lease": LEASE_MS,
        "flush_delay": 5,
        **settings,
    }
    async with AsyncExitStack() as stack:
        brokers = []
        for catalog, more in zip(catalogs, parts or [{}] * len(catalogs), strict=True):
            broker = Broker(
                Settings(catalog=catalog, storage=store, **chosen), listen=True, **{"maintain": False, **more}
            )
            brokers.append(await stack.enter_async_context(broker))
        yield brokers


async def until(check, seconds=30.0):
    """Wait for something that comes by itself."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.01)


def owned(broker):
    return [partition.topic_partition for partition in broker.log.partitions()]


async def shared_topic(brokers, name="t", partitions=4):
    """A topic of which every broker owns the same number of partitions."""
    await until(lambda: all(len(each.topology.current.members) == len(brokers) for each in brokers))
    topic = await brokers[0].log.create_topic(name, partitions)
    share = partitions // len(brokers)
    await until(lambda: all(len(owned(each)) == share for each in brokers))
    return topic
