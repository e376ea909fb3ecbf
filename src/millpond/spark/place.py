"""Where the data is: a catalog and a store, as text that travels to executors, opened once in each process."""

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
    shown_url,
    sqlite_path,
    sqlite_url,
)
from millpond.model.errors import InvalidSettings
from millpond.model.ids import Session, new_session
from millpond.objects.open import open_store
from millpond.objects.reserve import RESERVE_BYTES, Reserve
from millpond.objects.store import ObjectStore
from millpond.reading.reader import StoreReader

STORAGE_PREFIX: Final = "storage."
EXTENTS_PER_READ: Final = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """`Place.at("./millpond-data")`, or the two URLs that a broker was started with."""

    catalog: str
    storage: str
    storage_config: tuple[tuple[str, str], ...] = ()
    """Further settings of a remote store, in obstore's words. Credentials usually come from the environment."""

    @classmethod
    def at(cls, path: str | Path) -> Self:
        directory = Path(path).absolute()
        return cls(sqlite_url(directory / CATALOG_FILE), (directory / OBJECTS_FOLDER).as_uri())

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """From a data source's options: `path`, or `catalog` and `storage`; `storage.…` for its settings."""
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
        return shown_url(self.catalog)


def database(place: Place) -> Database:
    """This process's connection to the catalog, opened on first use. Raises if there is no catalog."""
    key = (os.getpid(), place)
    if key not in _databases:
        _check_exists(place)
        _databases[key] = open_database(place.catalog)
    return _databases[key]


def prepare(place: Place) -> Database:
    """The same, with the schema brought up to this code's version: for whoever writes."""
    found = database(place)
    found.migrate()
    return found


def store(place: Place, session: Session | None = None) -> ObjectStore:
    """A store that appends under `session`; without one, this process's own for reading. While the disk of an SQLite
    catalog is full it takes nothing, as a broker's takes nothing."""
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
    """Let go of everything that this process has opened. What is asked for later is opened anew."""
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
