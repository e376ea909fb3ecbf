"""A pause of retention because the wall clock jumped, stored so that it outlives the broker that noticed the jump.

The stored value is how far the wall clock was ahead of a reference clock when it was last trusted. The
reference clock is PostgreSQL's, or the machine's time since boot. The wall clock is right again once it is as
far ahead of the reference clock as it was then.
"""

import json
from typing import Final, NamedTuple

from millpond.catalog.database import CatalogTransaction
from millpond.model.clock import Clock

NAME: Final = "clock_pause"
DATABASE_CLOCK: Final = "postgres"
READ: Final = "SELECT value FROM meta WHERE name = ?"
BEGIN: Final = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
END: Final = "DELETE FROM meta WHERE name = ?"


class ClockReading(NamedTuple):
    """How far the wall clock is ahead of the clock with this name. Readings of different clocks are not
    comparable: after a reboot a machine has another clock."""

    clock: str
    ahead_ms: int


def read_clock(tx: CatalogTransaction, clock: Clock) -> ClockReading:
    name, lease_ms = tx.lease_clock()
    return ClockReading(name, clock.now_ms() - (lease_ms if name == DATABASE_CLOCK else clock.monotonic_ms()))


def read(tx: CatalogTransaction) -> ClockReading | None:
    """The last trusted reading; None if there is no pause."""
    found = tx.rows(READ, (NAME,))
    return ClockReading(*json.loads(found[0][0])) if found else None


def begin(tx: CatalogTransaction, trusted: ClockReading) -> None:
    """An existing pause stays unchanged: its reading is the older one."""
    tx.rows(BEGIN, (NAME, json.dumps(trusted)))


def end(tx: CatalogTransaction) -> None:
    tx.rows(END, (NAME,))
