"""A partition that goes to another broker: what consumers answer meanwhile is saved, and they hear so."""

import asyncio

import pytest

from millpond.queues import AckResult, active_subscriptions


class Gate:
    """Writes to the catalog wait before it until they are let through."""

    def __init__(self, log):
        self._write, log.write = log.write, self._wait_and_write
        self._open = asyncio.Semaphore(0)
        self._arrived = asyncio.Semaphore(0)

    async def _wait_and_write(self, *arguments, **named):
        self._arrived.release()
        await self._open.acquire()
        return await self._write(*arguments, **named)

    async def until_one_waits(self):
        await self._arrived.acquire()

    def let_through(self, count=1):
        for _ in range(count):
            self._open.release()


@pytest.fixture
def patience(monkeypatch):
    """However slow the machine is."""
    monkeypatch.setattr(active_subscriptions, "FINAL_ACKS_S", 60.0)
    monkeypatch.setattr(active_subscriptions, "HANDOVER_SAVE_S", 60.0)


@pytest.mark.usefixtures("patience")
async def test_answers_that_come_while_others_are_saved_are_saved_too(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1", b"2", b"3", b"4")
    held = await worker.take(4)
    gate = Gate(stage.broker.log)
    answers = [asyncio.ensure_future(worker.ack(held[0]))]
    await gate.until_one_waits()
    going = asyncio.ensure_future(stage.broker.queues.prepare_handover([stage.topic_partition()]))
    answers.append(asyncio.ensure_future(worker.ack(held[1])))
    gate.let_through()
    await gate.until_one_waits()
    answers.append(asyncio.ensure_future(worker.ack(held[2])))
    gate.let_through(100)
    async with asyncio.timeout(60):
        assert await asyncio.gather(*answers) == [[AckResult.OK]] * 3
        await going
    assert await stage.floor() == 3


@pytest.mark.usefixtures("patience")
async def test_nobody_waits_longer_than_for_what_is_on_its_way(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1")
    held = await worker.take()
    gate = Gate(stage.broker.log)
    answer = asyncio.ensure_future(worker.ack(*held))
    await gate.until_one_waits()
    going = asyncio.ensure_future(stage.broker.queues.prepare_handover([stage.topic_partition()]))
    await asyncio.sleep(0)
    gate.let_through(100)
    async with asyncio.timeout(30):
        assert await answer == [AckResult.OK]
        await going


async def test_nothing_more_is_delivered(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.broker.queues.prepare_handover([stage.topic_partition()])
    await stage.publish(b"1")
    await worker.nothing()
    stage.broker.queues.end_handover([stage.topic_partition()])
    assert [each.value for each in await worker.take()] == [b"1"]
