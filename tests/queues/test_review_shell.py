"""The queue's shell under suspicion: races between awaits, failures that reach too far, things done twice."""

import asyncio

import pytest

from millpond.catalog import exclusivity
from millpond.catalog import subscriptions as catalog
from millpond.model.errors import (
    CatalogUnavailable,
    CorruptObject,
    FlushFailed,
    InvalidRecord,
    MillpondError,
    OutcomeUnknown,
    StoreUnavailable,
    SubscriptionReplaced,
    UnknownSubscription,
    UnknownTopic,
)
from millpond.queues import Answer, at_work
from millpond.queues import queues as queues_module
from millpond.queues.feed import Piece
from millpond.queues.pulling import PullerName
from millpond.records import Record, build_batch
from millpond.service import NewMessage

OK, STALE, NOT_OWNER = Answer.OK, Answer.STALE, Answer.NOT_OWNER


def values(held):
    return [each.value for each in held]


async def batches(stage, *produced, topic="out", key=None):
    made, _ = await stage.broker.messages.batches_of(
        [NewMessage(topic, None, Record(value, key)) for value in produced]
    )
    return made


async def commit(stage, held, *produced, **named):
    ids = [each.ack_id for each in held]
    return await stage.broker.queues.commit(
        "orders", "billing", "worker", ids, await batches(stage, *produced, **named)
    )


def queue_of(stage, partition=0):
    [active] = stage.broker.queues._at_work.all()
    return active.queues[partition]


def gate(function):
    """The function, which waits when it is called; events that it has come, and that it may go on."""
    entered, opened = asyncio.Event(), asyncio.Event()

    async def gated(*given, **named):
        entered.set()
        await opened.wait()
        return await function(*given, **named)

    return gated, entered, opened


# -- reading ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whoever_owns_it", [False, True])
async def test_what_expires_while_it_is_read_is_passed_over(stage, monkeypatch, whoever_owns_it):
    await stage.publish(b"1", b"2", b"3")
    await stage.begin_again()
    log, feed, where = stage.broker.log, stage.broker.queues._feed, stage.where()
    in_pool = log._fetcher._in_pool

    async def expire_and_read(work):
        await log.delete_records(where, 2)
        return await in_pool(work)

    monkeypatch.setattr(log._elsewhere if whoever_owns_it else log._fetcher, "_in_pool", expire_and_read)
    piece = await (feed.read_stored if whoever_owns_it else feed.read)(where, 0)
    assert (piece.records, piece.next_offset, piece.log_start) == ((), 2, 2)


# -- transactions ---------------------------------------------------------------------------------------------


async def test_a_transaction_over_two_partitions_and_acknowledgements_of_both_do_not_wait_for_each_other(
    stage, monkeypatch
):
    await stage.broker.log.add_partitions("orders", 2)
    await stage.topic("out")
    await stage.subscribe(ack_timeout_ms=60_000)
    worker = await stage.worker()
    for partition in (0, 1):
        await stage.publish(b"1", b"2", b"3", partition=partition)
    held = sorted(await worker.take(6), key=lambda each: (each.partition, each.offset))
    first, second = held[:3], held[3:]
    saver = stage.broker.queues._at_work._saver
    gated, entered, opened = gate(saver._write)
    monkeypatch.setattr(saver, "_write", gated)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        answers = [group.create_task(worker.ack(second[0], first[0]))]
        await entered.wait()
        done = group.create_task(commit(stage, [first[1], second[1]], b"one"))
        await asyncio.sleep(0.05)
        answers += [group.create_task(worker.ack(each)) for each in (second[2], first[2])]
        await asyncio.sleep(0.05)
        opened.set()
    assert [task.result() for task in answers] == [[OK, OK], [OK], [OK]]
    assert done.result()[0] == [OK, OK]
    assert await stage.values("out") == [b"one"]


async def test_nothing_of_a_transaction_is_saved_by_others_when_whoever_asked_is_gone(stage, monkeypatch):
    await stage.topic("out")
    await stage.subscribe(ack_timeout_ms=60_000)
    worker = await stage.worker()
    await stage.publish(b"1", b"2")
    held = await worker.take(2)

    async def refuse(*_):
        raise UnknownTopic(topic="out")

    gated, entered, opened = gate(refuse)
    monkeypatch.setattr(stage.broker.log, "append_jointly", gated)
    asking = asyncio.create_task(commit(stage, held[:1], b"one"))
    await entered.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    other = asyncio.create_task(worker.ack(held[1]))
    await asyncio.sleep(0.1)
    opened.set()
    await other
    assert b"1" in values(await worker.take())
    assert await stage.values("out") == []
    assert await stage.floor() == 0


async def test_a_transaction_whose_partition_is_closed_meanwhile_does_not_happen_in_part(stage):
    await stage.broker.log.add_partitions("orders", 2)
    await stage.topic("out")
    await stage.subscribe(ack_timeout_ms=60_000)
    worker = await stage.worker()
    for partition in (0, 1):
        await stage.publish(b"%d" % partition, partition=partition)
    held = await worker.take(2)
    first, second = queue_of(stage, 0), queue_of(stage, 1)
    begin = first.begin_save

    async def begin_and_close():
        begun = await begin()
        second.close(SubscriptionReplaced(subscription="billing"))
        return begun

    first.begin_save = begin_and_close  # as when a dead letter of it must be read first
    with pytest.raises(MillpondError):
        await commit(stage, held, b"one")
    assert await stage.values("out") == []
    assert sorted(values(await worker.take(2))) == [b"0", b"1"]


async def test_a_transaction_with_a_message_that_its_topic_refuses_leaves_deliveries_alone(stage):
    await stage.topic("out", **{"cleanup.policy": "compact"})
    await stage.subscribe(ack_timeout_ms=60_000)
    worker = await stage.worker()
    await stage.publish(b"1")
    held = await worker.take()
    with pytest.raises(InvalidRecord):
        await commit(stage, held, b"without a key")
    assert (await commit(stage, held, b"with one", key=b"k"))[0] == [OK]
    assert worker.lost == []


async def test_transactions_come_to_an_end_while_others_keep_acknowledging(stage):
    await stage.topic("out")
    await stage.subscribe(ack_timeout_ms=60_000)
    worker = await stage.worker(grant=10_000)
    await stage.publish(*[b"%d" % number for number in range(2_000)])
    held = await worker.take(2_000)
    others = iter(held[1:])

    async def keep_acknowledging():
        for each in others:
            assert await worker.ack(each) == [OK]

    busy = [asyncio.create_task(keep_acknowledging()) for _ in range(20)]
    answers, _ = await commit(stage, held[:1], b"one")
    assert answers == [OK]
    assert not all(task.done() for task in busy)
    await asyncio.gather(*busy)


# -- joint appends --------------------------------------------------------------------------------------------


async def test_joint_appends_one_after_the_other_do_not_hold_up_ordinary_ones(stage):
    await stage.topic("out")
    log, where = stage.broker.log, stage.where("out")
    batch = build_batch([Record(b"joint")], now_ms=1)

    async def keep_on():
        while True:
            await log.append_jointly({where: bytearray(batch)}, lambda _: None)

    tasks = [asyncio.create_task(keep_on()) for _ in range(16)]
    try:
        async with asyncio.timeout(60):
            await asyncio.sleep(0.05)
            await stage.publish(b"ordinary")
    finally:
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert await stage.values("orders") == [b"ordinary"]


async def test_a_joint_append_that_its_operation_refuses_is_nobody_elses_business(stage):
    def refuse(_):
        raise FlushFailed("somebody else was first")

    with pytest.raises(FlushFailed):
        await stage.broker.log.append_jointly(
            {stage.where(): build_batch([Record(b"joint")], now_ms=1)}, refuse
        )
    await stage.publish(b"ordinary")
    assert await stage.values("orders") == [b"ordinary"]


# -- services -------------------------------------------------------------------------------------------------


async def test_a_subscription_that_is_deleted_while_somebody_attaches_ends_nothing_else(stage, monkeypatch):
    await stage.subscribe()
    queues = stage.broker.queues

    async def refuse(_):
        raise UnknownSubscription(topic="orders", subscription="billing")

    gated, entered, opened = gate(refuse)
    monkeypatch.setattr(queues._at_work, "fill", gated)
    attaching = asyncio.create_task(stage.worker())
    await entered.wait()
    queues._at_work.look_again()
    await asyncio.sleep(0.05)
    await queues.delete("orders", "billing")
    opened.set()
    with pytest.raises(UnknownSubscription):
        await attaching
    await stage.goes_on()


async def test_a_partition_that_cannot_be_read_is_not_tried_again_and_again(stage, monkeypatch):
    await stage.subscribe()
    taken, takes = catalog.take, 0

    def take(*given, **named):
        nonlocal takes
        takes += 1
        return taken(*given, **named)

    async def read(*_):
        raise CorruptObject(key="journal", reason="damaged")

    monkeypatch.setattr(catalog, "take", take)
    monkeypatch.setattr(stage.broker.queues._feed, "read", read)
    await stage.publish(b"1")
    worker = await stage.worker()
    await asyncio.sleep(0.8)
    assert takes <= 3
    monkeypatch.undo()
    assert values(await worker.take()) == [b"1"]


async def test_whoever_attaches_while_the_broker_stops_is_refused(stage, monkeypatch):
    await stage.subscribe()
    queues = stage.broker.queues
    gated, entered, opened = gate(queues._at_work._take)
    monkeypatch.setattr(queues._at_work, "_take", gated)
    attaching = asyncio.create_task(stage.worker())
    await entered.wait()
    await queues.stop()
    opened.set()
    with pytest.raises(MillpondError):
        await attaching
    assert not queues._at_work._tasks


# -- exclusive consumers --------------------------------------------------------------------------------------


async def holders(stage):
    rows = await stage.broker.log.read(lambda tx: tx.rows("SELECT consumer FROM exclusive_consumers"))
    return [consumer for (consumer,) in rows]


async def test_an_exclusive_subscription_is_free_again_though_that_could_not_be_told_at_once(
    stage, monkeypatch, eventually
):
    monkeypatch.setattr(queues_module, "RELEASE_AGAIN_S", 0.01)
    await stage.subscribe(mode="exclusive")
    worker = await stage.worker()
    released, refused = exclusivity.release, []

    def release(*given):
        if len(refused) < 2:
            refused.append(given)
            raise CatalogUnavailable(reason="away")
        released(*given)

    monkeypatch.setattr(exclusivity, "release", release)
    assert await holders(stage) == ["worker"]
    worker.leave()

    async def is_free():
        return await holders(stage) == []

    await eventually(is_free)
    assert len(refused) == 2


@pytest.mark.parametrize("error", [OutcomeUnknown(), asyncio.CancelledError()])
async def test_whoever_does_not_get_in_holds_no_exclusive_subscription(stage, monkeypatch, eventually, error):
    await stage.subscribe(mode="exclusive")
    log = stage.broker.log
    write = log.write

    async def write_and_fail(operation, *given, **named):
        await write(operation, *given, **named)
        monkeypatch.undo()
        raise error

    monkeypatch.setattr(log, "write", write_and_fail)
    with pytest.raises(type(error)):
        await stage.worker()

    async def is_free():
        return await holders(stage) == []

    await eventually(is_free)
    await stage.worker("another")


# -- epochs ---------------------------------------------------------------------------------------------------


async def test_the_epoch_of_somebody_who_came_later_is_not_taken_for_ones_own(stage, monkeypatch):
    subscription = await stage.subscribe()
    loaded, rival = catalog.load, []

    def load(tx, standing):
        if not rival:
            with stage.broker.database.write() as other:
                rival.append(
                    catalog.take(other, subscription, standing, owner=stage.broker.session, topic="orders")
                )
        return loaded(tx, standing)

    monkeypatch.setattr(catalog, "load", load)
    await stage.publish(b"1")
    worker = await stage.worker()
    [held] = await worker.take()
    assert stage.dispatcher().epoch > rival[0]
    assert await worker.ack(held) == [OK]


async def test_a_reset_by_another_process_is_noticed_though_nothing_is_to_be_saved(stage):
    subscription = await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1")
    assert await worker.ack(*await worker.take()) == [OK]
    with stage.broker.database.write() as tx:
        catalog.reset(tx, subscription, {0: 0}, [])
    [again] = await worker.take()
    assert again.value == b"1"
    assert await worker.ack(again) == [OK]


# -- room -----------------------------------------------------------------------------------------------------


async def test_room_that_was_taken_for_messages_that_could_not_be_read_is_given_back(stage, monkeypatch):
    await stage.subscribe(mode="exclusive", backoff_ms=0, ack_timeout_ms=60_000, attempts_max=100)
    worker = await stage.worker(grant=20)
    await stage.publish(*[b"%d" % number for number in range(10)])
    held = await worker.take(10)
    reads = 0

    async def read(*_):
        nonlocal reads
        reads += 1
        raise StoreUnavailable(reason="away")

    monkeypatch.setattr(stage.broker.queues._feed, "read", read)
    assert await worker.nack(held[0]) == [OK]
    await worker.nothing(0.7)
    assert reads
    monkeypatch.undo()
    assert values(await worker.take(10)) == [b"%d" % number for number in range(10)]


async def test_room_that_was_taken_for_a_message_that_is_gone_is_given_back(stage, monkeypatch):
    await stage.subscribe(backoff_ms=0, ack_timeout_ms=60_000)
    worker = await stage.worker(grant=2)
    await stage.publish(b"1")
    held = await worker.take()

    async def read(_, offset):
        return Piece((), offset + 1, 0)

    monkeypatch.setattr(stage.broker.queues._feed, "read", read)
    assert await worker.nack(*held) == [OK]
    await worker.nothing()
    monkeypatch.undo()
    await stage.publish(b"2")
    assert values(await worker.take()) == [b"2"]


async def test_room_that_one_partition_gives_back_is_the_others_to_use(stage, monkeypatch):
    await stage.broker.log.add_partitions("orders", 2)
    await stage.subscribe(backoff_ms=0, ack_timeout_ms=60_000, attempts_max=100)
    worker = await stage.worker(grant=1)
    await stage.publish(b"bad", partition=0)
    held = await worker.take()
    feed = stage.broker.queues._feed
    read = feed.read

    async def read_some(where, offset):
        if where.partition == 0:
            await asyncio.sleep(0.2)  # the other one finds no room meanwhile
            raise StoreUnavailable(reason="away")
        return await read(where, offset)

    monkeypatch.setattr(feed, "read", read_some)
    assert await worker.nack(*held) == [OK]
    worker.grant(1)
    await asyncio.sleep(0.1)
    await stage.publish(b"good", partition=1)
    assert values(await worker.take()) == [b"good"]


async def test_what_was_read_for_a_consumer_that_left_is_not_given_to_one_of_the_same_name(
    stage, monkeypatch
):
    await stage.subscribe(backoff_ms=0, ack_timeout_ms=60_000, attempts_max=100)
    worker = await stage.worker(grant=2)
    await stage.publish(b"1")
    held = await worker.take()
    feed = stage.broker.queues._feed
    gated, entered, opened = gate(feed.read)
    monkeypatch.setattr(feed, "read", gated)
    assert await worker.nack(*held) == [OK]
    await entered.wait()
    second = await stage.worker(grant=1)
    opened.set()
    [again] = await second.take()
    assert await second.ack(again) == [OK]


async def test_a_consumer_that_pulls_and_never_answers_does_not_fill_the_memory(stage):
    await stage.subscribe(backoff_ms=0, backoff_max_ms=0, ack_timeout_ms=100, attempts_max=1_000)
    await stage.publish(*[b"%d" % number for number in range(50)])
    pulling, name = stage.broker.pulling, PullerName("orders", "billing", "puller")
    given = 0
    while given < 3_000:
        given += len(await pulling.pull(name, messages_max=50, wait_ms=1_000))
    assert len(pulling._pullers[name].held) <= 2_100


async def test_partitions_are_taken_in_several_commits(stage, monkeypatch):
    """One for thousands of partitions would hold up everybody who writes."""
    monkeypatch.setattr(at_work, "TAKEN_PER_COMMIT", 3)
    await stage.topic("wide", 8)
    await stage.subscribe(topic="wide")
    worker = await stage.worker(topic="wide")
    for partition in range(8):
        await stage.publish(b"%d" % partition, topic="wide", partition=partition)
    assert sorted(values(await worker.take(8))) == [b"%d" % partition for partition in range(8)]
