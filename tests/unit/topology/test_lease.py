"""A lease by the holder's own clock, and who may judge others."""

from millpond.testing.clock import SimulatedClock
from millpond.topology import Lease


def test_it_is_held_until_the_time_from_before_the_renewal():
    clock = SimulatedClock()
    lease = Lease(clock, 1_000)
    clock.advance(900)
    sent = clock.monotonic_ms()
    clock.advance(50)  # the answer took its time
    lease.renewed(sent)
    clock.advance(949)
    assert lease.held
    clock.advance(1)
    assert not lease.held


def test_one_that_is_alone_has_it_for_ever_until_it_is_declared_dead():
    clock = SimulatedClock()
    lease = Lease(clock, 1_000, sole_broker=True)
    clock.advance(10**9)
    assert lease.held
    lease.lapse()
    assert not lease.held


def test_an_answer_from_long_ago_does_not_shorten_it():
    clock = SimulatedClock()
    lease = Lease(clock, 1_000)
    clock.advance(500)
    lease.renewed(500)
    lease.renewed(100)
    clock.advance(999)
    assert lease.held


def test_only_who_renewed_in_time_for_a_whole_lease_judges():
    clock = SimulatedClock()
    lease = Lease(clock, 1_000)
    assert not lease.is_steady
    for _ in range(3):
        clock.advance(333)
        lease.renewed(clock.monotonic_ms())
    assert not lease.is_steady
    clock.advance(1)
    assert lease.is_steady


def test_after_an_outage_it_waits_a_lease_before_it_judges_again():
    clock = SimulatedClock()
    lease = Lease(clock, 1_000)
    clock.advance(5_000)
    assert not lease.held
    lease.renewed(clock.monotonic_ms())
    assert lease.held
    assert not lease.is_steady
    for _ in range(3):
        clock.advance(333)
        lease.renewed(clock.monotonic_ms())
    assert not lease.is_steady
    clock.advance(1)
    assert lease.is_steady


def test_an_outage_that_it_has_just_survived_may_have_been_too_long_for_others():
    """Two brokers renew every fifth of a lease, one of them a fifth before the other. The catalog is away for 850 of
    1,000 ms: the first one's lease has run out by then, the second one's has not, and it must not judge."""
    clock = SimulatedClock()
    lease = Lease(clock, 1_000)
    for _ in range(6):
        clock.advance(200)
        lease.renewed(clock.monotonic_ms())
    assert lease.is_steady
    clock.advance(850)
    assert lease.held
    lease.renewed(clock.monotonic_ms())
    assert not lease.is_steady


def test_a_broker_whose_commits_take_their_time_is_steady_all_the_same():
    """Else, under load, nobody would replace the dead."""
    clock = SimulatedClock()
    lease = Lease(clock, 1_000)
    for _ in range(4):
        clock.advance(200 + 350)
        lease.renewed(clock.monotonic_ms() - 350)
    assert lease.is_steady


def test_it_is_overdue_when_it_was_not_renewed_for_as_long_as_it_lasts_also_if_alone():
    clock = SimulatedClock()
    for sole_broker in (True, False):
        lease = Lease(clock, 1_000, sole_broker=sole_broker)
        clock.advance(999)
        assert not lease.is_overdue
        clock.advance(2)
        assert lease.is_overdue
        lease.renewed(clock.monotonic_ms())
        assert not lease.is_overdue
        lease.lapse()
        assert lease.is_overdue
