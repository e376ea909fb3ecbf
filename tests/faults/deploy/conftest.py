"""PostgreSQL and S3 for the brokers of compose.yaml."""

import secrets
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.deploy.composition import BROKERS, environment
from tests.faults.deploy.cluster import Cluster
from tests.s3 import running_moto


@pytest.fixture(scope="module")
def catalog(postgres_url):
    """A database of its own on the tests' server."""
    name = f"deploy_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield postgres_url.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(scope="module")
def s3():
    """A server with the bucket that the file's brokers use."""
    with running_moto(urlsplit(environment(BROKERS[0])["MILLPOND_STORAGE"]).netloc) as url:
        yield url


@pytest.fixture(scope="module")
def processes(tmp_path_factory, catalog, s3):
    with Cluster(tmp_path_factory.mktemp("cluster"), catalog=catalog, s3=s3) as cluster:
        yield cluster


@pytest.fixture
def cluster(processes):
    """All of them running, whatever the test before this one left behind."""
    for broker in processes.brokers:
        if not broker.is_running:
            broker.start()
    return processes
