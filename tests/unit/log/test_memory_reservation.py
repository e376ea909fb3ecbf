"""Memory reservations: bounded, first come, first served, and never lost."""

import asyncio

import pytest

from millpond.log.memory_reservation import MemoryReservation


async def taking(room, size, log, name, release):
    async with room.hold(size):
        log.append(name)
        await release.wait()


async def test_who_does_not_fit_waits_and_who_came_first_goes_first(settle):
    room, log = MemoryReservation(100), []
    first, later = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(taking(room, 60, log, "a", first))]
    await settle()
    tasks += [asyncio.create_task(taking(room, 60, log, "b", later))]
    await settle()
    tasks += [asyncio.create_task(taking(room, 10, log, "c", later))]  # it would fit, but it came later
    await settle()
    assert (log, room.used) == (["a"], 60)
    first.set()
    await settle()
    assert (log, room.used) == (["a", "b", "c"], 70)
    later.set()
    await asyncio.gather(*tasks)
    assert room.used == 0


async def test_more_than_there_is_takes_all_of_it():
    room = MemoryReservation(100)
    async with room.hold(10**9):
        assert room.used == 100
    assert room.used == 0


async def test_who_gives_up_waiting_or_fails_leaves_nothing_behind(settle):
    room, log, release = MemoryReservation(100), [], asyncio.Event()
    holder = asyncio.create_task(taking(room, 100, log, "a", release))
    await settle()
    waiter = asyncio.create_task(taking(room, 50, log, "b", release))
    await settle()
    waiter.cancel()
    await asyncio.wait([waiter])
    release.set()
    await holder
    with pytest.raises(ZeroDivisionError):
        async with room.hold(100):
            raise ZeroDivisionError
    async with asyncio.timeout(10), room.hold(100):
        assert log == ["a"]


async def test_fetches_from_the_store_share_it(start, eventually):
    engine = await start(inline_bytes_max=0, tail_bytes_max=1, cache_bytes_max=1)
    for _ in range(20):
        await engine.append(b"x" * 100_000)
    fetcher = engine.log._fetcher
    fetcher._memory = MemoryReservation(1_500_000)
    hold = engine.faults.hold("read")
    polls = [asyncio.create_task(engine.fetch(offset, room=1_000_000)) for offset in (0, 10)]
    await asyncio.to_thread(hold.wait_reached)
    assert (fetcher._memory.used, len(fetcher._reads.in_flight)) == (1_000_000, 1)
    hold.release()
    assert all([(await poll).batches for poll in polls])
    await eventually(lambda: fetcher._memory.used == 0)
