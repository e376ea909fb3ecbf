"""A pause of retention that outlives the broker: it is in the catalog from the moment it begins until it ends.

A broker that is killed or stopped while its clock is off, and started again, would otherwise take the wrong clock for
the right one and delete what the pause protected. When it starts it compares its clock with the last trusted reading:

* on PostgreSQL against the server's clock, on any machine;
* on SQLite against the time since the machine was started. If the machine was started again meanwhile, there is nothing
  to compare with, and the pause lasts until an operator vouches for the clock (`--trust-clock`).

Without a pause in the catalog a broker trusts the clock that it finds, however long it was off.
"""

import logging
from typing import NamedTuple

from millpond.catalog import clock_pauses
from millpond.catalog.clock_pauses import DATABASE_CLOCK, ClockReading
from millpond.catalog.database import Database, Transaction
from millpond.log.log import Log
from millpond.maintenance.clockguard import HINT, JUMP_MS, ClockGuard
from millpond.model.clock import Clock

logger = logging.getLogger(__name__)


class ResumedGuard(NamedTuple):
    guard: ClockGuard
    is_recorded: bool
    """Whether a pause is in the catalog that this broker ends when the clock is back."""


def resume(database: Database, clock: Clock, *, trust_clock: bool = False) -> ResumedGuard:
    """The guard that a broker starts with. With `trust_clock` a pause is over."""
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
    """Asks the guard, and keeps what it says in the catalog."""

    def __init__(self, log: Log, clock: Clock, resumed: ResumedGuard) -> None:
        self._log = log
        self._clock = clock
        self._guard = resumed.guard
        self._is_recorded = resumed.is_recorded

    async def trusts_clock(self) -> bool:
        """As `ClockGuard.trusts_clock`. When it returns, the catalog says the same."""
        if self._guard.trusts_clock():
            if self._is_recorded:
                await self._log.write(clock_pauses.end)
                self._is_recorded = False
            return True
        # Looked up each time: another broker whose clock is back may have ended the pause that it shared with this one.
        if self._guard.jumped_ms and await self._log.read(clock_pauses.read) is None:
            await self._log.write(self._begin)
        self._is_recorded = True
        return False

    def _begin(self, tx: Transaction) -> None:
        found = clock_pauses.read_clock(tx, self._clock)
        clock_pauses.begin(tx, found._replace(ahead_ms=found.ahead_ms - self._guard.jumped_ms))
