"""The service: every duty at its own pace, whatever happens to the others; and what it forgets by age."""

import asyncio

import pytest

from millpond.cluster import Membership
from millpond.maintenance.service import Maintenance, MaintenanceLimits
from millpond.model.errors import StoreUnavailable

DAY = 86_400_000
QUICK = MaintenanceLimits(
    retention_every_ms=1, merge_every_ms=1, garbage_every_ms=1, expiry_every_ms=1, garbage_grace_ms=0
)


@pytest.fixture
async def service(start):
    kept = await start(inline_bytes_max=0, topic={"retention.ms": "60000"})
    return kept, Maintenance(
        kept.log.upkeep,
        kept.broker.topology,
        kept.store,
        kept.broker.session,
        clock=kept.clock,
        limits=QUICK,
        metrics=kept.broker.metrics.maintenance,
    )


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_everything_happens_by_itself(service):
    kept, maintenance = service
    for _ in range(10):
        await kept.append(b"x", producer_id=7, producer_epoch=0, base_sequence=_)
    running = asyncio.ensure_future(maintenance.run())
    await until(lambda: kept.extents() == 1 and len(kept.objects()) == 1)
    kept.clock.advance(8 * DAY)
    await until(lambda: kept.extents() == 0 and kept.objects() == [])
    await until(lambda: kept.rows("SELECT count(*) FROM producers") == [(0,)])
    assert kept.partition().end_offset == 10
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("error", [StoreUnavailable(reason="away"), ZeroDivisionError("a bug")])
async def test_a_failed_pass_is_tried_again_and_others_go_on(service, caplog, error):
    kept, maintenance = service
    calls = []

    async def failing():
        calls.append(1)
        raise error

    maintenance.merging.run_once = failing
    running = asyncio.ensure_future(maintenance.run())
    await until(lambda: len(calls) > 2)
    await kept.append(b"old")
    kept.clock.advance(90_000)
    await until(lambda: kept.partition().log_start == 1)
    failed = [each for each in caplog.records if getattr(each, "duty", None) == "merging"]
    assert any("failed" in each.getMessage() or "unexpected error" in each.getMessage() for each in failed)
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


async def test_silent_producers_are_forgotten_and_busy_ones_are_not(start):
    kept = await start()
    await kept.append(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    kept.clock.advance(4 * DAY)
    await kept.append(b"a", producer_id=8, producer_epoch=0, base_sequence=0)
    assert await kept.upkeep.expire_once() == 0
    kept.clock.advance(3 * DAY + 1)
    assert await kept.upkeep.expire_once() == 1
    assert kept.rows("SELECT producer_id FROM producers") == [(8,)]


async def test_nothing_is_forgotten_by_a_clock_that_jumped(start):
    kept = await start()
    await kept.append(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    kept.clock.jump(365 * DAY)
    assert await kept.upkeep.expire_once() == 0
    assert kept.rows("SELECT producer_id FROM producers") == [(7,)]


async def test_a_service_that_dies_is_reported_and_the_broker_still_drains(
    start, tmp_path, caplog, monkeypatch
):
    async def broken(_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Membership, "run", broken)
    kept = await start(tmp_path)
    await until(lambda: "unexpected error in a service" in caplog.text)
    await kept.append(b"kept")
    await kept.broker.stop()
    monkeypatch.undo()
    again = await start(tmp_path, topic=False)
    again.topic_id = kept.topic_id
    assert await again.values() == [b"kept"]


async def test_upkeep_forgets_topics_that_are_deleted(start):
    kept = await start()
    for number in range(20):
        await kept.append(b"%d" % number)
    await kept.upkeep.merging.run_once()
    await kept.upkeep.retention.run_once()
    assert kept.upkeep.merging._from
    assert kept.upkeep.retention._checks
    await kept.append(b"one more")
    await kept.log.delete_topic("orders")
    await kept.upkeep.garbage.run_once()
    await kept.upkeep.merging.run_once()
    await kept.upkeep.retention.run_once()
    assert kept.upkeep.merging._from == {}
    assert kept.upkeep.retention._checks == {}


async def test_merging_gives_way_to_a_busy_log_but_not_for_ever(service, monkeypatch):
    kept, maintenance = service
    limits = MaintenanceLimits(merge_busy_bytes=50, merge_turns_missed_max=3)
    monkeypatch.setattr(maintenance, "_limits", limits)
    merged = []
    for _ in range(5):
        for _ in range(10):
            await kept.append(b"x")
        merged.append(await maintenance.merge_unless_busy() > 0)
    assert merged == [False, False, False, True, False]
    await maintenance.merge_unless_busy()
    assert kept.extents() < 20


async def test_producers_that_expired_leave_memory_too(start):
    kept = await start()
    for number in range(5):
        await kept.append(b"x", producer_id=number, producer_epoch=0, base_sequence=0)
    kept.clock.advance(8 * DAY)
    assert await kept.upkeep.expire_once() == 5
    sequences = kept.partition().sequences
    assert (sequences._committed, sequences._expected) == ({}, {})
    again = await kept.append(b"y", producer_id=1, producer_epoch=0, base_sequence=1)
    assert again.base_offset == 5
