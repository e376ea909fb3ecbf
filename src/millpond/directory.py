"""The data directory of a broker: made durably, locked against a second broker, and removed again by a start that fails
before the broker has served anything."""

import contextlib
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.catalog.open import CATALOG_FILE, OBJECTS_FOLDER
from millpond.model.errors import DataDirectoryLocked, DataDirectoryUnusable
from millpond.objects.files import make_directory

LOCK_FILE: Final = "broker.lock"
OWN_FILES: Final = (LOCK_FILE, CATALOG_FILE, "disk.reserve")
"""How the names begin of what a broker puts into the directory itself, beside the objects."""


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Locked until `unlock`. `created` are the directories that were made for it, the innermost first."""

    path: Path
    lock: int
    created: tuple[Path, ...]

    def unlock(self) -> None:
        os.close(self.lock)

    def remove_if_created(self) -> None:
        """Leave no trace of a broker that could not start. Only what such a broker can have written is removed: a
        directory that was there before stays, and so does one with anything else in it, such as an object. Call it
        before `unlock`, so that no other broker begins meanwhile."""
        if not self.created or self._alien():
            return
        folders = [Path(folder) for folder, _, _ in os.walk(self.path / OBJECTS_FOLDER, topdown=False)]
        with contextlib.suppress(OSError):  # something else came into it meanwhile: it stays
            for name in _names(self.path):
                if name != OBJECTS_FOLDER:
                    (self.path / name).unlink()
            for folder in (*folders, *self.created):
                folder.rmdir()

    def _alien(self) -> list[str]:
        """What no start of a broker makes."""
        names = [each for each in _names(self.path) if each != OBJECTS_FOLDER]
        objects = [file for _, _, files in os.walk(self.path / OBJECTS_FOLDER) for file in files]
        return [each for each in names if not each.startswith(OWN_FILES)] + objects


def lock_data_dir(path: Path) -> DataDirectory:
    """Keep a second broker off the directory. Other writers (tools, Spark) may come and go."""
    path = path.absolute()
    try:
        missing = tuple(folder for folder in (path, *path.parents) if not folder.exists())
        lock = _open_lock(path)
    except OSError as error:
        raise DataDirectoryUnusable(path=path, reason=error.strerror) from error
    return DataDirectory(path, lock, missing)


def _open_lock(path: Path) -> int:
    """A lock file that was removed while it was being locked, by a broker that could not start, locks nothing."""
    while True:
        _make_durably(path)
        lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise DataDirectoryLocked(path=path) from error
        if _is_at(lock, path / LOCK_FILE):
            return lock
        os.close(lock)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _make_durably(path: Path) -> None:
    """Make the directory, and its name survive a power cut: all that is acknowledged later lies below it."""
    if not path.is_dir():
        make_directory(path, next(folder for folder in path.parents if folder.exists()))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
