"""Migrations: once, however many processes start together; newer schemas and unsafe servers are refused."""

import subprocess
import sys

import psycopg
import pytest

from millpond.catalog import extents, postgres, schema, topics
from millpond.catalog.postgres import PostgresDatabase
from millpond.catalog.schema import CODE_VERSION, read_meta
from millpond.catalog.sqlite import SqliteDatabase
from millpond.model.errors import CatalogUnavailable, NewerSchema, UnsafeDatabase
from millpond.model.extents import NO_APPEND_TIME
from millpond.model.ids import TopicId, TopicPartition

STARTERS = 4
START = """
import sys
from pathlib import Path
from millpond.catalog.postgres import PostgresDatabase
from millpond.catalog.schema import read_meta
from millpond.catalog.sqlite import SqliteDatabase

kind, place, schema = sys.argv[1:]
database = SqliteDatabase(Path(place)) if kind == "file" else PostgresDatabase(place, schema=schema)
print("ready", flush=True)
sys.stdin.readline()
database.migrate()
with database.read() as tx:
    print(read_meta(tx, "cluster_id"), flush=True)
database.close()
"""


def test_migrating_again_changes_nothing(catalog):
    names = ("cluster_id", "incarnation", "schema_version", "min_code_version")
    before = [catalog.read(read_meta, name) for name in names]
    catalog.topic()
    catalog.database.migrate()
    assert [catalog.read(read_meta, name) for name in names] == before
    assert before[2] == str(CODE_VERSION)
    assert len(catalog.read(topics.all_topics)) == 1


@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_processes_that_start_together_migrate_once(kind, tmp_path, postgres_url, empty_postgres):
    place = str(tmp_path / "catalog.db") if kind == "file" else postgres_url
    command = [sys.executable, "-c", START, kind, place, empty_postgres._schema]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(STARTERS)
    ]
    assert [process.stdout.readline() for process in started] == ["ready\n"] * STARTERS
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=30)[0] for process in started]
    assert [process.returncode for process in started] == [0] * STARTERS
    assert len(set(answers)) == 1
    assert answers[0].strip()


def set_meta(catalog, name, value):
    with catalog.database.write() as tx:
        tx.rows("UPDATE meta SET value = ? WHERE name = ?", (value, name))


def test_a_schema_that_needs_newer_code_is_refused_with_both_versions(catalog):
    set_meta(catalog, "min_code_version", "99")
    try:
        with pytest.raises(
            NewerSchema, match=rf"needs code version 99 or newer, and this is {CODE_VERSION}.*Upgrade"
        ):
            catalog.database.migrate()
    finally:
        set_meta(catalog, "min_code_version", "1")


def test_a_newer_schema_that_still_admits_this_code_is_left_alone(catalog):
    set_meta(catalog, "schema_version", "99")
    try:
        catalog.database.migrate()
        assert catalog.read(read_meta, "schema_version") == "99"
    finally:
        set_meta(catalog, "schema_version", str(CODE_VERSION))


def test_a_sqlite_catalog_survives_being_closed(tmp_path):
    ids = []
    for _ in range(2):
        database = SqliteDatabase(tmp_path / "catalog.db")
        database.migrate()
        with database.read() as tx:
            ids.append(read_meta(tx, "cluster_id"))
        database.close()
    assert ids[0] == ids[1]


def test_a_postgresql_that_may_lose_commits_is_refused(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE unsafe")
        connection.execute("ALTER DATABASE unsafe SET synchronous_commit = off")
        with pytest.raises(UnsafeDatabase, match="synchronous_commit is 'off'"):
            PostgresDatabase(postgres_url.replace("/postgres?", "/unsafe?"))
        connection.execute("DROP DATABASE unsafe")


def test_a_postgresql_that_is_not_there_is_unavailable(monkeypatch, tmp_path):
    monkeypatch.setattr(postgres, "CONNECT_TIMEOUT_S", 0.2)
    with pytest.raises(CatalogUnavailable):
        PostgresDatabase(f"postgresql://postgres@/postgres?host={tmp_path}")


# -- from version 4: extents without an append time -----------------------------------------------------------------

OLD_INSERT = """
    INSERT INTO extents (topic_id, partition, base_offset, end_offset, epoch, object_id, position, length,
      records, min_timestamp, max_timestamp, high_timestamp, stamped, sparse_index, inline)
    VALUES (?, 0, ?, ?, 1, NULL, 0, 4, 5, 10, 20, 20, 0, NULL, ?)
"""
TOPIC = b"t" * 16


def insert_as_version_4(tx, base):
    tx.rows(OLD_INSERT, (TOPIC, base, base + 5, b"data"))


@pytest.fixture(params=["file", "postgres"])
def version_4(request, tmp_path, monkeypatch):
    """A catalog as version 4 left it, with two extents."""
    is_file = request.param == "file"
    database = SqliteDatabase(tmp_path / "old.db") if is_file else request.getfixturevalue("empty_postgres")
    with monkeypatch.context() as then:
        then.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:4])
        database.migrate()
    with database.write() as tx:
        assert read_meta(tx, "schema_version") == "4"
        tx.rows(
            "INSERT INTO partitions (topic_id, partition, end_offset, bytes) VALUES (?, 0, 10, 8)", (TOPIC,)
        )
        for base in (0, 5):
            insert_as_version_4(tx, base)
    yield database
    if is_file:
        database.close()


def test_extents_from_before_append_times_have_none_and_stay_as_they_are(version_4):
    version_4.migrate()
    topic_partition = TopicPartition(TopicId(TOPIC), 0)
    with version_4.read() as tx:
        assert read_meta(tx, "schema_version") == str(CODE_VERSION)
        found = extents.find(tx, topic_partition, 0, bytes_max=100, extents_max=10)
    assert [(e.base_offset, e.end_offset, e.appended_at, e.inline) for e in found] == [
        (0, 5, NO_APPEND_TIME, b"data"),
        (5, 10, NO_APPEND_TIME, b"data"),
    ]
    assert [(e.min_timestamp, e.max_timestamp) for e in found] == [(10, 20)] * 2


def test_version_4_may_run_beside_and_what_it_appends_has_no_append_time(version_4):
    version_4.migrate()
    topic_partition = TopicPartition(TopicId(TOPIC), 0)
    with version_4.write() as tx:
        assert int(read_meta(tx, "min_code_version")) <= 4
        insert_as_version_4(tx, 10)
    with version_4.read() as tx:
        assert extents.facts(tx, topic_partition, 10, 1)[0].appended_at == NO_APPEND_TIME
