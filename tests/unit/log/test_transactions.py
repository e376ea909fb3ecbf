"""Transactions through the engine: producers and their fencing, markers in memory, what readers see and batches may."""

import asyncio

import pytest
from tests.unit.log.conftest import reached
from tests.unit.log.transactional import Client, committed, coordinator, stable

from millpond.catalog import coordinators, groups, transactions
from millpond.catalog.groups import GroupOffset
from millpond.log import ProducerEpoch, TransactionalProducer, TransactionLimits, Transactions
from millpond.log import open_transactions as open_transactions_module
from millpond.model.errors import (
    FlushFailed,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NotOwner,
    ProducerFenced,
    UnknownPartition,
)
from millpond.model.ids import TopicPartition
from millpond.records import read_header, read_marker

DAY_MS = 86_400_000


# -- producers ------------------------------------------------------------------------------------------------


async def test_producer_ids_come_from_blocks_and_never_twice(start):
    engine = await start()
    first, second = coordinator(engine, id_block=10), coordinator(engine, id_block=10)
    found = [await each.new_producer_id() for _ in range(12) for each in (first, second)]
    assert len(set(found)) == 24
    assert engine.rows("SELECT next FROM counters WHERE name = 'producer_id'") == [(41,)]


async def test_producers_that_ask_together_share_a_block(engine):
    by = coordinator(engine, id_block=100)
    found = await asyncio.gather(*(by.new_producer_id() for _ in range(50)))
    assert sorted(found) == list(range(1, 51))


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_a_timeout_that_is_not_allowed_is_refused(engine, timeout_ms):
    with pytest.raises(InvalidTransactionTimeout, match="range 1 to 900000"):
        await Client.begin(engine, timeout_ms=timeout_ms)


async def test_the_longest_timeout_is_allowed_and_an_empty_id_is_not(engine):
    await Client.begin(engine, timeout_ms=900_000)
    with pytest.raises(InvalidRequest):
        await Client.begin(engine, "")


async def test_a_new_instance_fences_the_old_one_and_aborts_its_transaction(engine):
    old = await (await Client.begin(engine)).add()
    await old.send(b"lost")
    new = await Client.begin(engine)
    assert new.producer == TransactionalProducer("pay", old.producer.producer_id, 1)
    with pytest.raises(ProducerFenced):
        await old.send(b"late")
    for act in (old.add, old.end):
        with pytest.raises(ProducerFenced):
            await act()
    await new.add()
    await new.send(b"kept")
    await new.end()
    assert await committed(engine) == [b"kept"]


async def test_a_known_producer_goes_on_and_a_stale_one_is_fenced(engine):
    client = await Client.begin(engine)
    known = client.producer.identity
    again = await Client.begin(engine, known=known)
    assert again.producer.epoch == 1
    assert (await Client.begin(engine, known=known)).producer == again.producer
    with pytest.raises(ProducerFenced):
        await Client.begin(engine, known=ProducerEpoch(known.producer_id, 9))


async def test_errors_tell_an_unknown_id_from_an_old_epoch_from_a_wrong_state(engine):
    by = coordinator(engine)
    client = await Client.begin(engine)
    stranger = TransactionalProducer("stranger", 1, 0)
    other = TransactionalProducer("pay", 4711, 0)
    for unknown in (stranger, other):
        with pytest.raises(InvalidProducerIdMapping):
            await by.add_partitions(unknown, [engine.topic_partition()])
        with pytest.raises(InvalidProducerIdMapping):
            await by.end(unknown, commit=True, bump_epoch=False)
    with pytest.raises(InvalidTransactionState):
        await client.end()
    with pytest.raises(UnknownPartition):
        await by.add_partitions(client.producer, [TopicPartition(engine.topic_id, 9)])


# -- another broker coordinates -------------------------------------------------------------------------------


async def test_a_shard_that_has_moved_lets_no_step_through(engine):
    client = await (await Client.begin(engine)).add()
    shard = coordinators.shard_of("pay")
    await engine.log.write(lambda tx: coordinators.claim(tx, [shard], "another")[shard])
    by = client.coordinator
    for step in (
        lambda: by.begin_producer("pay", 1_000),
        lambda: by.add_partitions(client.producer, [engine.topic_partition()]),
        lambda: by.add_group(client.producer, "g"),
        lambda: by.end(client.producer, commit=True, bump_epoch=False),
    ):
        with pytest.raises(NotOwner):
            await step()
    engine.clock.advance(60_001)
    with pytest.raises(NotOwner):
        await by.abort_timed_out()


async def test_offsets_are_taken_by_whoever_coordinates_their_group(engine):
    client = await (await Client.begin(engine)).add()
    mine, others = coordinators.shard_of("g"), coordinators.shard_of("pay")
    assert mine != others
    await engine.log.write(lambda tx: coordinators.claim(tx, [others], "another")[others])
    await client.coordinator.add_offsets(client.producer, "g", [GroupOffset(engine.topic_partition(), 5)])
    assert await engine.log.read(lambda tx: groups.pending_offsets(tx, "g")) == [engine.topic_partition()]
    await engine.log.write(lambda tx: coordinators.claim(tx, [mine], "another")[mine])
    with pytest.raises(NotOwner):
        await client.coordinator.add_offsets(client.producer, "g", [GroupOffset(engine.topic_partition(), 6)])


async def test_a_shard_that_was_never_ours_is_refused_and_left_alone(engine):
    await (await Client.begin(engine, timeout_ms=1)).add()
    broker = engine.broker
    stranger = Transactions(
        broker.log,
        broker.session,
        lambda _: None,
        clock=engine.clock,
        limits=TransactionLimits(id_expiry_ms=0),
    )
    with pytest.raises(NotOwner):
        await stranger.begin_producer("pay", 1_000)
    engine.clock.advance(DAY_MS)
    assert await stranger.abort_timed_out() == 0
    assert await stranger.forget_unused() == 0


# -- reading what is committed --------------------------------------------------------------------------------


@pytest.mark.parametrize("bump_epoch", [True, False])
async def test_a_reader_at_the_tail_never_leaves_the_loop(start, no_thread, bump_epoch):
    engine = await start(partitions=2)
    client = await (await Client.begin(engine)).add(0, 1)
    await client.send(b"aborted")
    assert stable(await engine.fetch(0, read_committed=True)) == (0, 1)
    no_thread(engine)
    await engine.append(b"plain")
    assert stable(await engine.fetch(0, read_committed=True)) == (0, 2)
    await client.end(commit=False, bump_epoch=bump_epoch)
    result = await engine.fetch(0, read_committed=True)
    assert stable(result) == (3, 3)
    assert [(each.first_offset, each.last_offset) for each in result.aborted] == [(0, 2)]
    assert result.next_offset == 3
    assert await committed(engine) == [b"plain"]
    for value in (b"one", b"two"):
        await client.add(0)
        await client.send(value)
        assert await committed(engine) == [b"plain", b"one"][: 1 + (value == b"two")]
        await client.end(bump_epoch=bump_epoch)
    assert await committed(engine) == [b"plain", b"one", b"two"]


async def test_a_marker_in_memory_is_the_marker_in_the_store(start):
    engine = await start()
    client = await (await Client.begin(engine)).add()
    await client.send(b"x")
    await client.end(commit=False, bump_epoch=True)
    cached = (await engine.fetch(1)).batches
    engine.log._tails.drop(engine.partition().tail)
    assert [bytes(each) for each in cached] == [bytes(each) for each in (await engine.fetch(1)).batches]
    header = read_header(cached[0])
    assert (header.base_offset, header.producer_id, header.producer_epoch) == (
        1,
        client.producer.producer_id,
        1,
    )
    assert read_marker(cached[0]).kind.name == "ABORT"


async def test_a_marker_wakes_those_who_wait_for_it(start, settle):
    engine = await start(partitions=2)
    client = await (await Client.begin(engine)).add()
    await client.send(b"in it")
    waiting = asyncio.ensure_future(engine.fetch(0, read_committed=True, wait_ms=600_000))
    plain = asyncio.ensure_future(engine.fetch(1, wait_ms=600_000))
    await settle()
    assert not waiting.done()
    engine.log.upkeep.take_grown()
    await client.end()
    assert (await asyncio.wait_for(waiting, 60)).next_offset == 2
    assert (await asyncio.wait_for(plain, 60)).next_offset == 2
    assert engine.log.upkeep.take_grown() == {engine.topic_partition(): 1}


async def test_a_marker_and_the_batches_around_it_stay_in_the_tail(engine, no_thread):
    client = await (await Client.begin(engine)).add()
    await client.send(b"before")
    no_thread(engine)
    ending = asyncio.ensure_future(client.end())
    following = [await engine.submit(b"%d" % n) for n in range(5)]
    await asyncio.gather(ending, *following)
    assert await engine.values() == [b"before", *(b"%d" % n for n in range(5))]


async def test_whoever_asked_for_an_end_may_leave_before_it_is_done(engine, eventually):
    client = await (await Client.begin(engine)).add()
    await client.send(b"x")
    leaving = asyncio.ensure_future(client.end())
    await asyncio.sleep(0)
    leaving.cancel()
    await eventually(lambda: engine.partition().end_offset == 2)
    assert await engine.log.last_stable_offset(engine.topic_partition()) == 2


async def test_a_transaction_below_the_log_start_holds_nobody_up_there(engine):
    client = await (await Client.begin(engine)).add()
    await client.send(b"old")
    await engine.append(b"kept")
    await engine.log.delete_records(engine.topic_partition(), 1)
    assert await engine.log.last_stable_offset(engine.topic_partition()) == 1


async def test_readers_of_aborted_transactions_that_are_no_longer_in_memory_find_them(engine, monkeypatch):
    monkeypatch.setattr(open_transactions_module, "ABORTED_MAX", 2)
    assert await committed(engine) == []
    client = await (await Client.begin(engine)).add()
    for number in range(5):
        await client.add()
        await client.send(b"%d" % number)
        await client.end(commit=False)
    result = await engine.fetch(0, read_committed=True)
    assert [each.first_offset for each in result.aborted] == [0, 2, 4, 6, 8]
    assert [each.first_offset for each in (await engine.fetch(6, read_committed=True)).aborted] == [6, 8]
    assert await committed(engine) == []


async def test_the_last_stable_offset_can_be_asked_for(engine):
    assert await engine.log.last_stable_offset(engine.topic_partition()) == 0
    client = await (await Client.begin(engine)).add()
    await engine.append(b"plain")
    assert await engine.log.last_stable_offset(engine.topic_partition()) == 1
    await client.send(b"x")
    assert await engine.log.last_stable_offset(engine.topic_partition()) == 1
    await client.end()
    assert await engine.log.last_stable_offset(engine.topic_partition()) == 3


# -- what others write ----------------------------------------------------------------------------------------


def end_elsewhere(engine, producer, *, commit=False):
    """Another broker coordinates the transaction now, and ends it."""
    with engine.broker.database.write() as tx:
        return transactions.end(
            tx, producer, commit=commit, bump_epoch=True, now_ms=engine.clock.now_ms()
        ).producer


async def test_an_end_by_another_coordinator_is_taken_in_with_a_refresh(engine):
    client = await (await Client.begin(engine)).add()
    await client.send(b"aborted")
    assert stable(await engine.fetch(0, read_committed=True)) == (0, 1)
    end_elsewhere(engine, client.producer)
    assert stable(await engine.fetch(0, read_committed=True)) == (0, 1)
    await engine.log.refresh()
    result = await engine.fetch(0, read_committed=True)
    assert (stable(result), len(result.aborted)) == ((2, 2), 1)


async def test_an_end_by_another_coordinator_is_taken_in_with_an_append_behind_it(engine):
    client = await (await Client.begin(engine)).add()
    await client.send(b"aborted")
    end_elsewhere(engine, client.producer)
    await engine.append(b"plain")
    result = await engine.fetch(0, read_committed=True)
    assert (stable(result), len(result.aborted)) == ((3, 3), 1)
    assert await committed(engine) == [b"plain"]


async def test_a_partition_added_by_another_coordinator_is_found_out(engine):
    client = await Client.begin(engine)
    await engine.append(b"plain")
    assert await committed(engine) == [b"plain"]
    with engine.broker.database.write() as tx:
        transactions.add_partitions(tx, client.producer, [engine.topic_partition()], now_ms=1)
    await client.send(b"in it")
    assert stable(await engine.fetch(0, read_committed=True)) == (1, 2)


async def test_a_partition_with_another_owner_does_not_hinder_an_end(start, no_thread):
    engine = await start(partitions=2)
    client = await (await Client.begin(engine)).add(0, 1)
    await client.send(b"here")
    gone = engine.topic_partition(1)
    await engine.log.write(
        lambda tx: tx.rows("UPDATE partitions SET owner = 'x', epoch = 9 WHERE partition = 1")
    )
    await engine.log.refresh()
    await client.end()
    assert await committed(engine) == [b"here"]
    assert engine.rows("SELECT end_offset FROM partitions WHERE partition = 1") == [(1,)]
    with pytest.raises(NotOwner):
        engine.log.partition(gone)


async def test_between_a_flush_and_the_news_of_it_nothing_is_read_past_it(engine, monkeypatch, eventually):
    """The catalog has the batch, and a refresh says how long the log is, before the loop hears of the flush."""
    client = await (await Client.begin(engine)).add()
    await committed(engine)
    delivered = []
    real = engine.log.writer._call_soon
    monkeypatch.setattr(engine.log.writer, "_call_soon", lambda *news: delivered.append(news))
    sent = await client.submit(b"not yet decided")
    await eventually(lambda: delivered)
    await engine.log.refresh()
    result = await engine.fetch(0, read_committed=True)
    assert (stable(result), list(result.batches)) == ((0, 1), [])
    monkeypatch.setattr(engine.log.writer, "_call_soon", real)
    for news in delivered:
        real(*news)
    await sent
    assert stable(await engine.fetch(0, read_committed=True)) == (0, 1)
    await client.end()
    assert await committed(engine) == [b"not yet decided"]


# -- what is refused before it joins a buffer -----------------------------------------------------------------


async def test_a_batch_outside_any_transaction_harms_nobody(start):
    engine = await start(inline_bytes_max=0)
    client = await Client.begin(engine)
    hold = engine.faults.hold("append")
    first = await engine.submit(b"first")
    await asyncio.to_thread(hold.wait_reached, 20)
    before = await engine.submit(b"before")
    with pytest.raises(InvalidTransactionState):
        await client.submit(b"outside")
    after = await engine.submit(b"after")
    hold.release()
    assert [(await each).base_offset for each in (first, before, after)] == [0, 1, 2]


async def test_a_batch_for_another_partition_than_those_added_is_refused(start):
    engine = await start(partitions=2)
    client = await (await Client.begin(engine)).add(0)
    with pytest.raises(InvalidTransactionState):
        await client.submit(b"x", partition=1)
    await client.send(b"x", partition=0)


async def test_a_plain_batch_in_the_middle_of_its_producers_transaction_is_refused(engine):
    client = await (await Client.begin(engine)).add()
    await client.send(b"in it")
    with pytest.raises(InvalidTransactionState):
        await engine.append(b"plain", producer=(*client.producer.identity, 1))
    await client.end()
    await engine.append(b"plain", producer=(*client.producer.identity, 1))


async def test_a_repeat_of_a_batch_gets_its_answer_even_after_the_end(engine):
    client = await (await Client.begin(engine)).add()
    sent = await client.send(b"x")
    await client.end()
    client.sequences = {}
    assert (await client.send(b"x")).base_offset == sent.base_offset
    assert engine.partition().end_offset == 2


# -- batches that come too late -------------------------------------------------------------------------------


async def test_a_batch_of_a_transaction_that_ended_while_it_was_uploading_is_refused_and_its_neighbours_are_not(
    start, loop_time
):
    engine = await start(uploads=True, inline_bytes_max=0, flush_delay=600_000, partitions=2)
    now = engine.clock.now_ms()

    def begin(tx):
        producer = transactions.begin_producer(tx, "pay", 60_000, now_ms=now).producer
        transactions.add_partitions(
            tx, producer, [engine.topic_partition(0), engine.topic_partition(1)], now_ms=now
        )
        return [producer.producer_id, producer.epoch]

    producer_id, epoch = await engine.log.write(begin)
    slow = engine.faults.hold("append")
    late = await engine.submit(b"late", producer=(producer_id, epoch, 0), transactional=True)
    beside = await engine.submit(b"beside", partition=1)
    loop_time.advance(600)
    await reached(slow)
    producer = transactions.TransactionalProducer("pay", producer_id, epoch)

    def end(tx):
        transactions.end(tx, producer, commit=False, bump_epoch=False, now_ms=now)

    await engine.log.write(end)
    slow.release()
    with pytest.raises(InvalidTransactionState):
        await late
    assert (await beside).base_offset == 1  # behind the marker
    await engine.log.refresh()
    assert engine.partition(0).end_offset == 1  # the marker alone
    result = await engine.fetch(0, read_committed=True)
    assert (result.last_stable_offset, result.aborted) == (1, [])


async def test_plain_batches_of_the_same_partition_beside_a_late_transactional_one_may_be_sent_again(
    start,
):
    engine = await start(inline_bytes_max=0)
    now = engine.clock.now_ms()
    with engine.broker.database.write() as tx:
        producer = transactions.begin_producer(tx, "pay", 60_000, now_ms=now).producer
        transactions.add_partitions(tx, producer, [engine.topic_partition()], now_ms=now)
    hold = engine.faults.hold("append")
    first = await engine.submit(b"first")
    await reached(hold)
    late = await engine.submit(b"late", producer=(*producer.identity, 0), transactional=True)
    plain = await engine.submit(b"plain")
    with engine.broker.database.write() as tx:  # as another coordinator would, without a word to this broker
        transactions.end(tx, producer, commit=True, bump_epoch=False, now_ms=now)
    hold.release()
    found = await asyncio.gather(first, late, plain, return_exceptions=True)
    assert found[0].base_offset == 1  # behind the marker
    assert isinstance(found[1], InvalidTransactionState)
    assert isinstance(found[2], FlushFailed)
    assert found[2].retriable
    assert (await engine.append(b"plain")).base_offset == 2
