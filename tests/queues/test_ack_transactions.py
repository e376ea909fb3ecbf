"""Transactions of a subscription: acknowledgements and produced messages in one commit."""

import asyncio

import pytest
from tests.queues.conftest import WAIT_SECONDS_MAX, gated, queue_of, values

from millpond.model.errors import InvalidRecord, MillpondError, SubscriptionReplaced, UnknownTopic
from millpond.queues import AckResult
from millpond.records import Record
from millpond.security import OPEN_ACCESS
from millpond.service import NewMessage

OK = AckResult.OK


async def batches(stage, *produced, topic="out", key=None):
    made, _ = await stage.broker.messages.batches_of(
        [NewMessage(topic, None, Record(value, key)) for value in produced], access=OPEN_ACCESS
    )
    return made


async def commit(stage, held, *produced, **named):
    ids = [each.ack_id for each in held]
    return await stage.broker.queues.commit(
        "orders", "billing", "worker", ids, await batches(stage, *produced, **named)
    )


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
    saver = stage.broker.queues._active_subscriptions._saver
    waiting, entered, opened = gated(saver._write)
    monkeypatch.setattr(saver, "_write", waiting)
    async with asyncio.timeout(WAIT_SECONDS_MAX), asyncio.TaskGroup() as group:
        answers = [group.create_task(worker.ack(second[0], first[0]))]
        await entered.wait()
        done = group.create_task(commit(stage, [first[1], second[1]], b"one"))
        await stage.settle()
        answers += [group.create_task(worker.ack(each)) for each in (second[2], first[2])]
        await stage.settle()
        opened.set()
    assert [task.result() for task in answers] == [[OK, OK], [OK], [OK]]
    assert done.result()[0] == [OK, OK]
    assert await stage.values("out") == [b"one"]


async def test_nothing_of_a_transaction_is_saved_when_its_caller_is_gone(stage, monkeypatch):
    await stage.topic("out")
    await stage.subscribe(ack_timeout_ms=60_000)
    worker = await stage.worker()
    await stage.publish(b"1", b"2")
    held = await worker.take(2)

    async def refuse(*_):
        raise UnknownTopic(topic="out")

    waiting, entered, opened = gated(refuse)
    monkeypatch.setattr(stage.broker.log, "append_jointly", waiting)
    asking = asyncio.create_task(commit(stage, held[:1], b"one"))
    await entered.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    other = asyncio.create_task(worker.ack(held[1]))
    await stage.settle()
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
    begin = first.saves.begin

    async def begin_and_close():
        begun = await begin()
        second.close(SubscriptionReplaced(subscription="billing"))
        return begun

    first.saves.begin = begin_and_close  # as when a dead letter of it must be read first
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


async def test_a_transaction_ends_while_others_keep_acknowledging(stage):
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
