"""Checks whether this machine's wall clock can be trusted. The pipelines that delete by age use it: `retain`,
and `compact` for its tombstones.

With a clock that runs ahead, a job would delete records that are too young. With one that is behind, it would
store times at which a broker deletes them too early. A job keeps no state of its own, so it compares the wall
clock with the catalog's clock, and a successful run stores the difference in its report.
"""

from typing import Final

from millpond.catalog import audit, clock_pauses, pipelines, writers
from millpond.catalog.clock_pauses import DATABASE_CLOCK
from millpond.catalog.database import Database
from millpond.model.clock import Clock
from millpond.model.errors import InvalidRequest

CLOCK_TOLERANCE_MS: Final = 5 * 60 * 1000
RUNS_CHECKED_MAX: Final = 1_000
WATCHED: Final = ("retain", "compact")
"""The pipelines that check the clock; only the readings in their reports count."""

HostReading = tuple[str, int]
"""The id of the clock that the catalog's leases use, and how far the wall clock is ahead of it, in
milliseconds."""


def checked_clock(catalog: Database, clock: Clock, *, trust: bool) -> HostReading:
    """The reading to store in the run's report as "clock". Raises `InvalidRequest` if the clock is at fault
    and the operator has not vouched for it."""
    fault = None if trust else clock_fault(catalog, clock)
    if fault is not None:
        raise InvalidRequest(reason=f"{fault}; nothing was done")
    return read_clock(catalog, clock)


def read_clock(catalog: Database, clock: Clock) -> HostReading:
    with catalog.read() as tx:
        clock_id, lease_ms = tx.lease_clock()
    return clock_id, clock.now_ms() - lease_ms


def clock_fault(catalog: Database, clock: Clock) -> str | None:
    """Return why the wall clock cannot be trusted, or None if it can.

    * On PostgreSQL the catalog's clock is a wall clock too, and the two must agree.
    * On SQLite the catalog's clock is this machine's time since boot. The difference between the two changes only
      when the wall clock is set, so it must match the one that earlier runs since boot, or a live broker, have stored.
    * No object in the catalog may come from the future.
    * If a broker has paused retention because of its clock, this clock must allow it to resume.
    """
    clock_id, ahead_ms = read_clock(catalog, clock)
    seen_ms = 0 if clock_id == DATABASE_CLOCK else _seen_before(catalog, clock_id)
    moved_ms = 0 if seen_ms is None else ahead_ms - seen_ms
    if abs(moved_ms) > CLOCK_TOLERANCE_MS:
        return f"the wall clock is {moved_ms // 1000} s off against the catalog's"
    with catalog.read() as tx:
        newest_ms = audit.newest_object_ms(tx)
    if newest_ms is not None and newest_ms - clock.now_ms() > CLOCK_TOLERANCE_MS:
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
    if abs(off_ms) <= CLOCK_TOLERANCE_MS:
        return None
    return f"a broker has paused retention because the wall clock jumped, and it is {off_ms // 1000} s off"


def _seen_before(catalog: Database, clock_id: str) -> int | None:
    """How far ahead the wall clock was in the last finished run under this clock or, without such a run, when
    a live broker started. The last run is chosen by the catalog's clock: a run whose wall clock was ahead
    would look like the newest for a long time."""
    with catalog.read() as tx:
        runs = pipelines.newest(tx, RUNS_CHECKED_MAX)
        by_brokers = writers.wall_clock_ahead(tx, clock_id)
    seen = [
        (run.started_at - ahead_ms, ahead_ms)
        for run in runs
        if run.pipeline in WATCHED and run.state == "done"
        for its_clock, ahead_ms in [run.report.get("clock", (None, 0))]
        if its_clock == clock_id
    ]
    return max(seen)[1] if seen else by_brokers
