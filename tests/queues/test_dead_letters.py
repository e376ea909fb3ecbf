"""Dead letters through a whole broker: there once, moved when they can be, brought back once, and nobody held up."""

import asyncio
import dataclasses
import struct

import pytest

from millpond.model.errors import (
    CorruptObject,
    InvalidSubscription,
    InvalidTopicName,
    OutcomeUnknown,
    StoreUnavailable,
)
from millpond.queues import AckResult
from millpond.queues.addressing import Addressing
from millpond.queues.deadletters import default_topic
from millpond.queues.redriving import redrive
from millpond.records import Record, build_batch
from millpond.records.batch import seal

OK = AckResult.OK
DEAD = "orders.billing.dead"
BASE_TIMESTAMP_START = 27


def values(held):
    return [each.value for each in held]


def test_no_two_subscriptions_share_a_topic_by_default():
    names = ["a", "a.b", "b", "b.c", "c", "a.b.c", "dead", "1", "a.dead", "b.c.dead3", "b.dead", "dead.b"]
    topics = [default_topic(topic, name) for topic in names for name in names]
    assert len(set(topics)) == len(topics)
    assert (default_topic("orders", "a.b"), default_topic("orders.a", "b")) == (
        "orders.a.b.dead3",
        "orders.a.b.dead",
    )


async def test_a_message_that_failed_as_often_as_it_may_becomes_a_dead_letter_once(stage, eventually):
    await stage.subscribe(attempts_max=2, backoff_ms=0)
    worker = await stage.worker()
    await stage.publish(b"bad", key=b"k", headers=(("color", b"red"), ("millpond-attempts", b"999")))
    for reason in ("“no” such\ncolor\x1b", ""):
        assert await worker.nack(*await worker.take(), reason=reason) == [OK]

    async def is_there():
        return stage.broker.log.topics.knows("orders.billing.dead") and await stage.values(
            "orders.billing.dead"
        )

    await eventually(is_there)
    [letter] = await stage.broker.read("orders.billing.dead")
    assert (letter.value, letter.key) == (b"bad", b"k")
    assert letter.headers == (
        ("color", b"red"),
        ("millpond-source-topic", b"orders"),
        ("millpond-source-partition", b"0"),
        ("millpond-source-offset", b"0"),
        ("millpond-subscription", b"billing"),
        ("millpond-attempts", b"2"),
        ("millpond-last-reason", b"no reason given"),
        ("millpond-reasons", '["“no” such color", "no reason given"]'.encode()),
    )
    assert await stage.floor() == 1
    await worker.nothing()
    assert await stage.values("orders.billing.dead") == [b"bad"]


async def test_dead_letters_wait_while_their_topic_cannot_take_them(stage, eventually):
    await stage.topic("dead", **{"max.message.bytes": "200"})
    await stage.subscribe(attempts_max=1, dead_letter_topic="dead")
    worker = await stage.worker()
    await stage.publish(bytes(500))
    assert await worker.nack(*await worker.take()) == [OK]
    await stage.publish(b"next")
    assert values(await worker.take()) == [b"next"]
    assert await stage.values("dead") == []
    assert (await stage.broker.queues.describe("orders", "billing")).dead_letters_waiting == 1
    await stage.broker.log.alter_config("dead", {"max.message.bytes": "100000"})
    stage.broker.queues.dead_letters.wake()

    async def arrived():
        return await stage.values("dead") == [bytes(500)]

    await eventually(arrived)
    assert (await stage.broker.queues.describe("orders", "billing")).dead_letters_waiting == 0


async def test_dead_letters_go_back_once_and_only_to_their_own(stage, eventually):
    await stage.subscribe(attempts_max=1)
    await stage.subscribe("shipping")
    worker, other = await stage.worker(), await stage.worker(name="shipping")
    await stage.publish(b"bad")
    await worker.nack(*await worker.take())
    assert await other.ack(*await other.take()) == [OK]

    async def redriven():
        return await stage.broker.queues.redrive("orders", "billing") == 1

    await eventually(redriven)
    [held] = await worker.take()
    assert (held.value, held.attempts) == (b"bad", 0)
    await other.nothing()
    assert await worker.ack(held) == [OK]
    assert await stage.broker.queues.redrive("orders", "billing") == 0


async def test_a_producer_cannot_address_a_message_to_one_subscription(stage, eventually):
    """Nor by what it saw on a message that the broker has addressed: the others would never get its own."""
    for name in ("billing", "shipping"):
        await stage.subscribe(name, attempts_max=1)
    billing, shipping = await stage.worker(), await stage.worker(name="shipping")
    await stage.publish(b"bad")
    await billing.nack(*await billing.take())
    assert await shipping.ack(*await shipping.take()) == [OK]

    async def redriven():
        return await stage.broker.queues.redrive("orders", "billing") == 1

    await eventually(redriven)
    [sent_back] = await billing.take()
    [seen] = [each for each in await stage.broker.read("orders") if each.offset == sent_back.offset]
    copied = dict(seen.headers)["millpond-redrive-to"]
    for forged in (b"nobody", b"shipping", b"", b"billing:", b"\xff:" + bytes(32), b":" * 200, copied):
        await stage.publish(b"to all", headers=(("millpond-redrive-to", forged),))
        for worker in (billing, shipping):
            [held] = await worker.take()
            assert held.value == b"to all"
            assert await worker.ack(held) == [OK]


async def test_letters_that_somebody_else_wrote_stop_no_redrive(stage):
    await stage.subscribe()
    await stage.topic("orders.billing.dead")
    own = (("millpond-subscription", b"billing"), ("millpond-source-topic", b"orders"))
    for number in (b"9" * 5_000, b"-1", b"one", b"7", b"\xb2"):
        headers = (*own, ("millpond-source-partition", number))
        await stage.publish(number, topic="orders.billing.dead", headers=headers)
    worker = await stage.worker()
    assert await stage.broker.queues.redrive("orders", "billing") == 5
    assert len(await worker.take(5)) == 5


async def test_dead_letters_that_wait_when_every_topic_is_gone_end_nothing(stage, eventually):
    await stage.topic("dead", **{"max.message.bytes": "200"})
    await stage.subscribe(attempts_max=1, dead_letter_topic="dead")
    worker = await stage.worker()
    await stage.publish(bytes(500))
    assert await worker.nack(*await worker.take()) == [OK]
    for name in ("dead", "orders"):
        await stage.broker.log.delete_topic(name)
    stage.broker.queues.dead_letters.wake()
    await stage.assert_running()

    async def arrived():
        return stage.broker.log.topics.knows("dead") and await stage.values("dead") == [bytes(500)]

    await eventually(arrived)


@pytest.mark.parametrize("error", [StoreUnavailable(reason="away"), CorruptObject(key="k", reason="damaged")])
async def test_a_dead_letter_that_cannot_be_read_holds_up_no_other_partition(stage, monkeypatch, error):
    await stage.broker.log.add_partitions("orders", 2)
    await stage.subscribe(attempts_max=1, ack_timeout_ms=60_000)
    worker = await stage.worker()
    for partition in (0, 1):
        await stage.publish(b"1", partition=partition)
    bad, good = sorted(await worker.take(2), key=lambda each: each.partition)
    feed = stage.broker.queues._feed
    read = feed.read

    async def read_some(topic_partition, offset):
        if topic_partition.partition == 0:
            raise error.copy()
        return await read(topic_partition, offset)

    monkeypatch.setattr(feed, "read", read_some)
    async with asyncio.timeout(5):
        nacking = asyncio.create_task(worker.nack(bad))
        await asyncio.sleep(0)
        assert await worker.ack(good) == [OK]
    monkeypatch.undo()
    await nacking


async def test_a_dead_letter_is_there_once_though_nobody_could_tell_whether_it_was_saved(stage, monkeypatch):
    await stage.subscribe(attempts_max=1)
    worker = await stage.worker()
    await stage.publish(b"bad")
    held = await worker.take()
    log, letters = stage.broker.log, stage.broker.queues.dead_letters
    write, lost = log.write, []

    async def write_and_lose(operation, *given, **named):
        result = await write(operation, *given, **named)
        if not lost and await log.read(lambda tx: tx.rows("SELECT count(*) FROM dead_letters")) == [(1,)]:
            lost.append(result)
            await letters.move_all()  # as another broker may do, or this one by its clock
            raise OutcomeUnknown
        return result

    monkeypatch.setattr(log, "write", write_and_lose)
    await worker.nack(*held)
    assert lost
    await worker.nothing(0.5)
    await letters.move_all()
    assert await stage.values(DEAD) == [b"bad"]


def batch_with_time(timestamp, now_ms):
    """Two messages, of which the second has a time that its batch does not tell: the header looks current."""
    first, second = (0, timestamp) if timestamp > 0 else (-timestamp, 0)
    records = [Record(b"1", timestamp=first), Record(b"2", timestamp=second)]
    batch = bytearray(build_batch(records))
    struct.pack_into(">qq", batch, BASE_TIMESTAMP_START, 0, now_ms)
    seal(batch, 0, len(batch))
    return batch


@pytest.mark.parametrize("timestamp", [-2, -(10**15), 10**15, 2**63 - 2])
async def test_a_message_with_a_time_that_cannot_be_becomes_a_dead_letter_all_the_same(
    stage, eventually, timestamp
):
    await stage.subscribe(attempts_max=1)
    worker = await stage.worker()
    began = stage.broker.queues.now()
    await stage.broker.log.append(stage.topic_partition(), batch_with_time(timestamp, began))
    assert await worker.nack(*await worker.take(2)) == [OK, OK]

    async def arrived():
        return stage.broker.log.topics.knows(DEAD) and len(await stage.broker.read(DEAD)) == 2

    await eventually(arrived)
    first, second = await stage.broker.read(DEAD)
    assert first.timestamp == 0
    assert began <= second.timestamp <= stage.broker.queues.now()
    assert worker.lost == []


async def test_dead_letters_that_their_topic_refuses_hold_up_no_others(stage, eventually):
    letters = stage.broker.queues.dead_letters
    letters._limits = dataclasses.replace(letters._limits, dead_letters_per_step=2)
    await stage.topic("small", **{"max.message.bytes": "500"})
    await stage.subscribe("refused", attempts_max=1, dead_letter_topic="small")
    await stage.subscribe("taken", attempts_max=1)
    await stage.publish(*[bytes(1_000)] * 5, b"fits")
    for name in ("refused", "taken"):
        worker = await stage.worker(name=name)
        held = await worker.take(6)
        assert await worker.nack(*held) == [OK] * 6

    async def arrived():
        known = stage.broker.log.topics.knows("orders.taken.dead")
        return (
            known
            and len(await stage.values("orders.taken.dead")) == 6
            and await stage.values("small") == [b"fits"]
        )

    await eventually(arrived)
    assert (await stage.broker.queues.describe("orders", "refused")).dead_letters_waiting == 5


async def test_many_large_dead_letters_are_moved_without_being_held_all_at_once(stage, eventually):
    await stage.subscribe(attempts_max=1, ack_timeout_ms=60_000)
    worker = await stage.worker()
    for number in range(12):
        await stage.publish(bytes([number]) * 900_000)
    held = await worker.take(12)
    sizes, append = [], stage.broker.log.append_jointly

    async def measure(appends, joint_operation):
        sizes.append(sum(map(len, appends.values())))
        return await append(appends, joint_operation)

    stage.broker.log.append_jointly = measure
    assert await worker.nack(*held) == [OK] * 12

    async def arrived():
        known = stage.broker.log.topics.knows(DEAD)
        return known and stage.broker.log.partition(stage.topic_partition(DEAD)).end_offset == 12

    await eventually(arrived)
    assert max(sizes) < 6_000_000


async def bury(stage, *values_, name="billing", count=None):
    """Make dead letters of these messages."""
    worker = await stage.worker(name=name)
    await stage.publish(*values_)
    assert await worker.nack(*await worker.take(len(values_))) == [OK] * len(values_)
    await stage.broker.queues.dead_letters.move_all()
    return worker


async def test_two_redrives_at_a_time_send_nothing_back_twice(stage):
    subscription = await stage.subscribe(attempts_max=1)
    worker = await bury(stage, b"bad")
    queues, topic = stage.broker.queues, stage.broker.log.topics.named("orders")
    addressing = Addressing(b"secret", topic.id)
    both = [redrive(stage.broker.log, queues._feed, subscription, topic, addressing, 0, 1) for _ in range(2)]
    results = await asyncio.gather(*both, return_exceptions=True)
    assert sum(each for each in results if isinstance(each, int)) == 1
    assert values(await worker.take()) == [b"bad"]
    await worker.nothing()
    assert await stage.values("orders") == [b"bad", b"bad"]


async def test_a_redrive_begins_anew_with_a_dead_letter_topic_that_was_made_anew(stage):
    await stage.subscribe(attempts_max=1)
    worker = await bury(stage, b"1")
    queues = stage.broker.queues
    assert await queues.redrive("orders", "billing") == 1
    assert await worker.ack(*await worker.take()) == [OK]
    await stage.broker.log.delete_topic(DEAD)
    await bury(stage, b"2")
    assert await queues.redrive("orders", "billing") == 1


async def test_a_redrive_of_several_letters_is_not_too_large_for_their_topic(stage):
    await stage.broker.log.alter_config("orders", {"max.message.bytes": "1000"})
    await stage.subscribe(attempts_max=1)
    worker = await stage.worker()
    for number in range(5):
        await stage.publish(bytes([number]) * 700)
    assert await worker.nack(*await worker.take(5)) == [OK] * 5
    await stage.broker.queues.dead_letters.move_all()
    assert await stage.broker.queues.redrive("orders", "billing") == 5
    assert values(await worker.take(5)) == [bytes([number]) * 700 for number in range(5)]


async def test_a_dead_letter_topic_that_cannot_be_is_refused_at_once(stage):
    with pytest.raises(InvalidTopicName):
        await stage.subscribe("x" * 200, dead_letter_topic="no/topic")
    with pytest.raises(InvalidSubscription, match="its own"):
        await stage.subscribe(dead_letter_topic="orders")
    await stage.subscribe()
    with pytest.raises(InvalidSubscription, match="its own"):
        await stage.broker.queues.alter("orders", "billing", {"dead_letter_topic": "orders"})
    long = "t" * 240
    await stage.topic(long)
    with pytest.raises(InvalidTopicName):
        await stage.subscribe(topic=long)
    await stage.subscribe(topic=long, on_exhausted="drop")
