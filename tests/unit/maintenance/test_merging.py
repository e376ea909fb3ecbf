"""Merging: rows and files follow bytes, not flushes, and no reader notices."""

import asyncio
import dataclasses
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.batches import batch_with_header

from millpond.catalog import extents as catalog_extents
from millpond.log import FetchRequest
from millpond.maintenance.disk_space import SpaceCheck
from millpond.maintenance.merging import Merging
from millpond.model.errors import CatalogUnavailable, StoreUnavailable
from millpond.model.extents import Extent
from millpond.model.ids import TopicId, TopicPartition
from millpond.records import Codec, Record
from millpond.rewriting.inputs import read_group
from millpond.rewriting.merging import (
    FAN_IN,
    LARGE_BYTES,
    ROWS_MAX,
    SEGMENT_BYTES_MAX,
    build_segment,
    last_small_run,
    plan_merges,
    size_of_merged,
)
from millpond.segments.segment import check_segment

WHERE = TopicPartition(TopicId(b"t" * 16), 0)
KIB, MIB = 1024, 1024 * 1024
COLD = {"tail_bytes_max": 0, "cache_bytes_max": 0}
"""Every read goes to catalog and store."""
WAITING = "millpond_maintenance_waiting_bytes"


def log_of(*lengths, records=2):
    return [
        Extent(WHERE, n * records, (n + 1) * records, 1, 0, length, records, n, n, False, f"k/{n}", None)
        for n, length in enumerate(lengths)
    ]


def merged(extents):
    """What the log looks like when a plan has been carried out."""
    groups = {group[0].base_offset: group for group in plan_merges(extents)}
    result, skip = [], 0
    for each in extents:
        if skip:
            skip -= 1
            continue
        group = groups.get(each.base_offset, [each])
        length = sum(e.length for e in group)
        last = group[-1]
        result.append(
            Extent(WHERE, each.base_offset, last.end_offset, 1, 0, length, 1, 0, 0, True, "s/1", None)
        )
        skip = len(group) - 1
    return result


# -- the plan ---------------------------------------------------------------------------------------------------

LENGTHS = st.lists(
    st.one_of(
        st.integers(100, 20 * KIB), st.integers(100, 2 * MIB), st.sampled_from([MIB - 1, MIB, 9 * MIB])
    ),
    max_size=60,
)


@given(LENGTHS)
def test_groups_are_neighbours_in_order_and_never_touch_what_is_large(lengths):
    extents = log_of(*lengths)
    groups = plan_merges(extents)
    places = {id(each): n for n, each in enumerate(extents)}
    seen = [places[id(each)] for group in groups for each in group]
    assert seen == sorted(set(seen))
    for group in groups:
        assert len(group) > 1
        assert all(each.length < LARGE_BYTES for each in group)
        assert all(a.end_offset == b.base_offset for a, b in itertools.pairwise(group))
        assert sum(each.length for each in group) <= SEGMENT_BYTES_MAX


@given(LENGTHS)
def test_planning_again_and_again_ends_with_few_rows_per_mebibyte(lengths):
    extents = log_of(*lengths)
    for _ in range(len(lengths) + 1):
        if not plan_merges(extents):
            break
        after = merged(extents)
        assert len(after) < len(extents)
        assert sum(e.length for e in after) == sum(e.length for e in extents)
        extents = after
    assert plan_merges(extents) == []
    assert len(extents) <= ROWS_MAX * (sum(lengths) // LARGE_BYTES + 1)


def test_a_stream_of_small_flushes_is_rewritten_few_times():
    """A million bytes in kilobytes: rows stay few at every moment, and a byte is written about four times."""
    extents, rewritten, worst = [], 0, 0
    for n in range(1_000):
        extents.append(log_of(*[1_000] * (n + 1))[-1])
        while groups := plan_merges(extents):
            rewritten += sum(each.length for group in groups for each in group)
            extents = merged(extents)
        worst = max(worst, len(extents))
    assert worst < ROWS_MAX
    assert rewritten < 5 * 1_000_000


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([100] * 7, []),
        ([100] * 8, [8]),
        ([100] * 8 + [20 * KIB] + [100] * 9, [8, 9]),
        ([20 * KIB] * 8, [8]),
        ([600 * KIB, 600 * KIB], [2]),
        ([20 * KIB] + [100] * 7 + [20 * KIB] * 7, [15]),
        ([400 * KIB] + [100] * 7, []),
        ([400 * KIB] + [100] * 8, [8]),
        ([100] * 7 + [20 * KIB] + [100] * 7 + [20 * KIB] + [100] * 7 + [70 * KIB] + [100] * 7, []),
        (
            [100] * 7 + [20 * KIB] + [100] * 7 + [20 * KIB] + [100] * 7 + [70 * KIB] + [100] * 7 + [70 * KIB],
            [32],
        ),
        ([600 * KIB], []),
        ([MIB] * 20, []),
        ([100, MIB, 100], []),
        ([900 * KIB] * 40, [36, 4]),
        ([900 * KIB] * 37, [36]),
    ],
)
def test_what_is_merged(lengths, sizes):
    assert [len(group) for group in plan_merges(log_of(*lengths))] == sizes


# -- the deed ---------------------------------------------------------------------------------------------------


async def raw(kept):
    """Every byte of the log, as a reader is given it."""
    offset, data = kept.partition().log_start, b""
    while True:
        [result] = await kept.log.fetch([FetchRequest(kept.topic_partition(), offset, MIB)], bytes_max=MIB)
        if not result.batches:
            return data
        data += b"".join(result.batches)
        offset = result.next_offset


async def fill(kept, count=30, seed=1):
    choice = random.Random(seed)
    for _ in range(count):
        values = [choice.randbytes(choice.choice([1, 100, 3_000])) for _ in range(choice.randint(1, 3))]
        await kept.append(*values, compression=choice.choice(list(Codec)))


async def test_every_byte_stays_what_it_was(start, tmp_path):
    kept = await start(tmp_path, inline_bytes_max=500, tail_bytes_max=0, cache_bytes_max=0)
    await fill(kept)
    before = await raw(kept)
    replaced = await kept.upkeep.merging.run_once()
    assert replaced >= 30 - FAN_IN
    assert kept.extents() < FAN_IN
    assert await raw(kept) == before
    assert kept.rows("SELECT sum(length) FROM extents") == kept.rows("SELECT bytes FROM partitions")
    assert await kept.upkeep.merging.run_once() == 0


async def test_a_segment_can_be_checked_by_itself_and_says_what_the_row_says(start):
    kept = await start()
    await fill(kept)
    await kept.upkeep.merging.run_once()
    rows = await kept.log.read(lambda tx: catalog_extents.facts(tx, kept.topic_partition(), 0, 99))
    segments = [row for row in rows if row.key is not None]
    assert segments
    for row in segments:
        data = kept.store.read(row.key, 0, kept.store.size(row.key))
        assert check_segment(data, row.key) == dataclasses.replace(row, appended_at=-1, late_at=-1)


async def test_readers_read_and_producers_append_meanwhile(start, tmp_path):
    kept = await start(tmp_path, inline_bytes_max=300, tail_bytes_max=2_000, garbage_grace=0)
    stop = asyncio.Event()
    sent = []

    async def produce():
        for number in range(150):
            await kept.append(b"%d" % number + b"x" * (number % 5 * 100))
            sent.append(number)
        stop.set()

    async def read():
        while not stop.is_set():
            found = [int(value.partition(b"x")[0]) for value in await kept.values(0)]
            assert found == list(range(len(found)))
            await asyncio.sleep(0)

    async def tidy():
        while not stop.is_set():
            await kept.upkeep.merging.run_once()
            await kept.upkeep.garbage.run_once()

    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for job in (produce, read, read, tidy):
            tasks.create_task(job())
    assert [int(value.partition(b"x")[0]) for value in await kept.values(0)] == sent
    await kept.upkeep.merging.run_once()
    assert kept.extents() < 2 * FAN_IN


async def test_only_what_has_grown_is_looked_at_again(start, monkeypatch):
    kept = await start(topic={"partitions": 3})
    await kept.append(b"x", partition=1)
    await kept.upkeep.merging.run_once()
    looked = []
    step = Merging._step
    monkeypatch.setattr(
        Merging,
        "_step",
        lambda self, topic_partition: looked.append(topic_partition) or step(self, topic_partition),
    )
    await kept.upkeep.merging.run_once()
    assert looked == []
    await kept.append(b"x", partition=2)
    await kept.upkeep.merging.run_once()
    assert looked == [kept.topic_partition(2)]


async def test_what_lay_unmerged_at_a_restart_is_found(start, tmp_path):
    kept = await start(tmp_path)
    await fill(kept, 20)
    await kept.broker.stop()
    again = await start(tmp_path, clock=kept.clock, topic=False)
    again.topic_id = kept.topic_id
    assert await again.upkeep.merging.run_once() >= 8
    assert again.extents() < 20


async def test_large_extents_stay_where_they_are(start):
    kept = await start(inline_bytes_max=0)
    for _ in range(2):
        await kept.append_together(*range(6), size=200 * KIB)
        for _ in range(FAN_IN):
            await kept.append(b"small")
    large = kept.rows("SELECT object_id FROM extents WHERE length >= ?", LARGE_BYTES)
    await kept.upkeep.merging.run_once()
    assert kept.rows("SELECT object_id FROM extents WHERE length >= ?", LARGE_BYTES) == large
    assert kept.extents() == 4


async def test_extents_that_changed_meanwhile_are_left_alone_and_no_segment_stays(start, tmp_path):
    kept = await start(tmp_path)
    await fill(kept, 10)
    hold = kept.faults.hold("put", applied=True)
    merging = asyncio.ensure_future(kept.upkeep.merging.run_once())
    await asyncio.to_thread(hold.wait_reached, 20)
    await kept.log.delete_records(kept.topic_partition(), 5)
    expected = await raw(kept)
    hold.release()
    assert await merging == 0
    assert [key for key in kept.objects() if key.startswith("segments/")] == []
    assert await raw(kept) == expected
    await fill(kept, 10)
    assert await kept.upkeep.merging.run_once() > 0


async def test_extents_that_expired_before_they_were_read_are_left_alone(start):
    kept = await start(inline_bytes_max=0)
    await fill(kept, 10)
    hold = kept.faults.hold("read")
    merging = asyncio.ensure_future(kept.upkeep.merging.run_once())
    await asyncio.to_thread(hold.wait_reached, 20)
    await kept.log.delete_records(kept.topic_partition(), -1)
    kept.upkeep.garbage._grace_ms = 0
    await kept.upkeep.garbage.run_once()
    hold.release()
    assert await merging == 0
    assert kept.objects() == []


async def test_killed_between_put_and_replace_leaves_garbage_only(start, tmp_path):
    kept = await start(tmp_path, garbage_grace=0)
    await fill(kept, 10)
    before = await raw(kept)
    kept.faults.fail_after("put")
    with pytest.raises(StoreUnavailable):
        await kept.upkeep.merging.run_once()
    [orphan] = [key for key in kept.objects() if key.startswith("segments/")]
    assert await kept.upkeep.garbage.run_once() == 0  # its session lives
    await kept.broker.stop()
    again = await start(tmp_path, clock=kept.clock, topic=False, garbage_grace=0)
    again.topic_id = kept.topic_id
    assert await raw(again) == before
    assert await again.upkeep.garbage.run_once() >= 1
    assert orphan not in again.objects()
    assert await again.upkeep.merging.run_once() == 10
    assert await raw(again) == before


async def test_a_partition_whose_merge_failed_is_still_due(start):
    kept = await start(topic={"partitions": 2})
    for partition in (0, 1):
        for _ in range(FAN_IN):
            await kept.append(b"x", partition=partition)
    await kept.upkeep.merging.run_once()
    for partition in (0, 1):
        for _ in range(FAN_IN):
            await kept.append(b"x", partition=partition)
    kept.faults.fail_before("put")
    with pytest.raises(StoreUnavailable):
        await kept.upkeep.merging.run_once()
    assert await kept.upkeep.merging.run_once() == 2 * (FAN_IN + 1)
    assert kept.extents() == 2


async def test_a_pass_has_a_budget_and_the_next_goes_on(start, monkeypatch):
    import millpond.maintenance.merging as module

    monkeypatch.setattr(module, "BYTES_PER_PASS", 1)
    kept = await start(topic={"partitions": 3})
    for partition in range(3):
        for _ in range(FAN_IN):
            await kept.append(b"x", partition=partition)
    assert [await kept.upkeep.merging.run_once() for _ in range(4)] == [FAN_IN, FAN_IN, FAN_IN, 0]


async def test_one_pass_goes_on_until_nothing_is_left_to_merge(start, monkeypatch):
    import millpond.maintenance.merging as module

    monkeypatch.setattr(module, "EXTENTS_PER_PAGE", FAN_IN)
    kept = await start()
    for _ in range(5 * FAN_IN):
        await kept.append(b"x")
    await kept.upkeep.merging.run_once()
    rows = await kept.log.read(lambda tx: catalog_extents.facts(tx, kept.topic_partition(), 0, 999))
    assert plan_merges(rows) == []
    assert len(rows) < FAN_IN


async def test_dead_inline_bytes_leave_the_catalog(start):
    kept = await start()
    await fill(kept, 40)
    assert (await kept.log.read(catalog_extents.totals)).inline >= 30
    await kept.upkeep.merging.run_once()
    totals = await kept.log.read(catalog_extents.totals)
    assert totals.inline < FAN_IN


async def test_epochs_survive_a_merge(start, tmp_path):
    """After restarts a group holds extents of several epochs: each batch keeps its own."""
    from millpond.records import walk

    kept = await start(tmp_path, **COLD)
    for _ in range(3):
        for _ in range(4):
            await kept.append(b"x", b"y")
        await kept.broker.stop()
        again = await start(tmp_path, clock=kept.clock, topic=False, **COLD)
        again.topic_id = kept.topic_id
        kept = again
    before = [header.leader_epoch for _, header in walk(await raw(kept))]
    assert len(set(before)) == 3
    assert await kept.upkeep.merging.run_once() == 12
    assert kept.rows("SELECT epoch FROM extents") == [(max(before),)]
    assert [header.leader_epoch for _, header in walk(await raw(kept))] == before


async def test_a_merged_log_is_found_by_time_through_its_index(start):
    kept = await start(inline_bytes_max=0, tail_bytes_max=0)
    now = kept.clock.now_ms()
    for n in range(20):
        await kept.append(random.Random(n).randbytes(12 * KIB), at=now + n)
    assert await kept.upkeep.merging.run_once() >= 16
    [(index, position)] = kept.rows("SELECT sparse_index, position FROM extents ORDER BY base_offset LIMIT 1")
    assert index
    assert position == 64
    for n in (0, 7, 15, 19):
        found = await kept.log.offset_at(kept.topic_partition(), now + n)
        assert (found.offset, found.timestamp) == (n, now + n)


async def test_a_group_is_read_in_as_many_reads_as_it_takes(start):
    from millpond.reading.reader import StoreReader

    kept = await start(inline_bytes_max=0)
    await fill(kept, 12)
    reader = StoreReader(kept.broker.database, kept.store, extents_per_read=5)
    rows = await kept.log.read(lambda tx: catalog_extents.facts(tx, kept.topic_partition(), 0, 99))
    runs = read_group(reader.read_runs, rows)
    segment = build_segment(kept.broker.session, 1, rows, runs)
    assert b"".join(bytes(run.data) for run in runs) == await raw(kept)
    assert segment.row.records == sum(row.records for row in rows)


async def test_a_damaged_object_keeps_no_other_partition_from_being_merged(start, tmp_path, caplog):
    kept = await start(tmp_path, topic={"partitions": 3}, inline_bytes_max=0)
    for number in range(30):
        await kept.append(b"%d" % number, partition=number % 3)
    [journal] = (tmp_path / "objects" / "journal").glob("*/*")
    data = bytearray(journal.read_bytes())
    position = data.index(b"MPEX") + 64 + 30  # inside the first batch's checksum
    data[position] ^= 0xFF
    journal.write_bytes(data)
    assert await kept.upkeep.merging.run_once() == 20
    assert await kept.upkeep.merging.run_once() == 0
    assert await kept.values(partition=1) == [b"%d" % n for n in range(1, 30, 3)]
    failed = [each for each in caplog.records if each.message == "merging failed; will retry"]
    assert {(each.topic, each.partition) for each in failed} == {("orders", 0)}


# -- what rides in the catalog -------------------------------------------------------------------------------------


def inline(*lengths):
    """Lengths below 16 KiB ride in the catalog."""
    return [dataclasses.replace(e, key=None) if e.length < 16 * KIB else e for e in log_of(*lengths)]


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([100] * 3, []),
        ([100] * 3 + [2 * MIB], [3]),
        ([2 * MIB, 100, 2 * MIB, 100], [1]),
        ([2 * MIB, 100, 20 * KIB, 2 * MIB], [2]),
        ([2 * MIB, 20 * KIB, 2 * MIB], []),
    ],
)
def test_between_large_extents_nothing_stays_in_the_catalog(lengths, sizes):
    assert [len(group) for group in plan_merges(inline(*lengths))] == sizes


@given(LENGTHS)
def test_only_the_last_run_stays_in_the_catalog_and_it_is_bounded(lengths):
    extents = inline(*lengths)
    for _ in range(len(lengths) + 1):
        planned = {each.base_offset for group in plan_merges(extents) for each in group}
        if not planned:
            break
        before = {each.base_offset: each for each in extents}
        extents = [e if e.base_offset in planned else before[e.base_offset] for e in merged(extents)]
    kept = [extent for extent in extents if extent.key is None]
    last = [e for e in extents if e.base_offset >= last_small_run(extents)] if extents else []
    assert all(extent in last for extent in kept)
    assert len(kept) < ROWS_MAX


async def test_one_small_flush_between_large_ones_leaves_the_catalog(start):
    kept = await start(inline_bytes_max=16 * KIB, topic={"max.message.bytes": str(4 * MIB)})
    for size in (2 * MIB, 10, 2 * MIB):
        await kept.append(b"x" * (size // 4), b"x" * (size // 4), b"x" * (size // 4), b"x" * (size // 4))
    assert (await kept.log.read(catalog_extents.totals)).inline == 1
    assert await kept.upkeep.merging.run_once() == 1
    assert (await kept.log.read(catalog_extents.totals)).inline == 0
    assert kept.log._inline.total == 0
    assert [len(value) for value in await kept.values()] == [MIB // 2] * 4 + [2] * 4 + [MIB // 2] * 4


async def test_what_cannot_be_merged_leaves_no_segments_behind(start):
    kept = await start()
    for number in range(12):
        await kept.append(b"%d" % number)
    committer = kept.log.writer._committer
    tries = committer.tries

    def refuse(_):
        raise CatalogUnavailable(reason="read-only")

    committer.tries = refuse
    for _ in range(3):
        with pytest.raises(CatalogUnavailable):
            await kept.upkeep.merging.run_once()
    committer.tries = tries
    assert list(kept.store.list("segments/")) == []


async def test_without_room_for_the_segment_it_waits_and_goes_on_when_there_is(start, caplog):
    kept = await start(inline_bytes_max=0)
    for n in range(FAN_IN):
        await kept.append(b"%d" % n * 1000)
    needed = size_of_merged(plan_merges(facts(kept))[0])
    free, metrics = [needed - 1], kept.broker.metrics
    kept.upkeep.merging._space = SpaceCheck(lambda: free[0], metrics.maintenance)
    for _ in range(3):
        assert await kept.upkeep.merging.run_once() == 0
    assert len(kept.objects()) == FAN_IN
    assert metrics.registry.get_sample_value(WAITING, {"duty": "merging"}) == needed
    assert [each.message for each in caplog.records] == ["not enough room on the disk; maintenance waits"]
    free[0] = needed
    assert await kept.upkeep.merging.run_once() == FAN_IN
    assert metrics.registry.get_sample_value(WAITING, {"duty": "merging"}) == 0
    assert kept.rows("SELECT count(*) FROM extents") == [(1,)]


async def test_what_it_says_it_needs_is_no_less_than_what_it_writes(start):
    kept = await start(inline_bytes_max=0)
    for n in range(FAN_IN):
        await kept.append(b"%d" % n * 1000)
    needed = size_of_merged(plan_merges(facts(kept))[0])
    await kept.upkeep.merging.run_once()
    [(written,)] = kept.rows("SELECT bytes FROM objects WHERE kind = 'segment'")
    assert written <= needed


def facts(kept):
    with kept.broker.database.read() as tx:
        return catalog_extents.facts(tx, kept.topic_partition(), 0, 100)


async def test_the_index_of_a_segment_has_the_newest_times_of_its_batches(start):
    """Not those of their first records, which is what their headers claimed when they came."""
    kept = await start(inline_bytes_max=0)
    now = kept.clock.now_ms()
    for number in range(8):
        records = [Record(b"v" * 70_000, timestamp=1_000), Record(b"v", timestamp=now + number)]
        await kept.log.append(kept.topic_partition(), batch_with_header(records, newest=1_000))
    assert await kept.upkeep.merging.run_once() == 8
    [row] = await kept.log.read(lambda tx: catalog_extents.facts(tx, kept.topic_partition(), 0, 9))
    assert [entry.max_timestamp for entry in row.index] == [now + number for number in range(8)]
    assert (row.min_timestamp, row.max_timestamp) == (1_000, now + 7)
    assert (await kept.log.offset_at(kept.topic_partition(), now + 5)).offset == 11
