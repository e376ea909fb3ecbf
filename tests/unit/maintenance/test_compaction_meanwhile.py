"""A compaction takes its time. What others do while it is under way counts when it commits."""

import asyncio
from contextlib import asynccontextmanager

from millpond.catalog import compactions
from millpond.catalog import extents as catalog_extents
from millpond.catalog.compactions import TOMBSTONES_REMOVED
from millpond.log import FetchRequest
from millpond.records import Codec, Record, build_batch, iter_records, walk
from millpond.records.batch import seal
from millpond.rewriting.merging import LARGE_BYTES

MIB = 1024 * 1024
SECOND, HOUR = 1_000, 3_600_000
COLD = {"tail_bytes_max": 0, "cache_bytes_max": 0}
EAGER = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


async def put(kept, key, value, partition=0):
    batch = build_batch([Record(value, key, timestamp=kept.clock.now_ms())])
    return await kept.log.append(kept.topic_partition(partition), batch)


async def pairs(kept, partition=0):
    """[(offset, key, value)] from the log start on."""
    topic_partition, offset = kept.topic_partition(partition), kept.partition(partition).log_start
    found = []
    while offset < kept.partition(partition).end_offset:
        [result] = await kept.log.fetch([FetchRequest(topic_partition, offset, 4 * MIB)], bytes_max=4 * MIB)
        batches = [list(iter_records(data, decompressed_bytes_max=4 * MIB)) for data in result.batches]
        found += [(r.offset, r.key, r.value) for batch in batches for r in batch if r.offset >= offset]
        offset = result.next_offset
    return found


def points(kept):
    with kept.broker.database.read() as tx:
        return compactions.read(tx, kept.topic_partition())


def segments(kept):
    return [key for key in kept.objects() if key.startswith("segments/")]


@asynccontextmanager
async def compacting(kept):
    """Yields a task: a compaction that has put its first segment, and goes on when the block ends."""
    hold = kept.faults.hold("put", applied=True)
    task = asyncio.ensure_future(kept.upkeep.compaction.run_once())
    await asyncio.to_thread(hold.wait_reached, 20)
    try:
        yield task
    finally:
        hold.release()
        await asyncio.wait([task])


# -- retention --------------------------------------------------------------------------------------------------


async def test_a_log_start_that_moves_all_the_time_does_not_keep_it_from_committing(start, tmp_path):
    both = EAGER | {"cleanup.policy": "compact,delete", "retention.ms": str(10 * SECOND)}
    kept = await start(tmp_path, topic=both, inline_bytes_max=0, **COLD)
    for number in range(11):
        await put(kept, b"unique%d" % number, b"1")
        await put(kept, b"k", b"%d" % number)
        kept.clock.advance(SECOND)
    for number in range(3):
        await put(kept, b"unique.%d" % number, b"1")
        await put(kept, b"k", b".%d" % number)
        async with compacting(kept) as task:
            kept.clock.advance(SECOND)
            assert await kept.upkeep.retention.run_once() == 1
        assert task.result() > 0
        assert kept.rows("SELECT sum(length) FROM extents") == kept.rows("SELECT bytes FROM partitions")
        assert points(kept)[-1].end_offset == kept.partition().end_offset
    found = await pairs(kept)
    assert found[0][0] >= kept.partition().log_start
    assert [value for _, key, value in found if key == b"k"] == [b".2"]
    assert len(found) == len([key for _, key, _ in found if key.startswith(b"unique")]) + 1


async def test_a_segment_of_which_everything_has_expired_is_deleted(start, tmp_path):
    roomy = {"max.message.bytes": str(2 * LARGE_BYTES)}
    kept = await start(tmp_path, topic=EAGER | roomy, inline_bytes_max=0, **COLD)
    for key, size in ((b"a", 1), (b"a", 2), (b"big", LARGE_BYTES), (b"b", 1), (b"b", 2)):
        await put(kept, key, b"x" * size)
    async with compacting(kept) as task:
        await kept.log.delete_records(kept.topic_partition(), 3)
    assert task.result() == 2
    [key] = segments(kept)
    assert kept.rows("SELECT key FROM objects WHERE kind = 'segment'") == [(key,)]
    assert await pairs(kept) == [(4, b"b", b"xx")]
    assert kept.rows("SELECT sum(length) FROM extents") == kept.rows("SELECT bytes FROM partitions")


async def test_what_was_merged_below_the_log_start_is_not_in_its_way(start, tmp_path):
    """The log start moves first, and a merge may come before the extents below it are removed."""
    kept = await start(tmp_path, topic=EAGER, inline_bytes_max=0, **COLD)
    for number in range(6):
        await put(kept, b"k", b"%d" % number)
    async with compacting(kept) as task:
        await kept.log.write(
            lambda tx: tx.rows("UPDATE partitions SET log_start = 3 RETURNING log_start")[0][0]
        )
        rows = await kept.log.read(lambda tx: catalog_extents.facts(tx, kept.topic_partition(), 0, 3))
        assert await kept.upkeep.merging._merge(rows) > 0
    assert task.result() == 5
    assert kept.rows("SELECT base_offset, end_offset FROM extents") == [(0, 6)]
    assert kept.rows("SELECT sum(length) FROM extents") == kept.rows("SELECT bytes FROM partitions")


async def test_a_line_drawn_for_too_many_bytes_is_not_drawn_once_they_are_gone(start, tmp_path, monkeypatch):
    limits = {"cleanup.policy": "compact,delete", "retention.bytes": "6000", "retention.ms": "-1"}
    kept = await start(tmp_path, topic=EAGER | limits, inline_bytes_max=0, **COLD)
    for number in range(5):
        await put(kept, b"unique%d" % number, b"x" * 900)
    for _ in range(6):
        await put(kept, b"same", b"x" * 900)
    found, go = asyncio.Event(), asyncio.Event()
    delete_records = kept.log.upkeep.delete_records

    async def slow(*arguments, **named):
        found.set()
        await go.wait()
        return await delete_records(*arguments, **named)

    monkeypatch.setattr(kept.log.upkeep, "delete_records", slow)
    expiring = asyncio.ensure_future(kept.upkeep.retention.run_once())
    await found.wait()
    assert await kept.upkeep.compaction.run_once() == 5
    go.set()
    assert await expiring == 0
    assert kept.rows("SELECT log_start FROM partitions") == [(0,)]
    assert len(await pairs(kept)) == 6
    for number in range(8):
        await put(kept, b"more%d" % number, b"x" * 900)
    assert await kept.upkeep.retention.run_once() == 1, (
        "it is looked at again at once, and goes by what there is"
    )
    assert 6_000 <= kept.rows("SELECT bytes FROM partitions")[0][0] < 8_000


# -- configs and clocks -----------------------------------------------------------------------------------------


async def compact_while_configs_change(start, folder, changes, **settings):
    kept = await start(folder, topic=EAGER, inline_bytes_max=0, **COLD, **settings)
    for number in range(5):
        await put(kept, b"k", b"%d" % number)
    async with compacting(kept) as task:
        await kept.log.alter_config("orders", changes)
    return kept, task.result()


async def test_a_topic_that_is_taken_off_compaction_loses_nothing_more(start, tmp_path):
    kept, removed = await compact_while_configs_change(start, tmp_path, {"cleanup.policy": "delete"})
    assert (removed, len(await pairs(kept)), points(kept), segments(kept)) == (0, 5, (), [])


async def test_records_and_tombstones_that_are_to_stay_longer_do(start, tmp_path):
    for number, name in enumerate(("delete.retention.ms", "min.compaction.lag.ms")):
        changes = {name: str(30 * 24 * HOUR)}
        kept, removed = await compact_while_configs_change(start, tmp_path / str(number), changes)
        assert (removed, len(await pairs(kept)), points(kept)) == (0, 5, ())


async def test_configs_that_do_not_matter_to_it_may_change(start, tmp_path):
    kept, removed = await compact_while_configs_change(start, tmp_path, {"retention.ms": "7000000"})
    assert (removed, len(await pairs(kept))) == (4, 1)


async def test_what_is_set_for_the_broker_counts_for_topics_that_do_not_set_it(start, tmp_path):
    kept = await start(tmp_path, topic=False)
    kept.log.topics.broker_defaults.update(EAGER | {"delete.retention.ms": "7"})
    await kept.topic()
    for number in range(5):
        await put(kept, b"k", b"%d" % number)
    assert await kept.upkeep.compaction.run_once() == 4


async def test_tombstones_wait_from_the_moment_that_what_they_delete_goes(start, tmp_path):
    kept = await start(tmp_path, topic=EAGER | {"delete.retention.ms": str(60 * SECOND)}, **COLD)
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", None)):
        await put(kept, key, value)
    async with compacting(kept) as task:
        kept.clock.advance(61 * SECOND)
    assert task.result() == 1
    assert points(kept) == ((3, kept.clock.now_ms()),)
    kept.clock.advance(59 * SECOND)
    assert await kept.upkeep.compaction.run_once() == 0
    kept.clock.advance(SECOND)
    assert await kept.upkeep.compaction.run_once() == 1


async def test_a_clock_that_is_set_back_meanwhile_does_not_shorten_their_wait(start, tmp_path):
    kept = await start(tmp_path, topic=EAGER, **COLD)
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", None)):
        await put(kept, key, value)
    planned_ms = kept.clock.now_ms()
    async with compacting(kept) as task:
        kept.clock.jump(-100 * HOUR)
    assert task.result() == 1
    assert points(kept) == ((3, planned_ms),)


async def test_a_clock_that_jumps_in_the_middle_of_a_pass_ends_it(start, tmp_path):
    topic = EAGER | {"partitions": 2, "delete.retention.ms": str(HOUR)}
    kept = await start(tmp_path, topic=topic, inline_bytes_max=0, **COLD)
    for partition in (0, 1):
        for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", None)):
            await put(kept, key, value, partition)
    assert await kept.upkeep.compaction.run_once() == 2
    for partition in (0, 1):
        await put(kept, b"b", b"2", partition)
    async with compacting(kept) as task:
        kept.clock.jump(100 * HOUR)
    assert task.result() == 1
    for partition in (0, 1):
        assert [value for _, key, value in await pairs(kept, partition) if key == b"a"] == [None]


# -- batches that cannot be decoded -----------------------------------------------------------------------------


async def test_what_was_deleted_behind_a_batch_that_cannot_be_decoded_stays_deleted(start):
    """Somebody else may be able to decode it, and would take what it holds for living."""
    kept = await start(**COLD)
    now = kept.clock.now_ms()  # or it would be looked into, and refused
    broken = bytearray(build_batch([Record(b"\0" * 50, b"a")], now_ms=now, compression=Codec.ZSTD))
    broken[70:75] = b"?????"
    seal(broken, 0, len(broken))
    await kept.log.append(kept.topic_partition(), bytes(broken))
    await kept.log.alter_config("orders", EAGER | {"delete.retention.ms": str(SECOND)})
    await put(kept, b"a", None)
    await put(kept, b"b", b"1")
    for _ in range(3):
        assert await kept.upkeep.compaction.run_once() == 0
        assert points(kept) == ((3, kept.clock.now_ms()),)  # tried again, but not all the time
        assert await kept.upkeep.compaction.run_once() == 0
        kept.clock.advance(5 * SECOND)
    [result] = await kept.log.fetch([FetchRequest(kept.topic_partition(), 0, MIB)], bytes_max=MIB)
    assert [header.base_offset for data in result.batches for _, header in walk(data)] == [0, 1, 2]
    await kept.log.delete_records(kept.topic_partition(), 1)
    assert await kept.upkeep.compaction.run_once() == 1
    assert points(kept) == ((3, TOMBSTONES_REMOVED),)


# -- one commit each --------------------------------------------------------------------------------------------


async def test_what_rewrites_or_removes_extents_shares_its_commit_with_nobody(start, tmp_path, monkeypatch):
    kept = await start(tmp_path, topic=EAGER, garbage_grace=0)
    jobs = []
    submit = kept.log.writer.submit
    monkeypatch.setattr(kept.log.writer, "submit", lambda job: (jobs.append(job), submit(job))[1])

    async def own_commit(work):
        jobs.clear()
        await work
        return sum(job.own_commit for job in jobs)

    assert await own_commit(put(kept, b"k", b"0")) == 0
    for number in range(9):
        await put(kept, b"k%d" % (number % 8), b"%d" % number)
    assert await own_commit(kept.upkeep.merging.run_once()) == 1
    assert await own_commit(kept.upkeep.compaction.run_once()) == 1
    assert await own_commit(kept.log.delete_records(kept.topic_partition(), -1)) == 1
    await put(kept, b"k", b"0")
    await kept.log.delete_topic("orders")
    assert await own_commit(kept.upkeep.garbage.run_once()) == 1
