"""What subscriptions count."""

import asyncio

import pytest

from millpond.queues import PullerName
from millpond.records import Record
from millpond.testing import SimulatedClock, running_broker

ANNE = PullerName("t", "s", "anne")


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
async def broker(clock):
    async with running_broker(clock=clock) as running:
        await running.log.create_topic("t", 1, {})
        yield running


def counted(broker, name, **labels):
    return broker.metrics.registry.get_sample_value(f"millpond_queue_{name}", labels)


async def pull(broker):
    return await broker.pulling.pull(ANNE, messages_max=100, wait_ms=20_000)


def ids(pulled):
    return [each.ack_id for each in pulled]


async def test_deliveries_and_how_they_ended(broker, clock):
    await broker.queues.create("t", "s", {"backoff_ms": 0, "attempts_max": 2})
    await broker.produce("t", b"a", b"b", b"c")
    first = await pull(broker)
    assert (counted(broker, "deliveries_total"), counted(broker, "leased")) == (3, 3)
    assert counted(broker, "consumers") == 1
    await broker.pulling.ack(ANNE, ids(first[:1]))
    await broker.pulling.nack(ANNE, ids(first[1:2]))
    await broker.pulling.nack(ANNE, ids(first[1:2]))
    assert counted(broker, "failures_total", how="nack") == 1, "the second one was stale"
    clock.advance(31_000)
    again = await pull(broker)
    while len(again) < 2:
        again += await pull(broker)
    assert counted(broker, "failures_total", how="timeout") == 1
    assert counted(broker, "deliveries_total") == 5
    await broker.pulling.nack(ANNE, ids(again))
    assert counted(broker, "settled_total", how="acked") == 1
    assert counted(broker, "settled_total", how="dead") == 2
    assert counted(broker, "settled_total", how="dropped") == 0
    assert counted(broker, "saves_total") >= 3
    assert counted(broker, "leased") == 0


async def test_messages_taken_back_for_an_earlier_one_of_their_key(broker):
    await broker.queues.create("t", "s", {"mode": "key_shared", "key_window": 3, "on_exhausted": "drop"})
    await broker.produce("t", *[Record(value=b"x", key=b"k")] * 3)
    await broker.pulling.nack(ANNE, ids(await pull(broker))[:1])
    while counted(broker, "revoked_total") < 2:
        await asyncio.sleep(0.01)
    assert counted(broker, "failures_total", how="nack") == 1
    assert counted(broker, "failures_total", how="timeout") == 0


async def test_messages_that_were_gone_before_they_were_done_with(broker):
    await broker.queues.create("t", "s", {})
    await broker.produce("t", b"a", b"b", b"c", b"d")
    await broker.pulling.pull(ANNE, messages_max=1, wait_ms=20_000)
    await broker.log.delete_records(broker.log.topics.partition("t", 0), 3)
    assert [each.record.offset for each in await pull(broker)] == [3]
    assert counted(broker, "voided_total") == 3
