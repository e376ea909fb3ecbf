"""The PostgreSQL engine, through psycopg 3: READ COMMITTED, pipelines for many rows, a connection pool.

Correctness rests on compare-and-set of single rows and on the row locks that an UPDATE takes, so nothing
stronger than READ COMMITTED is needed. NOTIFY and session advisory locks are not used: NOTIFY serialises
every commit of the cluster, and session advisory locks vanish with their connection.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolTimeout

from millpond.catalog.database import Parameters, Row
from millpond.catalog.schema import is_current, migrate
from millpond.model.errors import (
    CatalogUnavailable,
    CorruptCatalog,
    InvalidRequest,
    InvalidSettings,
    OutcomeUnknown,
    UnsafeDatabase,
)

CONNECTIONS_MAX: Final = 8
CONNECT_TIMEOUT_S: Final = 10
ACQUIRE_TIMEOUT_S: Final = 2.0
"""How long a transaction waits for a connection."""
ACQUIRE_AFTER_TIMEOUT_S: Final = 0.25
"""The same wait after a transaction has waited in vain, so that callers fail quickly while the database is
unreachable."""
RECONNECT_S: Final = 1.0
"""How long the pool retries a lost connection by itself. The pool doubles its delay after each failure, so
with a longer time a broker that reconnects last would be declared dead by those that reconnect first. After
this time each transaction that needs a connection starts a new attempt."""
KEEPALIVE_IDLE_S: Final = 5
"""Idle time before the first TCP keepalive probe. A machine that has vanished sends nothing, and the kernel's
default is to probe after two hours."""
KEEPALIVE_EVERY_S: Final = 3
KEEPALIVES_MAX: Final = 3
UNANSWERED_MS: Final = (KEEPALIVE_IDLE_S + KEEPALIVE_EVERY_S * KEEPALIVES_MAX) * 1000
"""How long the server may leave keepalive probes or sent data unacknowledged. If this is set, Linux ignores
the number of probes."""
STATEMENT_TIMEOUT_MS: Final = 60_000
IDLE_IN_TRANSACTION_MS: Final = 10_000
"""How long a process that stops in mid-transaction keeps its locks, unless another process cuts it off
earlier (`terminate_connections`)."""
APPLICATION: Final = "millpond "
"""Prefix of the connections' application name in `pg_stat_activity`. The name of their opener follows it."""
TERMINATE_CONNECTIONS: Final = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = ? AND datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
"""
FOREIGN_CHECK_MS: Final = 1_000
MIGRATION_LOCK: Final = 7_303_014
"""An arbitrary number: every millpond process uses it for the same transaction-level lock."""

UNSTORABLE: Final = (psycopg.DataError, UnicodeEncodeError)
MUST_BE_ON: Final = ("fsync", "full_page_writes", "synchronous_commit")
OPTIONS: Final = (
    f"-c statement_timeout={STATEMENT_TIMEOUT_MS} "
    f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_MS} "
    "-c default_transaction_isolation=read\\ committed"
)

PostgresConnection = psycopg.Connection[Row]


class PostgresTransaction:
    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._cursor = connection.cursor(binary=True)

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        try:
            cursor = self._cursor.execute(_placeholders(sql), parameters)
        except UNSTORABLE as error:
            raise InvalidRequest(reason=str(error)) from error
        return cursor.fetchall() if cursor.description is not None else []

    def each(self, sql: str, many: Sequence[Parameters]) -> list[list[Row]]:
        if len(many) < 2:  # a pipeline for one row costs a third of a small commit
            return [self.rows(sql, parameters) for parameters in many]
        try:
            self._cursor.executemany(_placeholders(sql), many, returning=True)
        except UNSTORABLE as error:
            raise InvalidRequest(reason=str(error)) from error
        return [cursor.fetchall() if cursor.description else [] for cursor in self._cursor.results()]

    def lease_clock(self) -> tuple[str, int]:
        now = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
        return "postgres", self.rows(now)[0][0]

    def terminate_connections(self, names: Sequence[str]) -> None:
        """A process that was stopped between two statements of a commit, or whose network is cut off, would
        keep its own row locked. Other processes then could not even mark it dead."""
        self.each(TERMINATE_CONNECTIONS, [(f"{APPLICATION}{name}",) for name in names])

    def disable_lock_timeout(self) -> None:
        self.rows("SET LOCAL lock_timeout = 0")


class PostgresDatabase:
    def __init__(self, url: str, *, schema: str | None = None, name: str = "", lock_wait_ms: int = 0) -> None:
        """`name` identifies the opener to other processes; see `terminate_connections`. A statement that has
        waited `lock_wait_ms` for another transaction's lock fails with a retriable error; 0 waits as long as a
        statement may take."""
        options = f"{OPTIONS} -c lock_timeout={lock_wait_ms}"
        if schema is not None:
            options += f" -c search_path={schema}"
        keywords: dict[str, Any] = {
            "options": options,
            "keepalives_idle": KEEPALIVE_IDLE_S,
            "keepalives_interval": KEEPALIVE_EVERY_S,
            "keepalives_count": KEEPALIVES_MAX,
            "tcp_user_timeout": UNANSWERED_MS,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": f"{APPLICATION}{name}".strip(),
        }
        _check_address(url)
        self._schema = schema
        self._pool: ConnectionPool[PostgresConnection] = ConnectionPool(
            url,
            min_size=1,
            max_size=CONNECTIONS_MAX,
            kwargs=keywords,
            open=False,
            name="millpond-catalog",
            reconnect_timeout=RECONNECT_S,
        )
        self._checked_ms = 0
        self._acquire_timeout_s = ACQUIRE_TIMEOUT_S
        try:
            self._pool.open()
            self._refuse_unsafe()
        except BaseException:
            self._pool.close()
            raise

    @contextmanager
    def write(self) -> Iterator[PostgresTransaction]:
        with self._connection() as connection:
            with _errors_translated():
                try:
                    yield PostgresTransaction(connection)
                except BaseException:
                    _roll_back(connection)
                    raise
            _commit(connection)

    @contextmanager
    def read(self) -> Iterator[PostgresTransaction]:
        with self._connection() as connection, _errors_translated():
            connection.autocommit = True
            try:
                yield PostgresTransaction(connection)
            finally:
                with suppress(psycopg.Error):
                    connection.autocommit = False

    def has_foreign_commits(self) -> bool:
        """PostgreSQL has no cheap way to tell: assume a change once a second."""
        now_ms = time.monotonic_ns() // 1_000_000
        due = now_ms - self._checked_ms >= FOREIGN_CHECK_MS
        if due:
            self._checked_ms = now_ms
        return due

    def migrate(self) -> None:
        """Without anything to do it changes nothing, so that a role may call it that must not create tables."""
        if self._is_migrated():
            return
        with self.write() as tx:
            tx.disable_lock_timeout()
            tx.rows("SELECT pg_advisory_xact_lock(?)", (MIGRATION_LOCK,))
            if self._schema is not None:
                tx.rows(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
            migrate(tx, dialect="postgres")

    def _is_migrated(self) -> bool:
        with self.read() as tx:
            exists = tx.rows("SELECT to_regclass('meta') IS NOT NULL")[0][0]
            return bool(exists) and is_current(tx)

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _connection(self) -> Iterator[PostgresConnection]:
        try:
            connection = self._pool.getconn(timeout=self._acquire_timeout_s)
        except (PoolTimeout, psycopg.Error) as error:
            self._acquire_timeout_s = ACQUIRE_AFTER_TIMEOUT_S
            raise CatalogUnavailable(reason=str(error)) from error
        self._acquire_timeout_s = ACQUIRE_TIMEOUT_S
        try:
            yield connection
        finally:
            lost = connection.closed
            self._pool.putconn(connection)
            if lost:  # a server restart closes every pooled connection: replace them now, not one by one
                self._pool.check()

    def _refuse_unsafe(self) -> None:
        with self.read() as tx:
            for setting in MUST_BE_ON:
                value = tx.rows("SELECT current_setting(?)", (setting,))[0][0]
                if value == "off":
                    raise UnsafeDatabase(setting=setting, value=value)


def _check_address(url: str) -> None:
    """Raise `InvalidSettings` for a malformed URL before the pool tries it. The pool would repeatedly log
    libpq's message, which quotes passwords."""
    try:
        conninfo_to_dict(url)
    except psycopg.Error:
        reason = (
            "it is not written as PostgreSQL's addresses are (in a password, use %40 for @ and %25 for %)"
        )
        raise InvalidSettings(name="catalog", value="postgresql://…", reason=reason) from None


def _commit(connection: PostgresConnection) -> None:
    """COMMIT is the only statement whose lost response leaves the outcome unknown."""
    try:
        connection.commit()
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise OutcomeUnknown from error
    except psycopg.Error as error:
        raise CatalogUnavailable(reason=str(error)) from error


def _roll_back(connection: PostgresConnection) -> None:
    with suppress(psycopg.Error):
        connection.rollback()


@lru_cache(maxsize=512)
def _placeholders(sql: str) -> Any:
    return sql.replace("?", "%s").encode()


@contextmanager
def _errors_translated() -> Iterator[None]:
    try:
        yield
    except (errors.DataCorrupted, errors.IndexCorrupted) as error:
        raise CorruptCatalog(reason=str(error)) from error
    except errors.InsufficientPrivilege as error:
        reason = str(error).partition("\n")[0]
        raise InvalidSettings(
            f"The role of this process in PostgreSQL lacks a privilege: {reason}. Grant it, or use another role.",
            name="catalog",
            value="",
            reason=reason,
        ) from error
    except (psycopg.OperationalError, psycopg.InterfaceError, errors.TransactionRollback) as error:
        raise CatalogUnavailable(reason=str(error)) from error
    except (errors.ReadOnlySqlTransaction, errors.IdleInTransactionSessionTimeout) as error:
        raise CatalogUnavailable(reason=str(error)) from error
