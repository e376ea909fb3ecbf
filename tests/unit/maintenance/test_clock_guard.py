"""The watch over the wall clock."""

import pytest

from millpond.maintenance.clock_guard import JUMP_MS, ClockGuard
from millpond.testing import SimulatedClock

DAY_MS = 86_400_000


@pytest.fixture
def clock():
    return SimulatedClock(1_000_000_000)


def test_time_that_passes_is_trusted(clock):
    guard = ClockGuard(clock)
    for passed in (1, 1_000, 400 * DAY_MS):
        clock.advance(passed)
        assert guard.trusts_clock()


@pytest.mark.parametrize("jump", [JUMP_MS, -JUMP_MS])
def test_small_steps_are_time_keeping_and_add_up_to_anything(clock, jump):
    guard = ClockGuard(clock)
    for _ in range(10):
        clock.jump(jump)
        assert guard.trusts_clock()


@pytest.mark.parametrize("jump", [JUMP_MS + 1, -JUMP_MS - 1, 365 * DAY_MS])
def test_a_jump_is_not_trusted_until_the_clock_is_back(clock, jump, caplog):
    guard = ClockGuard(clock)
    clock.jump(jump)
    for _ in range(3):
        assert not guard.trusts_clock()
        assert guard.jumped_ms == jump
        clock.advance(DAY_MS)
    assert caplog.text.count("jumped") == 1
    clock.jump(-jump)
    assert guard.trusts_clock()
    assert guard.jumped_ms == 0
    assert "is back" in caplog.text
    clock.jump(jump)
    assert not guard.trusts_clock()
    assert caplog.text.count("jumped") == 2


def test_a_guard_takes_the_clock_as_it_is_unless_it_knows_better(clock):
    clock.jump(365 * DAY_MS)
    assert ClockGuard(clock).trusts_clock()
    guard = ClockGuard(clock, jumped_ms=365 * DAY_MS)
    assert not guard.trusts_clock()
    assert guard.jumped_ms == 365 * DAY_MS
    clock.jump(-365 * DAY_MS)
    assert guard.trusts_clock()
    assert not ClockGuard(clock, trusts_never=True).trusts_clock()


def test_the_message_says_what_ends_the_pause(clock, caplog):
    guard = ClockGuard(clock)
    clock.jump(JUMP_MS + 1)
    guard.trusts_clock()
    [record] = caplog.records
    assert record.message == "wall clock jumped; retention paused"
    assert record.jump_s == JUMP_MS // 1000
    assert "--trust-clock" in record.hint
