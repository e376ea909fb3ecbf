"""From a URL to a catalog: the one place that knows which engine serves which."""

from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from millpond.catalog.database import Database
from millpond.catalog.sqlite import SqliteDatabase, SqliteMemoryDatabase
from millpond.model.errors import InvalidSettings, NotInstalled

CATALOG_FILE: Final = "catalog.db"
"""Inside a data directory; the objects lie beside it, in `OBJECTS_FOLDER`."""
OBJECTS_FOLDER: Final = "objects"
SQLITE: Final = "sqlite://"
POSTGRES: Final = ("postgresql://", "postgres://")
HIDDEN: Final = "…"


def sqlite_url(path: Path) -> str:
    return f"{SQLITE}{path.absolute()}"


def sqlite_path(url: str) -> Path | None:
    """The file of an SQLite catalog; None for any other."""
    return Path(unquote(url.removeprefix(SQLITE))) if url.startswith(SQLITE) else None


def open_database(
    url: str, *, name: str = "", lock_wait_ms: int = 0, on_full: Callable[[], None] = lambda: None
) -> Database:
    """`memory://`, `sqlite:///absolute/file.db` or `postgresql://…`; `InvalidSettings` for anything else. `name` is
    what others know whoever opens it by, `lock_wait_ms` how long a statement waits for another's lock, if not as long
    as it takes; SQLite has but one lock, which nobody can wait for less. `on_full` is called when a commit to SQLite
    fails for want of disk space."""
    if url == "memory://":
        return SqliteMemoryDatabase()
    if (path := sqlite_path(url)) is not None:
        return SqliteDatabase(path, on_full=on_full)
    if url.startswith(POSTGRES):
        return _open_postgres(url, name, lock_wait_ms)
    reason = "it is neither memory:// nor sqlite:///… nor postgresql://…"
    raise InvalidSettings(name="catalog", value=shown_url(url), reason=reason)


def shown_url(url: str) -> str:
    """Without the user, password and parameters that it may carry. Where it is unclear what is what, that is hidden."""
    if url.startswith(SQLITE):
        return url  # a path, whatever characters are in it
    scheme, separator, rest = url.partition("://")
    if not separator:
        return HIDDEN if "=" in url else url  # `password=…` is how libpq writes it without a URL
    rest, _, parameters = rest.partition("?")
    if "@" in parameters:
        return f"{scheme}://{HIDDEN}"  # it may belong to a password with a question mark in it
    return f"{scheme}://{rest.rpartition('@')[2].partition('#')[0]}"


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
