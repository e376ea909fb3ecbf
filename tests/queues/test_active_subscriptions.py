"""Active subscriptions: taking partitions, failing to, and stopping meanwhile."""

import asyncio

import pytest
from tests.queues.conftest import gated, values

from millpond.catalog import subscriptions as catalog
from millpond.model.errors import CorruptObject, MillpondError, UnknownSubscription
from millpond.queues import AckResult, active_subscriptions

OK = AckResult.OK


async def test_a_subscription_that_is_deleted_while_a_consumer_attaches_ends_nothing_else(stage, monkeypatch):
    await stage.subscribe()
    queues = stage.broker.queues

    async def refuse(_):
        raise UnknownSubscription(topic="orders", subscription="billing")

    waiting, entered, opened = gated(refuse)
    monkeypatch.setattr(queues._active_subscriptions, "start_partitions", waiting)
    attaching = asyncio.create_task(stage.worker())
    await entered.wait()
    queues._active_subscriptions.check_now()
    await stage.settle()
    await queues.delete("orders", "billing")
    opened.set()
    with pytest.raises(UnknownSubscription):
        await attaching
    await stage.assert_running()


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
    for _ in range(8):
        await stage.advance_time(0.1)
    assert takes <= 3
    monkeypatch.undo()
    assert values(await worker.take()) == [b"1"]


async def test_a_consumer_that_attaches_while_the_broker_stops_is_refused(stage, monkeypatch):
    await stage.subscribe()
    queues = stage.broker.queues
    waiting, entered, opened = gated(queues._active_subscriptions._take)
    monkeypatch.setattr(queues._active_subscriptions, "_take", waiting)
    attaching = asyncio.create_task(stage.worker())
    await entered.wait()
    await queues.stop()
    opened.set()
    with pytest.raises(MillpondError):
        await attaching
    assert not queues._active_subscriptions._tasks


async def test_the_epoch_of_a_later_owner_is_not_taken_for_this_ones(stage, monkeypatch):
    subscription = await stage.subscribe()
    loaded, rival = catalog.load, []

    def load(tx, state_key):
        if not rival:
            with stage.broker.database.write() as other:
                rival.append(
                    catalog.take(other, subscription, state_key, owner=stage.broker.session, topic="orders")
                )
        return loaded(tx, state_key)

    monkeypatch.setattr(catalog, "load", load)
    await stage.publish(b"1")
    worker = await stage.worker()
    await stage.advance_time(active_subscriptions.CHECK_EVERY_S)
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
    await stage.advance_time(active_subscriptions.CHECK_EVERY_S)
    [again] = await worker.take()
    assert again.value == b"1"
    assert await worker.ack(again) == [OK]


async def test_partitions_are_taken_in_several_commits(stage, monkeypatch):
    """One commit for thousands of partitions would hold up all other writes."""
    monkeypatch.setattr(active_subscriptions, "PARTITIONS_PER_COMMIT", 3)
    await stage.topic("wide", 8)
    await stage.subscribe(topic="wide")
    worker = await stage.worker(topic="wide")
    for partition in range(8):
        await stage.publish(b"%d" % partition, topic="wide", partition=partition)
    assert sorted(values(await worker.take(8))) == [b"%d" % partition for partition in range(8)]
