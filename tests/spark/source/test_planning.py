"""Which task reads what, and how much a micro-batch takes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.extents import Extent, IndexEntry
from millpond.model.ids import TopicId, TopicPartition
from millpond.spark.source.offsets import NamedPartition
from millpond.spark.source.planning import (
    SPLIT_BYTES_MAX,
    SPLIT_BYTES_MIN,
    RangePart,
    ReadRange,
    arrange,
    cut,
    limit_bytes,
    limit_offsets,
    split_by_bytes,
    split_bytes,
)

WHERE = TopicPartition(TopicId(bytes(16)), 0)
A, B, C = (NamedPartition("t", number) for number in range(3))


def extent(base: int, end: int, length: int, *entries: tuple[int, int]) -> Extent:
    index = tuple(IndexEntry(offset, position, 0) for offset, position in entries)
    return Extent(WHERE, base, end, 0, 0, length, end - base, 0, 0, False, "k", None, index)


def a_range(start: int, end: int, size: int = 0, name: NamedPartition = A) -> ReadRange:
    return ReadRange(name, WHERE, start, end, size)


def test_an_extent_with_an_index_is_cut_where_it_can_be_entered():
    whole = [extent(100, 200, 1_000, (0, 0), (40, 400), (70, 700))]
    assert split_by_bytes(whole, 100, 200, every=1) == [
        RangePart(140, 400),
        RangePart(170, 300),
        RangePart(200, 300),
    ]
    assert split_by_bytes(whole, 150, 160, every=1) == [RangePart(160, 300)]


def test_small_extents_and_gaps_are_weighed_together():
    several = [extent(0, 10, 100), extent(10, 20, 100), extent(50, 60, 100)]
    assert split_by_bytes(several, 0, 70, every=150) == [RangePart(20, 200), RangePart(70, 100)]
    assert split_by_bytes([], 5, 9, every=150) == [RangePart(9, 0)]


def test_a_range_is_cut_between_stretches():
    range_parts = [RangePart(10, 60), RangePart(20, 60), RangePart(30, 60), RangePart(40, 10)]
    assert cut(a_range(0, 40), range_parts, 100) == [a_range(0, 20, 120), a_range(20, 40, 70)]
    assert cut(a_range(0, 40), range_parts, 1_000) == [a_range(0, 40, 190)]


def test_a_task_reads_little_enough_for_every_core_and_enough_to_be_worth_it():
    assert split_bytes(0, 2) == SPLIT_BYTES_MIN
    assert split_bytes(80 * 2**20, 2) == 10 * 2**20
    assert split_bytes(2**40, 2) == SPLIT_BYTES_MAX


def test_small_ranges_share_a_task():
    ranges = [a_range(0, 5, 40, A), a_range(0, 5, 40, B), a_range(0, 5, 40, C)]
    assert arrange(ranges, bytes_wanted=100) == [(ranges[0], ranges[1]), (ranges[2],)]
    assert arrange([], bytes_wanted=100) == []


def test_with_a_number_of_partitions_the_longest_ranges_are_halved():
    tasks = arrange([a_range(0, 100, 100, A), a_range(0, 10, 10, B)], bytes_wanted=1_000, min_partitions=4)
    assert [(each.name, each.start, each.end) for (each,) in tasks] == [
        (A, 0, 25),
        (A, 25, 50),
        (A, 50, 100),
        (B, 0, 10),
    ]
    assert len(arrange([a_range(0, 3)], bytes_wanted=1_000, min_partitions=9)) == 3


def test_no_task_has_more_records_than_allowed():
    tasks = arrange([a_range(0, 100), a_range(0, 7, 0, B)], bytes_wanted=1_000, records_max=30)
    assert [each.offsets for (each,) in tasks] == [25, 25, 25, 25, 7]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 300)), min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(1, 20)),
    st.one_of(st.none(), st.integers(1, 40)),
)
def test_tasks_hold_every_offset_once(spans, min_partitions, records_max):
    ranges = [
        a_range(start, start + size, size * 3, NamedPartition("t", number))
        for number, (start, size) in enumerate(spans)
    ]
    tasks = arrange(ranges, bytes_wanted=200, min_partitions=min_partitions, records_max=records_max)
    read = [(each.name, n) for task in tasks for each in task for n in range(each.start, each.end)]
    assert read == [(each.name, n) for each in ranges for n in range(each.start, each.end)]
    if records_max is not None:
        assert max(sum(each.offsets for each in task) for task in tasks) <= records_max
    if min_partitions is not None:
        assert len(tasks) >= min(min_partitions, len(read))


def test_a_limit_of_offsets_is_shared_in_proportion_and_starves_nobody():
    starts, ends = {A: 0, B: 0, C: 5}, {A: 900, B: 100, C: 5}
    assert limit_offsets(starts, ends, 100) == {A: 90, B: 10, C: 5}
    assert limit_offsets(starts, ends, 3) == {A: 2, B: 1, C: 5}
    assert limit_offsets(starts, ends, 1_000) == ends


def test_a_limit_of_bytes_is_shared_in_proportion_and_starves_nobody():
    weights = {A: [RangePart(10, 400), RangePart(20, 500)], B: [RangePart(110, 100)]}
    starts = {A: 0, B: 100}
    assert limit_bytes(starts, weights, 500) == {A: 11, B: 105}
    assert limit_bytes(starts, weights, 2) == {A: 1, B: 101}
    assert limit_bytes(starts, weights, 1_000) == {A: 20, B: 110}
