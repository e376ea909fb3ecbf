"""Long polls: nobody misses a wake-up."""

import asyncio

import pytest

from millpond.log.waiters import Waiters
from millpond.model.ids import TopicId, TopicPartition

A, B, C = (TopicPartition(TopicId(b"t" * 16), number) for number in range(3))


LONG_S = 600.0


@pytest.fixture
def is_woken(settle):
    """Whether a wait ends before its time."""

    async def woken(watch):
        waiting = asyncio.ensure_future(watch.wait(LONG_S))
        await settle()
        done = waiting.done()
        waiting.cancel()
        return done

    return woken


async def test_what_happens_between_looking_and_waiting_still_wakes(is_woken):
    waiters = Waiters()
    with waiters.watch([A, B]) as watch:
        waiters.wake(B)
        assert await is_woken(watch)


async def test_a_waiting_reader_is_woken_by_any_of_its_partitions(is_woken):
    waiters = Waiters()
    with waiters.watch([A, B]) as watch:
        asyncio.get_running_loop().call_soon(waiters.wake, A)
        assert await is_woken(watch)


async def test_others_partitions_do_not_wake(settle, loop_time):
    waiters = Waiters()
    with waiters.watch([A]) as watch:
        waiters.wake(B)
        waiting = asyncio.ensure_future(watch.wait(LONG_S))
        await settle()
        assert not waiting.done()
        loop_time.advance(LONG_S)
        await waiting


async def test_all_readers_of_a_partition_are_woken(is_woken):
    waiters = Waiters()
    with waiters.watch([A]) as one, waiters.watch([C, A]) as other:
        waiters.wake(A)
        assert [await is_woken(each) for each in (one, other)] == [True, True]


@pytest.mark.parametrize("seconds", [0, -1])
async def test_no_time_is_no_wait(seconds):
    with Waiters().watch([A]) as watch:
        async with asyncio.timeout(60):
            await watch.wait(seconds)


async def test_nothing_is_kept_of_readers_who_left():
    waiters = Waiters()
    with waiters.watch([A, A, B]):
        pass
    with pytest.raises(RuntimeError), waiters.watch([A, C]):
        raise RuntimeError
    assert not waiters._watches
    waiters.wake(A)


async def test_closing_wakes_everybody(is_woken):
    waiters = Waiters()
    with waiters.watch([A]) as one, waiters.watch([B]) as other:
        waiters.close()
        assert [await is_woken(each) for each in (one, other)] == [True, True]
    assert waiters.closed


async def test_those_who_listen_are_told_in_the_order_in_which_they_came():
    waiters, told = Waiters(), []
    ends = [waiters.listen(A, lambda number=number: told.append(number)) for number in range(20)]
    ends[7]()
    waiters.wake(A)
    assert told == [number for number in range(20) if number != 7]
