"""Offsets by time, against a scan of everything."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.catalog import transactions
from millpond.reading.offsets import OffsetFinder
from millpond.records import Codec, Record
from millpond.testing import running_broker

MIB = 1024 * 1024


async def found_at(engine, timestamp):
    found = await engine.log.offset_at(engine.topic_partition(), timestamp)
    return found and (found.offset, found.timestamp)


async def newest(engine):
    found = await engine.log.newest_offset(engine.topic_partition())
    return found and (found.offset, found.timestamp)


def naive(times, log_start, timestamp):
    return next(
        ((offset, t) for offset, t in enumerate(times) if offset >= log_start and t >= timestamp), None
    )


def naive_newest(times, log_start):
    retained = list(enumerate(times))[log_start:]
    return max(retained, key=lambda each: (each[1], -each[0])) if retained else None


@settings(max_examples=30, deadline=None)
@given(
    times=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=10),
    cut=st.floats(0, 1),
    merge=st.booleans(),
    seed=st.integers(0, 9),
)
def test_times_that_run_in_any_direction(make_batch, times, cut, merge, seed):
    """Compressed or not, inline or in files, merged or not, with the log start anywhere."""
    choice = random.Random(seed)

    async def check():
        async with running_broker(inline_bytes_max=200) as broker:
            topic = await broker.log.create_topic("orders")
            topic_partition = broker.log.topics.partition(topic.name, 0)
            for batch in times:
                records = [Record(b"x" * choice.choice([1, 150]), timestamp=t) for t in batch]
                await broker.log.append(
                    topic_partition, make_batch(*records, compression=choice.choice(list(Codec)))
                )
            flat = [t for batch in times for t in batch]
            log_start = round(cut * len(flat))
            if merge:
                await broker.maintenance.merging.run_once()
            await broker.log.delete_records(topic_partition, log_start)
            for timestamp in (-1, 0, *{t + d for t in flat for d in (0, 1)}):
                found = await broker.log.offset_at(topic_partition, timestamp)
                got = found and (found.offset, found.timestamp)
                assert got == naive(flat, log_start, timestamp), timestamp
            found = await broker.log.newest_offset(topic_partition)
            assert (found and (found.offset, found.timestamp)) == naive_newest(flat, log_start)

    asyncio.run(check())


async def test_an_empty_log_has_no_times(engine):
    assert await found_at(engine, 0) is None
    assert await newest(engine) is None


async def test_inside_one_large_extent_the_index_leads_to_the_stretch(start, make_batch):
    """Times that ascend, then fall, then ascend, in one flush of many stretches."""
    engine = await start(inline_bytes_max=0)
    times = [*range(100, 140), *range(60, 20, -1), *range(50, 130)]
    records = [make_batch(Record(random.Random(t).randbytes(9_000), timestamp=t)) for t in times]
    await engine.log.append(engine.topic_partition(), b"".join(records))
    assert engine.rows("SELECT count(*) FROM extents") == [(1,)]
    for log_start in (0, 37, 41, 100):
        await engine.log.delete_records(engine.topic_partition(), log_start)
        for timestamp in (0, 20, 50, 100, 125, 130, 139, 140):
            assert await found_at(engine, timestamp) == naive(times, log_start, timestamp)
        assert await newest(engine) == naive_newest(times, log_start)


async def test_the_newest_record_below_the_log_start_does_not_count(engine, make_batch):
    """Its extent still says that it is there."""
    batches = [make_batch(Record(b"v", timestamp=t)) for t in (900, 300, 400, 200)]
    await engine.log.append(engine.topic_partition(), b"".join(batches))
    await engine.log.delete_records(engine.topic_partition(), 1)
    assert await newest(engine) == (2, 400)


async def test_a_marker_counts_as_a_record(engine, make_batch):
    """As in Kafka. Else a log that ends with a marker would have no newest record."""
    write, now = engine.log.write, engine.clock.now_ms()
    await engine.append(b"before")
    producer = transactions.TransactionalProducer("t", 1, 0)

    def begin(tx):
        transactions.begin_producer(tx, "t", 60_000, now_ms=now)
        transactions.add_partitions(tx, producer, [engine.topic_partition()], now_ms=now)

    await write(begin)
    await engine.append(b"inside", producer=(1, 0, 0), transactional=True)
    await write(
        lambda tx: (
            transactions.end(tx, producer, commit=True, bump_epoch=False, now_ms=now + 500).producer.epoch
        )
    )
    await engine.log.refresh()
    assert await newest(engine) == (2, now + 500)
    assert await found_at(engine, now + 1) == (2, now + 500)
    assert await found_at(engine, now) == (0, now)


async def test_an_object_replaced_under_the_search_is_looked_up_again(start):
    engine = await start(inline_bytes_max=0)
    for _ in range(10):
        await engine.append(b"x")
    now = engine.clock.now_ms()
    hold = engine.faults.hold("read")
    search = asyncio.ensure_future(found_at(engine, now))
    await asyncio.to_thread(hold.wait_reached, 20)
    assert await engine.broker.maintenance.merging.run_once() == 10
    engine.broker.maintenance.garbage._grace_ms = 0
    assert await engine.broker.maintenance.garbage.run_once() == 10
    hold.release()
    assert await search == (0, now)


async def test_only_one_batch_is_decoded(start, make_batch, monkeypatch):
    engine = await start()
    batches = [make_batch(*[Record(b"v", timestamp=t)] * 10, compression=Codec.GZIP) for t in range(100, 120)]
    await engine.log.append(engine.topic_partition(), b"".join(batches))
    import millpond.reading.offsets as module

    decoded = []
    real = module.iter_records
    monkeypatch.setattr(module, "iter_records", lambda data, **n: decoded.append(1) or real(data, **n))
    assert await found_at(engine, 110) == (100, 110)
    assert len(decoded) == 1


async def test_the_search_gives_up_when_an_object_is_gone_for_good(start):
    from millpond.model.errors import ObjectMissing

    engine = await start(inline_bytes_max=0)
    await engine.append(b"x")
    engine.broker.store.delete(list(engine.broker.store.list("")))
    finder = OffsetFinder(engine.broker.database, engine.log._reader, decompressed_bytes_max=MIB)
    with pytest.raises(ObjectMissing):
        finder.at_or_after(engine.topic_partition(), 0, 0)
