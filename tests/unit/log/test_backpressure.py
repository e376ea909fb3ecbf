"""Whether more may be accepted: room for bytes, and the reasons to refuse an append."""

import asyncio

import pytest

from millpond.log.backpressure import FAILURE_SHOWN_S, Backpressure
from millpond.log.flights import Flights
from millpond.log.limits import LogLimits
from millpond.model.errors import FlushFailed, Overloaded, Stopping, StoreFull, StoreUnavailable

LIMITS = LogLimits(buffer_bytes_max=100, buffer_wait_ms=600_000, refuse_ms=600_000)
A, B = "a", "b"


@pytest.fixture
def flights():
    return Flights()


@pytest.fixture
async def backpressure(flights, loop_time):
    return Backpressure(LIMITS, flights, lambda: None)


def waiting(backpressure, *sizes):
    """One appender for each size. Each takes its room as soon as it is there."""
    taken = []

    async def append(size):
        await backpressure.wait_for_room(size)
        backpressure.hold(size)
        taken.append(size)

    return taken, [asyncio.ensure_future(append(size)) for size in sizes]


# -- room -----------------------------------------------------------------------------------------------------


async def test_what_fits_does_not_wait(backpressure):
    backpressure.hold(40)
    wait = backpressure.wait_for_room(60)
    with pytest.raises(StopIteration):
        wait.send(None)


async def test_what_does_not_fit_waits_until_enough_is_released(backpressure, settle):
    backpressure.hold(100)
    taken, [append] = waiting(backpressure, 50)
    backpressure.release(49)
    await settle()
    assert taken == []
    backpressure.release(1)
    await append
    assert backpressure.held_bytes == 100


async def test_what_is_larger_than_the_limit_is_accepted_alone(backpressure, settle):
    backpressure.hold(1)
    taken, [append] = waiting(backpressure, 101)
    await settle()
    assert taken == []
    backpressure.release(1)
    await append
    assert backpressure.held_bytes == 101


async def test_small_appends_do_not_overtake_a_large_one(backpressure, settle):
    backpressure.hold(90)
    taken, appends = waiting(backpressure, 60, 1, 2)
    await settle()
    assert taken == [], "there is room for the small ones, and it is not their turn"
    backpressure.release(90)
    await asyncio.gather(*appends)
    assert taken == [60, 1, 2]


async def test_several_releases_at_once_wake_the_appender_once(backpressure, settle):
    backpressure.hold(100)
    taken, [append] = waiting(backpressure, 60)
    await settle()
    for _ in range(6):
        backpressure.release(10)
    await append
    assert taken == [60]


async def test_who_waits_too_long_is_refused_and_the_next_one_has_its_own_time(
    backpressure, settle, loop_time
):
    backpressure.hold(100)
    _, [first] = waiting(backpressure, 50)
    await settle()
    loop_time.advance(300)
    taken, [second] = waiting(backpressure, 10)
    await settle()
    loop_time.advance(300)
    with pytest.raises(Overloaded) as raised:
        await first
    assert raised.value.facts == {"waiting": 100, "limit": 100}
    assert not second.done()
    backpressure.release(100)
    await second
    assert taken == [10]


async def test_a_waiting_append_that_is_cancelled_gives_its_turn_to_the_next(backpressure, settle):
    backpressure.hold(90)
    taken, [large, small] = waiting(backpressure, 60, 5)
    await settle()
    large.cancel()
    await small
    assert taken == [5]


# -- refusals -------------------------------------------------------------------------------------------------


async def test_a_failed_flush_refuses_all_appends_for_a_while(backpressure, loop_time):
    backpressure.check_available(A)
    error = StoreFull(reason="no room")
    backpressure.flush_failed(error)
    with pytest.raises(StoreFull) as raised:
        backpressure.check_available(A)
    assert raised.value is not error, "each caller has its own traceback"
    loop_time.advance(300)
    with pytest.raises(StoreFull):
        backpressure.check_available(B)
    loop_time.advance(300)
    backpressure.check_available(A)


async def test_a_flush_that_succeeds_meanwhile_does_not_end_the_refusals(backpressure):
    """It may have been stored before the store failed."""
    backpressure.flush_failed(StoreUnavailable(reason="gone"))
    backpressure.flush_succeeded()
    with pytest.raises(StoreUnavailable):
        backpressure.check_available(A)


async def test_a_condemned_partition_accepts_nothing_and_others_do(backpressure, flights):
    first, behind = (flights.launch(None, frozenset({A}), uploads=True) for _ in range(2))
    flights.ended(first, frozenset({A}))
    with pytest.raises(FlushFailed):
        backpressure.check_available(A)
    backpressure.check_available(B)
    flights.ended(behind, frozenset({A}))
    backpressure.check_available(A)


async def test_a_condemned_partition_names_its_own_failure_and_not_the_last_one(backpressure, flights):
    first, _ = (flights.launch(None, frozenset({A}), uploads=True) for _ in range(2))
    flights.ended(first, frozenset({A}))
    backpressure.flush_failed(StoreUnavailable(reason="gone"))
    with pytest.raises(FlushFailed):
        backpressure.check_available(A)


async def test_a_broker_that_drains_accepts_nothing_whatever_else_is_wrong(backpressure, flights):
    first, _ = (flights.launch(None, frozenset({A}), uploads=True) for _ in range(2))
    flights.ended(first, frozenset({A}))
    backpressure.flush_failed(StoreUnavailable(reason="gone"))
    backpressure.stop()
    for partition in (A, B):
        with pytest.raises(Stopping):
            backpressure.check_available(partition)


async def test_a_failure_is_shown_until_a_flush_succeeds_or_it_is_old(backpressure, loop_time):
    assert backpressure.failure is None
    error = StoreUnavailable(reason="gone")
    backpressure.flush_failed(error)
    assert backpressure.failure is error
    backpressure.flush_succeeded()
    assert backpressure.failure is None
    backpressure.flush_failed(error)
    loop_time.advance(FAILURE_SHOWN_S / 2)
    assert backpressure.failure is error
    loop_time.advance(FAILURE_SHOWN_S)
    assert backpressure.failure is None
