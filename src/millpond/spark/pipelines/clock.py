"""Is this machine's clock to be trusted? Asked by the pipelines that delete by age: `retain`, and `compact` for its
tombstones.

A clock that runs ahead would delete what is young, and one that is behind would write down times at which a broker
deletes it. A job has no memory of its own, so it compares the wall clock with the catalog's, and a run that was
allowed to work leaves in its report how the two stood.
"""

from typing import Final

from millpond.catalog import audit, clock_pauses, pipelines, writers
from millpond.catalog.clock_pauses import DATABASE_CLOCK
from millpond.catalog.database import Database
from millpond.model.clock import Clock
from millpond.model.errors import InvalidRequest

MAY_DIFFER_MS: Final = 5 * 60 * 1000
RUNS_LOOKED_AT: Final = 1_000
WATCHED: Final = ("retain", "compact")
"""The pipelines that ask, and so the only ones whose word counts."""

Reading = tuple[str, int]
"""Which clock the catalog's leases go by, and how far the wall clock is ahead of it."""


def checked_clock(catalog: Database, clock: Clock, *, trust: bool) -> Reading:
    """For the run's report, as "clock". Raises `InvalidRequest` if there is a fault and nobody vouches for it."""
    fault = None if trust else clock_fault(catalog, clock)
    if fault is not None:
        raise InvalidRequest(reason=f"{fault}; nothing was done")
    return read_clock(catalog, clock)


def read_clock(catalog: Database, clock: Clock) -> Reading:
    with catalog.read() as tx:
        clock_id, lease_ms = tx.lease_clock()
    return clock_id, clock.now_ms() - lease_ms


def clock_fault(catalog: Database, clock: Clock) -> str | None:
    """Why the wall clock is not to be trusted, if it is not.

    * On PostgreSQL the catalog's clock is a wall clock too, and the two must agree.
    * On SQLite it is this machine's time since it was started: wall clock minus that moves only when somebody sets
      the clock, so it must be what earlier runs have seen since then, or a broker that is running.
    * No object in the catalog may come from the future.
    * A broker that has paused retention because of its clock must be able to go on by this one.
    """
    clock_id, ahead_ms = read_clock(catalog, clock)
    seen_ms = 0 if clock_id == DATABASE_CLOCK else _seen_before(catalog, clock_id)
    moved_ms = 0 if seen_ms is None else ahead_ms - seen_ms
    if abs(moved_ms) > MAY_DIFFER_MS:
        return f"the wall clock is {moved_ms // 1000} s off against the catalog's"
    with catalog.read() as tx:
        newest_ms = audit.newest_object_ms(tx)
    if newest_ms is not None and newest_ms - clock.now_ms() > MAY_DIFFER_MS:
        return f"the wall clock is {(newest_ms - clock.now_ms()) // 1000} s behind the newest object"
    return _paused(catalog, clock)


def _paused(catalog: Database, clock: Clock) -> str | None:
    with catalog.read() as tx:
        trusted, found = clock_pauses.read(tx), clock_pauses.read_clock(tx, clock)
    if trusted is None:
        return None
    if trusted.clock != found.clock:
        return (
            "a broker has paused retention because the wall clock jumped, and this machine was started since"
        )
    off_ms = found.ahead_ms - trusted.ahead_ms
    if abs(off_ms) <= MAY_DIFFER_MS:
        return None
    return f"a broker has paused retention because the wall clock jumped, and it is {off_ms // 1000} s off"


def _seen_before(catalog: Database, clock_id: str) -> int | None:
    """How far ahead the wall clock was in the last run that finished under this clock, or when a broker that still
    lives was started. The last one by the catalog's clock: one whose wall clock was ahead seems the newest for long."""
    with catalog.read() as tx:
        runs = pipelines.newest(tx, RUNS_LOOKED_AT)
        by_brokers = writers.wall_clock_ahead(tx, clock_id)
    seen = [
        (run.started_at - ahead_ms, ahead_ms)
        for run in runs
        if run.pipeline in WATCHED and run.state == "done"
        for its_clock, ahead_ms in [run.report.get("clock", (None, 0))]
        if its_clock == clock_id
    ]
    return max(seen)[1] if seen else by_brokers
