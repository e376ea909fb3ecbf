"""Compaction by example: when it is worth it, what it leaves, and how batches and segments look afterwards."""

import pickle

import pytest
from tests.batches import batch_with_header
from tests.unit.rewriting.paper import PLENTY, START_MS, Paper, config_of

from millpond.catalog.compactions import TOMBSTONES_REMOVED, CompactionPoint
from millpond.model.errors import ExtentsChanged
from millpond.records import Codec, Record, build_batch, check_crc, iter_records, walk, with_append_time
from millpond.records.batch import seal
from millpond.rewriting.compaction_batches import emptied, with_records
from millpond.rewriting.compaction_keys import BatchFilter, PlainKeys
from millpond.rewriting.compaction_points import points_after
from millpond.rewriting.merging import LARGE_BYTES

HOUR = 3_600_000
KIB, MIB = 1024, 1024 * 1024


def of(*keys, size=10, **named):
    """A partition with one record in each extent."""
    paper = Paper()
    for number, key in enumerate(keys):
        paper.append((key, b"%d" % number + b"." * size), **named)
    return paper


def headers(paper):
    return [header for _, data in paper.extents for _, header in walk(data)]


# -- the plan ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "is_planned"), [("0", True), ("0.3", True), ("0.5", True), ("0.51", False)]
)
def test_it_is_worth_it_when_enough_is_dirty(ratio, is_planned):
    paper = of(b"a", b"b", b"c", b"d")
    paper.point(2, 0)
    plan = paper.plan(min_cleanable_dirty_ratio=ratio)
    assert (plan is not None) == is_planned
    assert paper.plan(min_cleanable_dirty_ratio="1", force=True).dirty_start == 2


def test_nothing_dirty_is_never_worth_it():
    paper = of(b"a", b"a")
    assert Paper().plan(force=True) is None
    paper.point(2, 0)
    assert paper.plan(force=True) is None


def test_the_safe_point_is_below_what_is_not_decided():
    paper = of(b"a", b"b").append((b"a", b"x"), (b"a", b"y"), producer=1, joined=True).append((b"a", b"z"))
    plan = paper.plan()
    assert (plan.clean_end, [e.base_offset for e in plan.extents]) == (1, [0])
    paper.finish(1, commit=True)
    assert paper.plan().clean_end == paper.end


def test_an_extent_with_a_record_that_is_too_young_is_left_out_and_all_behind_it():
    paper = Paper()
    for age in (3 * HOUR, 2 * HOUR, HOUR // 2, 4 * HOUR):
        paper.append((b"a", b"1"), at=START_MS - age)
    assert paper.plan(min_compaction_lag_ms=HOUR).clean_end == 2
    assert paper.plan(min_compaction_lag_ms=2 * HOUR).clean_end == 2
    assert paper.plan(min_compaction_lag_ms=2 * HOUR + 1).clean_end == 1
    assert paper.plan(min_compaction_lag_ms=0).clean_end == 4
    assert paper.plan(min_compaction_lag_ms=9 * HOUR) is None


def test_a_record_that_has_waited_long_enough_makes_it_worth_it():
    paper = of(b"a", b"b", b"c")
    paper.point(2, 0)
    quiet = {"min_cleanable_dirty_ratio": "1", "max_compaction_lag_ms": HOUR}
    assert paper.plan(**quiet) is None
    paper.now_ms += HOUR - 1
    assert paper.plan(**quiet) is None
    paper.now_ms += 1
    assert paper.plan(**quiet).clean_end == 3


def test_tombstones_that_may_go_make_it_worth_it_once():
    paper = of(b"a", b"b")
    paper.append((b"c", None))
    paper.compact(delete_retention_ms=HOUR)
    assert paper.points == ((3, START_MS),)
    paper.now_ms += HOUR - 1
    assert paper.plan(force=True, delete_retention_ms=HOUR) is None
    paper.now_ms += 1
    plan = paper.plan(delete_retention_ms=HOUR)
    assert (plan.dirty_start, plan.clean_end, plan.tombstones_end) == (3, 3, 3)
    assert len(paper.compact(delete_retention_ms=HOUR).segments) == 1
    assert paper.points == ((3, TOMBSTONES_REMOVED),)
    paper.now_ms += 99 * HOUR
    assert paper.plan(force=True, delete_retention_ms=HOUR) is None


def test_a_log_without_tombstones_has_nothing_to_wait_for():
    paper = of(b"a", b"a")
    paper.compact()
    assert paper.points == ((2, TOMBSTONES_REMOVED),)


def test_points_stay_apart_as_long_as_a_tombstone_waits_below_them():
    paper = of(b"a").append((b"b", None)).append((b"c", b"1"))
    paper.compact(delete_retention_ms=HOUR)
    paper.now_ms += HOUR // 2
    paper.append((b"d", None))
    paper.compact(delete_retention_ms=HOUR)
    assert paper.points == ((3, START_MS), (4, START_MS + HOUR // 2))
    paper.now_ms += HOUR // 2
    paper.compact(delete_retention_ms=HOUR)
    assert sorted(paper.stored()) == [0, 2, 3]
    assert paper.points == ((3, TOMBSTONES_REMOVED), (4, START_MS + HOUR // 2))


def test_what_a_broker_is_about_to_merge_can_be_left_out():
    paper = of(b"a", b"b", size=LARGE_BYTES).append((b"c", b"small")).append((b"d", b"small"))
    assert paper.plan(skip_small_tail=True).clean_end == 2
    assert paper.plan(skip_small_tail=False).clean_end == 4
    assert of(b"a", b"b").plan(skip_small_tail=True) is None


def test_below_the_log_start_nothing_is_dirty():
    paper = Paper().append((b"a", b"1"), (b"a", b"2"), (b"b", b"3")).append((b"b", b"4"))
    paper.delete_below(2)
    plan = paper.plan()
    assert (plan.dirty_start, plan.log_start, plan.extents[0].base_offset) == (2, 2, 0)
    paper.compact()
    assert paper.stored() == {3: (b"b", b"4")}


def test_a_plan_and_what_comes_of_it_can_be_sent_to_another_process():
    paper = of(b"a", b"a", b"b")
    done, _ = paper.deed(paper.plan())
    assert pickle.loads(pickle.dumps(done)) == done


def test_configs_are_read():
    config = config_of(min_cleanable_dirty_ratio="0.25", max_compaction_lag_ms=7, min_compaction_lag_ms=3)
    assert (config.min_cleanable_dirty_ratio, config.max_compaction_lag_ms) == (0.25, 7)
    assert config.min_compaction_lag_ms == 3


# -- transactions -----------------------------------------------------------------------------------------------


def test_a_producer_that_once_aborted_counts_again():
    """The dirty range begins behind the marker that ended its aborted transaction."""
    paper = Paper().append((b"a", b"0"), producer=1).finish(1, commit=False)
    paper.compact()
    paper.append((b"k", b"1")).append((b"k", b"2"), producer=1).finish(1, commit=True)
    paper.compact()
    assert list(paper.stored().values()) == [(b"k", b"2")]


def test_an_aborted_record_replaces_nothing_and_goes_while_its_marker_stays():
    paper = of(b"a").append((b"a", b"no"), producer=1).append((b"b", b"yes")).finish(1, commit=False)
    paper.compact()
    assert sorted(paper.stored()) == [0, 2]
    assert paper.control_offsets() == [3]


# -- batches that cannot be decoded -----------------------------------------------------------------------------


def broken(paper, key):
    """One more batch, which nobody here can decode."""
    paper.append((key, b"0" * 50), codec=Codec.ZSTD)
    extent, data = paper.extents.pop()
    damaged = bytearray(data)
    damaged[70:75] = b"?????"
    seal(damaged, 0, len(damaged))
    paper.extents.append((extent, bytes(damaged)))
    return paper


def offsets(paper):
    return [header.base_offset for header in headers(paper)]


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_tombstones_before_a_batch_that_cannot_be_decoded_go_and_those_behind_it_stay(chunk_bytes):
    paper = broken(of(b"a").append((b"t", None)), b"u").append((b"u", None)).append((b"b", b"1"))
    paper.append((b"v", None)).append((b"c", b"1"))
    now = {"delete_retention_ms": HOUR, "chunk_bytes": chunk_bytes}
    paper.compact(**now)
    assert paper.points == ((7, START_MS),)
    paper.now_ms += HOUR
    done = paper.compact(**now)
    assert (done.unreadable_batches, done.first_tombstone) == (1, 2)
    assert offsets(paper) == [0, 2, 3, 4, 5, 6]
    assert paper.points == ((7, paper.now_ms),)
    assert paper.plan(force=True, delete_retention_ms=HOUR) is None  # tried again, but not at once
    paper.now_ms += HOUR
    assert paper.plan(delete_retention_ms=HOUR).tombstones_end == 7


def test_points_below_a_batch_that_cannot_be_decoded_wait_for_nothing_any_more():
    paper = of(b"a", b"b")
    paper.compact(delete_retention_ms=HOUR)
    broken(paper, b"u").append((b"u", None))
    paper.compact(delete_retention_ms=HOUR)
    assert paper.points == ((2, TOMBSTONES_REMOVED), (4, START_MS))


def test_where_tombstones_had_gone_before_nothing_waits_again():
    """Another executor could decode what this one cannot."""
    paper = broken(of(b"a"), b"u").append((b"b", b"1"))
    paper.points = (CompactionPoint(3, TOMBSTONES_REMOVED),)
    paper.append((b"c", b"1")).compact(delete_retention_ms=HOUR)
    assert paper.points == ((3, TOMBSTONES_REMOVED), (4, START_MS))


def test_the_time_of_a_point_is_that_of_the_commit():
    paper = of(b"a").append((b"t", None))
    done, _ = paper.deed(paper.plan())
    assert points_after(done, START_MS + HOUR) == ((2, START_MS + HOUR),)
    assert points_after(done, START_MS - HOUR) == ((2, START_MS),)


# -- batches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_place_its_producer_and_its_records_bytes(codec):
    records = [Record(b"v%d" % n, b"k%d" % (n % 3), (("h", b"x"),), 1_000 - n) for n in range(6)]
    data = build_batch(
        records,
        compression=codec,
        producer_id=9,
        producer_epoch=2,
        base_sequence=40,
        base_offset=100,
        leader_epoch=7,
        last_offset=110,
    )
    [(_, old)] = walk(data)
    keys = PlainKeys(PLENTY)
    assert keys.collect_keys([(data, 0, old)], 0, 111) == 111
    [filtered] = keys.filter_batches([(data, 0, old)], BatchFilter(0, 111, 0))
    changed = with_records(old, filtered.kept, filtered.records, filtered.newest_timestamp)
    [(_, new)] = walk(changed)
    check_crc(changed, 0, new)
    assert new.record_count == 3
    assert new.max_timestamp == 997
    same = ("base_offset", "last_offset_delta", "leader_epoch", "attributes", "base_timestamp")
    same += ("producer_id", "producer_epoch", "base_sequence", "codec")
    for name in same:
        assert getattr(new, name) == getattr(old, name), name
    whole = list(iter_records(data, decompressed_bytes_max=PLENTY))
    assert list(iter_records(changed, decompressed_bytes_max=PLENTY)) == whole[3:]


def test_a_kept_record_without_a_time_leaves_the_batch_the_time_of_its_append():
    """The header has it, and no record."""
    appended_ms = 5_000
    records = [Record(b"1", b"a", timestamp=7), Record(b"2", b"b"), Record(b"3", b"a", timestamp=9)]
    data = batch_with_header(records, newest=appended_ms)
    [(_, header)] = walk(data)
    for gone, newest in ((b"a", appended_ms), (b"b", 9)):
        keys = PlainKeys(PLENTY)
        later = build_batch([Record(b"later", gone)], base_offset=10)
        keys.collect_keys([(data, 0, header), (later, 0, next(walk(later))[1])], 0, 11)
        [filtered] = keys.filter_batches([(data, 0, header)], BatchFilter(0, 11, 0))
        assert (filtered.kept, filtered.newest_timestamp) == (1, newest)


def test_records_that_bear_the_brokers_time_still_do():
    data = with_append_time(build_batch([Record(b"1", b"a"), Record(b"2", b"a")], now_ms=5), 999)
    [(_, header)] = walk(data)
    changed = with_records(header, 1, data[-9:], 123)
    assert next(walk(changed))[1].max_timestamp == 999


@pytest.mark.parametrize("codec", list(Codec))
def test_an_emptied_batch_is_a_header_that_says_where_it_was(codec):
    data = build_batch(
        [Record(b"1", b"a", timestamp=5)] * 3, compression=codec, base_offset=7, producer_id=3, producer_epoch=0,
        base_sequence=1, transactional=True,
    )  # fmt: skip
    [(_, old)] = walk(data)
    batch = emptied(old)
    [(_, new)] = walk(batch)
    check_crc(batch, 0, new)
    assert (len(batch), new.record_count, new.codec) == (61, 0, Codec.NONE)
    assert (new.base_offset, new.next_offset, new.producer_id, new.is_transactional) == (7, 10, 3, True)
    assert (new.base_timestamp, new.max_timestamp) == (-1, -1)
    assert list(iter_records(batch, decompressed_bytes_max=1)) == []


# -- segments ---------------------------------------------------------------------------------------------------


def test_neighbours_share_a_segment_until_it_is_full():
    paper = of(*[b"a", b"b"] * 10, size=1_000)
    for key in range(20):
        paper.append((b"k%d" % key, b"." * 1_000))
    done = paper.compact(segment_bytes_max=5_000)
    sizes = [segment.row.length for segment in done.segments]
    assert max(sizes) <= 5_000
    assert [len(segment.old) for segment in done.segments] == [22]
    assert sorted(paper.stored()) == list(range(18, 40))


def test_what_has_not_changed_is_not_written_again():
    paper = of(b"a", b"b", b"c")
    done = paper.compact()
    assert (done.segments, done.records_read, done.records_kept) == ((), 3, 3)
    assert done.clean_end == paper.points[-1].end_offset == 3


def test_a_large_extent_that_has_not_changed_stays_between_two_that_have():
    paper = (
        of(b"a", b"b").append((b"big", b"x" * LARGE_BYTES)).append((b"a", b"1"), (b"b", b"1"), (b"b", b"2"))
    )
    done = paper.compact()
    assert [(s.row.base_offset, s.row.end_offset) for s in done.segments] == [(0, 2), (3, 6)]
    assert sorted(paper.stored()) == [2, 3, 5]


def test_an_extent_of_which_nothing_is_left_keeps_one_batch_without_records():
    paper = of(b"a", b"a", b"a").append((b"big", b"x" * LARGE_BYTES)).append((b"a", b"1"))
    done = paper.compact()
    [segment] = done.segments
    assert (segment.row.records, segment.row.length) == (0, 61)
    assert (segment.row.min_timestamp, segment.row.max_timestamp) == (-1, -1)
    assert [(h.base_offset, h.record_count) for h in headers(paper)] == [(2, 0), (3, 1), (4, 1)]


def test_a_segment_that_is_empty_already_is_not_written_again():
    paper = of(b"a", b"a", b"a").append((b"big", b"x" * LARGE_BYTES)).append((b"a", b"1"))
    paper.compact()
    paper.append((b"z", b"1"))
    done = paper.compact()
    assert (done.segments, done.clean_end) == ((), 6)


def test_batches_keep_their_epochs_and_a_segment_has_the_newest():
    paper = Paper()
    for epoch, key in enumerate((b"a", b"b", b"a")):
        paper.append((key, b"x"), epoch=epoch)
    [segment] = paper.compact().segments
    assert segment.row.epoch == 2
    assert [header.leader_epoch for header in headers(paper)] == [1, 2]


def test_the_last_batch_of_a_segment_is_there_even_if_it_is_empty():
    paper = of(b"a", b"b").append((b"c", None))
    paper.compact(delete_retention_ms=1)
    paper.now_ms += 1
    paper.compact(delete_retention_ms=1)
    assert [(h.base_offset, h.record_count) for h in headers(paper)] == [(0, 1), (1, 1), (2, 0)]


def test_an_empty_batch_that_is_not_last_any_more_goes():
    paper = of(b"a", b"b").append((b"c", None))
    for _ in range(2):
        paper.compact(delete_retention_ms=1)
        paper.now_ms += 1
    paper.append((b"a", b"2"))
    paper.compact()
    assert [(h.base_offset, h.record_count) for h in headers(paper)] == [(1, 1), (3, 1)]


def test_keys_beyond_the_bound_wait_for_the_next_compaction():
    paper = of(*[b"%04d" % (n % 8) for n in range(32)])
    ends = []
    while (not ends or ends[-1] < 32) and len(ends) < 99:
        ends.append(paper.compact(keys=PlainKeys(600)).clean_end)
    assert len(ends) > 3
    assert ends == sorted(set(ends))
    assert len(paper.stored()) <= 16


def test_one_extent_that_does_not_fit_is_compacted_piece_by_piece():
    paper = Paper().append(*[(b"%04d" % (n % 6), b"x") for n in range(12)])
    ends = []
    while len(ends) < 99 and (done := paper.compact(keys=PlainKeys(1))) is not None:
        ends.append(done.clean_end)
    assert ends == list(range(1, 13))
    assert sorted(paper.stored()) == list(range(6, 12))


def test_what_expires_while_it_is_read_ends_the_compaction():
    paper = of(b"a", b"a")
    plan = paper.plan()
    paper.extents.clear()
    with pytest.raises(ExtentsChanged):
        paper.deed(plan)


def test_whoever_paces_it_is_told_every_byte_and_may_end_it():
    paper = of(*[b"a"] * 10)
    told = []
    paper.deed(paper.plan(), pause=told.append, chunk_bytes=1)
    assert sum(told) == 2 * sum(extent.length for extent, _ in paper.extents)
    assert len(told) == 20

    def refuse(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        paper.deed(paper.plan(), pause=refuse)


def test_the_index_of_a_segment_leads_to_its_batches():
    paper = of(*[b"k%d" % n for n in range(50)], size=10 * KIB).append((b"k0", b"1"))
    [segment] = paper.compact().segments
    [(extent, data)] = paper.extents
    assert len(extent.index) > 3
    positions = {position: header.base_offset for position, header in walk(data)}
    for entry in extent.index:
        assert positions[entry.position] == entry.offset + extent.base_offset
    assert segment.row.sparse_index is not None
