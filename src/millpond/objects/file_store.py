"""Objects as files under one directory, fsynced. Several processes may share the directory.

Appends go to this process's own journal file, one after another; its position moves only when fdatasync has
returned. **A failed fsync is fatal for its file**: the kernel may have dropped the dirty pages and marked
them clean, so a second fsync would succeed although the bytes are lost. The file is abandoned (bytes
acknowledged earlier stay readable), the append fails, and the next one uses a new file.
"""

import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from millpond.model.buffers import Buffer
from millpond.model.errors import (
    CorruptObject,
    DataDirectoryUnusable,
    InvalidRequest,
    ObjectExists,
    ObjectMissing,
    StoreUnavailable,
)
from millpond.model.extents import Location
from millpond.model.ids import Session
from millpond.objects import files
from millpond.objects.disk_reserve import Reserve
from millpond.objects.recycled import RecycledMemory
from millpond.objects.store import Method, check_expiry, check_key, check_prefix, check_range, total_length
from millpond.segments.keys import journal_key

logger = logging.getLogger(__name__)

ROLL_BYTES = 64 << 20
TEMPORARIES = ".temporary"
"""The directory of files that are not objects yet. The dot keeps it out of the key space."""

FOLDER_TRIES_MAX = 5
"""How often one call creates its folder."""

T = TypeVar("T")


class _Journal:
    """The file that is appended to. `position` is the end of the acknowledged bytes."""

    def __init__(self, key: str, descriptor: int) -> None:
        self.key = key
        self.descriptor = descriptor
        self.position = 0


class FileStore:
    """`append` holds one lock until its fdatasync returns; `read`, `list` and `size` take none. While the
    disk's `reserve` is released, appends and puts fail with `StoreFull`. The calls of `ObjectStore` and their
    steps, which share the open journal: more than 20 methods."""

    appends_are_uploads = False
    reads_at_once = 1

    def __init__(
        self,
        root: Path,
        session: Session,
        *,
        roll_bytes: int = ROLL_BYTES,
        reserve: Reserve | None = None,
    ) -> None:
        self._root = root.absolute()
        self._reserve = reserve
        self._temporaries = self._root / TEMPORARIES
        self._session = session
        self._roll_bytes = roll_bytes
        self._lock = threading.Lock()
        self._journal: _Journal | None = None
        self._sequences = itertools.count()
        self._memory = RecycledMemory()
        self._durable_directories: set[Path] = set()
        self._closed = False
        self._had_no_room = False
        """Whether the last append failed because the disk was full."""
        self._prepare_root()

    def append(self, parts: Sequence[Buffer]) -> Location:
        length = total_length(parts)
        with self._lock, files.os_errors():
            self._refuse_if_closed()
            if self._reserve is not None:
                self._reserve.check()
            journal = self._journal_for(length)
            self._write(journal, parts)
            self._sync(journal)
            location = Location(journal.key, journal.position, length)
            journal.position += length
            self._had_no_room = False
        return location

    def is_open(self, key: str) -> bool:
        """On a full disk no journal is open: nothing can be appended to it, so it can be collected immediately."""
        check_key(key)
        journal = self._journal
        if journal is None or journal.key != key:
            return False
        if not self._had_no_room and (self._reserve is None or not self._reserve.is_released):
            return True
        with self._lock:
            if self._journal is journal:
                self._close_journal()
        return False

    def put(self, key: str, parts: Sequence[Buffer]) -> None:
        path = self._path(key)
        total_length(parts)
        self._refuse_if_closed()
        if self._reserve is not None:
            self._reserve.check()
        with files.os_errors(), self._temporary(parts) as temporary:
            self._link(temporary, key, path)

    def read(self, key: str, start: int, length: int) -> memoryview:
        check_range(start, length)
        path = self._path(key)
        end = self._acknowledged(key)
        # Beyond the acknowledged end of the open journal there are only torn or unsynced bytes.
        wanted = length if end is None else max(0, min(length, end - start))
        with files.os_errors(), _missing(key):
            data = self._memory.take(length)
            count = files.read_into(path, start, data[:wanted])
        if count < length:
            raise CorruptObject(
                key=key, position=start + count, reason=f"{length} bytes from {start} were asked"
            )
        return data

    def list(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        return self._list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            if self.is_open(key):
                with self._lock:
                    self._close_journal()
            with files.os_errors():
                path.unlink(missing_ok=True)
                self._prune(path.parent)

    def size(self, key: str) -> int:
        path = self._path(key)
        end = self._acknowledged(key)
        with files.os_errors(), _missing(key):
            return os.stat(path).st_size if end is None else end

    def copy(self, key: str, new_key: str) -> None:
        """Creates a second name for the same bytes, which never change. Each name is deleted independently."""
        source, path = self._path(key), self._path(new_key)
        self._refuse_if_closed()
        if self.is_open(key):
            raise InvalidRequest(reason=f"{key!r} is still being written")
        self.size(key)  # raises unless the object exists
        with files.os_errors(), _missing(key):
            self._link(source, new_key, path)

    def signed_url(self, key: str, method: Method, expires_s: int) -> str | None:
        check_key(key)
        check_expiry(expires_s)
        return None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._close_journal()

    # Appending

    def _journal_for(self, length: int) -> _Journal:
        """The open journal, or a new one: for the first append, when the current one is full, after a failed
        fsync."""
        journal = self._journal
        if journal is not None and journal.position and journal.position + length > self._roll_bytes:
            self._close_journal()
        if self._journal is None:
            self._journal = self._new_journal()
        return self._journal

    def _new_journal(self) -> _Journal:
        while True:
            key = journal_key(self._session, next(self._sequences))
            path = self._path(key)
            try:
                descriptor = self._in_folder(path, files.new_file)
            except FileExistsError:
                continue
            try:
                files.sync_directory(path.parent)
            except OSError:
                os.close(descriptor)
                raise
            return _Journal(key, descriptor)

    def _write(self, journal: _Journal, parts: Sequence[Buffer]) -> None:
        try:
            files.write_all(journal.descriptor, parts, journal.position)
        except OSError as error:
            self._had_no_room = error.errno in files.NO_ROOM
            # The position has not moved, so the next append overwrites the torn bytes. Free their space if possible.
            with contextlib.suppress(OSError):
                os.ftruncate(journal.descriptor, journal.position)
            raise

    def _sync(self, journal: _Journal) -> None:
        try:
            os.fdatasync(journal.descriptor)
        except OSError as error:
            logger.error("fsync failed; file abandoned", extra={"object": journal.key, "error": str(error)})
            self._close_journal()
            raise

    def _close_journal(self) -> None:
        """Stop appending to this file. It needs no sync: every acknowledged byte has been synced."""
        journal, self._journal = self._journal, None
        if journal is not None:
            with contextlib.suppress(OSError):
                os.close(journal.descriptor)

    def _acknowledged(self, key: str) -> int | None:
        """The end of the open journal. None for every other object, which ends where its file ends."""
        journal = self._journal
        return journal.position if journal is not None and journal.key == key else None

    # Putting

    @contextlib.contextmanager
    def _temporary(self, parts: Sequence[Buffer]) -> Iterator[Path]:
        """A synced file with the parts, not yet an object. Its lock shows that its writer is alive."""
        path, descriptor = self._new_temporary()
        try:
            files.write_in_synced_pieces(descriptor, parts)
            os.fsync(descriptor)
            yield path
        finally:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                path.unlink()

    def _new_temporary(self) -> tuple[Path, int]:
        """Create and lock a temporary file. A process that starts between the two steps may remove it as a
        leftover; then the loop creates another one."""
        while True:
            path = self._temporaries / f"{self._session}.{os.urandom(8).hex()}"
            descriptor = files.new_file(path)
            if files.lock_file(descriptor) and os.fstat(descriptor).st_nlink:
                return path, descriptor
            os.close(descriptor)

    def _link(self, source: Path, key: str, path: Path) -> None:
        """Give the file the object's name, durably."""
        try:
            # link(2) never replaces: it fails if the name is taken.
            self._in_folder(path, lambda target: os.link(source, target))
        except FileExistsError:
            raise ObjectExists(key=key) from None
        self._sync_name(path)

    def _sync_name(self, path: Path) -> None:
        try:
            files.sync_directory(path.parent)
        except OSError:
            # A retried put must not find this object and assume that it is durable.
            with contextlib.suppress(OSError):
                path.unlink()
            raise

    # The directory

    def _prepare_root(self) -> None:
        """Create and test the directory; remove leftovers of puts by crashed processes."""
        try:
            above = next(folder for folder in self._temporaries.parents if folder.exists())
            files.make_directory(self._temporaries, above)
            with self._temporary([b"can this be written?"]):
                pass
            for path in self._temporaries.iterdir():
                _remove_leftover(path)
        except OSError as error:
            raise DataDirectoryUnusable(path=str(self._root), reason=str(error)) from error

    def _in_folder(self, path: Path, make: Callable[[Path], T]) -> T:
        """Create something at the path, and its folder if necessary. If a delete by another process prunes the folder
        in between, create it again."""
        for _ in range(FOLDER_TRIES_MAX):
            if path.parent not in self._durable_directories:
                files.make_directory(path.parent, self._root)
                self._durable_directories.add(path.parent)
            try:
                return make(path)
            except FileNotFoundError:
                self._durable_directories.clear()
        raise StoreUnavailable(reason=f"{path.parent} is removed as fast as it is made")

    def _prune(self, folder: Path) -> None:
        """Remove folders that a delete has emptied. Without this, folders of sessions and topics would stay
        for ever."""
        while folder != self._root:
            try:
                folder.rmdir()
            except OSError:
                return
            self._durable_directories.discard(folder)
            folder = folder.parent

    def _list(self, prefix: str) -> Iterator[str]:
        with files.os_errors():
            yield from files.walk(self._root / prefix, prefix)

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(reason="it is closed")


@contextlib.contextmanager
def _missing(key: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ObjectMissing(key=key) from None


def _remove_leftover(path: Path) -> None:
    """Remove a temporary file, unless its writer is alive and holds its lock."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if files.lock_file(descriptor):
                path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
