"""A pause of retention, as it is kept."""

import pytest

from millpond.catalog import clock_pauses
from millpond.catalog.clock_pauses import DATABASE_CLOCK, ClockReading
from millpond.testing import SimulatedClock

NOW_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def no_pause(catalog):
    catalog.write(clock_pauses.end)


def test_without_a_pause_there_is_no_reading(catalog):
    assert catalog.read(clock_pauses.read) is None
    catalog.write(clock_pauses.end)


def test_a_pause_keeps_its_first_reading_until_it_ends(catalog):
    first = ClockReading("boot", -12)
    catalog.write(clock_pauses.begin, first)
    catalog.write(clock_pauses.begin, ClockReading("boot", 99))
    assert catalog.read(clock_pauses.read) == first
    catalog.write(clock_pauses.end)
    assert catalog.read(clock_pauses.read) is None


def test_the_wall_clock_is_read_against_the_databases_or_the_machines_own(catalog):
    clock = SimulatedClock(NOW_MS)
    clock.advance(5_000)
    name, ahead_ms = catalog.read(clock_pauses.read_clock, clock)
    assert name == catalog.read(lambda tx: tx.lease_clock())[0]
    if name != DATABASE_CLOCK:
        assert ahead_ms == NOW_MS
    clock.jump(60_000_000)
    assert abs(catalog.read(clock_pauses.read_clock, clock).ahead_ms - ahead_ms - 60_000_000) < 600_000
