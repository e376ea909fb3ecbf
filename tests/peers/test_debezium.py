"""Debezium's PostgreSQL connector in a Kafka Connect worker: a table's changes as messages of a topic, and the table
again from these messages."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from peers.connect import POSTGRES_SOURCE, Worker
from tests.peers.committed import committed
from tests.peers.support import available, eventually, shows

from peers import connect, postgres

CLIENT = "Debezium (PostgreSQL)"
SNAPSHOT, ROUNDS, INSERTS, UPDATES, DELETES = 1_000, 30, 20, 15, 10
"""Rows before the connector starts; then rounds of so many inserts, updates and deletes, each its own transaction."""
TABLE = """
CREATE TABLE orders (
  id bigint PRIMARY KEY, customer text NOT NULL, amount numeric(12, 2) NOT NULL, note text,
  changed timestamptz NOT NULL DEFAULT now()
)
"""
INSERT = """
INSERT INTO orders (id, customer, amount, note)
SELECT id, 'customer ' || id %% 7, id * 1.25, CASE WHEN id %% 3 = 0 THEN NULL ELSE 'nöte ' || id END
FROM generate_series(%s::bigint, %s::bigint) id
"""


@pytest.fixture
def address() -> Iterator[str]:
    """Of an empty PostgreSQL."""
    with ExitStack() as stack:
        server = available(lambda: stack.enter_context(postgres.running(postgres.LOGICAL)))
        yield server


@pytest.fixture
def database(address: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


def config(address: str, prefix: str) -> dict[str, str]:
    host, port, user, database = postgres.parts(address)
    return {
        "connector.class": POSTGRES_SOURCE,
        "database.hostname": host,
        "database.port": str(port),
        "database.user": user,
        "database.password": "unused",
        "database.dbname": database,
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "slot.name": "millpond",
        "table.include.list": "public.orders",
        "topic.prefix": prefix,
        "decimal.handling.mode": "string",
        "exactly.once.support": "required",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }


def change(database: psycopg.Connection, rounds: range) -> None:
    """Inserts of new rows, updates of the oldest ones that are left, and deletes of old ones."""
    for turn in rounds:
        first = SNAPSHOT + turn * INSERTS + 1
        database.execute(INSERT, (first, first + INSERTS - 1))
        updated = (turn * UPDATES + 500, turn * UPDATES + 500 + UPDATES - 1)
        database.execute("UPDATE orders SET amount = amount + 1 WHERE id BETWEEN %s AND %s", updated)
        deleted = (turn * DELETES + 1, (turn + 1) * DELETES)
        database.execute("DELETE FROM orders WHERE id BETWEEN %s AND %s", deleted)


@shows(
    CLIENT, "snapshot, inserts, updates, deletes and tombstones, each exactly once while its worker is killed"
)
def test_changes(address, database, bootstrap, prefix, tmp_path: Path, counted):
    available(connect.jars)
    plugins = available(connect.debezium)
    topic = f"{prefix}.public.orders"
    database.execute(INSERT, (1, SNAPSHOT))
    with Worker(tmp_path / "worker", bootstrap, f"{prefix}-connect", plugins=plugins) as worker:
        worker.configure("orders", config(address, prefix))
        eventually(lambda: len(committed(bootstrap, topic)) == SNAPSHOT)
        third = ROUNDS // 3
        change(database, range(third))
        eventually(lambda: len(committed(bootstrap, topic)) > SNAPSHOT)
        change(database, range(third, 2 * third))
        worker.kill()
        change(database, range(2 * third, ROUNDS))
        worker.start()
        worker.wait_for("orders", "RUNNING")
        tombstones = ROUNDS * DELETES
        wanted = {"r": SNAPSHOT, "c": ROUNDS * INSERTS, "u": ROUNDS * UPDATES, "d": tombstones}
        eventually(lambda: len(committed(bootstrap, topic)) >= sum(wanted.values()) + tombstones)
        assert worker.states("orders") == ["RUNNING", "RUNNING"]
    messages = committed(bootstrap, topic)
    kinds = Counter(json.loads(each.value())["op"] if each.value() else "tombstone" for each in messages)
    assert kinds == {**wanted, "tombstone": tombstones}
    rows = database.execute("SELECT id, customer, amount::text, note FROM orders").fetchall()
    assert replayed(messages) == {row[0]: row for row in rows}
    events = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    counted(f"{events}; 1 kill; the {len(rows):,} rows of the table from the topic")


def replayed(messages) -> dict[int, tuple]:
    table: dict[int, tuple] = {}
    for message in messages:
        key = json.loads(message.key())["id"]
        after = json.loads(message.value())["after"] if message.value() else None
        if after is None:
            table.pop(key, None)
        else:
            table[key] = (after["id"], after["customer"], after["amount"], after["note"])
    return table
