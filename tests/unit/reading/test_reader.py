"""Reading many small objects of a slow store: several at a time, in order, and no longer than a reader waits."""

import threading

import pytest

from millpond.broker import Broker
from millpond.log import FetchRequest, Log
from millpond.model.errors import ObjectMissing
from millpond.model.ids import TopicPartition
from millpond.reading.reader import READ_S_MAX, StoreReader
from millpond.records import Record, build_batch, iter_records
from millpond.settings import Settings
from millpond.testing import Faults, FaultyStore

OBJECTS = 12
WAIT_S_MAX = 20.0


class Together(FaultyStore):
    """Reads come back only when four of them are there."""

    reads_at_once = 4

    def __init__(self, store):
        super().__init__(store, Faults())
        self._four = threading.Barrier(4, timeout=WAIT_S_MAX)

    def read(self, key, start, length):
        self._four.wait()
        return super().read(key, start, length)


async def filled(broker: Broker, topic: str = "t") -> TopicPartition:
    log: Log = broker.log
    topic_partition = TopicPartition((await log.create_topic(topic, 1)).id, 0)
    for number in range(OBJECTS):
        await log.append(topic_partition, build_batch([Record(b"%d" % number)], now_ms=1))
    return topic_partition


def values(runs):
    return [record.value for run in runs for record in iter_records(run.data, decompressed_bytes_max=1_000)]


@pytest.fixture
async def broker():
    settings = Settings(catalog="memory://", storage="memory://", inline_bytes_max=0)
    async with Broker(settings, maintain=False) as broker:
        yield broker


async def test_several_objects_are_read_at_a_time_and_come_in_order(broker):
    topic_partition = await filled(broker)
    reader = StoreReader(broker.database, Together(broker.store), extents_per_read=100, timer=lambda: 0.0)
    assert values(reader.read_runs(topic_partition, 0, 10_000)) == [
        b"%d" % number for number in range(OBJECTS)
    ]
    reader.close()


async def test_whoever_reads_for_long_gets_what_there_is_and_goes_on_from_there(broker):
    topic_partition = await filled(broker)
    ticks = iter(number * READ_S_MAX / 3 for number in range(100))
    reader = StoreReader(broker.database, broker.store, extents_per_read=100, timer=lambda: next(ticks))
    found, offset, times = [], 0, 0
    while runs := reader.read_runs(topic_partition, offset, 10_000):
        found += values(runs)
        offset = runs[-1].end_offset
        times += 1
    assert found == [b"%d" % number for number in range(OBJECTS)]
    assert times == OBJECTS / 3


async def test_a_fetch_that_takes_long_is_answered_with_what_there_is(broker, monkeypatch):
    """Else a reader gives up before it is answered, and begins anew for ever."""
    topic_partition, other = await filled(broker), await filled(broker, "other")
    monkeypatch.setattr(broker.log._reader, "_extents_per_read", 3)
    monkeypatch.setattr(broker.log._reader, "_timer", lambda: 0.0)
    monkeypatch.setattr("millpond.log.fetcher.READ_S_MAX", 0.0)
    for each in (topic_partition, other):
        assert list(broker.log.partition(each).tail.drain()), "it is in the store only"
    requests = [FetchRequest(each, 0, 10_000) for each in (topic_partition, other)]
    results = await broker.log.fetch(requests, bytes_max=20_000, wait_ms=10_000, bytes_min=20_000)
    assert [result.has_more for result in results] == [True, True]
    assert results[0].next_offset == 3
    assert results[1].next_offset == 3, "both are read together"
    found = await broker.log.fetch(requests[1:], bytes_max=20_000)
    assert found[0].next_offset > 0, "it is the next one's turn"


async def test_an_object_that_is_missing_among_several_is_looked_up_again(broker):
    topic_partition = await filled(broker)
    store = FaultyStore(broker.store, Faults())
    missed = []

    def read(key, start, length):
        if not missed:
            missed.append(key)
            raise ObjectMissing(key=key)
        return broker.store.read(key, start, length)

    store.read = read
    reader = StoreReader(broker.database, store, extents_per_read=100, timer=lambda: 0.0)
    assert len(values(reader.read_runs(topic_partition, 0, 10_000))) == OBJECTS
    assert len(missed) == 1
