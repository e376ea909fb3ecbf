"""SQLite without disk space: which error it raises, and which callback it calls."""

import pytest

from millpond.catalog import topics
from millpond.catalog.open import open_database, sqlite_path, sqlite_url
from millpond.catalog.sqlite import SqliteDatabase
from millpond.model.errors import CatalogFull


@pytest.fixture
def told():
    return []


@pytest.fixture
def database(tmp_path, told):
    database = SqliteDatabase(tmp_path / "catalog.db", on_full=lambda: told.append("full"))
    database.migrate()
    yield database
    database.close()


def limit(database, pages):
    """What a full disk is to SQLite; 0 is no limit."""
    writer = database._writer
    writer.pragma("max_page_count", pages or 2**31)


def fill(database):
    with database.write() as tx:
        for number in range(300):
            topics.create(tx, f"{number}-" + "x" * 200, 10, {}, now_ms=1)


def test_a_commit_that_finds_no_room_says_so_and_is_undone(database, told):
    limit(database, 1)  # the pages that are there stay
    with pytest.raises(CatalogFull, match=r"The catalog is full: .*full"):
        fill(database)
    assert told == ["full"]
    limit(database, 0)
    fill(database)
    with database.read() as tx:
        assert len(topics.all_topics(tx)) == 300


def test_room_that_is_made_at_once_is_there_for_the_next_try(tmp_path):
    made = []

    def make_room():
        made.append(True)
        limit(database, 0)

    database = open_database(sqlite_url(tmp_path / "catalog.db"), on_full=make_room)
    database.migrate()
    limit(database, 1)
    with pytest.raises(CatalogFull):
        fill(database)
    fill(database)
    assert made == [True]
    database.close()


def test_which_file_a_url_names(tmp_path):
    assert sqlite_path(sqlite_url(tmp_path / "a b.db")) == tmp_path / "a b.db"
    assert sqlite_path("postgresql://host/db") is None
    assert sqlite_path("memory://") is None
