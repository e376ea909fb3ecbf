"""A process that stands still in mid-transaction must not keep others from declaring it dead."""

import contextlib
import secrets

import psycopg
import pytest

from millpond.catalog import writers
from millpond.catalog.postgres import PostgresDatabase
from millpond.model.errors import CatalogUnavailable
from millpond.model.ids import Session

LEASE_MS = 1


@pytest.fixture
def schema(postgres_url):
    name = f"test_{secrets.token_hex(6)}"
    yield name
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


@pytest.fixture
def open_as(postgres_url, schema):
    """Opens the same catalog under the names of sessions."""
    opened = []

    def open_one(name):
        opened.append(PostgresDatabase(postgres_url, schema=schema, name=name))
        return opened[-1]

    yield open_one
    for database in opened:
        database.close()


def stand_still(database, session, meanwhile, *, in_pipeline):
    """Go on after something else has happened, in a transaction that holds the session's row."""
    with database.write() as tx:
        tx.rows("UPDATE writers SET token = 'mine' WHERE session = ?", (session,))
        with tx._connection.pipeline() if in_pipeline else contextlib.nullcontext():
            tx.rows("SELECT 1")
            meanwhile()
        tx.rows("SELECT 1")


@pytest.mark.parametrize("in_pipeline", [False, True])  # of which PostgreSQL does not say that it is idle
def test_what_a_paused_writer_has_locked_is_freed(open_as, in_pipeline):
    paused, other = open_as("paused"), open_as("other")
    other.migrate()
    session = Session("paused")
    buried = []
    with other.write() as tx:
        writers.register(tx, session, kind="broker", address="", lease_ms=-LEASE_MS)

    def mark_dead():
        with other.write() as tx:
            tx.terminate_connections([session])
            buried.extend(writers.mark_expired_brokers_dead(tx, [session], 77))

    with pytest.raises(CatalogUnavailable):
        stand_still(paused, session, mark_dead, in_pipeline=in_pipeline)
    assert buried == [session]


def test_others_are_left_alone(open_as):
    bystander, other = open_as("bystander"), open_as("other")
    other.migrate()
    with bystander.write() as tx:
        with other.write() as judge:
            judge.terminate_connections(["paused", "other", "bystande", ""])
        assert tx.rows("SELECT 1") == [(1,)]


def test_on_sqlite_nothing_happens(file_catalog):
    with file_catalog.database.write() as tx:
        tx.terminate_connections(["anybody"])
        assert tx.rows("SELECT 1") == [(1,)]
