"""Brokers of this process on one PostgreSQL, which the test may ill-treat, and one S3; their leases are short."""

import tempfile
from pathlib import Path

import pytest
from tests.cluster import over_postgres
from tests.cluster.over_postgres import databases
from tests.faults.cluster.servers import CuttingProxy, Postgres


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


__all__ = ["databases", "postgres", "proxies"]

LEASE_MS = 2_000


def cluster(catalogs, store, **named):
    """As `over_postgres.cluster`, with a lease that runs out within the test."""
    return over_postgres.cluster(catalogs, store, **{"lease": LEASE_MS, **named})
