"""The way in: which batches leave the loop to be looked into, and that none of their partition overtakes them."""

import asyncio
import random
import threading

import pytest
from tests.batches import batch_with_header

from millpond.log import appender
from millpond.model.errors import InvalidTimestamp, OutOfOrderSequence
from millpond.records import Codec, Record, build_batch, check_crc, iter_records, read_header
from millpond.records.record import NO_TIMESTAMP

OLD_MS = 1_000
PRODUCER = 7
MANY = appender.INSPECTED_ON_LOOP_RECORDS + 1
"""More records than are looked at on the loop."""


def sequenced(values, *, at, sequence):
    return build_batch(
        [Record(value) for value in values],
        now_ms=at,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )


class HeldThreads:
    """The threads that look into batches, all busy until they are let go."""

    def __init__(self, engine):
        self._threads = engine.log._threads
        self._may_go = threading.Event()

    async def __aenter__(self):
        count = self._threads._batch_pool._max_workers
        self._busy = [
            asyncio.ensure_future(self._threads.run_on_batch_threads(self._may_go.wait)) for _ in range(count)
        ]
        return self

    async def let_go(self):
        self._may_go.set()
        await asyncio.gather(*self._busy)

    async def __aexit__(self, *_):
        await self.let_go()


async def accepted_in_turn(engine, batches):
    """Submits that begin in this order, all at once."""
    tasks = [asyncio.ensure_future(engine.log.submit(engine.topic_partition(), batch)) for batch in batches]
    await asyncio.sleep(0)
    return tasks


async def test_old_and_current_headers_in_turn_with_five_in_flight_stay_in_order(start, settle):
    """An idempotent producer whose batches have to be looked into and need not, in turn. None is out of order, none
    overtakes another, and the sequences end where they should."""
    engine = await start()
    batches, expected = [], []
    for number in range(40):
        values = [b"%d:%d" % (number, n) for n in range(MANY if number % 2 == 0 else 1)]
        at = OLD_MS if number % 2 == 0 else engine.clock.now_ms()
        batches.append(sequenced(values, at=at, sequence=len(expected)))
        expected += values
    for first in range(0, len(batches), 5):
        async with HeldThreads(engine) as threads:
            tasks = await accepted_in_turn(engine, batches[first : first + 5])
            await settle()
            assert not any(task.done() for task in tasks[1 if first % 2 else 0 :])
            await threads.let_go()
            results = [await (await task) for task in tasks]
        offsets = [result.base_offset for result in results]
        assert offsets == sorted(offsets)
    assert await engine.values() == expected


@pytest.mark.parametrize("seed", range(8))
async def test_any_mix_with_many_in_flight_stays_in_order(start, seed):
    """Small ones are looked into on the loop, large ones on threads, current ones not at all; all of them at once."""
    choice = random.Random(seed)
    engine = await start()
    batches, expected = [], []
    for number in range(60):
        values = [b"%d:%d" % (number, n) for n in range(choice.choice([1, 1, 5, MANY]))]
        at = choice.choice([OLD_MS, engine.clock.now_ms()])
        batches.append(sequenced(values, at=at, sequence=len(expected)))
        expected += values
    tasks = []
    for batch in batches:
        tasks.append(asyncio.ensure_future(engine.log.submit(engine.topic_partition(), batch)))
        if choice.random() < 0.5:
            await asyncio.sleep(0)
    for task in tasks:
        await (await task)
    assert await engine.values() == expected


async def test_a_gap_behind_a_batch_that_is_looked_into_is_still_a_gap(start):
    engine = await start()
    tasks = await accepted_in_turn(
        engine,
        [
            sequenced([b"a"] * MANY, at=OLD_MS, sequence=0),
            sequenced([b"b"], at=engine.clock.now_ms(), sequence=MANY + 1),
            sequenced([b"c"], at=engine.clock.now_ms(), sequence=MANY),
        ],
    )
    assert (await (await tasks[0])).base_offset == 0
    with pytest.raises(OutOfOrderSequence):
        await tasks[1]
    assert (await (await tasks[2])).base_offset == MANY


async def test_other_partitions_do_not_wait_for_one_that_is_looked_into(start, make_batch):
    engine = await start(partitions=2)
    async with HeldThreads(engine) as threads:
        [task] = await accepted_in_turn(engine, [make_batch(*[b"old"] * MANY, at=OLD_MS)])
        assert (await engine.append(b"now", partition=1)).base_offset == 0
        assert not task.done()
        await threads.let_go()
        assert (await (await task)).base_offset == 0


async def test_what_is_refused_or_cancelled_while_it_is_looked_into_lets_the_next_one_through(
    start, make_batch
):
    engine = await start()
    now = engine.clock.now_ms()
    too_new = [Record(b"v", timestamp=now + 10**10)] * MANY
    async with HeldThreads(engine) as threads:
        tasks = await accepted_in_turn(
            engine,
            [
                batch_with_header(too_new, newest=5),
                make_batch(*[b"gone"] * MANY, at=OLD_MS),
                make_batch(b"kept", at=now),
            ],
        )
        tasks[1].cancel()
        await threads.let_go()
        with pytest.raises(InvalidTimestamp):
            await tasks[0]
        assert (await (await tasks[2])).base_offset == 0
    assert engine.partition().queued_appends == 0
    assert await engine.values() == [b"kept"]


async def test_current_headers_never_leave_the_loop_and_wait_for_nothing(start, no_thread, make_batch):
    engine = await start()
    no_thread(engine)
    await engine.append(*[b"v"] * 5_000)
    async with engine.partition().append_lock:  # which they do not take
        await engine.append(b"v", compression=Codec.LZ4)
    assert engine.partition().end_offset == 5_001


async def test_what_is_small_is_looked_into_on_the_loop(start, no_thread):
    engine = await start()
    no_thread(engine)
    await engine.log.append(engine.topic_partition(), batch_with_header([Record(b"v", timestamp=OLD_MS)]))
    assert engine.partition().end_offset == 1


async def test_a_small_batch_that_becomes_large_is_looked_into_on_a_thread(start):
    engine = await start()
    value = b"v" * (2 * appender.INSPECTED_ON_LOOP_BYTES)
    batch = batch_with_header([Record(value, timestamp=OLD_MS)], newest=0, codec=Codec.ZSTD)
    await engine.log.append(engine.topic_partition(), batch)
    assert engine.rows("SELECT max_timestamp FROM extents") == [(OLD_MS,)]


# -- what is stored -----------------------------------------------------------------------------------------------


async def stored_times(engine):
    [extent] = engine.rows("SELECT min_timestamp, max_timestamp, high_timestamp FROM extents")
    return extent


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("count", [2, MANY])
async def test_header_and_extent_have_the_times_of_the_records(start, codec, joint, count):
    """The newest is neither the first nor what the header claims; so is the oldest."""
    engine = await start()
    now = engine.clock.now_ms()
    times = [*range(OLD_MS + count, OLD_MS + 1, -1), now - 5]
    records = [Record(b"v", timestamp=time) for time in times]
    batch = batch_with_header(records, newest=OLD_MS, codec=codec)
    if joint:
        await engine.log.append_jointly({engine.topic_partition(): batch}, lambda tx: None)
    else:
        await engine.log.append(engine.topic_partition(), batch)
    [data] = (await engine.fetch(0)).batches
    header = read_header(data)
    check_crc(data, 0, header)
    assert header.max_timestamp == max(times)
    assert await stored_times(engine) == (min(times), max(times), max(times))
    assert [r.timestamp for r in iter_records(data, decompressed_bytes_max=1 << 20)] == times


async def test_records_without_a_time_are_read_as_they_were_sent_and_have_the_age_of_their_append(start):
    engine = await start()
    await engine.log.append(
        engine.topic_partition(), batch_with_header([Record(b"a"), Record(b"b")], base=-1, newest=0)
    )
    [data] = (await engine.fetch(0)).batches
    assert {r.timestamp for r in iter_records(data, decompressed_bytes_max=1 << 20)} == {NO_TIMESTAMP}
    now = engine.clock.now_ms()
    assert await stored_times(engine) == (NO_TIMESTAMP, now, now)


@pytest.mark.parametrize("base", [OLD_MS, 2**60])
async def test_under_append_time_the_producers_times_say_nothing(start, base):
    engine = await (await start(topic=False)).topic(**{"message.timestamp.type": "LogAppendTime"})
    await engine.log.append(
        engine.topic_partition(), batch_with_header([Record(b"a", timestamp=OLD_MS)], base=base, newest=base)
    )
    now = engine.clock.now_ms()
    assert await stored_times(engine) == (now, now, now)


async def test_the_sparse_index_has_the_newest_time_of_each_stretch(start):
    engine = await start(inline_bytes_max=0)
    now = engine.clock.now_ms()
    old = [Record(b"v" * 70_000, timestamp=OLD_MS)]
    current = [Record(b"v" * 70_000, timestamp=OLD_MS), Record(b"v", timestamp=now)]
    batches = [batch_with_header(records, newest=0) for records in (old, current, old)]
    await engine.log.append(engine.topic_partition(), b"".join(batches))
    [extent] = engine.log._reader.find_extents(engine.topic_partition(), 0, 1)
    assert [entry.max_timestamp for entry in extent.index] == [OLD_MS, now, OLD_MS]


async def test_what_is_checked_before_anything_is_accepted_is_checked_by_the_records(start):
    """`Log.check` and `Log.check_joint` refuse what a later submit would, whatever the headers claim."""
    engine = await start()
    too_new = [Record(b"v", timestamp=OLD_MS), Record(b"v", timestamp=engine.clock.now_ms() + 10**10)]
    batch = batch_with_header(too_new, newest=OLD_MS)
    for check in (engine.log.check, engine.log.check_joint):
        with pytest.raises(InvalidTimestamp):
            check(engine.topic_partition(), batch)
        check(engine.topic_partition(), batch_with_header([Record(b"v", timestamp=OLD_MS)]))
