"""A pause of retention because the wall clock jumped, written down so that it outlives the broker that saw it.

What is kept is how far the wall clock was ahead of another clock when it was last trusted: of PostgreSQL's own, or of
the machine's time since it was started. While the wall clock is as far ahead of it again as it was then, it is right.
"""

import json
from typing import Final, NamedTuple

from millpond.catalog.database import Transaction
from millpond.model.clock import Clock

NAME: Final = "clock_pause"
DATABASE_CLOCK: Final = "postgres"
READ: Final = "SELECT value FROM meta WHERE name = ?"
BEGIN: Final = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
END: Final = "DELETE FROM meta WHERE name = ?"


class ClockReading(NamedTuple):
    """How far the wall clock is ahead of the clock of this name. Readings of different clocks do not compare: a machine
    that was started again has another one."""

    clock: str
    ahead_ms: int


def read_clock(tx: Transaction, clock: Clock) -> ClockReading:
    name, lease_ms = tx.lease_clock()
    return ClockReading(name, clock.now_ms() - (lease_ms if name == DATABASE_CLOCK else clock.monotonic_ms()))


def read(tx: Transaction) -> ClockReading | None:
    """The last trusted reading, if there is a pause."""
    found = tx.rows(READ, (NAME,))
    return ClockReading(*json.loads(found[0][0])) if found else None


def begin(tx: Transaction, trusted: ClockReading) -> None:
    """A pause that is there already stays as it is: its reading is the older one."""
    tx.rows(BEGIN, (NAME, json.dumps(trusted)))


def end(tx: Transaction) -> None:
    tx.rows(END, (NAME,))
