"""The queue's faces and its client under suspicion: room and deliveries that are lost, answers that come early."""

import asyncio
import threading
from functools import partial

import pytest
from tests.unit.client.deliveries import NoLink, delivery

from millpond import AsyncSubscriber, Outcome
from millpond.client import link, outbox
from millpond.client.inbox import Inbox, Order
from millpond.model.errors import Defect, StoreUnavailable
from millpond.model.payloads import new_payload_id
from millpond.queues import Answer, Start, StartAt
from millpond.queues.feed import Piece
from millpond.queues.outcomes import Delivery
from millpond.records import Record
from millpond.testing import running_broker

WAIT_SECONDS_MAX = 30
LATEST = Start(StartAt.LATEST)


def queue_of(stage, partition=0):
    [active] = stage.broker.queues._at_work.all()
    return active.queues[partition]


class Gate:
    """Reading from the log waits at it."""

    def __init__(self):
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

    def close(self, stage, monkeypatch):
        feed = stage.broker.queues._feed
        self._read = feed.read
        monkeypatch.setattr(feed, "read", self._gated)

    async def _gated(self, *given):
        self.entered.set()
        await self.opened.wait()
        return await self._read(*given)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.opened.set()


# -- the broker -------------------------------------------------------------------------------------------------------


async def test_what_a_nack_revokes_is_told_before_the_nack_is_answered(stage, monkeypatch, gate):
    await stage.subscribe(mode="key_shared", key_window=4, ack_timeout_ms=60_000, backoff_ms=60_000)
    await stage.publish(b"1", b"2", b"3", key=b"k")
    worker = await stage.worker()
    held = await worker.take(3)
    gate.close(stage, monkeypatch)
    await stage.publish(b"other", key=b"q")
    await gate.entered.wait()
    assert await worker.nack(held[0]) == [Answer.OK]
    await worker.nothing(0)
    assert worker.revoked == [held[1].ack_id, held[2].ack_id]
    gate.opened.set()
    assert [each.value for each in await worker.take()] == [b"other"]


async def test_what_is_revoked_while_it_is_read_is_not_delivered_and_costs_no_room(
    stage, monkeypatch, gate, eventually
):
    await stage.subscribe(mode="key_shared", key_window=4, ack_timeout_ms=60_000, backoff_ms=60_000)
    await stage.publish(b"1", b"2", key=b"k")
    worker = await stage.worker(grant=10)
    first, second = await worker.take(2)
    queue = queue_of(stage)
    token = queue.dispatcher._messages[second.offset].token
    queue.dispatcher.give_back(Delivery(second.offset, "worker", 0, token))
    gate.close(stage, monkeypatch)
    queue.wake()
    await gate.entered.wait()
    assert worker.attachment.purse.messages == 8, "the second is on its way again, and must be read"
    assert await worker.nack(first) == [Answer.OK]
    gate.opened.set()

    async def has_room():
        return worker.attachment.purse.messages == 9

    await eventually(has_room)
    await worker.nothing(0)
    assert len(worker.revoked) == 1


def nothing_is_there(where, offset):
    return Piece((), offset + 1, 0)


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
    assert await worker.nack(first, delay_ms=0) == [Answer.OK]
    worker.grant(3)
    if found is store_is_away:
        await worker.nothing(0.3)
        assert worker.attachment.purse.messages == 3
    await until(lambda: reads)
    monkeypatch.undo()
    held = await worker.take(len(left))
    assert b"".join(each.value for each in held) == left, "each once, and in order"
    assert worker.attachment.purse.messages == 3 - len(left)
    assert worker.revoked == []
    assert await worker.ack(*held) == [Answer.OK] * len(left)


@pytest.mark.parametrize("size", [None, 1_000_000])
async def test_a_partition_that_closes_while_it_reads_gives_the_room_back(
    stage, monkeypatch, gate, eventually, size
):
    await stage.subscribe(ack_timeout_ms=60_000)
    await stage.publish(b"again")
    worker = await stage.worker(grant=None)
    worker.grant(10, size)
    [held] = await worker.take()
    left = worker.attachment.purse.bytes
    gate.close(stage, monkeypatch)
    await worker.nack(held, delay_ms=0)
    await gate.entered.wait()
    await stage.broker.queues.reset("orders", "billing", LATEST)
    gate.opened.set()

    async def has_room():
        return (worker.attachment.purse.messages, worker.attachment.purse.bytes) == (9, left)

    await eventually(has_room)
    await stage.publish(b"new")
    assert [each.value for each in await worker.take()] == [b"new"]


async def test_a_consumer_that_answers_too_late_has_been_heard_of(stage):
    await stage.subscribe(mode="key_shared", ack_timeout_ms=1_000, backoff_ms=0, attempts_max=100)
    slow = await stage.worker("slow")
    await stage.publish(b"1", key=b"k")
    [held] = await slow.take()
    other = await stage.worker("other")
    [again] = await other.take()
    assert await other.extend(again, by_ms=60_000) == [Answer.OK]
    consumers = {each.name: each for each in stage.dispatcher().consumers}
    assert consumers["slow"].suspended
    assert await slow.ack(held) == [Answer.STALE]
    assert not consumers["slow"].suspended


async def test_a_body_counts_as_long_as_a_thread_has_it_though_its_sender_has_gone(
    stage, monkeypatch, eventually
):
    await stage.topic("films", payload="reference")
    broker, opened, entered = stage.broker, threading.Event(), threading.Event()
    put = broker.store.put

    def slowly(key, parts):
        entered.set()
        opened.wait()
        put(key, parts)

    monkeypatch.setattr(broker.payloads._store, "put", slowly)
    payload = str(new_payload_id(broker.clock.now_ms()))
    storing = asyncio.create_task(broker.payloads.store("films", payload, _chunks(b"body")))
    try:
        await asyncio.to_thread(entered.wait)
        storing.cancel()
        await asyncio.wait([storing])
        assert broker.payloads.held_bytes == 4
    finally:
        opened.set()

    async def is_free():
        return broker.payloads.held_bytes == 0

    await eventually(is_free)


async def _chunks(*parts):
    for part in parts:
        yield part


# -- the client -------------------------------------------------------------------------------------------------------


class Setting:
    def __init__(self, broker):
        self.broker = broker
        self.address = broker.listeners["grpc"]
        self.subscriber = partial(AsyncSubscriber, self.address, "t", "s")


@pytest.fixture
async def setting(tmp_path):
    async with running_broker(tmp_path, grpc=True) as broker:
        await broker.log.create_topic("t", 1, {})
        await broker.queues.create("t", "s", {"mode": "shared"})
        yield Setting(broker)


async def publish(setting, *values):
    await setting.broker.messages.produce("t", [Record(value) for value in values], 0)


async def until(is_true):
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not is_true():
            await asyncio.sleep(0.01)


async def test_no_delivery_is_lost_between_two_looks_that_do_not_wait(setting):
    await publish(setting, *[b"%d" % number for number in range(350)])
    async with setting.subscriber() as subscriber:
        await until(lambda: len(subscriber._inbox._live) == 350)
        taken = [await subscriber.receive(0) for _ in range(350)]
        assert [each and each.number for each in taken] == list(range(1, 351))


async def test_a_flush_tells_of_an_answer_that_was_given_when_the_link_was_gone(setting):
    await publish(setting, b"x")
    async with setting.subscriber(consumer="twin") as subscriber:
        taken = await anext(subscriber)
        async with setting.subscriber(consumer="twin"):
            await until(lambda: subscriber._inbox.closed and not subscriber._links)
            taken.ack()
            assert await subscriber.flush() == [(taken, Outcome.LOST)]


async def test_a_broker_that_owns_again_what_it_has_just_lost_gets_one_link(setting):
    async with setting.subscriber() as subscriber:
        await until(lambda: any(link.attached for link in subscriber._links.values()))
        [former] = subscriber._links.values()
        await subscriber._keep_up(set())
        await subscriber._keep_up({setting.address})
        await until(lambda: former._ended)
        await until(lambda: any(link.attached for link in subscriber._links.values()))
        assert subscriber._links[setting.address] is not former
        await publish(setting, b"x")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert (await anext(subscriber)).value == b"x"
        assert await subscriber.flush() == []


async def test_a_partition_that_cannot_be_saved_neither_holds_up_others_nor_ends_its_stream(
    setting, monkeypatch
):
    monkeypatch.setattr(link, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(outbox, "LATE_S", 0.2)
    await setting.broker.log.add_partitions("t", 2)
    await setting.broker.queues.alter("t", "s", {"attempts_max": 1, "ack_timeout_ms": 60_000})
    for partition in (0, 1):
        records = [Record(b"%d" % number) for number in range(3)]
        await setting.broker.messages.produce("t", records, partition)
    feed = setting.broker.queues._feed
    read = feed.read

    async def read_some(where, offset):
        if where.partition == 0:
            raise StoreUnavailable(reason="away")
        return await read(where, offset)

    async with setting.subscriber(timeout=6) as subscriber, asyncio.timeout(WAIT_SECONDS_MAX):
        held = [await anext(subscriber) for _ in range(6)]
        [stream] = subscriber._links.values()
        bad, good = ([each for each in held if each.partition == number] for number in (0, 1))
        monkeypatch.setattr(feed, "read", read_some)
        waiting = [each.nack() for each in bad]
        waiting.append(good[0].ack())  # it goes with them, and is told with them
        await until(lambda: not stream.outbox._pending)
        assert await good[1].ack() is Outcome.OK
        await asyncio.sleep(0.2 + stream._connections.attempt_s + 0.5)  # longer than silence is borne
        assert await good[2].ack() is Outcome.OK
        assert [*subscriber._links.values()] == [stream], "it was not given up"
        monkeypatch.setattr(feed, "read", read)
        assert {await each for each in waiting} == {Outcome.OK}


async def test_a_link_that_ends_in_a_way_nobody_foresaw_ends_iteration(setting, monkeypatch):
    async with setting.subscriber() as subscriber:
        await until(lambda: any(link.attached for link in subscriber._links.values()))
        [link] = subscriber._links.values()
        monkeypatch.setattr(link, "_arrive", lambda _: 1 / 0)
        await publish(setting, b"x")
        with pytest.raises(Defect):
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await anext(subscriber)


async def test_a_subscriber_that_fails_in_a_way_nobody_foresaw_ends_iteration(setting, monkeypatch):
    subscriber = setting.subscriber()

    async def owners():
        return 1 / 0

    monkeypatch.setattr(subscriber, "_owners", owners)
    async with subscriber, asyncio.timeout(WAIT_SECONDS_MAX):
        with pytest.raises(Defect, match="division by zero"):
            await anext(subscriber)


def test_whoever_waits_hears_of_what_was_held_until_others_were_taken():
    let_go, link = [], NoLink()
    inbox = Inbox(lambda _: None, lambda: 0.0, lambda: let_go.append(True))
    inbox.order = Order.KEY
    inbox.arrive(0, 1, [delivery(link, number, b"k") for number in (1, 2, 3)])
    refused = inbox.take()
    inbox.refuse(refused)
    assert not inbox.claim(inbox.look()), "it is held, whatever the window was"
    third = inbox.look()
    inbox.release(refused)
    assert let_go == [True]
    second = inbox.look()
    assert not inbox.claim(third), "it does not overtake the second"
    assert inbox.claim(second)
    assert let_go == [True, True]
    assert inbox.claim(inbox.look())
