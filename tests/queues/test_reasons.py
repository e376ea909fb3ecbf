"""Why messages fail, through a whole broker: listed while it works, after a restart, and where nothing is active."""

from millpond.queues import AckResult

OK = AckResult.OK


async def failing(stage, count=10):
    [partition] = (await stage.broker.queues.describe("orders", "billing", failing_max=count)).partitions
    return partition.at_work, [
        (each.offset, each.attempts, each.why, each.reasons) for each in partition.failing
    ]


async def test_reasons_survive_a_restart_and_go_on_from_there(stage):
    await stage.subscribe(backoff_ms=0, attempts_max=2, on_exhausted="block")
    worker = await stage.worker()
    await stage.publish(b"1", b"2", b"3")
    held = await worker.take(3)
    assert await worker.nack(held[0], reason="one", delay_ms=60_000) == [OK]
    assert await worker.nack(held[2], reason="three") == [OK]
    [again] = await worker.take()
    delayed, leased = (0, 1, "delayed", ("one",)), (2, 1, "leased", ("three",))
    assert await failing(stage) == (True, [delayed, leased])
    assert await failing(stage, 1) == (True, [delayed])
    assert await worker.nack(again, reason="still three") == [OK]
    blocked = (2, 2, "blocked", ("three", "still three"))
    assert await failing(stage) == (True, [delayed, blocked])

    await stage.restart()
    assert await failing(stage) == (False, [delayed, blocked]), "nothing is active, so as it is stored"
    assert await failing(stage, 1) == (False, [delayed])
    worker = await stage.worker()
    assert await failing(stage) == (True, [delayed, blocked])
    assert await stage.broker.queues.unblock("orders", "billing") == 1
    assert await failing(stage) == (True, [delayed])
    held = await worker.take(2)
    assert [(each.value, each.attempts) for each in held] == [(b"2", 0), (b"3", 0)]
    assert await worker.ack(*held) == [OK, OK]


async def test_a_lost_consumer_and_a_lease_that_expired_are_reasons(stage):
    await stage.subscribe(backoff_ms=0, ack_timeout_ms=30_000)
    worker = await stage.worker()
    await stage.publish(b"1")
    await worker.take()
    await stage.advance_time(31)
    await worker.take()
    worker.leave(graceful=False)
    assert await failing(stage) == (True, [(0, 2, "ready", ("ack timeout", "connection lost"))])
