"""A pause of retention that outlives the broker: the catalog holds it from its beginning to its end.

Otherwise a broker that is killed or stopped while its clock is off, and started again, would trust the wrong
clock and delete the records that the pause protects. At its start a broker compares its clock with the last
trusted reading:

* on PostgreSQL against the server's clock, on any machine;
* on SQLite against the time since the machine was started. If the machine was restarted in between, there is
  nothing to compare with, and the pause lasts until an operator confirms the clock (`--trust-clock`).

Without a pause in the catalog a broker trusts the clock at its start, however long the broker was stopped.
"""

import logging
from typing import NamedTuple

from millpond.catalog import clock_pauses
from millpond.catalog.clock_pauses import DATABASE_CLOCK, ClockReading
from millpond.catalog.database import CatalogTransaction, Database
from millpond.log import Upkeep
from millpond.maintenance.clock_guard import HINT, JUMP_MS, ClockGuard
from millpond.model.clock import Clock

logger = logging.getLogger(__name__)


class ResumedGuard(NamedTuple):
    guard: ClockGuard
    is_recorded: bool
    """Whether the catalog holds a pause that this broker ends when the clock is back."""


def resume(database: Database, clock: Clock, *, trust_clock: bool = False) -> ResumedGuard:
    """The guard with which a broker starts. With `trust_clock` a recorded pause ends."""
    if trust_clock:
        with database.write() as tx:
            clock_pauses.end(tx)
        return ResumedGuard(ClockGuard(clock), False)
    with database.read() as tx:
        trusted, found = clock_pauses.read(tx), clock_pauses.read_clock(tx, clock)
    return ResumedGuard(ClockGuard(clock), False) if trusted is None else _resumed(clock, trusted, found)


def _resumed(clock: Clock, trusted: ClockReading, found: ClockReading) -> ResumedGuard:
    if found.clock != trusted.clock:
        logger.error("wall clock jumped before this machine started; retention paused", extra={"hint": HINT})
        return ResumedGuard(ClockGuard(clock, trusts_never=True), True)
    jumped_ms = found.ahead_ms - trusted.ahead_ms
    # On PostgreSQL the pause of another broker stays: its clock may still be off.
    is_own = found.clock != DATABASE_CLOCK or abs(jumped_ms) > JUMP_MS
    return ResumedGuard(ClockGuard(clock, jumped_ms=jumped_ms if is_own else 0), is_own)


class RetentionPause:
    """Asks the guard, and records its result in the catalog."""

    def __init__(self, log: Upkeep, clock: Clock, resumed: ResumedGuard) -> None:
        self._log = log
        self._clock = clock
        self._guard = resumed.guard
        self._is_recorded = resumed.is_recorded

    async def trusts_clock(self) -> bool:
        """Like `ClockGuard.trusts_clock`. When it returns, the catalog holds the same result."""
        if self._guard.trusts_clock():
            if self._is_recorded:
                await self._log.write(clock_pauses.end)
                self._is_recorded = False
            return True
        # Read each time: another broker whose clock is back may have ended the pause that it shared with this one.
        if self._guard.jumped_ms and await self._log.read(clock_pauses.read) is None:
            await self._log.write(self._begin)
        self._is_recorded = True
        return False

    def _begin(self, tx: CatalogTransaction) -> None:
        found = clock_pauses.read_clock(tx, self._clock)
        clock_pauses.begin(tx, found._replace(ahead_ms=found.ahead_ms - self._guard.jumped_ms))
