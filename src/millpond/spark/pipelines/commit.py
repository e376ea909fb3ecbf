"""Shared by the maintenance pipelines: the segments that their tasks store, and the commit that publishes
them.

A commit ends the sessions of its tasks in the same transaction that refers to their objects, so each session
serves one commit. If a commit is refused, its sessions are declared dead instead, and what they stored
becomes garbage that any broker collects. One transaction touches one partition and a bounded number of
extents, so no producer waits long for it.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Final

from millpond.catalog import writers
from millpond.catalog.database import CatalogTransaction, Database
from millpond.catalog.extents import NewExtent
from millpond.catalog.objects import NewObject
from millpond.model.backoff import retry_delay
from millpond.model.clock import Clock
from millpond.model.errors import CatalogFailed, CatalogUnavailable, MillpondError, OutcomeUnknown, WriterDead
from millpond.model.ids import Session
from millpond.spark.task_writer import end_sessions

SEGMENT: Final = "segment"
ATTEMPTS_MAX: Final = 6
RETRY_DELAY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment that a task has stored and that is not in the catalog yet."""

    key: str
    session: Session
    row: NewExtent
    size: int

    def new_object(self) -> NewObject:
        return NewObject(self.key, SEGMENT, self.session, self.size, sealed=True)


def commit(
    database: Database,
    sessions: Collection[Session],
    change: Callable[[CatalogTransaction], None],
    *,
    clock: Clock,
    sleep: Callable[[float], None] = time.sleep,
    random: Random | None = None,
) -> None:
    """End the sessions and apply the change, in one transaction or not at all. Raises what `change` raises,
    or `WriterDead` if a session was declared dead before, because its objects may have been deleted. The
    sessions are dead afterwards in any case, unless the catalog is unavailable. `random` spreads retries."""
    now_ms = clock.now_ms()
    jitter = random or Random()  # noqa: S311  # not a secret
    try:
        _commit(database, sessions, change, now_ms, sleep, jitter)
    except CatalogUnavailable:
        raise
    except MillpondError:
        mark_dead(database, sessions, clock=clock)
        raise


def mark_dead(database: Database, sessions: Collection[Session], *, clock: Clock) -> None:
    """End the sessions of finished tasks whose objects will not be used."""
    with database.write() as tx:
        for session in sorted(sessions):
            writers.mark_dead(tx, session, clock.now_ms(), in_order=True)


def _commit(
    database: Database,
    sessions: Collection[Session],
    change: Callable[[CatalogTransaction], None],
    now_ms: int,
    sleep: Callable[[float], None],
    random: Random,
) -> None:
    """Retry until the catalog has accepted the commit. If the response to a COMMIT was lost, the same commit
    is tried again: it waits for the first one and, if that one took effect, finds the sessions dead since our
    own `now_ms`."""
    unknown = False
    for attempt in range(ATTEMPTS_MAX):
        try:
            with database.write() as tx:
                end_sessions(tx, sessions, now_ms=now_ms)
                change(tx)
            return
        except CatalogFailed:
            raise
        except CatalogUnavailable as error:
            unknown = unknown or isinstance(error, OutcomeUnknown)
            if attempt + 1 == ATTEMPTS_MAX:
                raise
        except WriterDead:
            if unknown and _ended_at(database, sessions, now_ms):
                return
            raise
        sleep(retry_delay(RETRY_DELAY_S, attempt, random))


def _ended_at(database: Database, sessions: Collection[Session], now_ms: int) -> bool:
    with database.read() as tx:
        dead = {each.session: each.dead_since for each in writers.dead_sessions(tx)}
    return all(dead.get(session) == now_ms for session in sessions)
