"""The data directory of a broker. It is created durably, locked against a second broker, and removed again if
the start fails before the broker has served anything."""

import contextlib
import fcntl
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.catalog.open import CATALOG_FILE, OBJECTS_FOLDER
from millpond.model.errors import DataDirectoryLocked, DataDirectoryUnusable
from millpond.objects.files import make_directory

LOCK_FILE: Final = "broker.lock"
OWN_FILES: Final = (LOCK_FILE, CATALOG_FILE, "disk.reserve")
"""Name prefixes of the files that a broker itself creates in the directory, next to the objects."""
PRIVATE: Final = 0o700
OTHERS: Final = 0o077

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Locked until `unlock`. `created` lists the directories that were created for it, the innermost first."""

    path: Path
    lock: int
    created: tuple[Path, ...]

    def unlock(self) -> None:
        os.close(self.lock)

    def remove_if_created(self) -> None:
        """Remove the directory after a failed start. Removes only what such a start can have written: a
        directory that existed before stays, and so does one that contains anything else, such as an object.
        Call it before `unlock`, so that no other broker can start in between."""
        if not self.created or self._unknown_files():
            return
        folders = [Path(folder) for folder, _, _ in os.walk(self.path / OBJECTS_FOLDER, topdown=False)]
        with contextlib.suppress(OSError):  # something else was written into it since: it stays
            for name in _names(self.path):
                if name != OBJECTS_FOLDER:
                    (self.path / name).unlink()
            for folder in (*folders, *self.created):
                folder.rmdir()

    def _unknown_files(self) -> list[str]:
        """Names of files that a starting broker does not create."""
        names = [each for each in _names(self.path) if each != OBJECTS_FOLDER]
        objects = [file for _, _, files in os.walk(self.path / OBJECTS_FOLDER) for file in files]
        return [each for each in names if not each.startswith(OWN_FILES)] + objects


def lock_data_dir(path: Path, *, is_private: bool = False) -> DataDirectory:
    """Lock the directory against a second broker. Other writers (tools, Spark) may still use it. With `is_private`, a
    new directory is for this user only, and an existing one that others can open is reported."""
    path = path.absolute()
    try:
        missing = tuple(folder for folder in (path, *path.parents) if not folder.exists())
        lock = _open_lock(path)
        if is_private:
            _protect(path, is_new=path in missing)
    except OSError as error:
        raise DataDirectoryUnusable(path=path, reason=error.strerror) from error
    return DataDirectory(path, lock, missing)


def _protect(path: Path, *, is_new: bool) -> None:
    if is_new:
        path.chmod(PRIVATE)
    elif path.stat().st_mode & OTHERS:
        logger.warning("other users can open the data directory", extra={"path": str(path)})


def _open_lock(path: Path) -> int:
    """Open and lock the lock file. If a broker that failed to start removed the file in between, the lock is
    worthless, so it is taken again."""
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
    """Create the directory so that its name survives a power failure: everything acknowledged later is stored
    below it."""
    if not path.is_dir():
        make_directory(path, next(folder for folder in path.parents if folder.exists()))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
