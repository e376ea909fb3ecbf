"""A full disk under the store, under the catalog and under both (reliability test 5).

Producers hear a clear, retriable error; nothing acknowledged is lost; reads go on; and when there is room again the
broker goes on by itself.
"""

import asyncio
import contextlib
import time

import pytest

from millpond.broker import Broker
from millpond.model.errors import CatalogFailed, CatalogUnavailable, MillpondError, StoreFull, Unavailable
from millpond.objects.disk_reserve import Reserve, space_of
from millpond.settings import Settings
from millpond.testing import running_broker

DISK_BYTES = 6_000_000
BALLAST_BYTES = 3_000_000
MESSAGES_BEFORE = 100
RECOVERY_SECONDS_MAX = 5
RECOVERY_LIMIT_S = 120
"""Only what hangs takes so long."""


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
    async with running_broker(data_dir, storage=store, tail_bytes_max=0, cache_bytes_max=0) as broker:
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
    async with running_broker(data_dir, storage=store) as broker:
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
    async with running_broker(tmp_path / "data", storage=(disk / "objects").as_uri()) as broker:
        for number in range(30):
            value = bytes([number]) * 30_000
            acknowledged[(await broker.produce("topic", value)).base_offset] = value
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(1_600_000))
        assert await broker.maintenance.merging.run_once() == 0  # it has seen that there is no room
        broker.maintenance.merging._space.has_room = lambda *_: True
        with pytest.raises(StoreFull):
            await broker.maintenance.merging.run_once()
        await check_all_there(broker, acknowledged)
        ballast.unlink()
        assert await broker.maintenance.merging.run_once() == 30
        await check_all_there(broker, acknowledged)


def fill(path):
    """Takes all the room there is."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4_096))


async def until_it_takes(broker, topic, value):
    """Appends as a client does: again and again while the error is one to repeat."""
    async with asyncio.timeout(RECOVERY_LIMIT_S):
        while True:
            try:
                return await broker.produce(topic, value)
            except Unavailable:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_on_a_full_disk_deleting_makes_room_and_the_broker_goes_on(small_disk_of, restarted, figures):
    """No byte is free, neither for the catalog nor for the store, and only the broker makes room."""
    disk = small_disk_of(24_000_000)
    chosen = {"disk_reserve": 32 * 1024 * 1024, "garbage_grace": 0, "tail_bytes_max": 0, "cache_bytes_max": 0}
    data_dir, ballast = disk / "data", disk / "ballast"
    async with contextlib.AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running_broker(data_dir, **chosen))
        assert broker.reserve.held_bytes == broker.reserve.size == space_of(disk).total // 20
        await broker.produce("kept", b"before")
        for number in range(MESSAGES_BEFORE):
            await broker.produce("topic", b"%d:" % number + bytes(50_000))
        if restarted:
            await stack.aclose()
            fill(ballast)
            broker = await stack.enter_async_context(running_broker(data_dir, **chosen))
            assert broker.why_not_ready().reason == "disk_full"
        else:
            fill(ballast)  # the reserve is still kept: it is for the broker alone
            refused = await produce_until_refused(broker, {}, 50_000)
            assert isinstance(refused, StoreFull | CatalogUnavailable)
        await broker.log.delete_topic("topic")
        while not await broker.maintenance.garbage.run_once():
            await asyncio.sleep(0.05)
        result = await until_it_takes(broker, "kept", b"after")
        assert result.base_offset == 1
        assert broker.why_not_ready() is None
        assert [record.value for record in await broker.read("kept")] == [b"before", b"after"]
        assert broker.reserve.held_bytes == broker.reserve.size
    figures.append(
        f"disk full ({'restarted' if restarted else 'running'}): a topic deleted on it, and appends accepted again"
    )


async def test_several_brokers_on_a_full_disk_share_its_reserve(small_disk_of):
    disk = small_disk_of(24_000_000)
    settings = Settings(data_dir=disk / "data", disk_reserve=32 * 1024 * 1024, garbage_grace=0, lease=60_000)
    (disk / "data").mkdir()
    async with (
        Broker(settings, supervised=True, maintain=False) as one,
        Broker(settings, supervised=True, maintain=False) as other,
    ):
        for broker in (one, other):
            assert broker.reserve.held_bytes == broker.reserve.size
        one.reserve.renew = other.reserve.renew = lambda: None
        fill(disk / "ballast")
        one.database.make_room()
        for broker in (one, other):
            assert broker.why_not_ready().reason == "disk_full"
            with pytest.raises(StoreFull):
                await broker.log.in_pool(lambda broker=broker: broker.store.append([b"x"]))
        (disk / "ballast").unlink()
        Reserve.renew(other.reserve)
        for broker in (one, other):
            assert broker.why_not_ready() is None
