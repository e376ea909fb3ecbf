"""Lagging readers: those who go on are read ahead for, and several partitions are read side by side."""

import asyncio

from millpond.log import FetchRequest

BLOCK = b"x" * 100_000
SMALL = {"inline_bytes_max": 0, "tail_bytes_max": 1, "cache_bytes_max": 8_000_000}


async def fill(engine, count, partition=0):
    for _ in range(count):
        await engine.append(BLOCK, partition=partition)


async def lagging(start, partitions=1, blocks=60):
    """A log whose newest batches are only in the store."""
    engine = await start(partitions=partitions, **SMALL)
    for partition in range(partitions):
        await fill(engine, blocks, partition)
    return engine


async def test_who_goes_on_finds_the_bytes_waiting(start, eventually):
    engine = await lagging(start)
    first = await engine.fetch(0, room=1_000_000)
    second = await engine.fetch(first.next_offset, room=1_000_000)
    fetcher = engine.log._fetcher
    await eventually(lambda: not fetcher._in_flight)
    store = engine.faults.hold("read")  # whoever needs the store now would wait
    third = await asyncio.wait_for(engine.fetch(second.next_offset, room=1_000_000), 60)
    assert third.batches
    store.release()


async def test_who_jumps_about_is_not_read_ahead_for(start, eventually):
    engine = await lagging(start)
    fetcher = engine.log._fetcher
    for offset in (50, 30, 10):
        await engine.fetch(offset, room=100)
        assert not fetcher._in_flight


async def test_several_partitions_are_read_side_by_side(start):
    engine = await lagging(start, partitions=3, blocks=5)
    holds = [engine.faults.hold("read") for _ in range(3)]
    requests = [FetchRequest(engine.topic_partition(number), 0, 300_000) for number in range(3)]
    fetching = asyncio.ensure_future(engine.log.fetch(requests, bytes_max=900_000))
    for hold in holds:  # all three have reached the store before any is answered
        await asyncio.to_thread(hold.wait_reached)
    for hold in holds:
        hold.release()
    results = await fetching
    assert [len(result.batches) > 0 for result in results] == [True] * 3


async def test_a_failed_read_ahead_harms_nobody(start, eventually):
    engine = await lagging(start)
    first = await engine.fetch(0, room=1_000_000)
    second = await engine.fetch(first.next_offset, room=900_000)
    fetcher = engine.log._fetcher
    await eventually(lambda: not fetcher._in_flight)
    fetcher._cache.forget(engine.topic_partition())
    engine.faults.fail_before("read")
    fetcher._read_ahead(engine.partition(), second.next_offset, second.next_offset)
    await eventually(lambda: not fetcher._in_flight)
    values = await engine.values(second.next_offset, room=1_000_000)
    assert len(values) == 60 - second.next_offset


async def test_places_are_forgotten_in_the_end(start, monkeypatch):
    engine = await lagging(start, blocks=12)
    monkeypatch.setattr("millpond.log.fetcher.FETCH_ENDS_MAX", 3)
    for offset in reversed(range(10)):
        await engine.fetch(offset, room=100)
    assert len(engine.log._fetcher._fetch_ends) == 3
