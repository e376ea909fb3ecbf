"""The reserve: a file that occupies disk space until the disk is full, so that there is space left for deleting.

Deleting needs space, too: SQLite writes each commit to its WAL before anything is deleted. When the catalog's
disk is full, the reserve is released. From then on, every process on the directory refuses appends, which
would use up the released space. Deletes, retention and garbage collection continue. When there is enough
space again, the reserve is created again, and appends are accepted.

The state is in the directory, where every process sees it. `disk.reserve` holds the space;
`disk.reserve.released` shows that it was released. If neither exists, there is no reserve (none is
configured, or there has not been space for it yet).
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
"""Twice the size that SQLite's WAL reaches between two checkpoints."""
SMALL_DISK_PART: Final = 20
"""On a small disk the reserve is at most the disk's size divided by this."""
LOW_BYTES: Final = 1024 * 1024
"""A disk with less than this free counts as full: it is too little to open a catalog."""
RESERVE: Final = "disk.reserve"
RELEASED: Final = "disk.reserve.released"
MAKING: Final = "disk.reserve.making"

logger = logging.getLogger(__name__)


class DiskSpace(NamedTuple):
    free: int
    total: int


def space_of(folder: Path) -> DiskSpace:
    """Bytes on the file system of a folder: free for this user, and in total."""
    found = os.statvfs(folder)
    return DiskSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def part_of_disk(size: int, space: DiskSpace) -> int:
    """The size of the reserve, limited to a part of the disk."""
    return min(size, space.total // SMALL_DISK_PART)


class Reserve:
    """The reserve of one directory. `release` and `renew` may be called from any thread and process."""

    def __init__(
        self,
        folder: Path,
        size: int,
        *,
        measure: Callable[[Path], DiskSpace] = space_of,
        allocate: Callable[[int, int, int], None] = os.posix_fallocate,
    ) -> None:
        """`size` 0 keeps no reserve. On a small disk the reserve is smaller than `size`."""
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
        return os.path.exists(self._released)  # building a Path takes longer than the system call

    @property
    def held_bytes(self) -> int:
        """The space that it occupies now."""
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
        """Call before the catalog is opened. Completes what a crash interrupted, and releases the reserve if
        the disk is full."""
        with self._locked():
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
        """The disk is full: free the space and refuse appends. Does nothing if the reserve is already released."""
        try:
            with self._locked():
                # Rename first: no process may append into the space that is about to be freed.
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
        """Create the reserve if there is space. After a release, the same amount again must stay free."""
        if self.held_bytes == self.size and not self.is_released:
            return
        try:
            with self._locked():
                was_released = self.is_released
                is_made = self._make(extra_bytes=self.size if was_released else 0)
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

    def _make(self, extra_bytes: int) -> bool:
        """Allocate the file and, temporarily, `extra_bytes` more: a quota may allow less than the disk has free."""
        if self.held_bytes != self.size:
            if self._measure(self._folder).free <= self.size + extra_bytes:
                return False
            try:
                self._allocate_file(self.size + extra_bytes)
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
    def _locked(self) -> Iterator[None]:
        """One thread of one process at a time. The directory itself is locked: a full disk has no space for a
        lock file."""
        with self._lock:
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)
