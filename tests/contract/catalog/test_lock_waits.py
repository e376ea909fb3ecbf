"""How long somebody waits for what another has locked: a broker not so long that it would lose its lease."""

import secrets

import psycopg
import pytest

from millpond.catalog import writers
from millpond.catalog.commits import Committer
from millpond.catalog.postgres import PostgresDatabase
from millpond.model.errors import CatalogUnavailable, OutcomeUnknown
from millpond.model.ids import Session

LOCK = "UPDATE meta SET value = value WHERE name = 'cluster_id' RETURNING name"
SHORT_MS = 50


@pytest.fixture
def open_with(postgres_url):
    """Opens one new catalog, with this much patience."""
    schema, opened = f"test_{secrets.token_hex(6)}", []

    def open_one(lock_wait_ms):
        opened.append(PostgresDatabase(postgres_url, schema=schema, lock_wait_ms=lock_wait_ms))
        opened[-1].migrate()
        return opened[-1]

    yield open_one
    for database in opened:
        database.close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def test_who_has_waited_for_long_enough_may_try_again(open_with):
    impatient, other = open_with(SHORT_MS), open_with(0)
    with other.write() as holding:
        holding.rows(LOCK)
        with pytest.raises(CatalogUnavailable, match="lock timeout") as refused, impatient.write() as tx:
            tx.rows(LOCK)
    assert refused.value.retriable
    assert not isinstance(refused.value, OutcomeUnknown)
    with impatient.write() as tx:
        assert tx.rows(LOCK)


def test_a_commit_that_waits_is_given_up_and_the_next_one_goes_through(open_with):
    impatient, other = open_with(SHORT_MS), open_with(0)
    session = Session("s")
    with other.write() as tx:
        writers.register(tx, session, kind="broker", address="", lease_ms=1)
    committer = Committer(impatient, session)
    with other.write() as holding:
        holding.rows(LOCK)
        with pytest.raises(CatalogUnavailable):
            committer.commit([lambda tx: tx.each(LOCK, [(), ()])[0][0][0]])
        [outcome] = committer.commit([lambda _: "elsewhere"])
        assert outcome.value == "elsewhere"


def test_who_is_patient_waits(open_with):
    impatient, other = open_with(SHORT_MS), open_with(0)
    with impatient.write() as tx:
        tx.disable_lock_timeout()
        assert tx.rows("SHOW lock_timeout") == [("0",)]
    with impatient.read() as tx:
        assert tx.rows("SHOW lock_timeout") == [(f"{SHORT_MS}ms",)]
    with other.read() as tx:
        assert tx.rows("SHOW lock_timeout") == [("0",)]
