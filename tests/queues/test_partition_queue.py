"""The queue of one partition: room of its consumers, reads that fail, and deliveries that are revoked meanwhile."""

import asyncio

import pytest
from tests.queues.conftest import gated, queue_of, values

from millpond.model.errors import StoreUnavailable
from millpond.queues import AckResult, StartAt, SubscriptionStart, active_subscriptions
from millpond.queues.dispatcher_results import QueueDelivery
from millpond.queues.feed import FeedChunk

OK = AckResult.OK
LATEST = SubscriptionStart(StartAt.LATEST)
NO_RETRY = {"backoff_ms": 600_000, "backoff_max_ms": 600_000}
"""A refused message does not come again while a test lasts."""


async def test_a_nack_is_answered_after_the_revocations_that_it_causes(stage, monkeypatch, gate):
    await stage.subscribe(mode="key_shared", key_window=4, ack_timeout_ms=600_000, **NO_RETRY)
    await stage.publish(b"1", b"2", b"3", key=b"k")
    worker = await stage.worker()
    held = await worker.take(3)
    gate.close(stage, monkeypatch)
    await stage.publish(b"other", key=b"q")
    await gate.entered.wait()
    assert await worker.nack(held[0]) == [AckResult.OK]
    await worker.nothing(0)
    assert worker.revoked == [held[1].ack_id, held[2].ack_id]
    gate.opened.set()
    assert [each.value for each in await worker.take()] == [b"other"]


async def test_what_is_revoked_while_it_is_read_is_not_delivered_and_costs_no_room(
    stage, monkeypatch, gate, eventually
):
    await stage.subscribe(mode="key_shared", key_window=4, ack_timeout_ms=600_000, **NO_RETRY)
    await stage.publish(b"1", b"2", key=b"k")
    worker = await stage.worker(grant=10)
    first, second = await worker.take(2)
    queue = queue_of(stage)
    token = queue.dispatcher._messages[second.offset].token
    queue.dispatcher.restore(QueueDelivery(second.offset, "worker", 0, token))
    gate.close(stage, monkeypatch)
    queue.wake()
    await gate.entered.wait()
    assert worker.attachment.consumer_credit.messages == 8, "the second is on its way again, and must be read"
    assert await worker.nack(first) == [AckResult.OK]
    gate.opened.set()

    async def has_room():
        return worker.attachment.consumer_credit.messages == 9

    await eventually(has_room)
    await worker.nothing(0)
    assert len(worker.revoked) == 1


def nothing_is_there(topic_partition, offset):
    return FeedChunk((), offset + 1, 0)


def store_is_away(*_):
    raise StoreUnavailable(reason="away")


@pytest.mark.parametrize(
    "config", [{"mode": "exclusive"}, {"mode": "multicast"}, {"mode": "key_shared", "key_window": 8}]
)
@pytest.mark.parametrize(("found", "left"), [(store_is_away, b"123"), (nothing_is_there, b"23")])
async def test_nothing_follows_a_message_of_its_key_that_could_not_be_read(
    stage, monkeypatch, config, found, left
):
    await stage.subscribe(ack_timeout_ms=60_000, **config)
    await stage.publish(b"1", b"2", b"3", key=b"k")
    worker = await stage.worker(grant=1)
    [first] = await worker.take()
    reads = []

    async def read(*given):
        reads.append(given)
        return found(*given)

    monkeypatch.setattr(stage.broker.queues._feed, "read", read)
    assert await worker.nack(first, delay_ms=0) == [AckResult.OK]
    worker.grant(3)
    if found is store_is_away:
        await worker.nothing(0.3)
        assert worker.attachment.consumer_credit.messages == 3
    while not reads:
        await stage.settle()
    monkeypatch.undo()
    held = await worker.take(len(left))
    assert b"".join(each.value for each in held) == left, "each once, and in order"
    assert worker.attachment.consumer_credit.messages == 3 - len(left)
    assert worker.revoked == []
    assert await worker.ack(*held) == [AckResult.OK] * len(left)


@pytest.mark.parametrize("size", [None, 1_000_000])
async def test_a_partition_that_closes_while_it_reads_returns_the_room(
    stage, monkeypatch, gate, eventually, size
):
    await stage.subscribe(ack_timeout_ms=60_000)
    await stage.publish(b"again")
    worker = await stage.worker(grant=None)
    worker.grant(10, size)
    [held] = await worker.take()
    left = worker.attachment.consumer_credit.bytes
    gate.close(stage, monkeypatch)
    await worker.nack(held, delay_ms=0)
    await gate.entered.wait()
    await stage.broker.queues.reset("orders", "billing", LATEST)
    gate.opened.set()

    async def has_room():
        return (worker.attachment.consumer_credit.messages, worker.attachment.consumer_credit.bytes) == (
            9,
            left,
        )

    await eventually(has_room)
    await stage.publish(b"new")
    assert [each.value for each in await worker.take()] == [b"new"]


async def test_a_consumer_that_answers_too_late_is_no_longer_suspended(stage):
    await stage.subscribe(mode="key_shared", ack_timeout_ms=600_000, backoff_ms=0, attempts_max=100)
    slow = await stage.worker("slow")
    await stage.publish(b"1", key=b"k")
    [held] = await slow.take()
    other = await stage.worker("other")
    await stage.advance_time(600)
    assert values(await other.take()) == [b"1"]
    consumers = {each.name: each for each in stage.dispatcher().consumers}
    assert consumers["slow"].suspended
    assert await slow.ack(held) == [AckResult.STALE]
    assert not consumers["slow"].suspended


async def test_room_taken_for_messages_that_could_not_be_read_is_returned(stage, monkeypatch):
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


async def test_room_taken_for_a_message_that_is_gone_is_returned(stage, monkeypatch):
    await stage.subscribe(backoff_ms=0, ack_timeout_ms=60_000)
    worker = await stage.worker(grant=2)
    await stage.publish(b"1")
    held = await worker.take()

    async def read(_, offset):
        return FeedChunk((), offset + 1, 0)

    monkeypatch.setattr(stage.broker.queues._feed, "read", read)
    assert await worker.nack(*held) == [OK]
    await worker.nothing()
    monkeypatch.undo()
    await stage.publish(b"2")
    assert values(await worker.take()) == [b"2"]


async def test_room_that_one_partition_returns_is_free_for_the_others(stage, monkeypatch):
    """At once: the next regular look at the subscription, which would help, is far away."""
    monkeypatch.setattr(active_subscriptions, "CHECK_EVERY_S", 600)
    await stage.broker.log.add_partitions("orders", 2)
    await stage.subscribe(backoff_ms=0, ack_timeout_ms=60_000, attempts_max=100)
    worker = await stage.worker(grant=1)
    await stage.publish(b"bad", partition=0)
    held = await worker.take()
    feed = stage.broker.queues._feed
    read = feed.read

    stage.broker.queues._active_subscriptions.check_now()
    await stage.settle()
    may_fail = asyncio.Event()

    async def read_some(topic_partition, offset):
        if topic_partition.partition == 0:
            await may_fail.wait()  # the other partition finds no room meanwhile
            raise StoreUnavailable(reason="away")
        return await read(topic_partition, offset)

    monkeypatch.setattr(feed, "read", read_some)
    assert await worker.nack(*held) == [OK]
    worker.grant(1)
    await stage.settle()
    await stage.publish(b"good", partition=1)
    await worker.nothing()
    may_fail.set()
    assert values(await worker.take()) == [b"good"]


async def test_what_was_read_for_a_consumer_that_left_is_not_delivered_to_one_of_the_same_name(
    stage, monkeypatch
):
    await stage.subscribe(backoff_ms=0, ack_timeout_ms=60_000, attempts_max=100)
    worker = await stage.worker(grant=2)
    await stage.publish(b"1")
    held = await worker.take()
    feed = stage.broker.queues._feed
    waiting, entered, opened = gated(feed.read)
    monkeypatch.setattr(feed, "read", waiting)
    assert await worker.nack(*held) == [OK]
    await entered.wait()
    second = await stage.worker(grant=1)
    opened.set()
    [again] = await second.take()
    assert await second.ack(again) == [OK]
