"""Writing from Spark: each task is a writer with its own session, and one commit on the driver publishes what
all tasks stored.

A task registers its session before it stores anything, so that garbage collection does not delete the objects
of a slow task. The session is part of its objects' keys. The commit ends the sessions in the same transaction
that refers to their objects. If any of them has been declared dead, the whole commit fails. Objects of a lost
or repeated attempt become garbage.
"""

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from millpond.catalog import writers
from millpond.catalog.database import CatalogTransaction, Database
from millpond.model.clock import Clock, SystemClock
from millpond.model.errors import CatalogUnavailable
from millpond.model.ids import Session, new_session
from millpond.objects.store import ObjectStore
from millpond.spark.place import Place, database, store

KIND: Final = "spark"
LEASE_MS: Final = 60 * 60 * 1000
"""How long a task may go without renewing its lease. It renews after storing an object, at most every
`RENEW_EVERY_MS`."""
COMMIT_LEASE_MS: Final = 24 * 60 * 60 * 1000
"""How long a finished task waits for the slowest of the others, and for the commit."""
RENEW_EVERY_MS: Final = LEASE_MS // 6


class TaskWriter:
    """One task's session and store: `with TaskWriter(place) as writer:`. If the block succeeds, the session
    waits for the commit; if it raises, the session is declared dead."""

    def __init__(self, place: Place, *, clock: Clock | None = None) -> None:
        self.session: Session = new_session()
        self._clock = clock or SystemClock()
        self._database: Database = database(place)
        self.store: ObjectStore = store(place, self.session)
        self._renewed_ms = self._clock.now_ms()

    def __enter__(self) -> Self:
        with self._database.write() as tx:
            writers.register(tx, self.session, kind=KIND, address="", lease_ms=LEASE_MS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()
        if kind is None:
            self._renew(COMMIT_LEASE_MS)
            return
        # The unavailable catalog may be the cause of the error; then the session dies when its lease expires.
        with contextlib.suppress(CatalogUnavailable), self._database.write() as tx:
            writers.mark_dead(tx, self.session, self._clock.now_ms())

    def renew(self) -> None:
        """Renew the lease if that is due. Call it regularly during the work. Raises `WriterDead` if the
        session was declared dead."""
        now_ms = self._clock.now_ms()
        if now_ms - self._renewed_ms >= RENEW_EVERY_MS:
            self._renew(LEASE_MS)
            self._renewed_ms = now_ms

    def _renew(self, lease_ms: int) -> None:
        with self._database.write() as tx:
            writers.renew(tx, self.session, lease_ms)


def end_sessions(tx: CatalogTransaction, sessions: Iterable[Session], *, now_ms: int) -> None:
    """End the sessions of finished tasks: the first statements of a commit. Raises `WriterDead` if one of
    them was declared dead, because its objects may have been deleted."""
    for session in sorted(set(sessions)):
        writers.renew(tx, session, 0)  # locks the row and checks that the session is alive
        writers.mark_dead(tx, session, now_ms, in_order=True)
