"""The seam between the catalog's SQL and the two engines that run it.

One set of statements serves both, written in the dialect they share: `?` for parameters, BIGINT, TEXT and BLOB
(BYTEA on PostgreSQL), INSERT … ON CONFLICT, RETURNING. An engine hides connections, locks and error codes.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from millpond.model.errors import MillpondError

Parameter = None | int | str | bytes | bytearray | memoryview
Parameters = Sequence[Parameter]
Row = tuple[Any, ...]


class Transaction(Protocol):
    """A place to run statements. Each statement sees its own snapshot unless the transaction writes."""

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Run one statement and return all its rows. Raises `InvalidRequest` for a value that the database
        cannot hold."""

    def each(self, sql: str, many: Sequence[Parameters]) -> list[list[Row]]:
        """Run one statement for each set of parameters, in order, in as few round trips as the engine can."""

    def lease_clock(self) -> tuple[str, int]:
        """The clock that judges leases, as (whose, milliseconds): the database's own, or this machine's
        monotonic one with its boot id. Two readings compare only if they come from the same clock."""

    def cut_off(self, names: Sequence[str]) -> None:
        """End the connections of databases that were opened under these names, so that a transaction which a paused
        process left open holds no locks. On SQLite nobody can end another's."""

    def be_patient(self) -> None:
        """Wait for locks as long as it takes, however short the database's own patience is (`lock_wait_ms`)."""


class Database(Protocol):
    """Thread-safe. Errors: `CatalogUnavailable` (nothing happened, try again), `OutcomeUnknown` (the connection
    was lost during COMMIT), `CorruptCatalog`."""

    def write(self) -> AbstractContextManager[Transaction]:
        """A transaction that commits when the block ends and rolls back when it raises. Writers wait for
        each other; on SQLite that includes other processes."""

    def read(self) -> AbstractContextManager[Transaction]:
        """Statements that do not write. Does not wait for writers."""

    def changed_elsewhere(self) -> bool:
        """Whether somebody else may have committed since the last call."""

    def migrate(self) -> None:
        """Bring the schema up to this code's version, once, however many processes start together."""

    def close(self) -> None:
        """Release connections. Transactions under way fail."""


def savepoint(tx: Transaction) -> "Savepoint":
    return Savepoint(tx)


class Savepoint:
    """Undo one operation that raised a `MillpondError` without losing its neighbours. Any other error leaves
    the savepoint alone: it ends the whole transaction, and the engine may have rolled it back already."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def __enter__(self) -> None:
        self._tx.rows("SAVEPOINT operation")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None and not isinstance(error, MillpondError):
            return
        if error is not None:
            self._tx.rows("ROLLBACK TO SAVEPOINT operation")
        self._tx.rows("RELEASE SAVEPOINT operation")
