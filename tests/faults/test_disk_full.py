"""A full disk under the store, under the catalog and under both (reliability test 5).

Producers hear a clear, retriable error; nothing acknowledged is lost; reads go on; and when there is room again the
broker goes on by itself.
"""

import asyncio
import time

import pytest

from millpond.model.errors import CatalogFailed, CatalogUnavailable, MillpondError, StoreFull, Unavailable
from millpond.testing import running_broker

DISK_BYTES = 6_000_000
BALLAST_BYTES = 3_000_000
RECOVERY_SECONDS_MAX = 5


async def produce_until_refused(broker, acknowledged, size):
    while True:
        value = b"%d:" % len(acknowledged) + bytes(size)
        try:
            result = await broker.produce("topic", value)
        except MillpondError as error:
            return error
        acknowledged[result.base_offset] = value


async def check_all_there(broker, acknowledged):
    offset, found = 0, {}
    while records := await broker.read("topic", offset):
        found |= {record.offset: record.value for record in records}
        offset = records[-1].offset + 1
    assert acknowledged.items() <= found.items()
    assert sorted(found) == list(range(len(found)))
    return found


async def seconds_to_recover(broker, acknowledged):
    started = time.perf_counter()
    while time.perf_counter() - started < RECOVERY_SECONDS_MAX:
        try:
            result = await broker.produce("topic", b"again")
        except Unavailable:
            await asyncio.sleep(0.01)
        else:
            acknowledged[result.base_offset] = b"again"
            return time.perf_counter() - started
    raise AssertionError("the broker did not recover")


@pytest.mark.parametrize("full", ["store", "catalog", "both"])
async def test_a_full_disk_is_told_to_producers_and_outlived(tmp_path, small_disk_of, full, figures):
    disk = small_disk_of(DISK_BYTES)
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    data_dir = tmp_path / "data" if full == "store" else disk / "data"
    store = "" if full == "both" else ((disk if full == "store" else tmp_path) / "objects").as_uri()
    size = 3_000 if full == "catalog" else 50_000
    acknowledged = {}
    async with running_broker(data_dir, store=store, tail_bytes_max=0, cache_bytes_max=0) as broker:
        failed = asyncio.create_task(broker.failed())
        refusals = []
        for _ in range(3):
            refusals.append(await produce_until_refused(broker, acknowledged, size))
            await check_all_there(broker, acknowledged)
            await asyncio.sleep(0.25)
        assert len(acknowledged) > 10
        for refused in refusals:
            assert refused.retriable
            assert isinstance(refused, (StoreFull, CatalogUnavailable))
            assert not isinstance(refused, CatalogFailed)
            assert any(word in str(refused).lower() for word in ("room", "full", "space"))
        ballast.unlink()
        recovered_s = await seconds_to_recover(broker, acknowledged)
        ballast.write_bytes(bytes(1_000))
        assert not failed.done()
        failed.cancel()
        await check_all_there(broker, acknowledged)
    async with running_broker(data_dir, store=store) as broker:
        found = await check_all_there(broker, acknowledged)
        assert (await broker.produce("topic", b"after the restart")).base_offset == len(found)
    figures.append(
        f"disk full ({full}): acknowledged {len(acknowledged)}, lost 0, last refusal {type(refusals[-1]).__name__}, "
        f"recovered {recovered_s * 1000:.0f} ms after there was room"
    )


@pytest.mark.parametrize("taken", [100_000, 150_000, 180_000])
async def test_a_disk_that_is_full_at_the_start_is_a_clear_error(small_disk_of, taken):
    disk = small_disk_of(200_000)
    (disk / "ballast").write_bytes(bytes(taken))
    with pytest.raises(MillpondError) as refused:
        async with running_broker(disk / "data"):
            pass
    assert any(word in str(refused.value).lower() for word in ("room", "full", "space"))
    (disk / "ballast").unlink()


async def test_merging_on_a_full_disk_harms_nothing_and_is_done_later(small_disk_of, tmp_path):
    disk = small_disk_of(3_000_000)
    acknowledged = {}
    async with running_broker(tmp_path / "data", store=(disk / "objects").as_uri()) as broker:
        for number in range(30):
            value = bytes([number]) * 30_000
            acknowledged[(await broker.produce("topic", value)).base_offset] = value
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(1_600_000))
        with pytest.raises(StoreFull):
            await broker.maintenance.merging.run_once()
        await check_all_there(broker, acknowledged)
        ballast.unlink()
        assert await broker.maintenance.merging.run_once() == 30
        await check_all_there(broker, acknowledged)
