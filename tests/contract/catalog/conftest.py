"""One contract, three databases: each test that takes `catalog` runs on a SQLite file, in memory, and on PostgreSQL."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millpond.catalog import appends, partitions, topics, writers
from millpond.catalog.commits import Committer
from millpond.catalog.database import CatalogTransaction, Database
from millpond.catalog.objects import NewObject
from millpond.catalog.postgres import PostgresDatabase
from millpond.catalog.sqlite import SqliteDatabase, SqliteMemoryDatabase
from millpond.model.ids import Session, TopicPartition, new_session
from millpond.model.producers import SequencedBatch
from millpond.model.topics import Topic

NOW = 1_000_000
FILLED = (
    *("writers", "topics", "partitions", "objects", "extents", "producers", "transactions", "txn_partitions"),
    *(
        "txn_offsets",
        "aborted_txns",
        "groups",
        "group_members",
        "group_offsets",
        "sink_commits",
        "pipeline_runs",
        "compactions",
    ),
    *("subscriptions", "subscription_state", "subscription_chunks", "subscription_retries"),
    *("dead_letters", "redrives", "exclusive_consumers", "scram_credentials", "api_tokens", "acls", "quotas"),
    *("sessions", "dynamic_configs"),
)


class Catalog:
    """A database with the few sentences that tests keep saying."""

    now = NOW

    def __init__(self, database: Database) -> None:
        self.database = database

    def write(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with self.database.write() as tx:
            return function(tx, *arguments, **named)

    def read(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with self.database.read() as tx:
            return function(tx, *arguments, **named)

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self.database.read() as tx:
            return tx.rows(sql, parameters)

    def topic(
        self, name: str = "orders", count: int = 1, owner: str | None = None, **overrides: str
    ) -> Topic:
        return self.write(topics.create, name, count, overrides, now_ms=NOW, owner=owner)

    def topic_partition(self, topic: Topic | None = None, partition: int = 0) -> TopicPartition:
        return TopicPartition((topic or self.topic()).id, partition)

    def partition(self, topic_partition: TopicPartition) -> partitions.PartitionRow:
        return self.read(partitions.read, topic_partition)

    def append(self, *shares: appends.AppendShare, to: NewObject | None = None) -> list[appends.ShareResult]:
        return self.write(appends.append, shares, to, now_ms=NOW)

    def append_one(
        self, topic_partition: TopicPartition, records: int = 1, **named: Any
    ) -> appends.ShareResult:
        to = named.pop("to", None)
        return self.append(self.share(topic_partition, records, stored=to is not None, **named), to=to)[0]

    @staticmethod
    def share(
        topic_partition: TopicPartition,
        records: int = 1,
        *,
        epoch: int = appends.FOREIGN,
        times: tuple[int, int] = (NOW, NOW),
        length: int = 100,
        position: int = 0,
        stored: bool = False,
        sequences: Sequence[SequencedBatch] = (),
    ) -> appends.AppendShare:
        inline = None if stored else b"b" * length
        return appends.AppendShare(
            topic_partition,
            epoch,
            position,
            length,
            records,
            *times,
            inline=inline,
            sequences=tuple(sequences),
        )

    @staticmethod
    def batch(
        producer: tuple[int, int], first: int, last: int, *, offset: int = 0, transactional: bool = False
    ) -> SequencedBatch:
        return SequencedBatch(*producer, first, last, NOW, transactional, offset)

    @staticmethod
    def object(key: str, session: str = "s1", *, sealed: bool = False, kind: str = "journal") -> NewObject:
        return NewObject(key, kind, Session(session), 1000, sealed)

    def writer(self, session: str | None = None, *, lane: int = 0, lease_ms: int = 60_000) -> Session:
        made = new_session() if session is None else Session(session)
        self.write(writers.register, made, kind="broker", address="", lease_ms=lease_ms, lane=lane)
        return made

    def committer(self, session: Session | None = None, **named: Any) -> Committer:
        return Committer(self.database, session or self.writer(), **{"sleep": lambda _: None, **named})

    def append_operation(self, *shares: appends.AppendShare) -> Callable[[CatalogTransaction], Any]:
        return lambda tx: appends.encode_results(appends.append(tx, shares, None, now_ms=NOW))


@contextmanager
def _postgres(url: str) -> Iterator[PostgresDatabase]:
    schema = f"test_{secrets.token_hex(6)}"
    database = PostgresDatabase(url, schema=schema)
    yield database
    database.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


@pytest.fixture
def empty_postgres(postgres_url: str) -> Iterator[PostgresDatabase]:
    """A schema of its own, not yet migrated."""
    with _postgres(postgres_url) as database:
        yield database


@pytest.fixture(scope="session")
def _migrated_postgres(postgres_url: str) -> Iterator[PostgresDatabase]:
    with _postgres(postgres_url) as database:
        database.migrate()
        yield database


@pytest.fixture
def postgres_catalog(_migrated_postgres: PostgresDatabase) -> Catalog:
    """Emptied rather than made anew: DDL costs PostgreSQL a quarter of a second."""
    with _migrated_postgres.write() as tx:
        for table in FILLED:
            tx.rows(f"DELETE FROM {table}")
        tx.rows("UPDATE coordinators SET owner = NULL, epoch = 0")
        tx.rows("UPDATE counters SET next = 1")
    return Catalog(_migrated_postgres)


@pytest.fixture
def file_catalog(tmp_path: Path) -> Iterator[Catalog]:
    database = SqliteDatabase(tmp_path / "catalog.db")
    database.migrate()
    yield Catalog(database)
    database.close()


@pytest.fixture
def memory_catalog() -> Iterator[Catalog]:
    database = SqliteMemoryDatabase()
    database.migrate()
    yield Catalog(database)
    database.close()


@pytest.fixture(params=["memory", "file", "postgres"])
def catalog(request: pytest.FixtureRequest) -> Catalog:
    return request.getfixturevalue(f"{request.param}_catalog")


@pytest.fixture(params=["file", "postgres"])
def durable_catalog(request: pytest.FixtureRequest) -> Catalog:
    """The two engines that several processes or connections can share."""
    return request.getfixturevalue(f"{request.param}_catalog")
