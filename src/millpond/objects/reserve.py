"""The reserve: a file that occupies disk space until the disk is full, so that there is room to make room.

Deleting needs space, too: SQLite writes each commit to its WAL before anything can go. When the catalog's disk is full
the reserve is released. From then on appends are refused, in every process on the directory, or they would use up what
was released; deleting, retention and garbage collection go on. When there is room again the reserve is made again, and
appends are accepted.

The state is in the directory, where every process sees it: `disk.reserve` holds the space, `disk.reserve.released` says
that it was released. Neither of them: there is no reserve (none was asked for, or there has not been room for it yet).
"""

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from millpond.model.errors import StoreFull
from millpond.model.units import format_bytes

RESERVE_BYTES: Final = 32 * 1024 * 1024
"""Twice what SQLite's WAL grows to between two checkpoints."""
SMALL_DISK_PART: Final = 20
"""On a small disk the reserve is at most the disk divided by this."""
LOW_BYTES: Final = 1024 * 1024
"""A disk with less than this free is full: too little to open a catalog."""
RESERVE: Final = "disk.reserve"
RELEASED: Final = "disk.reserve.released"
MAKING: Final = "disk.reserve.making"

logger = logging.getLogger(__name__)


class Space(NamedTuple):
    free: int
    total: int


def space_of(folder: Path) -> Space:
    """Bytes on the file system of a folder: free for this user, and in all."""
    found = os.statvfs(folder)
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def part_of_disk(size: int, space: Space) -> int:
    """A reserve of this size, as far as the disk is large enough for it."""
    return min(size, space.total // SMALL_DISK_PART)


class Reserve:
    """The reserve of one directory. `release` and `renew` may be called from any thread and process."""

    def __init__(
        self,
        folder: Path,
        size: int,
        *,
        measure: Callable[[Path], Space] = space_of,
        allocate: Callable[[int, int, int], None] = os.posix_fallocate,
    ) -> None:
        """`size` 0 keeps none; on a small disk it is less than was asked for."""
        self._folder = folder
        self.size = part_of_disk(size, measure(folder))
        self._measure = measure
        self._allocate = allocate
        self._kept = folder / RESERVE
        self._released = str(folder / RELEASED)
        self._making = folder / MAKING
        self._lock = threading.Lock()
        self._is_missed = False

    @property
    def is_released(self) -> bool:
        return os.path.exists(self._released)  # a Path is built more slowly than the system answers

    @property
    def held_bytes(self) -> int:
        """What it occupies now."""
        try:
            return self._kept.stat().st_size
        except OSError:
            return 0

    def check(self) -> None:
        """Raise `StoreFull` while appends are refused."""
        if self.is_released:
            needed = format_bytes(2 * self.size)
            reason = f"the disk of {self._folder} is full, and nothing is appended until {needed} are free"
            raise StoreFull(reason=reason)

    def prepare(self) -> None:
        """Before the catalog is opened: finish what a crash interrupted, and release it if the disk is full."""
        with self._turn():
            self._making.unlink(missing_ok=True)
            if not self.size:
                self._kept.unlink(missing_ok=True)
                Path(self._released).unlink(missing_ok=True)
            elif self.held_bytes:
                Path(self._released).unlink(missing_ok=True)
            elif self.is_released:
                os.truncate(self._released, 0)
        if self.held_bytes and self._measure(self._folder).free < min(LOW_BYTES, self.size):
            self.release()

    def release(self) -> None:
        """The disk is full: free the space, and have appends refused. Nothing happens if that was done before."""
        try:
            with self._turn():
                # First the name: no process may append into what is about to be freed.
                self._kept.rename(self._released)
                os.truncate(self._released, 0)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.error(
                "disk reserve could not be released", extra={"path": str(self._folder), "error": str(error)}
            )
            return
        logger.error("disk full; reserve released, appends refused", extra={"path": str(self._folder)})

    def renew(self) -> None:
        """Make the reserve if there is room: after a release only if as much again stays free."""
        if self.held_bytes == self.size and not self.is_released:
            return
        try:
            with self._turn():
                was_released = self.is_released
                is_made = self._make(beyond=self.size if was_released else 0)
        except OSError:
            return
        if is_made and was_released:
            logger.warning("room on the disk again; appends accepted", extra={"path": str(self._folder)})
        elif not is_made and not was_released and not self._is_missed:
            logger.warning(
                "no room for the disk reserve",
                extra={"path": str(self._folder), "needed_bytes": self.size},
            )
        self._is_missed = not is_made

    def _make(self, beyond: int) -> bool:
        """Allocate the file and, for a moment, `beyond` more bytes: a quota may leave less than the disk has."""
        if self.held_bytes != self.size:
            if self._measure(self._folder).free <= self.size + beyond:
                return False
            try:
                self._allocate_file(self.size + beyond)
            except OSError:
                self._making.unlink(missing_ok=True)
                return False
            self._making.rename(self._kept)
        Path(self._released).unlink(missing_ok=True)
        return True

    def _allocate_file(self, size: int) -> None:
        descriptor = os.open(self._making, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            self._allocate(descriptor, 0, size)
            os.ftruncate(descriptor, self.size)
        finally:
            os.close(descriptor)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One thread of one process at a time. The lock is the directory's own: a full disk has no room for a file."""
        with self._lock:
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)
