"""From a URL to a catalog: the one place that knows which engine serves which."""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from millpond.catalog.database import Database
from millpond.catalog.sqlite import SqliteDatabase, SqliteMemoryDatabase
from millpond.model.errors import InvalidSettings

CATALOG_FILE: Final = "catalog.db"
"""Inside a data directory; the objects lie beside it, in `OBJECTS_FOLDER`."""
OBJECTS_FOLDER: Final = "objects"
SQLITE: Final = "sqlite://"
POSTGRES: Final = ("postgresql://", "postgres://")


def sqlite_url(path: Path) -> str:
    return f"{SQLITE}{path.absolute()}"


def open_database(url: str) -> Database:
    """`memory://`, `sqlite:///absolute/file.db` or `postgresql://…`; `InvalidSettings` for anything else."""
    if url == "memory://":
        return SqliteMemoryDatabase()
    if url.startswith(SQLITE):
        return SqliteDatabase(Path(unquote(url.removeprefix(SQLITE))))
    if url.startswith(POSTGRES):
        return _open_postgres(url)
    reason = "it is neither memory:// nor sqlite:///… nor postgresql://…"
    raise InvalidSettings(name="catalog", value=shown_url(url), reason=reason)


def shown_url(url: str) -> str:
    """Without the user and password that it may carry."""
    return url.partition("@")[2] or urlsplit(url)._replace(query="").geturl()


def _open_postgres(url: str) -> Database:
    try:
        from millpond.catalog.postgres import PostgresDatabase
    except ImportError as error:
        reason = "it needs one more package: pip install 'millpond[postgres]'"
        raise InvalidSettings(name="catalog", value=shown_url(url), reason=reason) from error
    return PostgresDatabase(url)
