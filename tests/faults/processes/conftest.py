"""Many brokers on a real PostgreSQL and an S3 server, each test with a database and a prefix of its own."""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.faults.processes.harness import Brokers, with_database
from tests.faults.processes.store import running_store
from tests.s3 import CREDENTIALS


@pytest.fixture(scope="session")
def store_server() -> Iterator[str]:
    with running_store() as address:
        yield address


@pytest.fixture
def storage(store_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return store_server.format(prefix=secrets.token_hex(6))


@pytest.fixture
def catalog(postgres_url: str) -> Iterator[str]:
    """An address of an empty database."""
    name = f"cluster_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield with_database(postgres_url, name)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def brokers(tmp_path: Path, catalog: str, storage: str) -> Iterator[Brokers]:
    made = Brokers(tmp_path, catalog, storage)
    with contextlib.closing(made):
        yield made


Make = Callable[..., Brokers]
