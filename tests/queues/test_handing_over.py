"""A partition that goes to another broker: what consumers answer meanwhile is saved, and they hear so."""

import asyncio

from millpond.queues import Answer


async def test_answers_that_come_while_others_are_saved_are_saved_too(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(*(b"%d" % number for number in range(6)))
    held = await worker.take(6)
    first = asyncio.ensure_future(worker.ack(*held[:2]))
    await asyncio.sleep(0)
    going = asyncio.ensure_future(stage.broker.queues.let_go([stage.where()]))
    second = asyncio.ensure_future(worker.ack(*held[2:4]))
    assert await first == [Answer.OK, Answer.OK]
    assert await second == [Answer.OK, Answer.OK]
    await going
    assert await stage.floor() == 4


async def test_nothing_more_is_delivered(stage):
    await stage.subscribe()
    worker = await stage.worker()
    where = stage.where()
    await stage.broker.queues.let_go([where])
    await stage.publish(b"1")
    await worker.nothing()
    stage.broker.queues.keep([where])
    assert [each.value for each in await worker.take()] == [b"1"]
