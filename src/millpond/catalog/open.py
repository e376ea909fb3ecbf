"""Opens the catalog that a URL names. Only this module knows which engine serves which URL."""

from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from millpond.catalog.database import Database
from millpond.catalog.sqlite import SqliteDatabase, SqliteMemoryDatabase
from millpond.model.errors import InvalidSettings, NotInstalled
from millpond.model.urls import redacted_url

CATALOG_FILE: Final = "catalog.db"
"""Name of the catalog file in a data directory. The objects are beside it, in `OBJECTS_FOLDER`."""
OBJECTS_FOLDER: Final = "objects"
SQLITE: Final = "sqlite://"
POSTGRES: Final = ("postgresql://", "postgres://")


def sqlite_url(path: Path) -> str:
    return f"{SQLITE}{path.absolute()}"


def sqlite_path(url: str) -> Path | None:
    """The file of an SQLite catalog; None for any other URL."""
    return Path(unquote(url.removeprefix(SQLITE))) if url.startswith(SQLITE) else None


def open_database(
    url: str, *, name: str = "", lock_wait_ms: int = 0, on_full: Callable[[], None] = lambda: None
) -> Database:
    """Open `memory://`, `sqlite:///absolute/file.db` or `postgresql://…`. Raises `InvalidSettings` for any
    other URL.

    `name` identifies the opener to other processes (see `CatalogTransaction.terminate_connections`).
    `lock_wait_ms` limits how long a statement waits for another transaction's lock; 0 sets no limit. SQLite
    ignores it: it has a single lock, and waiting for that lock cannot be limited. `on_full` is called
    when a commit to SQLite fails because the disk is full.
    """
    if url == "memory://":
        return SqliteMemoryDatabase()
    if (path := sqlite_path(url)) is not None:
        return SqliteDatabase(path, on_full=on_full)
    if url.startswith(POSTGRES):
        return _open_postgres(url, name, lock_wait_ms)
    reason = "it is neither memory:// nor sqlite:///… nor postgresql://…"
    raise InvalidSettings(name="catalog", value=redacted_url(url), reason=reason)


def _open_postgres(url: str, name: str, lock_wait_ms: int) -> Database:
    try:
        from millpond.catalog.postgres import PostgresDatabase
    except ImportError as error:
        raise NotInstalled(
            purpose="A catalog in PostgreSQL",
            what="the Python package psycopg",
            advice="pip install 'millpond[postgres]'",
        ) from error
    return PostgresDatabase(url, name=name, lock_wait_ms=lock_wait_ms)
