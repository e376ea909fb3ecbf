"""Links of a subscriber to brokers: what comes over them, and how they end."""

import asyncio
from functools import partial

import pytest

from millpond import AsyncSubscriber, Outcome
from millpond.client import link, outbox
from millpond.model.errors import Defect, StoreUnavailable
from millpond.records import Record
from millpond.security import OPEN_ACCESS
from millpond.testing import running_broker

WAIT_SECONDS_MAX = 60


class Setting:
    def __init__(self, broker):
        self.broker = broker
        self.address = broker.listeners["grpc"]
        self.subscriber = partial(AsyncSubscriber, "t", "s", address=self.address)


@pytest.fixture
async def setting(tmp_path):
    async with running_broker(tmp_path, grpc=True) as broker:
        await broker.log.create_topic("t", 1, {})
        await broker.queues.create("t", "s", {"mode": "shared"})
        yield Setting(broker)


async def publish(setting, *values):
    await setting.broker.messages.produce("t", [Record(value) for value in values], 0, access=OPEN_ACCESS)


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


async def test_a_flush_reports_an_answer_that_was_given_when_the_link_was_gone(setting):
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
        await subscriber._update_links(set())
        await subscriber._update_links({setting.address})
        await until(lambda: former._has_ended)
        await until(lambda: any(link.attached for link in subscriber._links.values()))
        assert subscriber._links[setting.address] is not former
        await publish(setting, b"x")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert (await anext(subscriber)).value == b"x"
        assert await subscriber.flush() == []


async def hears_of_it_for_longer_than_silence_is_borne(stream, loop_time):
    """Time passes from heartbeat to heartbeat, each of which the broker answers."""
    silent_s_max = link.HEARTBEAT_S + stream._connections.attempt_s
    until_s = loop_time() + silent_s_max + link.HEARTBEAT_S
    while loop_time() < until_s:
        loop_time.advance(link.HEARTBEAT_S)
        now = loop_time()
        await until(lambda now=now: stream._last_received_at >= now)


async def test_a_partition_that_cannot_be_saved_neither_holds_up_others_nor_ends_its_stream(
    setting, monkeypatch, loop_time
):
    await setting.broker.log.add_partitions("t", 2)
    await setting.broker.queues.alter("t", "s", {"attempts_max": 1, "ack_timeout_ms": 600_000})
    for partition in (0, 1):
        records = [Record(b"%d" % number) for number in range(3)]
        await setting.broker.messages.produce("t", records, partition, access=OPEN_ACCESS)
    feed = setting.broker.queues._feed
    read = feed.read

    async def read_some(topic_partition, offset):
        if topic_partition.partition == 0:
            raise StoreUnavailable(reason="away")
        return await read(topic_partition, offset)

    async with setting.subscriber() as subscriber:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            held = [await anext(subscriber) for _ in range(6)]
        [stream] = subscriber._links.values()
        bad, good = ([each for each in held if each.partition == number] for number in (0, 1))
        monkeypatch.setattr(feed, "read", read_some)
        waiting = [each.nack() for each in bad]
        waiting.append(good[0].ack())  # it is sent with them, and answered with them
        await until(lambda: not stream.outbox._pending)
        loop_time.advance(outbox.LATE_S)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert await good[1].ack() is Outcome.OK
        await hears_of_it_for_longer_than_silence_is_borne(stream, loop_time)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert await good[2].ack() is Outcome.OK
        assert [*subscriber._links.values()] == [stream], "the link was not given up"
        monkeypatch.setattr(feed, "read", read)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert {await each for each in waiting} == {Outcome.OK}


async def test_an_unexpected_error_in_a_link_ends_iteration(setting, monkeypatch):
    async with setting.subscriber() as subscriber:
        await until(lambda: any(link.attached for link in subscriber._links.values()))
        [link] = subscriber._links.values()
        monkeypatch.setattr(link, "_on_deliveries", lambda _: 1 / 0)
        await publish(setting, b"x")
        with pytest.raises(Defect):
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await anext(subscriber)


async def test_an_unexpected_error_in_a_subscriber_ends_iteration(setting, monkeypatch):
    subscriber = setting.subscriber()

    async def owners():
        return 1 / 0

    monkeypatch.setattr(subscriber, "_owners", owners)
    async with subscriber, asyncio.timeout(WAIT_SECONDS_MAX):
        with pytest.raises(Defect, match="division by zero"):
            await anext(subscriber)
