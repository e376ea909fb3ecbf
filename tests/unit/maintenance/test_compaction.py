"""Compaction by the running broker: logs stop growing, and nobody who reads or writes notices anything else."""

import asyncio
import dataclasses
import random
import threading

import pytest
from tests.batches import batch_with_header

from millpond.catalog import compactions
from millpond.catalog import extents as catalog_extents
from millpond.catalog.sqlite import SqliteDatabase
from millpond.log import FetchRequest
from millpond.maintenance import compaction as module
from millpond.maintenance.compaction import Compaction, Pacer
from millpond.maintenance.disk_space import SpaceCheck
from millpond.maintenance.service import MaintenanceLimits
from millpond.model.errors import Stopping, StoreUnavailable
from millpond.reading.reader import StoreReader
from millpond.records import Codec, Record, build_batch, iter_records, walk
from millpond.rewriting.commits import commit_compaction
from millpond.rewriting.compaction import compact, plan_compaction
from millpond.rewriting.compaction_keys import PlainKeys
from millpond.rewriting.inputs import read_state
from millpond.segments.segment import check_segment

KIB, MIB = 1024, 1024 * 1024
HOUR = 3_600_000
COLD = {"tail_bytes_max": 0, "cache_bytes_max": 0}
"""Every read goes to catalog and store."""
WAITING = "millpond_maintenance_waiting_bytes"
EAGER = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


async def put(kept, *pairs, at=None, partition=0, **named):
    now = kept.clock.now_ms() if at is None else at
    records = [Record(value, key, timestamp=now) for key, value in pairs]
    return await kept.log.append(kept.topic_partition(partition), build_batch(records, **named))


async def records(kept, offset=None, partition=0, committed=False):
    """[(offset, key, value)] as a reader from `offset` on is given them, one small fetch after the other."""
    offset = kept.partition(partition).log_start if offset is None else offset
    found = []
    while True:
        [result] = await kept.log.fetch(
            [FetchRequest(kept.topic_partition(partition), offset, 300)],
            bytes_max=300,
            read_committed=committed,
        )
        assert result.error is None
        if not result.batches:
            return found
        for data in result.batches:
            batch = iter_records(data, decompressed_bytes_max=MIB)
            found += [(r.offset, r.key, r.value) for r in batch if r.offset >= offset]
        assert result.next_offset > offset
        offset = result.next_offset


def points(kept, partition=0):
    with kept.broker.database.read() as tx:
        return compactions.read(tx, kept.topic_partition(partition))


def segments(kept):
    return [key for key in kept.objects() if key.startswith("segments/")]


async def fill(kept, count=40, keys=5, seed=1, **named):
    choice = random.Random(seed)
    for number in range(count):
        pairs = [
            (b"k%d" % choice.randrange(keys), b"%d.%d" % (number, n)) for n in range(choice.randint(1, 4))
        ]
        await put(kept, *pairs, compression=choice.choice(list(Codec)), **named)


def latest(found):
    last = {key: (offset, value) for offset, key, value in found}
    return sorted((offset, key, value) for key, (offset, value) in last.items())


# -- what it does -----------------------------------------------------------------------------------------------


async def test_the_last_record_of_each_key_is_what_readers_find_at_every_offset(start, tmp_path):
    kept = await start(tmp_path, topic=EAGER, inline_bytes_max=500, **COLD)
    await fill(kept)
    before = await records(kept)
    removed = await kept.upkeep.compaction.run_once()
    expected = latest(before)
    assert removed == len(before) - len(expected) > 20
    end = kept.partition().end_offset
    for offset in range(end + 1):
        assert await records(kept, offset) == [each for each in expected if each[0] >= offset]
    assert kept.partition().end_offset == end == len(before)


async def test_rows_bytes_and_objects_say_what_is_there(start):
    kept = await start(topic=EAGER, garbage_grace=0, inline_bytes_max=0, **COLD)
    await fill(kept)
    await kept.upkeep.compaction.run_once()
    rows = await kept.log.read(lambda tx: catalog_extents.facts(tx, kept.topic_partition(), 0, 99))
    assert len(rows) == 1
    assert kept.rows("SELECT sum(length) FROM extents") == kept.rows("SELECT bytes FROM partitions")
    data = kept.store.read(rows[0].key, 0, kept.store.size(rows[0].key))
    assert check_segment(data, rows[0].key) == dataclasses.replace(rows[0], appended_at=-1, late_at=-1)
    assert await kept.upkeep.garbage.run_once() > 0
    assert segments(kept) == [rows[0].key]
    assert len(await records(kept)) == rows[0].records == 5
    assert kept.broker.metrics.maintenance.freed_bytes._value.get() > 0


async def test_no_record_that_is_left_is_older_than_its_extent_says(start):
    """The header's base is the first record's time, and the oldest record is another."""
    kept = await start(topic=EAGER, **COLD)
    now = kept.clock.now_ms()
    times = now - 7 * HOUR, now - 9 * HOUR, now - 8 * HOUR
    stale = [Record(b"v", key, timestamp=time) for key, time in zip((b"a", b"b", b"c"), times, strict=True)]
    await kept.log.append(kept.topic_partition(), batch_with_header(stale))
    await put(kept, (b"a", b"later"))
    assert await kept.upkeep.compaction.run_once() == 1
    assert kept.rows("SELECT min_timestamp, max_timestamp FROM extents") == [(now - 9 * HOUR, now)]


async def test_topics_that_are_not_compacted_are_left_alone(start):
    kept = await start()
    for number in range(9):
        await put(kept, (b"k", b"%d" % number))
    assert await kept.upkeep.compaction.run_once() == 0
    assert len(await records(kept)) == 9
    await kept.log.alter_config("orders", {"cleanup.policy": "compact"})
    assert await kept.upkeep.compaction.run_once() == 8


async def test_a_log_is_compacted_when_enough_of_it_is_dirty(start):
    kept = await start(topic={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5"}, **COLD)
    for n in range(4):
        await put(kept, (b"key%d" % n, b"x" * 100))
    assert (await kept.upkeep.compaction.run_once(), points(kept)[-1].end_offset) == (0, 4)
    await put(kept, (b"key0", b"y" * 100))
    assert (await kept.upkeep.compaction.run_once(), points(kept)[-1].end_offset) == (0, 4)
    for _ in range(3):
        await put(kept, (b"key0", b"y" * 100))
    assert (await kept.upkeep.compaction.run_once(), points(kept)[-1].end_offset) == (4, 8)


async def test_young_records_wait_and_old_ones_do_not_wait_for_ever(start):
    lags = {"min.compaction.lag.ms": str(HOUR), "max.compaction.lag.ms": str(3 * HOUR)}
    kept = await start(topic={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", **lags}, **COLD)
    await put(kept, (b"a", b"1"))
    await put(kept, (b"a", b"2"))
    assert await kept.upkeep.compaction.run_once() == 0
    kept.clock.advance(HOUR - 1)
    await put(kept, (b"a", b"3"))
    assert await kept.upkeep.compaction.run_once() == 0
    kept.clock.advance(module.LAG_RECHECK_MS)
    assert await kept.upkeep.compaction.run_once() == 1
    assert [value for _, _, value in await records(kept)] == [b"2", b"3"]
    kept.clock.advance(HOUR)
    assert await kept.upkeep.compaction.run_once() == 0  # half of it is dirty, and it has not waited
    kept.clock.advance(2 * HOUR)
    assert await kept.upkeep.compaction.run_once() == 1


async def test_tombstones_go_when_their_time_has_come_although_nothing_is_appended(start):
    kept = await start(topic=EAGER | {"delete.retention.ms": str(HOUR)}, **COLD)
    await put(kept, (b"a", b"1"), (b"b", b"1"))
    await put(kept, (b"a", None))
    await kept.upkeep.compaction.run_once()
    assert await records(kept) == [(1, b"b", b"1"), (2, b"a", None)]
    kept.clock.advance(HOUR - 1)
    assert await kept.upkeep.compaction.run_once() == 0
    kept.clock.advance(1)
    assert await kept.upkeep.compaction.run_once() == 1
    assert await records(kept) == [(1, b"b", b"1")]
    for offset in (1, 2, 3):
        [result] = await kept.log.fetch([FetchRequest(kept.topic_partition(), offset, MIB)], bytes_max=MIB)
        assert result.next_offset == 3  # whoever reads gets to the end, and a client by the batch it is given
        assert [h.next_offset for data in result.batches for _, h in walk(data)][-1:] == [3] * (offset < 3)
    assert await kept.upkeep.compaction.run_once() == 0


async def test_no_tombstone_goes_by_a_clock_that_jumped(start):
    kept = await start(topic=EAGER | {"delete.retention.ms": str(HOUR)})
    await put(kept, (b"a", None))
    await kept.upkeep.compaction.run_once()
    kept.clock.jump(100 * HOUR)
    assert await kept.upkeep.compaction.run_once() == 0
    assert len(await records(kept)) == 1


async def test_what_a_reader_holds_in_memory_and_what_is_stored_fit_together(start):
    """Tail and cache still have what compaction has removed: a reader that comes from there goes on in the store."""
    kept = await start(topic=EAGER, tail_bytes_max=400)
    for number in range(30):
        await put(kept, (b"k%d" % (number % 2), b"%d" % number))
    before = await records(kept)
    await kept.upkeep.compaction.run_once()
    for offset in range(31):
        found = await records(kept, offset)
        assert set(latest(found)) == {each for each in latest(before) if each[0] >= offset}
        assert found == sorted(found)


async def test_what_was_read_before_is_not_given_to_anybody_once_its_tombstone_is_gone(start):
    kept = await start(topic=EAGER | {"delete.retention.ms": "1"}, tail_bytes_max=0)
    await put(kept, (b"a", b"1"), (b"b", b"1"))
    assert len(await records(kept)) == 2  # now it is in the cache
    await put(kept, (b"a", None))
    for _ in range(2):
        await kept.upkeep.compaction.run_once()
        kept.clock.advance(1)
    assert await records(kept) == [(1, b"b", b"1")]


async def test_compactions_of_other_processes_are_noticed(start, tmp_path):
    """As a Spark job does it: past the broker, through catalog and store."""
    kept = await start(tmp_path, topic=EAGER | {"delete.retention.ms": "1"}, tail_bytes_max=0)
    await put(kept, (b"a", b"1"), (b"b", b"1"))
    await put(kept, (b"a", None))
    assert len(await records(kept)) == 3
    database = SqliteDatabase(tmp_path / "catalog.db")
    reader = StoreReader(database, kept.store, extents_per_read=64)
    config = kept.log.topics.config(kept.topic_id)
    for attempt in (1, 2):
        with database.read() as tx:
            plan = plan_compaction(read_state(tx, kept.topic_partition()), config, now_ms=kept.clock.now_ms())
        done = compact(
            plan,
            reader.read_runs,
            PlainKeys(MIB),
            session=kept.broker.session,
            attempts=iter([10 + attempt]),
            put=kept.store.put,
        )
        with database.write() as tx:
            commit_compaction(tx, done, now_ms=kept.clock.now_ms())
        kept.clock.advance(1)
    database.close()
    async with asyncio.timeout(60):
        while await records(kept) != [(1, b"b", b"1")]:
            await asyncio.sleep(0.02)


async def test_what_is_being_read_while_it_is_compacted_is_not_kept(start, tmp_path):
    kept = await start(tmp_path, topic=EAGER, tail_bytes_max=0, inline_bytes_max=0)
    await put(kept, (b"a", b"1"))
    await put(kept, (b"a", b"2"))
    hold = kept.faults.hold("read", applied=True)
    reading = asyncio.ensure_future(records(kept))
    await asyncio.to_thread(hold.wait_reached, 20)
    kept.log.upkeep.forget_cached(kept.topic_partition())
    hold.release()
    assert len(await reading) == 2
    assert kept.log._fetcher._cache.bytes == 0


async def test_records_are_found_by_time_in_what_is_left(start):
    kept = await start(topic=EAGER, **COLD)
    now = kept.clock.now_ms()
    for number in range(20):
        await put(kept, (b"k%d" % (number % 3), b"x"), at=now + number * 10)
    await kept.upkeep.compaction.run_once()
    for number in range(20):
        found = await kept.log.offset_at(kept.topic_partition(), now + number * 10)
        assert found.offset == max(number, 17)
    assert (await kept.log.newest_offset(kept.topic_partition())).offset == 19


async def test_a_log_that_lost_its_newest_records_still_tells_the_newest_time(start):
    kept = await start(topic=EAGER | {"delete.retention.ms": "1"}, **COLD)
    now = kept.clock.now_ms()
    await put(kept, (b"a", b"1"), at=now)
    await put(kept, (b"b", None), at=now + 50)
    await kept.upkeep.compaction.run_once()
    kept.clock.advance(10)
    assert await kept.upkeep.compaction.run_once() == 1
    found = await kept.log.newest_offset(kept.topic_partition())
    assert (found.offset, found.timestamp) == (0, now)
    assert await kept.log.offset_at(kept.topic_partition(), now + 1) is None


async def test_age_and_size_expire_what_is_compacted_too(start):
    both = EAGER | {"cleanup.policy": "compact,delete", "retention.ms": str(HOUR)}
    kept = await start(topic=both, **COLD)
    await put(kept, (b"old", b"1"), (b"a", b"1"))
    kept.clock.advance(HOUR // 2)
    await put(kept, (b"a", b"2"))
    assert await kept.upkeep.compaction.run_once() == 1
    assert kept.extents() == 1
    await kept.expire(HOUR // 2 + 1)
    assert [value for _, _, value in await records(kept)] == [b"2"]
    await kept.expire(HOUR)
    assert await records(kept) == []
    await put(kept, (b"a", b"3"))
    await put(kept, (b"a", b"4"))
    assert await kept.upkeep.compaction.run_once() == 1
    assert [value for _, _, value in await records(kept)] == [b"4"]


async def test_a_log_start_inside_an_extent_holds(start):
    kept = await start(topic=EAGER, **COLD)
    await put(kept, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    await put(kept, (b"b", b"2"))
    await kept.log.delete_records(kept.topic_partition(), 1)
    assert await kept.upkeep.compaction.run_once() == 2
    assert await records(kept) == [(2, b"c", b"1"), (3, b"b", b"2")]


async def test_an_undecodable_batch_stays_as_it_is(start, caplog):
    kept = await start(**COLD)
    await put(kept, (b"a", b"1"))
    now = kept.clock.now_ms()  # or it would be looked into, and refused
    broken = bytearray(build_batch([Record(b"\0" * 50, b"a")], now_ms=now, compression=Codec.ZSTD))
    broken[70:75] = b"?????"
    from millpond.records.batch import seal

    seal(broken, 0, len(broken))
    await kept.log.append(kept.topic_partition(), bytes(broken))
    await put(kept, (b"a", b"3"))
    await kept.log.alter_config("orders", EAGER)
    assert await kept.upkeep.compaction.run_once() == 1
    [result] = await kept.log.fetch([FetchRequest(kept.topic_partition(), 0, MIB)], bytes_max=MIB)
    assert [h.base_offset for data in result.batches for _, h in walk(data)] == [1, 2]
    [kept_batches] = [each for each in caplog.records if "undecodable batches" in each.message]
    assert (kept_batches.topic, kept_batches.partition, kept_batches.batches) == ("orders", 0, 1)


# -- pace and bounds --------------------------------------------------------------------------------------------


async def test_keys_that_do_not_fit_are_compacted_in_several_passes(start):
    kept = await start(topic=EAGER, compaction_keys_bytes=700, **COLD)
    await fill(kept, 30, keys=12)
    before = await records(kept)
    passes = 0
    while (
        await kept.upkeep.compaction.run_once() or points(kept)[-1].end_offset < kept.partition().end_offset
    ):
        passes += 1
        assert latest(await records(kept)) == latest(before)
        assert passes < 100
    assert passes > 3


async def test_only_what_has_grown_is_looked_at_again(start, monkeypatch):
    kept = await start(topic={"partitions": 3, **EAGER})
    looked = []
    look_at = Compaction._compact_if_due
    monkeypatch.setattr(
        Compaction,
        "_compact_if_due",
        lambda self, p: looked.append(p.topic_partition.partition) or look_at(self, p),
    )
    for partition in range(3):
        await put(kept, (b"a", b"1"), partition=partition)
    await kept.upkeep.compaction.run_once()
    assert sorted(looked) == [0, 1, 2]
    looked.clear()
    await put(kept, (b"a", b"2"), partition=1)
    await kept.upkeep.compaction.run_once()
    assert looked == [1]


async def test_a_pass_has_a_budget_and_the_next_goes_on_with_the_others(start, monkeypatch):
    monkeypatch.setattr(module, "BYTES_PER_PASS", 1)
    kept = await start(topic={"partitions": 3, **EAGER})
    for _ in range(2):
        for partition in range(3):
            await put(kept, (b"a", b"1"), (b"a", b"2"), partition=partition)
            kept.clock.advance(1)
    assert [await kept.upkeep.compaction.run_once() for _ in range(4)] == [3, 3, 3, 0]


async def test_it_gives_way_to_producers_and_readers_but_not_for_ever(start, monkeypatch):
    kept = await start(topic=EAGER)
    limits = MaintenanceLimits(merge_busy_bytes=50, merge_turns_missed_max=2)
    monkeypatch.setattr(kept.upkeep, "_limits", limits)
    done = []
    for number in range(3):
        await put(kept, (b"a", b"%d" % number * 100))
        done.append(await kept.upkeep.compact_unless_busy())
    assert done == [0, 0, 2]


def test_a_thread_is_held_back_to_its_pace():
    now, naps = [0.0], []

    def sleep(seconds):
        naps.append(seconds)
        now[0] += seconds

    class Open:
        is_stopping = False

    pacer = Pacer(Open(), 1_000, timer=lambda: now[0], sleep=sleep)
    for _ in range(10):
        pacer.pause(100)
    assert now[0] == pytest.approx(1.0)
    assert max(naps) <= module.SLEEP_S_MAX
    now[0] += 10
    pacer.pause(100)
    assert now[0] == pytest.approx(11.0, abs=0.11)
    Open.is_stopping = True
    with pytest.raises(Stopping):
        pacer.pause(100)


async def test_a_broker_that_stops_does_not_wait_for_a_long_compaction(start, tmp_path, monkeypatch):
    begun, pause = threading.Event(), Pacer.pause

    def noted(pacer, size):
        begun.set()
        pause(pacer, size)

    monkeypatch.setattr(Pacer, "pause", noted)
    kept = await start(tmp_path, topic=EAGER, compaction_bytes_per_second=200)
    for _ in range(20):
        await put(kept, (b"a", b"x" * 1000))
    running = asyncio.ensure_future(kept.upkeep.compaction.run_once())
    await asyncio.to_thread(begun.wait)
    async with asyncio.timeout(60):
        await kept.broker.stop()
    await asyncio.wait([running])
    monkeypatch.undo()
    again = await start(tmp_path, clock=kept.clock, topic=False)
    again.topic_id = kept.topic_id
    assert len(await records(again)) == 20
    assert await again.upkeep.compaction.run_once() == 19


# -- others at work ---------------------------------------------------------------------------------------------


async def test_extents_that_changed_meanwhile_win_and_no_segment_stays(start, tmp_path):
    kept = await start(tmp_path, topic=EAGER, **COLD)
    await fill(kept, 10)
    hold = kept.faults.hold("put", applied=True)
    compacting = asyncio.ensure_future(kept.upkeep.compaction.run_once())
    await asyncio.to_thread(hold.wait_reached, 20)
    rows = await kept.log.read(lambda tx: catalog_extents.facts(tx, kept.topic_partition(), 0, 5))
    await kept.upkeep.merging._merge(rows)  # as a Spark job might: the broker's own merging would spare them
    theirs = [key for key in segments(kept) if key.endswith("-2")]
    expected = latest(await records(kept))
    hold.release()
    assert await compacting == 0
    assert (segments(kept), points(kept)) == (theirs, ())
    assert await kept.upkeep.compaction.run_once() > 0
    assert await records(kept) == expected


async def test_merging_leaves_alone_what_is_being_compacted_and_merges_the_rest(start):
    kept = await start(topic=EAGER)
    await fill(kept, 10)
    hold = kept.faults.hold("put", applied=True)
    compacting = asyncio.ensure_future(kept.upkeep.compaction.run_once())
    await asyncio.to_thread(hold.wait_reached, 20)
    await fill(kept, 4, seed=2)
    assert await kept.upkeep.merging.run_once() == 0
    hold.release()
    assert await compacting > 0
    assert kept.extents() == 5
    await fill(kept, 4, seed=3)
    assert await kept.upkeep.merging.run_once() == 9
    assert kept.extents() == 1


async def test_killed_between_put_and_commit_leaves_garbage_only(start, tmp_path):
    kept = await start(tmp_path, topic=EAGER, garbage_grace=0)
    await fill(kept, 10)
    before = await records(kept)
    kept.faults.fail_after("put")
    with pytest.raises(StoreUnavailable):
        await kept.upkeep.compaction.run_once()
    assert await records(kept) == before
    await kept.broker.stop()
    again = await start(tmp_path, clock=kept.clock, topic=False, garbage_grace=0, **COLD)
    again.topic_id = kept.topic_id
    assert await records(again) == before
    await again.upkeep.garbage.run_once()
    assert segments(again) == []
    await again.upkeep.compaction.run_once()
    assert await records(again) == latest(before)


async def test_a_damaged_object_keeps_no_other_partition_from_being_compacted(start, tmp_path, caplog):
    kept = await start(tmp_path, topic={"partitions": 2, **EAGER}, inline_bytes_max=0, **COLD)
    for number in range(8):
        await put(kept, (b"a", b"%d" % number), partition=number % 2)
    [(key, position)] = kept.rows(
        "SELECT o.key, e.position FROM extents e JOIN objects o ON o.id = e.object_id"
        " WHERE e.partition = 0 AND e.base_offset = 2"
    )
    file = next(path for path in tmp_path.rglob("*") if path.is_file() and str(path).endswith(key))
    data = bytearray(file.read_bytes())
    data[position + 65] ^= 0xFF
    file.write_bytes(data)
    assert await kept.upkeep.compaction.run_once() == 3
    assert [value for _, _, value in await records(kept, partition=1)] == [b"7"]
    caplog.clear()
    await put(kept, (b"a", b"8"))
    assert await kept.upkeep.compaction.run_once() == 0
    assert "compaction failed" not in caplog.text  # it is not tried again all the time
    kept.clock.advance(module.RECHECK_MS)
    assert await kept.upkeep.compaction.run_once() == 0
    [failed] = [each for each in caplog.records if each.message == "compaction failed; will retry"]
    assert (failed.topic, failed.partition) == ("orders", 0)


async def test_readers_read_and_producers_append_and_abort_meanwhile(start, tmp_path):
    """Merging, garbage and compaction in circles: every reader sees each key's records in order, and ends with the
    same table as somebody who saw everything."""
    kept = await start(tmp_path, topic=EAGER, inline_bytes_max=300, tail_bytes_max=2_000, garbage_grace=0)
    stop, last, seen = asyncio.Event(), {}, []

    async def produce():
        choice = random.Random(1)
        for number in range(200):
            key = b"k%d" % choice.randrange(7)
            await put(kept, (key, b"%d" % number), compression=choice.choice(list(Codec)))
            last[key] = number
        stop.set()

    async def read():
        while not stop.is_set():
            found = await records(kept, random.randrange(kept.partition().end_offset + 1))
            assert [each[0] for each in found] == sorted({each[0] for each in found})
            assert all(offset == int(value) for offset, _, value in found)
            seen.append(len(found))
            await asyncio.sleep(0)

    async def tidy():
        while not stop.is_set():
            await kept.upkeep.compaction.run_once()
            await kept.upkeep.merging.run_once()
            await kept.upkeep.garbage.run_once()

    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for job in (produce, read, read, tidy):
            tasks.create_task(job())
    await kept.upkeep.compaction.run_once()
    kept.log._fetcher.forget(kept.topic_partition())
    assert {key: int(value) for _, key, value in await records(kept)} == last
    assert len(seen) > 5
    assert kept.rows("SELECT sum(records) FROM extents")[0][0] == 7


async def test_without_room_for_what_it_may_write_it_waits_and_goes_on_when_there_is(start, caplog):
    kept = await start(topic=EAGER)
    for n in range(6):
        await put(kept, (b"a", b"%d" % n * 1000))
    with kept.broker.database.read() as tx:
        state = read_state(tx, kept.topic_partition())
    config = kept.log.topics.config(kept.topic_id)
    plan = plan_compaction(
        state, config, now_ms=kept.clock.now_ms(), broker_defaults=kept.log.topics.broker_defaults
    )
    free, metrics = [plan.total_bytes - 1], kept.broker.metrics
    kept.upkeep.compaction._space = SpaceCheck(lambda: free[0], metrics.maintenance)
    for _ in range(3):
        assert await kept.upkeep.compaction.run_once() == 0
    assert metrics.registry.get_sample_value(WAITING, {"duty": "compaction"}) == plan.total_bytes
    assert [each.message for each in caplog.records] == ["not enough room on the disk; maintenance waits"]
    free[0] = plan.total_bytes
    assert await kept.upkeep.compaction.run_once() > 0
    assert metrics.registry.get_sample_value(WAITING, {"duty": "compaction"}) == 0
