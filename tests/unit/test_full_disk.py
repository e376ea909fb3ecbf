"""The assembly on a full disk: what is refused, what goes on, and how it ends. SQLite gets a limit of pages instead."""

import pytest

from millpond.broker import Broker
from millpond.log import FetchRequest
from millpond.model.errors import CatalogFull, MillpondError, StoreFull, Unavailable
from millpond.objects.disk_reserve import RELEASED, RESERVE, DiskSpace, Reserve
from millpond.records import Record, build_batch
from millpond.security import OPEN_ACCESS
from millpond.settings import Settings
from millpond.testing import Faults, running_broker

MIB = 1024 * 1024
NO_RENEWAL = {"lease": 3_600_000}


class FullDisk:
    """A broker whose catalog gets no page until its reserve is released, and no reserve until there is room."""

    def __init__(self, broker):
        self.broker, self.writer = broker, broker.database._writer
        self._release = broker.reserve.release
        broker.database._on_full = self.release
        broker.reserve.renew = lambda: None
        self.writer.pragma("max_page_count", 1)  # the pages that are there stay

    def release(self):
        self._release()
        self.writer.pragma("max_page_count", 2**31)

    def make_room(self):
        Reserve.renew(self.broker.reserve)


async def fill(broker):
    """Appends small messages, which go into the catalog, until one is refused."""
    for number in range(10_000):
        try:
            await broker.produce("orders", b"%d:" % number + bytes(8_000))
        except Unavailable as error:
            return number, error
    raise AssertionError("the disk is not full")


@pytest.fixture
async def broker(tmp_path):
    chosen = {"disk_reserve": MIB, "inline_bytes_per_second": 2**40, "garbage_grace": 0, **NO_RENEWAL}
    async with running_broker(tmp_path, **chosen) as running:
        for name in ("orders", "other"):
            await running.log.create_topic(name)
        await running.produce("other", b"kept")
        yield running


async def refused(broker):
    broker.log._flusher.backpressure._refuse_until = 0.0  # it is tried again at once
    with pytest.raises(StoreFull, match="is full, and nothing is appended until 2MiB are free"):
        await broker.produce("other", b"more")


async def test_on_a_full_disk_topics_can_be_deleted_and_appends_are_refused_until_there_is_room(
    broker, tmp_path
):
    disk = FullDisk(broker)
    assert (tmp_path / RESERVE).stat().st_size == MIB
    taken, error = await fill(broker)
    assert taken > 0
    assert isinstance(error, StoreFull)
    assert (tmp_path / RELEASED).exists()
    for _ in range(3):
        await refused(broker)
    await broker.log.delete_topic("orders")
    await broker.maintenance.garbage.run_once()
    await refused(broker)
    assert [record.value for record in await broker.read("other")] == [b"kept"]
    disk.make_room()
    broker.log._flusher.backpressure._refuse_until = 0.0
    assert (await broker.produce("other", b"more")).base_offset == 1
    assert not (tmp_path / RELEASED).exists()


async def test_records_can_be_deleted_and_read_on_a_full_disk(broker):
    FullDisk(broker)
    taken, _ = await fill(broker)
    topic_partition = broker.log.topics.partition("orders", 0)
    assert await broker.log.delete_records(topic_partition, taken - 1) == taken - 1
    [result] = await broker.log.fetch([FetchRequest(topic_partition, taken - 1, MIB)], bytes_max=MIB)
    assert result.error is None
    assert result.batches


async def test_joint_appends_are_refused_as_others_are(broker):
    broker.reserve.renew = lambda: None
    broker.reserve.release()
    topic_partition = broker.log.topics.partition("other", 0)
    batch = build_batch([Record(b"x")], now_ms=broker.clock.now_ms())
    with pytest.raises(StoreFull):
        await broker.log.append_jointly({topic_partition: batch}, lambda tx: None)


async def test_without_a_reserve_a_full_catalog_is_an_error_and_nothing_more(tmp_path):
    async with running_broker(tmp_path, disk_reserve=0, **NO_RENEWAL) as broker:
        await broker.log.create_topic("orders")
        broker.database._writer.pragma("max_page_count", 1)
        _, error = await fill(broker)
        assert isinstance(error, CatalogFull)
        assert not any(path.name.startswith(RESERVE) for path in tmp_path.iterdir())
        broker.database._writer.pragma("max_page_count", 2**31)
        broker.log._flusher.backpressure._refuse_until = 0.0
        await broker.produce("orders", b"again")


async def test_a_broker_started_on_a_full_disk_goes_on_refusing_and_can_delete(tmp_path):
    chosen = {"disk_reserve": MIB, **NO_RENEWAL}
    async with running_broker(tmp_path, **chosen) as broker:
        await broker.produce("orders", b"a")
        broker.reserve.renew = lambda: None  # there is room here, and it would be found
        broker.reserve.release()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Reserve, "renew", lambda _: None)
        async with running_broker(tmp_path, **chosen) as broker:
            assert broker.why_not_ready().reason == "disk_full"
            with pytest.raises(StoreFull):
                await broker.produce("orders", b"b")
            await broker.log.delete_topic("orders")
    async with running_broker(tmp_path, **chosen) as broker:
        assert broker.why_not_ready() is None
        await broker.produce("orders", b"b")


async def test_a_broker_that_fails_to_start_leaves_no_reserve(tmp_path):
    def refuse(store):
        raise StoreFull(reason="so it says")

    with pytest.raises(MillpondError):
        await Broker(Settings(data_dir=tmp_path), wrap_store=refuse, maintain=False).start()
    assert not (tmp_path / RESERVE).exists()


async def test_a_payload_is_refused_on_a_full_disk(broker):
    broker.reserve.renew = lambda: None
    broker.reserve.release()
    with pytest.raises(StoreFull):
        await broker.log.in_pool(lambda: broker.store.put("payloads/a/b", [b"x"]))


async def test_a_produce_that_is_refused_for_want_of_room_creates_no_topic(broker):
    broker.reserve.renew = lambda: None
    broker.reserve.release()
    with pytest.raises(StoreFull):
        await broker.messages.produce("brand-new", [Record(b"x")], access=OPEN_ACCESS)
    assert not broker.log.topics.knows("brand-new")


async def test_maintenance_counts_on_the_store_s_disk_less_the_reserve(broker, monkeypatch):
    monkeypatch.setattr("millpond.storage.space_of", lambda _: DiskSpace(100 * MIB, 1000 * MIB))
    assert broker.parts.disk.free_bytes() == 99 * MIB
    monkeypatch.setattr("millpond.storage.space_of", lambda _: DiskSpace(10 * MIB, 10 * MIB))
    assert broker.parts.disk.free_bytes() == 10 * MIB - 10 * MIB // 20
    broker.reserve.renew = lambda: None
    broker.reserve.release()
    assert broker.parts.disk.free_bytes() == 0


async def test_a_store_that_is_no_disk_has_no_limit():
    async with running_broker(faults=Faults()) as broker:
        assert broker.parts.disk.free_bytes() is None
        assert broker.reserve is None
