"""Retention: the log start moves up, evenly, and nothing is renumbered."""

import asyncio

import pytest
from tests.batches import batch_with_header

from millpond.catalog import extents as catalog_extents
from millpond.catalog import partitions, topics
from millpond.catalog.appends import FOREIGN, AppendShare, append
from millpond.catalog.objects import NewObject
from millpond.maintenance import examination
from millpond.model.errors import StoreUnavailable
from millpond.records import Codec, Record, build_batch, walk
from millpond.records.batch import HEADER, seal
from millpond.rewriting.verification import check_segment_object

SECOND = 1_000
MINUTE = 60 * SECOND
DAY = 86_400_000
YEAR = 365 * DAY
YEAR_2023 = 1_680_000_000_000
FAR_AHEAD = 2**60


# -- by age -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", [1, 250, 5 * SECOND, 3_600_000, 7 * DAY, 400 * DAY])
async def test_records_expire_at_their_age_from_milliseconds_to_days(start, age):
    kept = await start(topic={"retention.ms": str(age)})
    await kept.append(b"old")
    assert await kept.expire() == 0
    assert await kept.expire(age) == 0
    assert await kept.values() == [b"old"]
    assert await kept.expire(SECOND) == 1
    assert await kept.values() == []
    assert (kept.partition().log_start, kept.partition().end_offset) == (1, 1)


async def test_inside_one_large_extent_records_expire_to_within_a_second(start):
    """One flush of many minutes, which is what a backlog or a replica brings."""
    kept = await start(inline_bytes_max=0, retention_grace=0, topic={"retention.ms": "60000"})
    begin = kept.clock.now_ms()
    times = [begin + n * 250 for n in range(480)]
    kept.clock.advance(120_000)
    await kept.append_together(*times, size=400)
    assert kept.extents() == 1
    for _ in range(30):
        cutoff = kept.clock.now_ms() - 60_000
        await kept.expire()
        left = [int(value.split(b":")[0]) for value in await kept.values()]
        assert left == [t for t in times if t >= left[0]]
        assert cutoff <= left[0] < cutoff + SECOND
        kept.clock.advance(SECOND)
    assert kept.extents() == 1


async def test_a_newer_batch_that_was_deleted_keeps_no_older_one(start):
    kept = await start(retention_grace=0, topic={"retention.ms": "60000"})
    now = kept.clock.now_ms()
    kept.clock.advance(60_000)
    await kept.append_together(now + 50_000, now, now + 40_000)
    assert kept.extents() == 1
    await kept.log.delete_records(kept.topic_partition(), 1)
    assert await kept.expire(30_000) == 1
    assert kept.partition().log_start == 2


async def test_merged_records_expire_as_evenly_as_before(start):
    kept = await start(
        tail_bytes_max=0, cache_bytes_max=0, retention_grace=0, topic={"retention.ms": "10000"}
    )
    for _ in range(8):
        await kept.append(b"x")
        kept.clock.advance(1_000)
    assert await kept.upkeep.merging.run_once() == 8
    kept.clock.advance(5_500)
    assert await kept.expire() == 1
    assert kept.extents() == 1
    assert kept.partition().log_start == 4


async def test_a_record_exactly_as_old_as_allowed_stays(start):
    kept = await start(topic={"retention.ms": "10000"})
    now = kept.clock.now_ms()
    await kept.append_together(now, now + 3_000, now + 6_000)
    kept.clock.advance(13_000)
    assert await kept.expire() == 1
    assert kept.partition().log_start == 1
    assert await kept.expire(1_000) == 1
    assert kept.partition().log_start == 2


async def test_within_a_second_also_when_nobody_calls_twice(start):
    """The next look is due when the oldest record is, not at a fixed pace."""
    kept = await start(topic={"retention.ms": "10000"})
    for n in range(20):
        await kept.append(b"%d" % n)
        await kept.expire(700)
        ages = [kept.clock.now_ms() - kept.rows("SELECT min(min_timestamp) FROM extents")[0][0]]
        assert ages[0] <= 10_000 + SECOND + 700


async def test_a_young_record_in_front_keeps_an_old_one_behind_it(start):
    kept = await start(topic={"retention.ms": "10000"})
    now = kept.clock.now_ms()
    await kept.append_together(now, now - 9_000, now)
    assert await kept.expire(5_000) == 0
    assert len(await kept.values()) == 3
    assert await kept.expire(6_000) == 1
    assert await kept.values() == []


async def test_more_extents_than_one_look_sees_expire_in_one_pass(start, monkeypatch):
    import millpond.maintenance.retention as module

    monkeypatch.setattr(module, "EXTENTS_PER_PAGE", 5)
    kept = await start(topic={"retention.ms": "10000"})
    for _ in range(23):
        await kept.append(b"old")
    kept.clock.advance(20_000)
    await kept.append(b"new")
    assert await kept.expire() == 1
    assert await kept.values() == [b"new"]
    assert kept.extents() == 1


# -- what headers claim -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("newest", [YEAR_2023, 0, -1], ids=["kafkajs", "librdkafka", "sarama"])
async def test_current_records_behind_a_header_that_claims_an_old_time_stay(start, newest, codec):
    """Three records, one from 2023 and two from now: kafkajs says that the newest is from 2023."""
    kept = await start(topic={"retention.ms": str(7 * DAY)})
    now = kept.clock.now_ms()
    records = [Record(b"v", timestamp=time) for time in (YEAR_2023, now, now - 1)]
    await kept.log.append(kept.topic_partition(), batch_with_header(records, newest=newest, codec=codec))
    for _ in range(10):
        await kept.expire(DAY // 2)
    assert len(await kept.values()) == 3
    await kept.expire(2 * DAY)
    assert len(await kept.values()) == 3
    await kept.expire(1)
    await kept.expire(MINUTE)
    assert await kept.values() == []


@pytest.mark.parametrize("topic", [{}, {"message.timestamp.type": "LogAppendTime"}])
@pytest.mark.parametrize("newest", [None, FAR_AHEAD])
async def test_a_header_that_claims_a_time_far_ahead_keeps_nothing_for_ever(start, topic, newest):
    kept = await start(topic={"retention.ms": str(7 * DAY), **topic})
    records = [Record(b"v", timestamp=kept.clock.now_ms())] * 2
    await kept.log.append(kept.topic_partition(), batch_with_header(records, base=FAR_AHEAD, newest=newest))
    await kept.expire(7 * DAY)
    assert len(await kept.values()) == 2
    await kept.expire(MINUTE)
    assert await kept.values() == []


@pytest.mark.parametrize("newest", [-1, 0])
@pytest.mark.parametrize("others", [(), (YEAR_2023,)])
async def test_records_without_a_time_have_the_age_of_their_append(start, newest, others):
    kept = await start(topic={"retention.ms": str(7 * DAY)})
    records = [Record(b"undated"), *(Record(b"old", timestamp=time) for time in others)]
    await kept.log.append(kept.topic_partition(), batch_with_header(records, base=-1, newest=newest))
    await kept.append(b"old", at=YEAR_2023)
    await kept.expire(7 * DAY)
    assert len(await kept.values()) == 2 + len(others)
    await kept.expire(MINUTE)
    assert await kept.values() == []


async def test_times_that_were_put_right_outlive_a_merge(start):
    """Each batch expires at its own age, although all of them are one extent."""
    kept = await start(topic={"retention.ms": str(DAY)})
    for _ in range(4):
        records = [Record(b"v", timestamp=YEAR_2023), Record(b"v", timestamp=kept.clock.now_ms())]
        await kept.log.append(kept.topic_partition(), batch_with_header(records, newest=YEAR_2023))
        await kept.log.append(
            kept.topic_partition(), batch_with_header([Record(b"undated")], base=-1, newest=0)
        )
        kept.clock.advance(DAY // 8)
    assert await kept.upkeep.merging.run_once() == 8
    for expired in (3, 6, 9):
        await kept.expire(DAY // 8 if expired > 3 else DAY // 2 + 1)
        assert kept.partition().log_start == expired
    await kept.expire(DAY // 8)
    assert await kept.values() == []


async def test_records_without_timestamps_are_as_old_as_their_append(start):
    kept = await start(topic={"retention.ms": str(DAY)})
    await kept.append(b"undated", at=-1)
    assert await kept.expire(DAY) == 0
    assert await kept.values() == [b"undated"]
    assert await kept.expire(SECOND) == 1


async def test_numbers_go_on_after_everything_expired_also_after_a_restart(start, tmp_path):
    kept = await start(tmp_path, topic={"retention.ms": "1000"})
    for _ in range(3):
        await kept.append(b"old", b"older")
    await kept.expire(3_000)
    assert (await kept.append(b"new")).base_offset == 6
    await kept.expire(3_000)
    await kept.broker.stop()
    again = await start(tmp_path, clock=kept.clock, topic=False)
    again.topic_id = kept.topic_id
    assert (again.partition().log_start, again.partition().end_offset) == (7, 7)
    assert (await again.append(b"newest")).base_offset == 7
    assert await again.values() == [b"newest"]


async def test_what_was_due_while_the_broker_was_down_expires_when_it_is_back(start, tmp_path):
    kept = await start(tmp_path, topic={"retention.ms": "60000"})
    await kept.append(b"old")
    await kept.broker.stop()
    kept.clock.advance(DAY)
    again = await start(tmp_path, clock=kept.clock, topic=False)
    again.topic_id = kept.topic_id
    assert await again.expire() == 1
    assert await again.values() == []


async def test_a_config_change_takes_effect_at_once(start):
    kept = await start()
    await kept.append(b"a")
    assert await kept.expire(60_000) == 0
    await kept.log.alter_config("orders", {"retention.ms": "1000"})
    assert await kept.expire() == 1
    await kept.append(b"b")
    await kept.log.alter_config("orders", {"retention.ms": "-1"})
    assert await kept.expire(400 * DAY) == 0
    assert await kept.values() == [b"b"]


async def test_a_topic_that_another_broker_has_just_deleted_is_not_a_failure(start, caplog):
    """This broker still knows the topic, and its rows are gone."""
    kept = await start(topic={"retention.ms": "1000"})
    await kept.append(b"old")
    await kept.log.in_pool(lambda: _delete_as_another_broker(kept))
    assert await kept.expire(after_ms=2000) == 0
    assert caplog.messages == []


def _delete_as_another_broker(kept):
    with kept.broker.database.write() as tx:
        topics.delete(tx, "orders", now_ms=kept.clock.now_ms())
        tx.rows("DELETE FROM partitions WHERE topic_id = ?", (kept.topic_id,))


async def test_compacted_topics_do_not_expire_unless_they_say_so(start):
    from millpond.records import Record, build_batch

    kept = await start(topic={"cleanup.policy": "compact", "retention.ms": "1000"})
    data = build_batch([Record(b"v", key=b"k")], now_ms=kept.clock.now_ms())
    await kept.log.append(kept.topic_partition(), data)
    assert await kept.expire(DAY) == 0
    await kept.log.alter_config("orders", {"cleanup.policy": "compact,delete"})
    assert await kept.expire(DAY) == 1


async def test_the_broker_wide_default_counts(start):
    kept = await start(retention=5_000)
    await kept.append(b"a")
    assert await kept.expire(4_000) == 0
    assert await kept.expire(3_000) == 1


async def test_each_partition_has_its_own_line(start):
    kept = await start(topic={"partitions": 2, "retention.ms": "10000"})
    await kept.append(b"old", partition=0)
    kept.clock.advance(8_000)
    await kept.append(b"young", partition=1)
    assert await kept.expire(4_000) == 1
    assert [await kept.values(partition=n) for n in (0, 1)] == [[], [b"young"]]


# -- what is old when it arrives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("inline_bytes_max", [16_384, 0], ids=["inline", "stored"])
async def test_a_backfill_is_kept_for_the_grace_before_it_expires(start, inline_bytes_max):
    """A year-old record used to be gone half a second after its append, before a consumer could see it."""
    kept = await start(inline_bytes_max=inline_bytes_max)
    await kept.append(b"a year old", at=kept.clock.now_ms() - YEAR)
    for _ in range(9):
        assert await kept.expire(30 * SECOND) == 0
    assert await kept.values() == [b"a year old"]
    assert await kept.expire(31 * SECOND) == 1
    assert await kept.values() == []


async def test_a_backfill_is_kept_no_longer_than_the_retention(start):
    kept = await start(topic={"retention.ms": "2000"})
    await kept.append(b"old", at=kept.clock.now_ms() - YEAR)
    assert await kept.expire(1_999) == 0
    assert await kept.expire(SECOND) == 1


async def test_without_a_grace_a_backfill_expires_at_once(start):
    kept = await start(retention_grace=0)
    await kept.append(b"old", at=kept.clock.now_ms() - YEAR)
    assert await kept.expire() == 1


async def test_merged_extents_count_from_the_append_of_the_newest(start):
    kept = await start()
    for _ in range(8):
        await kept.append(b"old", at=kept.clock.now_ms() - YEAR)
        kept.clock.advance(MINUTE // 2)
    assert await kept.upkeep.merging.run_once() == 8
    assert await kept.expire(4 * MINUTE) == 0
    assert await kept.expire(MINUTE) == 1


async def test_markers_and_joint_appends_have_an_append_time(start):
    """They are appended through the catalog, and not as flushes of this broker."""
    kept = await start()
    producer = await kept.broker.transactions.begin_producer("t", 60_000)
    await kept.broker.transactions.add_partitions(producer, [kept.topic_partition()])
    await kept.append(
        b"a", producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )
    kept.clock.advance(SECOND)
    await kept.broker.transactions.end(producer, commit=True, bump_epoch=False)
    now_ms = kept.clock.now_ms()
    assert kept.rows("SELECT appended_at FROM extents ORDER BY base_offset") == [
        (now_ms - SECOND,),
        (now_ms,),
    ]


# -- what was stored before append times were kept ------------------------------------------------------------------


def understated(*times, newest, codec=Codec.NONE):
    """As kafkajs sends it: the newest timestamp of the header is lower than that of its records."""
    data = bytearray(build_batch([Record(b"%d" % time, timestamp=time) for time in times], compression=codec))
    [(_, header)] = walk(data)
    HEADER.pack_into(data, 0, *header._replace(max_timestamp=newest))
    seal(data, 0, len(data))
    return bytes(data)


async def store_as_before(kept, data, *, inline=True):
    """An extent with what its batch header says, and no append time: as version 4 stored it."""
    [(_, header)] = walk(data)
    times = header.base_timestamp, header.newest_timestamp
    position, new_object = 0, None
    if not inline:
        location = kept.store.append([data])
        position = location.position
        new_object = NewObject(location.key, "journal", kept.broker.session, location.length, sealed=False)
    share = AppendShare(
        kept.topic_partition(),
        FOREIGN,
        position,
        len(data),
        header.record_count,
        *times,
        inline=data if inline else None,
    )
    with kept.broker.database.write() as tx:
        [placed] = append(tx, [share], new_object, now_ms=kept.clock.now_ms())
        tx.rows("UPDATE extents SET appended_at = -1 WHERE base_offset = ?", (placed.base_offset,))
    await kept.log.refresh()


async def is_whole(kept):
    """As `millpond pipeline verify` looks at what lies in objects."""
    for row in await kept.log.read(lambda tx: catalog_extents.facts(tx, kept.topic_partition(), 0, 99)):
        if row.key is not None and row.stamped:
            data = kept.store.read(row.key, 0, kept.store.size(row.key))
            assert check_segment_object(row, data) == []


async def test_an_extent_without_an_append_time_is_examined_once_before_it_expires(start, monkeypatch):
    kept = await start(tail_bytes_max=0, cache_bytes_max=0)
    now_ms = kept.clock.now_ms()
    await store_as_before(kept, build_batch([Record(b"old", timestamp=now_ms - YEAR)]))
    examined, examine = [], examination.examine
    monkeypatch.setattr(
        examination, "examine", lambda data, *named: examined.append(1) or examine(data, *named)
    )
    assert await kept.expire() == 0
    assert kept.rows("SELECT max_timestamp, appended_at FROM extents") == [(now_ms - YEAR, now_ms)]
    assert await kept.expire(4 * MINUTE) == 0
    assert await kept.values() == [b"old"]
    assert await kept.expire(MINUTE) == 1
    assert examined == [1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("inline", [True, False], ids=["inline", "stored"])
async def test_current_records_under_a_header_that_is_too_low_stay(start, codec, inline):
    """A batch of one record from 2023 and two of now used to be gone within half a minute."""
    kept = await start(tail_bytes_max=0, cache_bytes_max=0, retention_grace=0)
    now_ms = kept.clock.now_ms()
    old, young = now_ms - YEAR, now_ms - SECOND
    await store_as_before(kept, understated(old, young, young, newest=old, codec=codec), inline=inline)
    await kept.append(b"next", at=old)
    for _ in range(10):
        assert await kept.expire(31 * SECOND) == 0
    assert len(await kept.values()) == 4
    assert kept.rows("SELECT max_timestamp, high_timestamp FROM extents ORDER BY base_offset") == [
        (young, young),
        (old, young),
    ]
    found = await kept.log.offset_at(kept.topic_partition(), young)
    assert found.offset == 1
    await is_whole(kept)
    assert await kept.expire(7 * DAY) == 1


async def test_a_newest_timestamp_in_the_future_does_not_keep_records_for_ever(start):
    kept = await start()
    old = kept.clock.now_ms() - YEAR
    await store_as_before(kept, understated(old, newest=old + 9 * YEAR))
    assert await kept.expire() == 0
    await is_whole(kept)
    assert await kept.expire(5 * MINUTE) == 1


async def test_a_segment_that_was_examined_describes_itself_as_its_row_does(start):
    """Its first record is not its oldest: neither header nor row say how old that one is."""
    kept = await start(tail_bytes_max=0)
    old = kept.clock.now_ms() - YEAR
    for _ in range(8):
        await store_as_before(kept, build_batch([Record(b"v", timestamp=t) for t in (old, old - 5)]))
    assert await kept.upkeep.merging.run_once() == 8
    assert await kept.expire() == 0
    assert kept.rows("SELECT min_timestamp, max_timestamp FROM extents") == [(old - 5, old)]
    await is_whole(kept)


async def test_a_pass_examines_a_bounded_number_of_bytes(start, monkeypatch):
    import millpond.maintenance.retention as module

    monkeypatch.setattr(module, "EXAMINED_BYTES_PER_PASS", 150)
    kept = await start(retention_grace=0)
    for _ in range(5):
        await store_as_before(kept, build_batch([Record(b"old", timestamp=kept.clock.now_ms() - YEAR)]))
    left = []
    for _ in range(3):
        await kept.expire(SECOND)
        left.append(kept.extents())
    assert left == [2, 0, 0]


async def test_an_extent_that_is_merged_while_it_is_examined_is_examined_again(start):
    kept = await start(inline_bytes_max=0, tail_bytes_max=0, retention_grace=0)
    old = kept.clock.now_ms() - YEAR
    for _ in range(8):
        await store_as_before(kept, understated(old, kept.clock.now_ms(), newest=old), inline=False)
    hold = kept.faults.hold("read")
    looking = asyncio.ensure_future(kept.expire())
    await asyncio.to_thread(hold.wait_reached, 20)
    assert await kept.upkeep.merging.run_once() == 8
    hold.release()
    assert await looking == 0
    assert await kept.expire(SECOND) == 0
    assert len(await kept.values()) == 16
    assert kept.rows("SELECT min(appended_at) FROM extents") == [(kept.clock.now_ms(),)]


async def test_damaged_bytes_are_not_taken_for_old_ones(start):
    """What cannot be read is not examined, so it does not expire by age."""
    kept = await start(tail_bytes_max=0, retention_grace=0)
    await store_as_before(
        kept, build_batch([Record(b"old", timestamp=kept.clock.now_ms() - YEAR)]), inline=False
    )
    kept.faults.shorten_read()
    assert await kept.expire() == 0
    assert kept.extents() == 1


# -- by size ----------------------------------------------------------------------------------------------------


async def test_by_size_the_oldest_go_and_at_least_the_allowed_size_stays(start):
    kept = await start(topic={"retention.bytes": "2000", "retention.ms": "-1"})
    for n in range(10):
        await kept.append(b"%d" % n * 400)
    [(size,)] = kept.rows("SELECT bytes FROM partitions")
    assert size > 4_000
    assert await kept.expire() == 1
    [(size,)] = kept.rows("SELECT bytes FROM partitions")
    assert 2_000 <= size < 2_500
    assert len(await kept.values()) == size // (size // kept.extents())
    assert await kept.expire(2_000) == 0
    for n in range(5):
        await kept.append(b"%d" % n * 400)
    assert await kept.expire(2_000) == 1
    assert 2_000 <= kept.rows("SELECT bytes FROM partitions")[0][0] < 2_500


async def test_age_and_size_both_count(start):
    kept = await start(topic={"retention.bytes": "1000", "retention.ms": "10000"})
    for n in range(4):
        await kept.append(b"%d" % n * 400)
    await kept.expire()
    assert kept.partition().log_start == 1
    await kept.expire(12_000)
    assert kept.partition().log_start == 4


async def test_without_limits_nothing_goes(start):
    kept = await start(topic={"retention.bytes": "-1", "retention.ms": "-1"})
    await kept.append(b"x" * 1_000)
    assert await kept.expire(4_000 * DAY) == 0


# -- trouble ----------------------------------------------------------------------------------------------------


async def test_a_pass_that_fails_is_made_up_for(start):
    kept = await start(inline_bytes_max=0, tail_bytes_max=0, topic={"retention.ms": "10000"})
    now = kept.clock.now_ms()
    await kept.append_together(now, now + 8_000)
    kept.clock.advance(12_000)
    kept.faults.fail_before("read")
    with pytest.raises(StoreUnavailable):
        await kept.expire()
    assert await kept.expire() == 1
    assert kept.partition().log_start == 1


async def test_an_extent_merged_away_under_the_look_is_seen_by_the_next(start, tmp_path):
    import asyncio

    kept = await start(inline_bytes_max=0, tail_bytes_max=0, garbage_grace=0, topic={"retention.ms": "10000"})
    now = kept.clock.now_ms()
    for _ in range(8):
        await kept.append_together(now, now + 8_000)
    kept.clock.advance(12_000)
    hold = kept.faults.hold("read")
    looking = asyncio.ensure_future(kept.expire())
    await asyncio.to_thread(hold.wait_reached, 20)
    assert await kept.upkeep.merging.run_once() == 8
    assert await kept.upkeep.garbage.run_once() == 8
    hold.release()
    assert await looking == 0
    assert await kept.expire() == 1
    assert kept.partition().log_start == 1


async def test_what_a_crash_left_below_the_log_start_is_removed_and_blocks_nothing(start, monkeypatch):
    """Killed after the log start had moved and before the extents were gone."""
    import millpond.maintenance.retention as module

    monkeypatch.setattr(module, "EXTENTS_PER_PAGE", 5)
    kept = await start(topic={"retention.ms": "10000"})
    for _ in range(12):
        await kept.append(b"old")
    with kept.broker.database.write() as tx:
        tx.rows("UPDATE partitions SET log_start = 10")
    await kept.log.refresh()
    kept.clock.advance(20_000)
    await kept.append(b"new")
    assert await kept.expire() == 1
    assert await kept.values() == [b"new"]
    assert kept.extents() == 1


async def test_readers_and_the_collector_follow(start):
    kept = await start(inline_bytes_max=0, garbage_grace=0, topic={"retention.ms": "1000"})
    for n in range(5):
        await kept.append(b"%d" % n)
    assert len(kept.objects()) == 5
    await kept.expire(3_000)
    await kept.append(b"new")
    assert await kept.upkeep.garbage.run_once() == 5
    assert len(kept.objects()) == 1
    assert await kept.values() == [b"new"]


async def test_a_clock_jump_of_a_year_deletes_nothing_and_is_logged_and_going_back_resumes(start, caplog):
    kept = await start()
    clock, upkeep = kept.clock, kept.upkeep
    await kept.append(b"precious", producer_id=7, producer_epoch=0, base_sequence=0)
    assert await upkeep.retention.run_once() == 0
    clock.jump(YEAR)
    for _ in range(3):
        assert await upkeep.retention.run_once() == 0
        assert await upkeep.expire_once() == 0
        clock.advance(3_600_000)
    assert await kept.values() == [b"precious"]
    jumps = [each for each in caplog.records if each.message == "wall clock jumped; retention paused"]
    assert [each.jump_s for each in jumps] == [31_536_000]
    clock.jump(-YEAR)
    assert await upkeep.retention.run_once() == 0
    assert "wall clock is back; retention resumed" in caplog.messages
    assert await kept.values() == [b"precious"]
    clock.advance(8 * DAY)
    assert await upkeep.retention.run_once() == 1
    assert kept.partition().log_start == 1


async def test_retention_by_size_leaves_alone_what_a_deletion_under_way_accounts_for(start):
    """The log start has moved and the byte count has not: the difference must not be deleted from the rest."""
    kept = await start(topic={"retention.bytes": "10500"})
    for _ in range(20):
        await kept.append(b"x" * 930)
    await kept.log.write(lambda tx: partitions.advance_log_start(tx, kept.topic_partition(), 10))
    retention, config = kept.upkeep.retention, kept.log.topics.config(kept.topic_id)
    assert retention._find_expired(kept.topic_partition(), config, kept.clock.now_ms()).target == 10
