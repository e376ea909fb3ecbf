"""Lagging readers: those who go on are read ahead for, and several partitions are read together."""

import asyncio

import pytest

from millpond.log import FetchRequest
from millpond.reading.reader import PartitionRead, StoreReader

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
    await eventually(lambda: not fetcher._reads.in_flight)
    store = engine.faults.hold("read")  # whoever needs the store now would wait
    third = await asyncio.wait_for(engine.fetch(second.next_offset, room=1_000_000), 60)
    assert third.batches
    store.release()


async def test_who_jumps_about_is_not_read_ahead_for(start, eventually):
    engine = await lagging(start)
    fetcher = engine.log._fetcher
    for offset in (50, 30, 10):
        await engine.fetch(offset, room=100)
        assert not fetcher._reads.in_flight


@pytest.fixture
def reads(monkeypatch):
    """The positions of each read of the store."""
    found = []
    read_many = StoreReader.read_many

    def recorded(self, wanted):
        found.append(list(wanted))
        return read_many(self, wanted)

    monkeypatch.setattr(StoreReader, "read_many", recorded)
    return found


async def test_several_partitions_are_read_together_and_ahead(start, reads, no_read_timeout):
    engine = await lagging(start, partitions=3, blocks=40)
    offsets = {engine.topic_partition(number): 0 for number in range(3)}
    fetches = 0
    while min(offsets.values()) < 40:
        requests = [FetchRequest(each, offset, 300_000) for each, offset in offsets.items()]
        for result in await engine.log.fetch(requests, bytes_max=900_000):
            assert result.error is None
            offsets[result.topic_partition] = result.next_offset
        fetches += 1
    assert fetches == 20  # two blocks of each
    of_each = [{each.topic_partition for each in wanted} for wanted in reads]
    assert of_each == [set(offsets)] * len(of_each)
    positions = [(each.topic_partition, each.offset) for wanted in reads for each in wanted]
    assert len(positions) == len(set(positions))  # nothing is read twice


async def test_a_partition_for_which_no_time_was_left_is_read_by_itself(start, monkeypatch):
    engine = await lagging(start, partitions=2, blocks=5)
    read_many = StoreReader.read_many

    def first_only(self, wanted):
        return [*read_many(self, wanted[:1]), *(None for _ in wanted[1:])]

    monkeypatch.setattr(StoreReader, "read_many", first_only)
    requests = [FetchRequest(engine.topic_partition(number), 0, 300_000) for number in range(2)]
    results = await engine.log.fetch(requests, bytes_max=900_000)
    assert [len(result.batches) > 0 for result in results] == [True] * 2


async def test_a_failed_read_ahead_harms_nobody(start, eventually):
    engine = await lagging(start)
    first = await engine.fetch(0, room=1_000_000)
    second = await engine.fetch(first.next_offset, room=900_000)
    fetcher = engine.log._fetcher
    await eventually(lambda: not fetcher._reads.in_flight)
    fetcher._cache.forget(engine.topic_partition())
    engine.faults.fail_before("read")
    fetcher._read_ahead([PartitionRead(engine.topic_partition(), second.next_offset, 900_000)])
    await eventually(lambda: not fetcher._reads.in_flight)
    values = await engine.values(second.next_offset, room=1_000_000)
    assert len(values) == 60 - second.next_offset


async def test_places_are_forgotten_in_the_end(start, monkeypatch):
    engine = await lagging(start, blocks=12)
    monkeypatch.setattr("millpond.log.fetcher.FETCH_ENDS_MAX", 3)
    for offset in reversed(range(10)):
        await engine.fetch(offset, room=100)
    assert len(engine.log._fetcher._fetch_ends) == 3


async def test_a_fetch_of_nothing_returns_nothing(start):
    engine = await start()
    assert await engine.log.fetch([], bytes_max=100) == []
