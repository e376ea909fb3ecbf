"""Garbage: what nobody needs goes, after its grace, and nothing else does."""

import asyncio

import pytest

from millpond.catalog import writers
from millpond.catalog.commits import Committer
from millpond.maintenance.garbage import REMEMBER_DEAD_MS, SWEEP_EVERY_MS
from millpond.model.errors import StoreUnavailable, WriterDead
from millpond.model.ids import new_session
from millpond.objects.disk_reserve import Reserve
from millpond.objects.open import open_store
from millpond.segments.frame import pack_frame

GRACE = 60_000
DAY_MS = 86_400_000


async def filled(start, folder=None, **settings):
    kept = await start(folder, inline_bytes_max=0, **settings)
    for n in range(4):
        await kept.append(b"%d" % n * 50)
    return kept


async def test_a_dead_object_is_kept_for_its_grace(start):
    kept = await filled(start)
    await kept.log.delete_records(kept.topic_partition(), 2)
    assert await kept.upkeep.garbage.run_once() == 0
    kept.clock.advance(GRACE - 1)
    assert await kept.upkeep.garbage.run_once() == 0
    kept.clock.advance(1)
    assert await kept.upkeep.garbage.run_once() == 2
    assert len(kept.objects()) == 2
    assert kept.rows("SELECT count(*) FROM objects") == [(2,)]
    assert len(await kept.values()) == 2


async def test_an_object_with_one_living_extent_stays(start, settle):
    kept = await start(inline_bytes_max=0, garbage_grace=0, topic={"partitions": 2})
    hold = kept.faults.hold("append")
    first = asyncio.ensure_future(kept.append(b"first"))
    await asyncio.to_thread(hold.wait_reached)
    both = [asyncio.ensure_future(kept.append(b"x", partition=n)) for n in (0, 1)]
    await settle()
    hold.release()
    await asyncio.gather(first, *both)
    assert len(kept.objects()) == 2
    await kept.log.delete_records(kept.topic_partition(0), -1)
    assert await kept.upkeep.garbage.run_once() == 1
    assert await kept.values(partition=1) == [b"x"]
    await kept.log.delete_records(kept.topic_partition(1), -1)
    assert await kept.upkeep.garbage.run_once() == 1
    assert kept.objects() == []


async def test_a_journal_that_may_still_grow_stays_however_dead(start, tmp_path):
    kept = await filled(start, tmp_path, garbage_grace=0)
    await kept.log.delete_records(kept.topic_partition(), -1)
    kept.clock.advance(10**9)
    assert await kept.upkeep.garbage.run_once() == 0
    await kept.append(b"more")
    assert await kept.values() == [b"more"]


async def test_a_sealed_journal_goes_while_its_writer_lives(start, tmp_path, monkeypatch):
    import millpond.objects.file_store

    monkeypatch.setattr(millpond.objects.file_store.FileStore.__init__, "__kwdefaults__", {"roll_bytes": 1})
    kept = await filled(start, tmp_path, garbage_grace=0)
    assert len(kept.objects()) == 4
    await kept.log.delete_records(kept.topic_partition(), -1)
    assert await kept.upkeep.garbage.run_once() == 3
    assert len(kept.objects()) == 1


async def test_what_a_dead_session_left_goes_and_what_the_catalog_knows_stays(start, tmp_path):
    kept = await filled(start, tmp_path, garbage_grace=0)
    session = kept.broker.session
    stray = open_store(kept.broker.settings.storage_url(), session)
    key = stray.append([b"without a row"]).key
    stray.close()
    assert await kept.upkeep.garbage.run_once() == 0
    await kept.broker.stop()
    again = await start(tmp_path, clock=kept.clock, topic=False, garbage_grace=0)
    again.topic_id = kept.topic_id
    assert await again.upkeep.garbage.run_once() == 1
    assert key not in again.objects()
    assert len(await again.values()) == 4


async def test_a_living_sessions_bytes_without_rows_stay(start, tmp_path):
    kept = await filled(start, tmp_path, garbage_grace=0)
    other = new_session()
    await kept.log.write(lambda tx: writers.register(tx, other, kind="spark", address="", lease_ms=10**9))
    store = open_store(kept.broker.settings.storage_url(), other)
    keys = [store.append([b"journal"]).key, f"segments/{other}/{'0' * 32}/0/1-2"]
    store.put(keys[1], [b"segment"])
    kept.clock.advance(10**10)
    assert await kept.upkeep.garbage.run_once() == 0
    assert set(keys) <= set(kept.objects())
    await kept.log.write(lambda tx: writers.mark_dead(tx, other, kept.clock.now_ms()))
    assert await kept.upkeep.garbage.run_once() == 2
    assert not set(keys) & set(kept.objects())
    store.close()


async def test_what_a_dead_session_left_without_rows_is_kept_for_its_grace(start, tmp_path):
    """The catalog may have gone back, and somebody may want to look at what it has forgotten."""
    kept = await filled(start, tmp_path)
    other = new_session()
    await kept.log.write(lambda tx: writers.register(tx, other, kind="broker", address="", lease_ms=10**9))
    store = open_store(kept.broker.settings.storage_url(), other)
    key = store.append([b"forgotten"]).key
    store.close()
    kept.clock.advance(GRACE)
    await kept.log.write(lambda tx: writers.mark_dead(tx, other, kept.clock.now_ms()))
    kept.clock.advance(GRACE - 1)
    assert await kept.upkeep.garbage.run_once() == 0
    assert key in kept.objects()
    kept.clock.advance(1)
    assert await kept.upkeep.garbage.run_once() == 1
    assert key not in kept.objects()


async def test_a_dead_session_is_swept_again_for_a_day_and_then_forgotten(start, tmp_path):
    """It may have been uploading when it was declared dead."""
    kept = await filled(start, tmp_path, garbage_grace=0)
    other = new_session()
    await kept.log.write(lambda tx: writers.register(tx, other, kind="spark", address="", lease_ms=10**9))
    await kept.log.write(lambda tx: writers.mark_dead(tx, other, kept.clock.now_ms()))
    assert await kept.upkeep.garbage.run_once() == 0
    store = open_store(kept.broker.settings.storage_url(), other)
    store.append([b"late"])
    store.close()
    assert await kept.upkeep.garbage.run_once() == 0  # swept a moment ago
    kept.clock.advance(SWEEP_EVERY_MS)
    assert await kept.upkeep.garbage.run_once() == 1
    assert len(await kept.log.read(writers.dead_sessions)) == 1
    kept.clock.advance(REMEMBER_DEAD_MS)
    assert await kept.upkeep.garbage.run_once() == 0
    assert await kept.log.read(writers.dead_sessions) == []
    assert kept.upkeep.garbage._swept_at == {}


async def test_a_session_that_ended_in_order_is_forgotten_by_the_first_sweep_that_finds_nothing(
    start, tmp_path
):
    kept = await filled(start, tmp_path, garbage_grace=0)
    tidy, untidy = new_session(), new_session()
    for session in (tidy, untidy):
        await kept.log.write(
            lambda tx, session=session: writers.register(
                tx, session, kind="spark", address="", lease_ms=10**9
            )
        )
    store = open_store(kept.broker.settings.storage_url(), untidy)
    store.append([b"of no use"])
    store.close()
    for session in (tidy, untidy):
        await kept.log.write(
            lambda tx, session=session: writers.mark_dead(tx, session, kept.clock.now_ms(), in_order=True)
        )
    assert await kept.upkeep.garbage.run_once() == 1
    assert [each.session for each in await kept.log.read(writers.dead_sessions)] == [untidy]
    kept.clock.advance(SWEEP_EVERY_MS)
    assert await kept.upkeep.garbage.run_once() == 0
    assert await kept.log.read(writers.dead_sessions) == []
    assert kept.upkeep.garbage._swept_at == {}


async def test_a_deleted_topics_extents_and_objects_go(start, monkeypatch):
    import millpond.maintenance.garbage as module

    monkeypatch.setattr(module, "EXTENTS_PER_STEP", 3)
    kept = await start(inline_bytes_max=60, garbage_grace=0, topic={"partitions": 2})
    for n in range(10):
        await kept.append(b"x" * (n % 2) * 100, partition=n % 2)
    await kept.topic("other")
    await kept.append(b"x" * 100)
    await kept.log.delete_topic("orders")
    assert await kept.upkeep.garbage.run_once() == 10
    assert kept.extents() == 1
    assert len(kept.objects()) == 1
    assert kept.rows("SELECT name FROM topics") == [("other",)]
    assert await kept.upkeep.garbage.run_once() == 0


async def test_a_failed_pass_is_made_up_for_and_repeating_harms_nobody(start):
    kept = await filled(start, garbage_grace=0)
    await kept.log.delete_records(kept.topic_partition(), 2)
    kept.faults.fail_after("delete")
    with pytest.raises(StoreUnavailable):
        await kept.upkeep.garbage.run_once()
    assert kept.rows("SELECT count(*) FROM objects WHERE extents = 0") == [(2,)]
    assert await kept.upkeep.garbage.run_once() == 2
    assert await kept.upkeep.garbage.run_once() == 0
    assert len(await kept.values()) == 2


async def test_a_pass_takes_only_so_many(start, monkeypatch):
    import millpond.maintenance.garbage as module

    monkeypatch.setattr(module, "OBJECTS_PER_STEP", 3)
    kept = await filled(start, garbage_grace=0)
    await kept.log.delete_records(kept.topic_partition(), -1)
    assert [await kept.upkeep.garbage.run_once() for _ in range(3)] == [3, 1, 0]


async def test_a_writer_that_does_not_renew_its_lease_is_buried_and_swept(start, tmp_path):
    kept = await start(tmp_path)
    with kept.broker.database.write() as tx:
        writers.register(tx, "f00d" * 4, kind="job", address="", lease_ms=-1)
    await kept.upkeep.garbage.run_once()
    dead = await kept.log.read(writers.dead_sessions)
    assert [each.session for each in dead] == ["f00d" * 4]
    await kept.append(b"this broker goes on")


async def test_objects_of_a_live_but_slow_writer_stay_and_a_dead_writers_commit_is_refused(start, tmp_path):
    kept = await start(tmp_path, garbage_grace=0)
    garbage = kept.upkeep.garbage
    slow = new_session()
    await kept.log.write(lambda tx: writers.register(tx, slow, kind="spark", address="", lease_ms=3_600_000))
    store = open_store(kept.broker.settings.storage_url(), slow)
    data = b"".join([pack_frame(kept.topic_partition(), 1, 1, 5), b"bytes"])
    location = store.append([data])
    kept.clock.advance(30 * DAY_MS)
    assert await garbage.run_once() == 0
    assert store.read(location.key, 0, len(data)) == data

    await kept.log.write(lambda tx: writers.mark_dead(tx, slow, kept.clock.now_ms()))
    with pytest.raises(WriterDead):
        Committer(kept.broker.database, slow).commit([lambda tx: 1])
    assert await garbage.run_once() == 1
    assert list(store.list(f"journal/{slow}/")) == []
    store.close()


async def test_a_journal_that_the_store_has_left_is_collected_although_no_flush_follows(start, tmp_path):
    """On a full disk none does, and what was deleted would stay for ever."""
    kept = await filled(start, tmp_path, garbage_grace=0, disk_reserve=1024 * 1024)
    [journal] = kept.objects()
    await kept.log.delete_records(kept.topic_partition(), -1)
    assert await kept.upkeep.garbage.run_once() == 0
    kept.broker.reserve.renew = lambda: None  # there is room here, and it would be found
    kept.broker.reserve.release()
    assert await kept.upkeep.garbage.run_once() == 1
    assert kept.objects() == []
    Reserve.renew(kept.broker.reserve)
    await kept.append(b"more")
    assert await kept.values() == [b"more"]
    assert journal not in kept.objects()


async def test_a_journal_that_is_left_and_still_needed_is_sealed_and_stays(start, tmp_path):
    kept = await filled(start, tmp_path, garbage_grace=0, disk_reserve=1024 * 1024)
    kept.broker.reserve.renew = lambda: None  # there is room here, and it would be found
    kept.broker.reserve.release()
    assert await kept.upkeep.garbage.run_once() == 0
    assert kept.rows("SELECT sealed, extents FROM objects") == [(1, 4)]
    assert len(await kept.values()) == 4
