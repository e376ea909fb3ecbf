"""Writing from Spark: each task is a writer of its own, and one commit on the driver makes all of them count.

A task registers a session before it stores anything, so that nothing of a slow task is collected; the session is in
its objects' keys. The commit ends the sessions in the same transaction that refers to their objects: a session that
has been declared dead meanwhile fails it whole, and what a lost or repeated attempt stored becomes garbage.
"""

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from millpond.catalog import writers
from millpond.catalog.database import Database, Transaction
from millpond.model.clock import Clock, SystemClock
from millpond.model.errors import CatalogUnavailable
from millpond.model.ids import Session, new_session
from millpond.objects.store import ObjectStore
from millpond.spark.place import Place, database, store

KIND: Final = "spark"
LEASE_MS: Final = 60 * 60 * 1000
"""How long a task may be silent: renewed with every object it stores."""
COMMIT_LEASE_MS: Final = 24 * 60 * 60 * 1000
"""How long a task that is done waits for the slowest of the others, and for the commit."""
RENEW_EVERY_MS: Final = LEASE_MS // 6


class TaskWriter:
    """One task's session and store: `with TaskWriter(place) as writer:`. Left in order, the session waits for the
    commit; left with an error, it is buried."""

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
        # A catalog that is away may be what went wrong; then the session dies with its lease.
        with contextlib.suppress(CatalogUnavailable), self._database.write() as tx:
            writers.bury(tx, self.session, self._clock.now_ms())

    def renew(self) -> None:
        """Call it as work goes on: it renews the lease when that is due. Raises `WriterDead` if it is too late."""
        now_ms = self._clock.now_ms()
        if now_ms - self._renewed_ms >= RENEW_EVERY_MS:
            self._renew(LEASE_MS)
            self._renewed_ms = now_ms

    def _renew(self, lease_ms: int) -> None:
        with self._database.write() as tx:
            writers.renew(tx, self.session, lease_ms)


def end_sessions(tx: Transaction, sessions: Iterable[Session], *, now_ms: int) -> None:
    """The first statements of a commit, of tasks that are done. Raises `WriterDead` if one of them was given up: its
    objects may be gone."""
    for session in sorted(set(sessions)):
        writers.renew(tx, session, 0)  # locks the row, and proves that it lives
        writers.bury(tx, session, now_ms, in_order=True)
