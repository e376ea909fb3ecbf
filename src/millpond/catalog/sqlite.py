"""The SQLite engine, through apsw, whose wheel includes a current SQLite.

Several processes may write one catalog. SQLite's own busy handler starves writers (seconds of waiting, then
"database is locked"). A writer therefore first takes a blocking flock on a file beside the database; BEGIN
IMMEDIATE then never has to wait. The database file itself is never opened with plain open(): closing it would
drop the locks that SQLite holds on it (POSIX).
"""

import contextlib
import fcntl
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

from millpond.catalog.database import Parameters, Row
from millpond.catalog.schema import migrate
from millpond.model.errors import (
    CatalogFailed,
    CatalogFull,
    CatalogUnavailable,
    CorruptCatalog,
    DataDirectoryUnusable,
    InvalidRequest,
    MillpondError,
)

BUSY_TIMEOUT_MS: Final = 5_000
PAGE_BYTES: Final = 8_192
"""Page size of a new catalog. A row with 2 kB inline still fits its page; with SQLite's default of 4 KiB half
of those bytes would overflow."""
CHECKPOINT_PAGES: Final = 2_000
READERS_MAX: Final = 8
CACHE_KIB: Final = 16_384
BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")

FATAL: Final = (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC, apsw.SQLITE_IOERR_WRITE)
"""Errors after which this process must not write again. After a failed fsync the kernel may have dropped the
pages, so a retry could succeed without the data being stored (fsyncgate). Other I/O errors (no room to map
the WAL's index, for example) end when their cause ends."""

UNSTORABLE: Final = (OverflowError, UnicodeEncodeError, apsw.TooBigError)


class SqliteTransaction:
    def __init__(self, connection: apsw.Connection, boot_id: str) -> None:
        self._execute = connection.execute
        self._boot_id = boot_id

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        try:
            return self._execute(sql, parameters).fetchall()
        except UNSTORABLE as error:
            raise InvalidRequest(reason=str(error)) from error

    def each(self, sql: str, many: Sequence[Parameters]) -> list[list[Row]]:
        try:
            return [self._execute(sql, parameters).fetchall() for parameters in many]
        except UNSTORABLE as error:
            raise InvalidRequest(reason=str(error)) from error

    def lease_clock(self) -> tuple[str, int]:
        return self._boot_id, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def terminate_connections(self, names: Sequence[str]) -> None:
        """Does nothing: locks of a paused process stay until the process continues or ends."""

    def disable_lock_timeout(self) -> None:
        """Does nothing: SQLite's writers always wait without a limit."""


class SqliteDatabase:
    """A catalog in one file. Reads use their own connections and never wait for the writer."""

    def __init__(self, path: Path, *, on_full: Callable[[], None] = lambda: None) -> None:
        """`on_full` is called, on the writing thread, when a commit fails because the disk is full."""
        self._path = path
        self._on_full = on_full
        self._boot_id = _boot_id()
        self._write_lock = threading.Lock()
        self._readers: queue.LifoQueue[apsw.Connection] = queue.LifoQueue()
        self._reader_slots = threading.BoundedSemaphore(READERS_MAX)
        self._closed = False
        self._failure: CatalogFailed | None = None
        self.longest_wait_ms = 0.0
        try:
            self._lock_file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataDirectoryUnusable(path=path.parent, reason=error.strerror) from error
        try:
            with _errors_translated(), _flocked(self._lock_file):
                self._writer = self._connect()
                self._seen_version: int = self._writer.pragma("data_version")
        except BaseException:
            os.close(self._lock_file)
            raise

    def write(self) -> "_WriteTransaction":
        return _WriteTransaction(self._writer, self._write_lock, self._boot_id, self)

    @contextmanager
    def read(self) -> Iterator[SqliteTransaction]:
        with self._reader_slots:
            connection = self._take_reader()
            try:
                with _errors_translated():
                    yield SqliteTransaction(connection, self._boot_id)
            finally:
                self._return_reader(connection)

    def has_foreign_commits(self) -> bool:
        """The writer connection's data_version changes only when another connection commits."""
        with self._write_lock, _errors_translated():
            version: int = self._writer.pragma("data_version")
        changed = version != self._seen_version
        self._seen_version = version
        return changed

    def migrate(self) -> None:
        with self.write() as tx:
            migrate(tx, dialect="sqlite")

    def close(self) -> None:
        with self._write_lock:
            if self._closed:
                return
            self._closed = True
            while not self._readers.empty():
                self._readers.get_nowait().close()
            self._writer.close()
            os.close(self._lock_file)

    def lock(self) -> None:
        """Lock out other processes. The caller already holds this process's write lock."""
        started = time.perf_counter()
        if self._closed:
            raise CatalogUnavailable(reason="the catalog is closed")
        if self._failure is not None:
            raise CatalogFailed(**self._failure.facts) from self._failure
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        self.longest_wait_ms = max(self.longest_wait_ms, (time.perf_counter() - started) * 1000)

    def unlock(self) -> None:
        if not self._closed:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def fail(self, failure: CatalogFailed) -> None:
        """Refuse all further writes until the process restarts."""
        self._failure = failure

    def make_room(self) -> None:
        """Report that the disk is full, so that space kept in reserve is released."""
        self._on_full()

    def _connect(self) -> apsw.Connection:
        """Connect; if the disk is full, make room and connect again. Opening may need space for the WAL's index."""
        try:
            return _connect(self._path)
        except apsw.Error as error:
            if not isinstance(_translated(error), CatalogFull):
                raise
        self.make_room()
        return _connect(self._path)

    def _return_reader(self, connection: apsw.Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._readers.put(connection)

    def _take_reader(self) -> apsw.Connection:
        if self._closed:
            raise CatalogUnavailable(reason="the catalog is closed")
        try:
            return self._readers.get_nowait()
        except queue.Empty:
            with _errors_translated():
                return self._connect()


class SqliteMemoryDatabase:
    """The in-memory counterpart: one connection that all threads share, one at a time. Closing it discards
    the data."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._boot_id = _boot_id()
        self._connection = apsw.Connection(":memory:")

    def write(self) -> "_WriteTransaction":
        return _WriteTransaction(self._connection, self._lock, self._boot_id)

    @contextmanager
    def read(self) -> Iterator[SqliteTransaction]:
        with self._lock, _errors_translated():
            yield SqliteTransaction(self._connection, self._boot_id)

    def has_foreign_commits(self) -> bool:
        return False

    def migrate(self) -> None:
        with self.write() as tx:
            migrate(tx, dialect="sqlite")

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), statementcachesize=200)
    try:
        _configure(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    connection.pragma("page_size", PAGE_BYTES)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", True)
    connection.pragma("cache_size", -CACHE_KIB)
    connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
    connection.pragma("journal_size_limit", 64 * 1024 * 1024)


class _WriteTransaction:
    """A write transaction: takes this process's lock and the lock between processes, then BEGIN; at the end
    COMMIT, or ROLLBACK unless SQLite has rolled back by itself. It is a class and not a generator because
    every append uses it."""

    __slots__ = ("_connection", "_database", "_lock", "_transaction")

    def __init__(
        self,
        connection: apsw.Connection,
        lock: "threading.Lock | threading.RLock",
        boot_id: str,
        database: SqliteDatabase | None = None,
    ) -> None:
        self._connection = connection
        self._lock = lock
        self._database = database
        self._transaction = SqliteTransaction(connection, boot_id)

    def __enter__(self) -> SqliteTransaction:
        self._lock.acquire()
        try:
            if self._database is not None:
                self._database.lock()
            self._connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._leave()
            self._raise_ours(error)
            raise
        return self._transaction

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._connection.execute("COMMIT")
        except apsw.Error as refused:
            error = refused
        try:
            if error is not None:
                self._roll_back()
                self._raise_ours(error)
        finally:
            self._leave()

    def _roll_back(self) -> None:
        with contextlib.suppress(apsw.Error):
            if not self._connection.get_autocommit():
                self._connection.execute("ROLLBACK")

    def _raise_ours(self, error: BaseException) -> None:
        """Raise the translation of an SQLite error. Returns for any other error, which the caller lets propagate."""
        ours = _translated(error)
        if isinstance(ours, CatalogFailed) and self._database is not None:
            self._database.fail(ours)
        if isinstance(ours, CatalogFull) and self._database is not None:
            self._database.make_room()
        if ours is not None:
            raise ours from error

    def _leave(self) -> None:
        if self._database is not None:
            self._database.unlock()
        self._lock.release()


@contextmanager
def _flocked(lock_file: int) -> Iterator[None]:
    fcntl.flock(lock_file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(lock_file, fcntl.LOCK_UN)


@contextmanager
def _errors_translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        ours = _translated(error)
        if ours is None:
            raise
        raise ours from error


def _translated(error: BaseException) -> MillpondError | None:
    """Translate an SQLite error. None for an error that is a bug in this code, or that is not an SQLite error."""
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return CorruptCatalog(reason=str(error))
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return CatalogUnavailable(reason=f"the catalog cannot be written: {error}")
        case apsw.IOError():
            return _translated_io(getattr(error, "extendedresult", None), str(error))
        case apsw.FullError():
            return CatalogFull(reason=str(error))
        case apsw.BusyError() | apsw.LockedError() | apsw.NoMemError():
            return CatalogUnavailable(reason=str(error))
        case apsw.ConnectionClosedError():
            return CatalogUnavailable(reason="the catalog is closed")
        case _:
            return None


def _translated_io(code: int | None, message: str) -> MillpondError:
    if code in FATAL:
        return CatalogFailed(reason=message)
    if code == apsw.SQLITE_IOERR_SHMSIZE:
        return CatalogFull(reason=f"no room on the disk for the WAL's index ({message})")
    return CatalogUnavailable(reason=message)


def _boot_id() -> str:
    return BOOT_ID_FILE.read_text().strip() if BOOT_ID_FILE.exists() else "this-boot"
