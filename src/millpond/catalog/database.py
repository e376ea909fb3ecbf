"""The boundary between the catalog's SQL and the two engines that run it, SQLite and PostgreSQL.

One set of statements serves both engines, written in the dialect they share: `?` for parameters, BIGINT, TEXT and
BLOB (BYTEA on PostgreSQL), INSERT … ON CONFLICT, RETURNING. An engine hides connections, locks and error codes.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from millpond.model.errors import MillpondError

Parameter = None | int | str | bytes | bytearray | memoryview
Parameters = Sequence[Parameter]
Row = tuple[Any, ...]


class CatalogTransaction(Protocol):
    """Runs statements. Each statement sees its own snapshot unless the transaction writes."""

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Run one statement and return all its rows. Raises `InvalidRequest` for a value that the database
        cannot store."""

    def each(self, sql: str, many: Sequence[Parameters]) -> list[list[Row]]:
        """Run one statement for each set of parameters, in order, in as few round trips as the engine can."""

    def lease_clock(self) -> tuple[str, int]:
        """Read the clock that leases are compared against, as (clock name, milliseconds). It is the
        database's clock, or this machine's monotonic clock, named by its boot id. Two readings are comparable
        only if they come from the same clock."""

    def terminate_connections(self, names: Sequence[str]) -> None:
        """End the connections of databases that were opened under these names, so that a transaction which a
        paused process left open releases its locks. On SQLite no process can end another's connection."""

    def disable_lock_timeout(self) -> None:
        """Wait for locks without a limit, even if the database was opened with a `lock_wait_ms`."""


class Database(Protocol):
    """Thread-safe. Errors: `CatalogUnavailable` (nothing happened, retry), `OutcomeUnknown` (the connection
    was lost during COMMIT), `CorruptCatalog`."""

    def write(self) -> AbstractContextManager[CatalogTransaction]:
        """A transaction that commits when the block ends and rolls back when the block raises. Writers wait
        for each other; on SQLite that includes writers of other processes."""

    def read(self) -> AbstractContextManager[CatalogTransaction]:
        """Statements that do not write. They do not wait for writers."""

    def has_foreign_commits(self) -> bool:
        """Whether another connection may have committed since the last call."""

    def migrate(self) -> None:
        """Bring the schema up to this code's version. Runs once, even if many processes start together."""

    def close(self) -> None:
        """Release connections. Transactions in progress fail."""


def savepoint(tx: CatalogTransaction) -> "Savepoint":
    return Savepoint(tx)


class Savepoint:
    """Undoes one operation that raised a `MillpondError` without undoing the other operations of the
    transaction. Any other error leaves the savepoint untouched: it ends the whole transaction, and the engine
    may have rolled it back already."""

    def __init__(self, tx: CatalogTransaction) -> None:
        self._tx = tx

    def __enter__(self) -> None:
        self._tx.rows("SAVEPOINT operation")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None and not isinstance(error, MillpondError):
            return
        if error is not None:
            self._tx.rows("ROLLBACK TO SAVEPOINT operation")
        self._tx.rows("RELEASE SAVEPOINT operation")
