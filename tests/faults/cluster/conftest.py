"""Brokers of this process on one PostgreSQL, which the test may ill-treat, and one S3."""

import asyncio
import secrets
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.faults.cluster.servers import CuttingProxy, Postgres

from millpond.broker import Broker
from millpond.settings import Settings

LEASE_MS = 2_000


@pytest.fixture(scope="session")
def _postgres():
    place = "/dev/shm" if Path("/dev/shm").is_dir() else "/tmp"  # its socket's name may have 107 bytes
    with tempfile.TemporaryDirectory(prefix="millpond-pgf-", dir=place, ignore_cleanup_errors=True) as root:
        server = Postgres(root)
        yield server
        server.close()


@pytest.fixture
def postgres(_postgres):
    """Stopped, killed and paused at will: not the one that tests elsewhere share."""
    yield _postgres
    _postgres.resume()
    _postgres.start()


class Databases:
    """New databases on the server that all tests share, for those that do it no harm."""

    def __init__(self, url):
        self._url = url

    def new_url(self):
        name = f"faults_{secrets.token_hex(6)}"
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return urlsplit(self._url)._replace(path=f"/{name}").geturl()


@pytest.fixture
def databases(postgres_url):
    return Databases(postgres_url)


@pytest.fixture
def proxies(postgres):
    """Makes proxies before PostgreSQL, one for each broker that is to be cut off alone."""
    made = []

    def make():
        made.append(CuttingProxy(postgres.socket))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


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
                Settings(catalog=catalog, store=store, **chosen), listen=True, **{"maintain": False, **more}
            )
            brokers.append(await stack.enter_async_context(broker))
        yield brokers


async def until(check, seconds=30.0):
    """Wait for something that comes by itself."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.01)


def owned(broker):
    return [partition.where for partition in broker.log.partitions()]


async def shared_topic(brokers, name="t", partitions=4):
    """A topic of which every broker owns the same number of partitions."""
    await until(lambda: all(len(each.log.topology.members) == len(brokers) for each in brokers))
    topic = await brokers[0].log.create_topic(name, partitions)
    share = partitions // len(brokers)
    await until(lambda: all(len(owned(each)) == share for each in brokers))
    return topic
