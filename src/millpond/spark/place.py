"""The location of the data: the URLs of a catalog and an object store, which can be sent to executors. Each
process opens each of them once."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from millpond.catalog.database import Database
from millpond.catalog.open import (
    CATALOG_FILE,
    OBJECTS_FOLDER,
    SQLITE,
    open_database,
    sqlite_path,
    sqlite_url,
)
from millpond.model.errors import InvalidSettings
from millpond.model.ids import Session, new_session
from millpond.model.urls import redacted_url
from millpond.objects.disk_reserve import RESERVE_BYTES, Reserve
from millpond.objects.open import open_store
from millpond.objects.store import ObjectStore
from millpond.reading.reader import StoreReader

STORAGE_PREFIX: Final = "storage."
EXTENTS_PER_READ: Final = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a cluster's data: `Place.at("./millpond-data")`, or the two URLs that a broker was
    started with."""

    catalog: str
    storage: str
    storage_config: tuple[tuple[str, str], ...] = ()
    """Further settings of a remote store, with obstore's names. Credentials usually come from the
    environment."""

    @classmethod
    def at(cls, path: str | Path) -> Self:
        directory = Path(path).absolute()
        return cls(sqlite_url(directory / CATALOG_FILE), (directory / OBJECTS_FOLDER).as_uri())

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Read the location from the options of a data source: `path`, or `catalog` and `storage`;
        `storage.…` options are settings of the store."""
        path, catalog, storage = (options.get(name) for name in ("path", "catalog", "storage"))
        if path and not (catalog or storage):
            return cls.at(path)
        if catalog and storage and not path:
            given = sorted((k.lower(), v) for k, v in options.items() if k.lower().startswith(STORAGE_PREFIX))
            return cls(catalog, storage, tuple((k.removeprefix(STORAGE_PREFIX), v) for k, v in given))
        reason = (
            "say where the data is: option path (a broker's data directory), or catalog and storage (URLs)"
        )
        raise InvalidSettings(name="path", value=path or "", reason=reason)

    def __str__(self) -> str:
        return redacted_url(self.catalog)


def database(place: Place) -> Database:
    """This process's connection to the catalog, opened on first use. Raises `InvalidSettings` if there is no
    catalog."""
    key = (os.getpid(), place)
    if key not in _databases:
        _check_exists(place)
        _databases[key] = open_database(place.catalog)
    return _databases[key]


def prepare(place: Place) -> Database:
    """The same, with the schema migrated to this code's version. Jobs that write call it."""
    found = database(place)
    found.migrate()
    return found


def store(place: Place, session: Session | None = None) -> ObjectStore:
    """A store that appends under `session`; without a session, this process's own store for reading. While
    the disk of an SQLite catalog is full, the store refuses appends, as a broker does."""
    if session is not None:
        path = sqlite_path(place.catalog)
        reserve = Reserve(path.parent, RESERVE_BYTES) if path is not None else None
        return open_store(place.storage, session, config=dict(place.storage_config), reserve=reserve)
    key = (os.getpid(), place)
    if key not in _stores:
        _stores[key] = open_store(place.storage, new_session(), config=dict(place.storage_config))
    return _stores[key]


def reader(place: Place) -> StoreReader:
    return StoreReader(database(place), store(place), extents_per_read=EXTENTS_PER_READ)


def close_all() -> None:
    """Close everything that this process has opened. A later use opens it again."""
    for opened in _databases.values():
        opened.close()
    for kept in _stores.values():
        kept.close()
    _databases.clear()
    _stores.clear()


def _check_exists(place: Place) -> None:
    path = Path(place.catalog.removeprefix(SQLITE))
    if place.catalog.startswith(SQLITE) and not path.exists():
        reason = "there is no catalog in it: has a broker run there?"
        raise InvalidSettings(name="path", value=str(path.parent), reason=reason)


_databases: dict[tuple[int, Place], Database] = {}
_stores: dict[tuple[int, Place], ObjectStore] = {}
