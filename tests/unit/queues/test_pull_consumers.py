"""Consumers that pull: when they come and go, and what becomes of deliveries that were too late for a pull."""

import asyncio
from dataclasses import replace

import pytest

from millpond.model.errors import InvalidRequest, SubscriptionBusy, SubscriptionReplaced, UnknownConsumer
from millpond.queues import AckResult, PullConsumers, PullerName, QueueLimits, StartAt, SubscriptionStart
from millpond.records import Record
from millpond.testing import SimulatedClock, running_broker

ANNE, BOB = (PullerName("t", "s", name) for name in ("anne", "bob"))
LIMITS = QueueLimits()
SIZE = 8


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
async def broker(clock):
    async with running_broker(clock=clock) as running:
        await running.log.create_topic("t", 1, {})
        await running.queues.create("t", "s", {"backoff_ms": 0})
        yield running


@pytest.fixture
def pulling(broker):
    """One that goes over its consumers only when it is told to."""
    return PullConsumers(broker.queues, LIMITS)


async def offsets(pulling, name, wait_ms=0, **more):
    found = await pulling.pull(name, messages_max=100, wait_ms=wait_ms, **more)
    return {each.record.offset: each for each in found}


async def one_given_and_one_too_late(broker, pulling):
    """Anne has message 0; message 1 was delivered as well, but there was no room for it in the answer."""
    await broker.produce("t", b"x" * SIZE, b"y" * SIZE)
    given = await offsets(pulling, ANNE, bytes_max=SIZE + 1, wait_ms=20_000)
    assert list(given) == [0]
    assert (await broker.queues.describe("t", "s")).partitions[0].leased == 2
    return given[0].ack_id


def advance_time(broker, pulling, clock, milliseconds):
    clock.advance(milliseconds)
    for active in broker.queues.active(pulling._pullers[ANNE].attachment.subscription.id):
        for queue in active.queues.values():
            queue.wake()


async def test_what_came_too_late_is_given_by_the_next_pull_with_its_full_time(broker, pulling, clock):
    await one_given_and_one_too_late(broker, pulling)
    await offsets(pulling, BOB)
    advance_time(broker, pulling, clock, 20_000)
    assert list(await offsets(pulling, ANNE)) == [1]
    advance_time(broker, pulling, clock, 20_000)
    assert list(await offsets(pulling, BOB)) == [0], "the first one has run out, the late one has not"


async def test_what_ran_out_before_it_was_given_is_no_longer_the_consumers(broker, pulling, clock):
    await one_given_and_one_too_late(broker, pulling)
    advance_time(broker, pulling, clock, 31_000)
    assert list(await offsets(pulling, BOB, wait_ms=20_000)) == [0, 1]
    assert await offsets(pulling, ANNE) == {}


async def test_what_nobody_pulls_soon_is_given_to_others_and_not_charged(broker, pulling, clock):
    ack_id = await one_given_and_one_too_late(broker, pulling)
    clock.advance(LIMITS.pull_late_ms - 1)
    await pulling.sweep()
    assert await offsets(pulling, BOB) == {}
    clock.advance(1)
    await pulling.sweep()
    given = await offsets(pulling, BOB, wait_ms=20_000)
    assert [(offset, each.retry_count) for offset, each in given.items()] == [(1, 0)]
    assert await pulling.ack(ANNE, [ack_id]) == [AckResult.OK], "what it was given is still its own"
    assert await offsets(pulling, ANNE) == {}


async def test_one_that_is_not_heard_of_goes(broker, pulling, clock):
    await broker.produce("t", b"x")
    [given] = (await offsets(pulling, ANNE, wait_ms=20_000)).values()
    assert await pulling.ack(ANNE, [given.ack_id]) == [AckResult.OK]
    clock.advance(LIMITS.pull_idle_ms - 1)
    await pulling.sweep()
    assert await pulling.ack(ANNE, [given.ack_id]) == [AckResult.STALE]
    clock.advance(LIMITS.pull_idle_ms - 1)
    await pulling.sweep()
    assert await pulling.ack(ANNE, [given.ack_id]) == [AckResult.STALE], "the answer before was heard"
    clock.advance(LIMITS.pull_idle_ms)
    await pulling.sweep()
    with pytest.raises(UnknownConsumer, match="'anne'"):
        await pulling.ack(ANNE, [given.ack_id])
    assert (await broker.queues.describe("t", "s")).consumers == []


async def test_one_that_holds_something_stays_until_that_has_run_out(broker, pulling, clock):
    await broker.produce("t", b"x")
    [given] = (await offsets(pulling, ANNE, wait_ms=20_000)).values()
    await pulling.extend(ANNE, [given.ack_id], 100 * LIMITS.pull_idle_ms)
    clock.advance(9 * LIMITS.pull_idle_ms)
    await pulling.sweep()
    assert await pulling.ack(ANNE, [given.ack_id]) == [AckResult.OK]
    clock.advance(LIMITS.pull_idle_ms)
    await pulling.sweep()
    assert (await broker.queues.describe("t", "s")).consumers == []


async def test_what_was_revoked_is_not_held(broker, pulling, clock):
    await broker.queues.create("t", "keys", {"mode": "key_shared", "key_window": 3})
    carl = PullerName("t", "keys", "carl")
    await broker.produce("t", *[Record(value=b"x", key=b"k")] * 3)
    given = await offsets(pulling, carl, wait_ms=20_000)
    ids = [each.ack_id for each in given.values()]
    assert len(ids) == 3
    await pulling.extend(carl, ids[1:], 10 * LIMITS.pull_idle_ms)
    assert await pulling.nack(carl, ids[:1], 20 * LIMITS.pull_idle_ms) == [AckResult.OK]
    clock.advance(LIMITS.pull_idle_ms)
    await pulling.sweep()
    assert (await broker.queues.describe("t", "keys")).consumers == []


async def test_one_that_waits_is_not_idle(broker, pulling, clock):
    waiting = asyncio.create_task(offsets(pulling, ANNE, wait_ms=20_000))
    while ANNE not in pulling._pullers:
        await asyncio.sleep(0.01)
    clock.advance(2 * LIMITS.pull_idle_ms)
    await pulling.sweep()
    await broker.produce("t", b"x")
    assert list(await waiting) == [0]


async def test_what_is_not_used_is_not_granted_to_later(broker, pulling):
    assert await offsets(pulling, ANNE) == {}
    await broker.produce("t", b"x")
    assert list(await offsets(pulling, BOB, wait_ms=20_000)) == [0], "anne has no credit left"


async def test_bytes_that_are_not_used_are_not_granted_to_later_either(broker, pulling):
    assert await offsets(pulling, ANNE, bytes_max=1000) == {}
    await broker.produce("t", *[b"x" * SIZE] * 5)
    assert list(await offsets(pulling, ANNE, bytes_max=1, wait_ms=20_000)) == [0]
    assert (await broker.queues.describe("t", "s")).partitions[0].leased == 1


async def delivered_while_nobody_pulls(broker, pulling, count):
    """As if a pull had been given up at the wrong moment."""
    await offsets(pulling, ANNE)
    pulling._pullers[ANNE].attachment.grant(count)
    await broker.produce("t", *[b"x"] * count)
    while (await broker.queues.describe("t", "s")).partitions[0].leased < count:
        await asyncio.sleep(0.01)


async def test_the_next_pull_gives_no_more_than_it_was_asked_for(broker, pulling):
    await delivered_while_nobody_pulls(broker, pulling, 3)
    assert [each.record.offset for each in await pulling.pull(ANNE, messages_max=2)] == [0, 1]
    assert [each.record.offset for each in await pulling.pull(ANNE, messages_max=2)] == [2]


async def test_what_came_while_nobody_pulled_goes_to_others(broker, pulling, clock):
    await delivered_while_nobody_pulls(broker, pulling, 1)
    clock.advance(LIMITS.pull_late_ms)
    await pulling.sweep()
    given = await offsets(pulling, BOB, wait_ms=20_000)
    assert [each.retry_count for each in given.values()] == [0]


async def test_a_pull_that_is_given_up_takes_nothing(broker, pulling):
    waiting = asyncio.create_task(offsets(pulling, ANNE, wait_ms=20_000))
    while ANNE not in pulling._pullers:
        await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    await broker.produce("t", b"x")
    assert list(await offsets(pulling, BOB, wait_ms=20_000)) == [0]
    assert await offsets(pulling, ANNE) == {}, "and the next pull of anne is not refused"


async def test_one_that_was_replaced_hears_it_and_attaches_again(broker, pulling):
    waiting = asyncio.create_task(offsets(pulling, ANNE, wait_ms=20_000))
    while ANNE not in pulling._pullers:
        await asyncio.sleep(0.01)
    other = await broker.queues.attach(*ANNE)
    with pytest.raises(SubscriptionReplaced):
        await waiting
    await broker.produce("t", b"x")
    assert list(await offsets(pulling, ANNE, wait_ms=20_000)) == [0]
    assert other.ended is not None


async def test_there_is_a_limit_to_consumers_and_to_ids(broker):
    pulling = PullConsumers(broker.queues, replace(LIMITS, pullers_max=1, acks_per_request_max=2))
    await offsets(pulling, ANNE)
    await offsets(pulling, ANNE)
    with pytest.raises(SubscriptionBusy, match="1 consumers"):
        await offsets(pulling, BOB)
    with pytest.raises(InvalidRequest, match="3 ids"):
        await pulling.ack(ANNE, ["a", "b", "c"])


async def test_what_a_reset_made_worthless_is_not_given_back_either(broker, pulling, clock):
    await one_given_and_one_too_late(broker, pulling)
    await broker.queues.reset("t", "s", SubscriptionStart(StartAt.EARLIEST))
    given = await offsets(pulling, BOB, wait_ms=20_000)
    assert list(given) == [0, 1]
    clock.advance(LIMITS.pull_late_ms)
    await pulling.sweep()
    await offsets(pulling, ANNE)
    assert await pulling.ack(BOB, [given[1].ack_id]) == [AckResult.OK], "it is the second delivery once more"


async def test_what_a_reset_made_worthless_is_not_given(broker, pulling):
    await one_given_and_one_too_late(broker, pulling)
    await broker.queues.reset("t", "s", SubscriptionStart(StartAt.LATEST))
    assert await offsets(pulling, ANNE) == {}
    await broker.produce("t", b"new")
    assert list(await offsets(pulling, ANNE, wait_ms=20_000)) == [2]


async def test_a_consumer_that_pulls_and_never_answers_does_not_fill_the_memory(broker, pulling, clock):
    config = {"ack_timeout_ms": 1_000, "backoff_max_ms": 0, "attempts_max": 1_000}
    await broker.queues.alter("t", "s", config)
    await broker.produce("t", *[b"x"] * 50)
    given = 0
    while given < 3_000:
        given += len(await offsets(pulling, ANNE, wait_ms=20_000))
        advance_time(broker, pulling, clock, 1_000)
    assert len(pulling._pullers[ANNE].held) <= 2_100
