"""Examination beside retention: what cannot be examined now holds up no other partition, and nothing for ever."""

import pytest
from tests.unit.maintenance.test_retention import DAY, SECOND, YEAR, store_as_before, understated

from millpond.maintenance.disk_space import SpaceCheck
from millpond.model.errors import StoreFull
from millpond.records import Record, build_batch

UNCACHED = {"tail_bytes_max": 0, "cache_bytes_max": 0, "retention_grace": 0}


@pytest.mark.parametrize("found_by", ["the estimate", "the store"])
async def test_an_extent_that_cannot_be_stored_again_holds_up_no_other_partition(
    start, monkeypatch, found_by
):
    kept = await start(**UNCACHED, topic={"partitions": 2, "retention.ms": str(DAY)})
    now = kept.clock.now_ms()
    await store_as_before(kept, understated(now - YEAR, now - 2 * DAY, newest=now - YEAR))
    await kept.append(b"due", partition=1)
    kept.clock.advance(2 * DAY)
    examination = kept.upkeep.retention._examination

    def refuse(*_):
        raise StoreFull(reason="no room")

    with monkeypatch.context() as full:
        if found_by == "the store":
            full.setattr(kept.store, "put", refuse)
        else:
            full.setattr(examination, "_space", SpaceCheck(lambda: 10, kept.broker.metrics.maintenance))
        await kept.expire(31 * SECOND)
        assert [kept.partition(number).log_start for number in (0, 1)] == [0, 1]
    for _ in range(3):
        await kept.expire(31 * SECOND)
    assert kept.partition(0).log_start > 0


async def test_an_extent_whose_object_is_lost_expires_by_its_row(start, caplog):
    kept = await start(**UNCACHED, topic={"retention.ms": str(DAY)})
    now = kept.clock.now_ms()
    await store_as_before(kept, build_batch([Record(b"old", timestamp=now - YEAR)]), inline=False)
    [(key,)] = kept.rows("SELECT key FROM objects")
    kept.store.delete([key])
    await kept.append(b"x")
    for _ in range(3):
        await kept.expire(30 * DAY)
    assert kept.partition().log_start == 2
    [missing] = [each for each in caplog.records if each.message.startswith("object missing")]
    assert missing.message == "object missing; extent expires by its catalog row"
    assert (missing.topic, missing.partition, missing.offset) == ("orders", 0, 0)
