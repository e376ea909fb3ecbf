"""The log as its interfaces see it: topics, appends, fetches, deletions."""

import asyncio

import pytest
from tests.unit.log.conftest import reached

from millpond.catalog import transactions
from millpond.log import FetchRequest
from millpond.model.errors import (
    CorruptBatch,
    InvalidConfig,
    InvalidPartitionCount,
    InvalidTopicName,
    InvalidTransactionState,
    NotOwner,
    OffsetOutOfRange,
    OutOfOrderSequence,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from millpond.model.ids import TopicId, TopicPartition, new_topic_id
from millpond.records import iter_records, walk

LONG_MS = 600_000
HANG_S = 60

# -- topics ---------------------------------------------------------------------------------------------------


async def test_a_topic_is_made_found_and_listed(start):
    engine = await start(topic=False)
    topic = await engine.log.create_topic("orders", 3, {"retention.ms": "5000"})
    assert [each.name for each in engine.log.topics.all()] == ["orders"]
    assert engine.log.topics.named("orders").partitions == 3
    assert engine.log.topics.config(topic.id).retention_ms == 5_000
    assert len(engine.log.partitions()) == 3


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("orders",), TopicExists),
        (("no/slashes",), InvalidTopicName),
        (("other", 0), InvalidPartitionCount),
        (("other", 1, {"no.such": "1"}), InvalidConfig),
    ],
)
async def test_a_topic_that_cannot_be_is_refused_and_leaves_nothing(engine, arguments, error):
    with pytest.raises(error):
        await engine.log.create_topic(*arguments)
    assert [each.name for each in engine.log.topics.all()] == ["orders"]


async def test_many_topics_made_at_once_are_all_there(engine):
    await asyncio.gather(*(engine.log.create_topic(f"t{n}") for n in range(20)))
    assert len(engine.log.topics.all()) == 21
    assert len(engine.log.partitions()) == 21


async def test_a_topic_made_again_under_its_name_is_another_and_starts_at_nought(engine):
    await engine.append(b"old", b"older")
    old = engine.topic_partition()
    await engine.log.delete_topic("orders")
    with pytest.raises(UnknownTopic):
        engine.log.topics.named("orders")
    with pytest.raises(UnknownTopic):
        await engine.log.append(old, b"")
    await engine.topic()
    assert engine.topic_partition() != old
    assert (await engine.append(b"new")).base_offset == 0
    assert await engine.values() == [b"new"]


async def test_a_deleted_topics_memory_is_given_back(start):
    engine = await start(inline_bytes_max=0)
    await engine.append(b"x" * 1_000)
    assert engine.log._tails.bytes > 1_000
    engine.log._tails.drop(engine.partition().tail)
    await engine.fetch(0)
    await engine.append(b"y" * 1_000)
    await engine.log.delete_topic("orders")
    assert (engine.log._tails.bytes, engine.log._fetcher._cache.bytes) == (0, 0)


async def test_an_append_to_a_topic_that_is_deleted_meanwhile_is_refused(start, settle):
    engine = await start(inline_bytes_max=0)
    hold = engine.faults.hold("append")
    answer = await engine.submit(b"x")
    await reached(hold)
    deleting = asyncio.ensure_future(engine.log.delete_topic("orders"))
    await settle()
    late = await engine.submit(b"y")
    hold.release()
    await deleting
    assert (await answer).base_offset == 0  # it was there first
    with pytest.raises((UnknownPartition, NotOwner)):
        await late


async def test_deleting_what_is_not_there_is_refused(engine):
    with pytest.raises(UnknownTopic):
        await engine.log.delete_topic("nobody")


async def test_partitions_are_added_and_start_empty(engine):
    await engine.append(b"a")
    await engine.log.add_partitions("orders", 3)
    assert (await engine.append(b"b", partition=2)).base_offset == 0
    assert engine.partition().end_offset == 1
    with pytest.raises(InvalidPartitionCount):
        await engine.log.add_partitions("orders", 3)


async def test_a_config_change_takes_effect_and_can_be_taken_back(engine, make_batch):
    await engine.log.alter_config("orders", {"max.message.bytes": "100"})
    with pytest.raises(Exception, match="larger than the limit"):
        await engine.append(b"x" * 200)
    await engine.log.alter_config("orders", {"max.message.bytes": None})
    await engine.append(b"x" * 200)
    with pytest.raises(InvalidConfig):
        await engine.log.alter_config("orders", {"retention.ms": "soon"})


async def test_unknown_places_are_refused(engine):
    with pytest.raises(UnknownPartition):
        await engine.append(b"x", partition=1)
    with pytest.raises(UnknownTopic):
        await engine.log.append(TopicPartition(new_topic_id(), 0), b"")
    with pytest.raises(UnknownPartition):
        engine.log.topics.partition("orders", 1)
    with pytest.raises(UnknownPartition):
        engine.log.topics.partition("orders", -1)


async def test_topics_and_records_survive_a_restart(start, tmp_path):
    engine = await start(tmp_path, partitions=2)
    await engine.append(b"a", b"b")
    await engine.append(b"c", partition=1, producer=(7, 0, 0))
    await engine.broker.stop()
    again = await start(tmp_path, topic=False)
    again.topic_id = engine.topic_id
    assert again.log.topics.named("orders").id == engine.topic_id
    assert await again.values() == [b"a", b"b"]
    assert (await again.append(b"c", partition=1, producer=(7, 0, 0))).base_offset == 0
    assert (await again.append(b"d")).base_offset == 2


# -- appending ------------------------------------------------------------------------------------------------


async def test_a_bad_request_fails_alone(engine):
    results = await asyncio.gather(
        engine.append(b"a"),
        engine.log.append(engine.topic_partition(), b"not a batch" * 20),
        engine.append(b"b"),
        return_exceptions=True,
    )
    assert [results[0].base_offset, results[2].base_offset] == [0, 1]
    assert isinstance(results[1], CorruptBatch)


async def test_append_time_is_answered(start):
    engine = await start(topic=False)
    await engine.topic(**{"message.timestamp.type": "LogAppendTime"})
    assert (await engine.append(b"x")).timestamp == engine.clock.now_ms()


async def test_an_answer_carries_the_log_start(engine):
    await engine.append(b"a", b"b")
    await engine.log.delete_records(engine.topic_partition(), 1)
    assert (await engine.append(b"c")).log_start == 1


async def test_a_writable_buffer_is_stamped_in_place_and_an_unwritable_one_is_left_alone(engine, make_batch):
    await engine.append(b"first")
    data = make_batch(b"second")
    await engine.log.append(engine.topic_partition(), data)
    assert next(walk(data))[1].base_offset == 0
    own = bytearray(data)
    await engine.log.append(engine.topic_partition(), own)
    assert next(walk(own))[1].base_offset == 2


async def test_sequences_are_judged_before_buffering(engine):
    await engine.append(b"0", producer=(7, 0, 0))
    with pytest.raises(OutOfOrderSequence):
        await engine.submit(b"2", producer=(7, 0, 2))
    assert (await engine.append(b"0", producer=(7, 0, 0))).base_offset == 0
    assert (await engine.append(b"1", producer=(7, 0, 1))).base_offset == 1
    assert await engine.values() == [b"0", b"1"]


async def test_a_fenced_partition_takes_nothing(engine):
    with engine.broker.database.write() as tx:
        tx.rows("UPDATE partitions SET owner = 'other', epoch = epoch + 1")
    with pytest.raises(NotOwner):
        await engine.append(b"x")
    await engine.log.refresh()
    with pytest.raises(NotOwner):
        engine.log.partition(engine.topic_partition())
    with pytest.raises(UnknownPartition):
        engine.log.partition(engine.topic_partition(7))


async def test_a_partition_with_a_new_epoch_goes_on(engine):
    await engine.append(b"a", producer=(7, 0, 0))
    with engine.broker.database.write() as tx:
        tx.rows("UPDATE partitions SET epoch = epoch + 1")
    await engine.log.refresh()
    assert (await engine.append(b"a", producer=(7, 0, 0))).base_offset == 0
    assert (await engine.append(b"b", producer=(7, 0, 1))).base_offset == 1
    assert await engine.values() == [b"a", b"b"]


# -- deleting records -----------------------------------------------------------------------------------------


async def test_records_are_deleted_up_to_an_offset_and_numbers_go_on(engine):
    for n in range(5):
        await engine.append(b"%d" % n)
    assert await engine.log.delete_records(engine.topic_partition(), 3) == 3
    assert await engine.values(3) == [b"3", b"4"]
    assert engine.rows("SELECT count(*) FROM extents") == [(2,)]
    assert await engine.log.delete_records(engine.topic_partition(), 1) == 3  # never back
    assert await engine.log.delete_records(engine.topic_partition(), -1) == 5
    assert (await engine.append(b"5")).base_offset == 5


@pytest.mark.parametrize("offset", [6, 1_000, -2])
async def test_an_offset_outside_the_log_cannot_be_deleted_to(engine, offset):
    await engine.append(*[b"x"] * 5)
    with pytest.raises(OffsetOutOfRange) as raised:
        await engine.log.delete_records(engine.topic_partition(), offset)
    assert raised.value.facts["end_offset"] == 5
    assert engine.partition().log_start == 0


async def test_inside_an_extent_the_bytes_stay_and_the_records_are_gone(engine):
    await engine.append(*[b"%d" % n for n in range(5)])
    await engine.log.delete_records(engine.topic_partition(), 2)
    assert engine.rows("SELECT count(*) FROM extents") == [(1,)]
    assert (await engine.fetch(1)).error is not None
    assert await engine.values(2) == [b"2", b"3", b"4"]


# -- fetching -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 1, 6])
async def test_out_of_range_names_both_bounds(engine, offset):
    await engine.append(*[b"x"] * 5)
    await engine.log.delete_records(engine.topic_partition(), 2)
    result = await engine.fetch(offset, wait_ms=60_000)
    assert isinstance(result.error, OffsetOutOfRange)
    assert (result.log_start, result.end_offset) == (2, 5)
    assert result.error.facts == {"offset": offset, "log_start": 2, "end_offset": 5}


async def test_at_the_end_there_is_nothing_and_no_error(engine):
    await engine.append(b"x")
    result = await engine.fetch(1)
    assert (list(result.batches), result.next_offset, result.error) == ([], 1, None)


async def test_a_long_poll_is_woken_by_an_append(engine, settle):
    await engine.append(b"old")
    polling = asyncio.ensure_future(engine.fetch(1, wait_ms=LONG_MS))
    await settle()
    assert not polling.done()
    await engine.append(b"new")
    result = await asyncio.wait_for(polling, HANG_S)
    assert [r.value for d in result.batches for r in iter_records(d, decompressed_bytes_max=0)] == [b"new"]


async def test_a_long_poll_is_woken_by_another_process_s_append(start, tmp_path, settle):
    engine = await start(tmp_path)
    await engine.append(b"old")
    polling = asyncio.ensure_future(engine.fetch(1, wait_ms=LONG_MS))
    await settle()
    engine.append_from_another_broker(b"foreign")
    result = await asyncio.wait_for(polling, HANG_S)
    assert [r.value for d in result.batches for r in iter_records(d, decompressed_bytes_max=0)] == [
        b"foreign"
    ]


async def test_a_long_poll_ends_with_its_time(engine, settle, loop_time):
    polling = asyncio.ensure_future(engine.fetch(0, wait_ms=LONG_MS))
    await settle()
    loop_time.advance(LONG_MS / 1000 / 2)
    await settle()
    assert not polling.done()
    loop_time.advance(LONG_MS / 1000 / 2)
    assert not (await asyncio.wait_for(polling, HANG_S)).batches


async def test_a_long_poll_waits_for_so_many_bytes(engine, settle):
    await engine.append(b"x" * 100)
    polling = asyncio.ensure_future(engine.fetch(0, bytes_min=600, wait_ms=LONG_MS))
    await engine.append(b"x" * 100)
    await settle()
    assert not polling.done()
    await engine.append(b"x" * 300)
    assert (await asyncio.wait_for(polling, HANG_S)).size >= 600


async def test_what_is_appended_while_a_long_poll_looks_in_the_store_wakes_it(start):
    """It watches first and looks second."""
    engine = await start(inline_bytes_max=0, tail_bytes_max=0)
    size = (await engine.append(b"x" * 100), await engine.fetch(0))[1].size
    engine.log._fetcher.forget(engine.topic_partition())
    hold = engine.faults.hold("read")
    polling = asyncio.ensure_future(engine.fetch(0, bytes_min=2 * size, wait_ms=LONG_MS))
    await reached(hold)
    await engine.append(b"x" * 100)
    hold.release()
    assert (await asyncio.wait_for(polling, HANG_S)).size >= size


async def test_a_long_poll_does_not_wait_for_bytes_that_are_there_already(start):
    """The cache has the first of two batches; the second is in the store. Waiting would not bring it."""
    engine = await start(inline_bytes_max=0, tail_bytes_max=0)
    await engine.append(b"x" * 100)
    size = (await engine.fetch(0)).size
    await engine.append(b"x" * 100)
    async with asyncio.timeout(HANG_S):
        first = await engine.fetch(0, bytes_min=2 * size, wait_ms=LONG_MS)
        assert first.size >= size
        assert first.next_offset == 2 or (await engine.fetch(first.next_offset)).next_offset == 2


async def test_a_long_poll_does_not_wait_for_more_than_fits(engine):
    for _ in range(2):
        await engine.append(b"x" * 100)
    size = (await engine.fetch(0)).size
    async with asyncio.timeout(HANG_S):
        result = await engine.fetch(0, room=size // 2, bytes_min=size, wait_ms=LONG_MS)
    assert (result.size, result.next_offset) == (size // 2, 1)


async def test_stopping_waits_for_what_is_being_taken_in_of_others(engine, eventually):
    """Else it would go on over closed connections."""
    view = engine.log.catalog_view
    real, may_read, done = view.refresh, asyncio.Event(), []

    async def slow():
        await may_read.wait()
        await real()
        done.append(True)

    view.refresh = slow
    view.on_foreign_change()
    stopping = asyncio.ensure_future(engine.broker.stop())
    await eventually(lambda: view._ending)
    assert not stopping.done()
    may_read.set()
    await stopping
    assert done == [True]
    view.on_foreign_change()
    assert view._refreshing.done()


async def test_a_long_poll_over_many_partitions_is_woken_by_any(start, settle):
    engine = await start(partitions=3)
    requests = [FetchRequest(engine.topic_partition(n), 0, 1_000) for n in range(3)]
    polling = asyncio.ensure_future(engine.log.fetch(requests, bytes_max=3_000, wait_ms=LONG_MS))
    await settle()
    await engine.append(b"x", partition=2)
    results = await asyncio.wait_for(polling, HANG_S)
    assert [len(result.batches) for result in results] == [0, 0, 1]
    assert not engine.log.waiters._watches


async def test_stopping_ends_long_polls(engine, settle):
    polling = asyncio.ensure_future(engine.fetch(0, wait_ms=LONG_MS))
    await settle()
    await engine.broker.stop()
    assert not (await asyncio.wait_for(polling, HANG_S)).batches


async def test_the_budget_is_shared_and_the_first_with_anything_gets_a_batch(start):
    engine = await start(partitions=3)
    for n in (1, 2):
        for _ in range(3):
            await engine.append(b"x" * 100, partition=n)
    requests = [FetchRequest(engine.topic_partition(n), 0, 10_000) for n in range(3)]
    results = await engine.log.fetch(requests, bytes_max=1)
    assert [result.size > 0 for result in results] == [False, True, False]
    size = results[1].size
    results = await engine.log.fetch(requests, bytes_max=4 * size)
    assert [result.size for result in results] == [0, 3 * size, size]
    results = await engine.log.fetch([FetchRequest(engine.topic_partition(1), 0, 2 * size)], bytes_max=99_999)
    assert results[0].size == 2 * size


@pytest.mark.parametrize("tail", [0, 1_000_000])
async def test_budgets_hold_from_the_tail_and_from_the_store(start, tail):
    engine = await start(tail_bytes_max=tail)
    for n in range(10):
        await engine.append(b"%d" % n * 100)
    size = (await engine.fetch(0, room=1)).size
    for room in (1, size, 2 * size, 5 * size + 1):
        result = await engine.fetch(3, room=room)
        assert result.size == max(room // size, 1) * size
        assert result.next_offset == 3 + max(room // size, 1)


async def test_readers_of_one_place_share_one_read(start):
    engine = await start(inline_bytes_max=0, tail_bytes_max=0)
    await engine.append(b"x")
    hold = engine.faults.hold("read")
    engine.faults.fail_before("read", times=9)
    readers = [asyncio.ensure_future(engine.fetch(0)) for _ in range(5)]
    await reached(hold)
    readers[0].cancel()  # one who leaves does not take the read with it
    hold.release()
    assert [len(r.batches) for r in await asyncio.gather(*readers[1:])] == [1, 1, 1, 1]


async def test_what_was_read_once_is_kept(start):
    engine = await start(inline_bytes_max=0, tail_bytes_max=0)
    await engine.append(b"x")
    await engine.fetch(0)
    engine.faults.fail_before("read", times=9)
    assert await engine.values() == [b"x"]


async def test_an_unknown_partition_fails_alone_in_a_fetch(engine):
    await engine.append(b"x")
    unknown = TopicPartition(TopicId(b"?" * 16), 0)
    requests = [FetchRequest(unknown, 0, 1_000), FetchRequest(engine.topic_partition(), 0, 1_000)]
    missing, found = await engine.log.fetch(requests, bytes_max=1_000)
    assert isinstance(missing.error, UnknownTopic)
    assert found.size > 0


# -- transactions ---------------------------------------------------------------------------------------------


class Transactional:
    """A transactional producer at work on the engine."""

    def __init__(self, engine):
        self.engine, self.sequence = engine, 0

    async def begin(self, *partitions):
        now = self.engine.clock.now_ms()

        def begin(tx):
            producer = transactions.begin_producer(tx, "pay", 60_000, now_ms=now).producer
            topic_partitions = [self.engine.topic_partition(n) for n in partitions or (0,)]
            transactions.add_partitions(tx, producer, topic_partitions, now_ms=now)
            return [producer.producer_id, producer.epoch]

        producer_id, epoch = await self.engine.log.write(begin)
        self.producer = transactions.TransactionalProducer("pay", producer_id, epoch)
        self.sequence = 0
        return self

    async def send(self, *values):
        producer = (self.producer.producer_id, self.producer.epoch, self.sequence)
        self.sequence += len(values)
        return await self.engine.append(*values, producer=producer, transactional=True)

    async def end(self, commit):
        def end(tx):
            transactions.end(
                tx, self.producer, commit=commit, bump_epoch=False, now_ms=self.engine.clock.now_ms()
            )

        await self.engine.log.write(end)
        await self.engine.log.refresh()


async def test_read_committed_stops_at_the_last_stable_offset(engine):
    producer = await Transactional(engine).begin()
    await engine.append(b"plain")
    await producer.send(b"open 1")
    await producer.send(b"open 2")
    await engine.append(b"behind")
    result = await engine.fetch(0, read_committed=True)
    assert (result.last_stable_offset, result.end_offset, result.next_offset) == (1, 4, 1)
    assert await engine.values(read_committed=True) == [b"plain"]
    assert await engine.values() == [b"plain", b"open 1", b"open 2", b"behind"]
    await producer.end(commit=True)
    assert await engine.values(read_committed=True) == [b"plain", b"open 1", b"open 2", b"behind"]
    result = await engine.fetch(0, read_committed=True)
    assert (result.last_stable_offset, result.aborted) == (5, [])


async def test_the_aborted_are_listed_where_they_were_read(engine):
    producer = await Transactional(engine).begin()
    await producer.send(b"aborted 1")
    await engine.append(b"plain")
    await producer.end(commit=False)
    result = await engine.fetch(0, read_committed=True)
    [aborted] = result.aborted
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (
        producer.producer.producer_id,
        0,
        2,
    )
    assert (await engine.fetch(0)).aborted == ()
    await engine.append(b"later")
    assert (await engine.fetch(3, read_committed=True)).aborted == []
    await engine.log.delete_records(engine.topic_partition(), 3)
    assert engine.rows("SELECT count(*) FROM aborted_txns") == [(0,)]


async def test_a_long_poll_of_committed_records_is_woken_by_the_marker(engine, settle):
    producer = await Transactional(engine).begin()
    await producer.send(b"in it")
    polling = asyncio.ensure_future(engine.fetch(0, read_committed=True, wait_ms=LONG_MS))
    await settle()
    assert not polling.done()
    await producer.end(commit=True)
    assert (await asyncio.wait_for(polling, HANG_S)).next_offset == 2


async def test_a_batch_outside_any_transaction_is_refused(engine):
    producer = await Transactional(engine).begin()
    await producer.send(b"in it")
    await producer.end(commit=True)
    with pytest.raises(InvalidTransactionState):
        await producer.send(b"too late")
    assert engine.partition().end_offset == 2
    assert (await engine.append(b"plain")).base_offset == 2


async def test_a_long_poll_on_a_topic_that_is_deleted_ends_at_once(engine, settle):
    polling = asyncio.ensure_future(engine.fetch(0, wait_ms=LONG_MS))
    await settle()
    await engine.log.delete_topic("orders")
    result = await asyncio.wait_for(polling, HANG_S)
    assert isinstance(result.error, UnknownTopic)
