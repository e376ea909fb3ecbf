"""SQLite, through apsw, whose wheel carries a current SQLite.

Several processes may write one catalog. SQLite's own busy handler starves writers (seconds of waiting, then
"database is locked"), so a writer first takes a blocking flock on a file beside the database and then always
finds BEGIN IMMEDIATE free. The database file itself is never opened with plain open(): closing it would drop
the locks SQLite holds on it (POSIX).
"""

import fcntl
import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

from millpond.catalog.database import Parameters, Row
from millpond.catalog.schema import migrate
from millpond.model.errors import (
    CatalogFailed,
    CatalogUnavailable,
    CorruptCatalog,
    DataDirectoryUnusable,
    InvalidRequest,
)

BUSY_TIMEOUT_MS: Final = 5_000
CHECKPOINT_PAGES: Final = 4_000
READERS_MAX: Final = 8
CACHE_KIB: Final = 16_384
BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")

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


class SqliteDatabase:
    """A catalog in one file. Reads go to their own connections and never wait for the writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._boot_id = _boot_id()
        self._write_turn = threading.Lock()
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
                self._writer = _connect(path)
                self._seen_version = self._data_version()
        except BaseException:
            os.close(self._lock_file)
            raise

    @contextmanager
    def write(self) -> Iterator[SqliteTransaction]:
        started = time.perf_counter()
        with self._write_turn:
            self._refuse_if_unusable()
            with _flocked(self._lock_file):
                self.longest_wait_ms = max(self.longest_wait_ms, (time.perf_counter() - started) * 1000)
                try:
                    with _written(self._writer):
                        yield SqliteTransaction(self._writer, self._boot_id)
                except CatalogFailed as error:
                    self._failure = error
                    raise

    @contextmanager
    def read(self) -> Iterator[SqliteTransaction]:
        with self._reader_slots:
            connection = self._take_reader()
            try:
                with _errors_translated():
                    yield SqliteTransaction(connection, self._boot_id)
            finally:
                self._give_back(connection)

    def changed_elsewhere(self) -> bool:
        """The writer connection's data_version moves only when another connection commits."""
        with self._write_turn, _errors_translated():
            version = self._data_version()
        changed = version != self._seen_version
        self._seen_version = version
        return changed

    def migrate(self) -> None:
        with self.write() as tx:
            migrate(tx, dialect="sqlite")

    def close(self) -> None:
        with self._write_turn:
            if self._closed:
                return
            self._closed = True
            while not self._readers.empty():
                self._readers.get_nowait().close()
            self._writer.close()
            os.close(self._lock_file)

    def _refuse_if_unusable(self) -> None:
        if self._closed:
            raise CatalogUnavailable(reason="the catalog is closed")
        if self._failure is not None:
            raise CatalogFailed(**self._failure.facts) from self._failure

    def _give_back(self, connection: apsw.Connection) -> None:
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
                return _connect(self._path)

    def _data_version(self) -> int:
        version: int = self._writer.pragma("data_version")
        return version


class SqliteMemoryDatabase:
    """The in-memory twin: one connection, taken in turns. Gone when it is closed."""

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._boot_id = _boot_id()
        self._connection = apsw.Connection(":memory:")

    @contextmanager
    def write(self) -> Iterator[SqliteTransaction]:
        with self._turn, _written(self._connection):
            yield SqliteTransaction(self._connection, self._boot_id)

    @contextmanager
    def read(self) -> Iterator[SqliteTransaction]:
        with self._turn, _errors_translated():
            yield SqliteTransaction(self._connection, self._boot_id)

    def changed_elsewhere(self) -> bool:
        return False

    def migrate(self) -> None:
        with self.write() as tx:
            migrate(tx, dialect="sqlite")

    def close(self) -> None:
        with self._turn:
            self._connection.close()


def _connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), statementcachesize=200)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", True)
    connection.pragma("cache_size", -CACHE_KIB)
    connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
    connection.pragma("journal_size_limit", 64 * 1024 * 1024)
    return connection


@contextmanager
def _written(connection: apsw.Connection) -> Iterator[None]:
    """BEGIN, the block, COMMIT; or ROLLBACK, unless SQLite has done so by itself."""
    with _errors_translated():
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if not connection.get_autocommit():
                connection.execute("ROLLBACK")


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
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise CorruptCatalog(reason=str(error)) from error
    except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError) as error:
        raise CatalogUnavailable(reason=f"the catalog cannot be written: {error}") from error
    except apsw.IOError as error:
        # After a failed fsync the kernel may have dropped the pages: trying again would lie (SQLite, fsyncgate).
        raise CatalogFailed(reason=str(error)) from error
    except (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.NoMemError) as error:
        raise CatalogUnavailable(reason=str(error)) from error
    except apsw.ConnectionClosedError as error:
        raise CatalogUnavailable(reason="the catalog is closed") from error


def _boot_id() -> str:
    return BOOT_ID_FILE.read_text().strip() if BOOT_ID_FILE.exists() else "this-boot"
