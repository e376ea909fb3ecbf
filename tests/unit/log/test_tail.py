"""The tail cache: contiguous, bounded, and never the first to lead a reader past something."""

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.log.tail import COMPACT_AFTER, Tail, TailCache
from millpond.reading.runs import Run


def run(base, end=None, size=10):
    return Run(base, base + 1 if end is None else end, b"x" * size)


def held(tail, offset):
    return [(each.base_offset, each.end_offset) for each in tail.runs_from(offset)]


def test_runs_come_from_the_one_that_holds_the_offset_on():
    tail, cache = Tail(), TailCache(1_000)
    for each in (run(5, 8), run(8, 9), run(9, 12)):
        cache.push(tail, each)
    assert tail.start == 5
    assert held(tail, 7) == [(5, 8), (8, 9), (9, 12)]
    assert held(tail, 8) == [(8, 9), (9, 12)]
    assert held(tail, 11) == [(9, 12)]


def test_a_hole_drops_what_lies_before_it():
    tail, cache = Tail(), TailCache(1_000)
    cache.push(tail, run(0, 5))
    cache.push(tail, run(6, 7))
    assert tail.start == 6
    assert held(tail, 6) == [(6, 7)]
    assert cache.bytes == 10


def test_an_empty_tail_begins_anywhere_and_ends_everywhere():
    tail = Tail()
    assert tail.start is None
    assert tail.ends_at(0)
    assert tail.ends_at(99)


def test_the_oldest_of_the_whole_broker_goes_first():
    one, other, cache = Tail(), Tail(), TailCache(30)
    cache.push(one, run(0))
    cache.push(other, run(0))
    cache.push(one, run(1))
    cache.push(one, run(2))
    assert (one.start, other.start) == (1, 0)
    cache.push(one, run(3))
    assert (one.start, other.start) == (1, None)
    cache.push(other, run(1))
    assert (one.start, other.start) == (2, 1)
    assert cache.bytes == 30


def test_a_dropped_tail_is_not_evicted_again():
    one, other, cache = Tail(), Tail(), TailCache(20)
    cache.push(one, run(0))
    cache.drop(one)
    assert cache.bytes == 0
    cache.push(one, run(5))
    cache.push(other, run(0))
    cache.push(other, run(1))
    assert (one.start, other.start) == (None, 0)
    assert cache.bytes == 20


def test_what_is_larger_than_the_budget_is_not_kept():
    tail, cache = Tail(), TailCache(10)
    cache.push(tail, run(0, size=11))
    assert tail.start is None
    assert cache.bytes == 0


def test_dropped_runs_are_given_back_to_memory():
    """Somebody else appends between any two of ours: each append drops the tail, and nothing may pile up."""
    tail, cache = Tail(), TailCache(1_000)
    seen = weakref.WeakSet()

    class Traced(Run):
        __slots__ = ("__weakref__",)

    for base in range(0, 100, 2):
        traced = Traced(base, base + 1, b"x" * 10)
        seen.add(traced)
        cache.push(tail, traced)
    del traced
    gc.collect()
    assert len(seen) == 1


def test_a_long_tail_that_is_eaten_from_the_front_stays_right():
    tail, cache = Tail(), TailCache(10 * 50)
    for base in range(COMPACT_AFTER * 3):
        cache.push(tail, run(base))
    last = COMPACT_AFTER * 3
    assert tail.start == last - 50
    assert held(tail, last - 2) == [(last - 2, last - 1), (last - 1, last)]
    assert len(tail._runs) < COMPACT_AFTER * 3


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(0, 3), st.booleans()), max_size=60)
)
def test_a_tail_is_always_the_newest_contiguous_runs_within_the_budget(steps):
    """Against a naive list of everything pushed."""
    budget = 100
    tails, cache = [Tail() for _ in range(3)], TailCache(budget)
    ends, order = [0, 0, 0], []
    for which, size, hole, drop in steps:
        if drop:
            cache.drop(tails[which])
            order = [(each, r) for each, r in order if each != which]
        base = ends[which] + hole
        if hole:
            order = [(each, r) for each, r in order if each != which]
        pushed = run(base, base + 2, size)
        cache.push(tails[which], pushed)
        ends[which] = base + 2
        order.append((which, pushed))
        while sum(len(r.data) for _, r in order) > budget:
            order.pop(0)
        for each, tail in enumerate(tails):
            mine = [r for other, r in order if other == each]
            assert list(tail.runs_from(0)) == mine
            assert tail.start == (mine[0].base_offset if mine else None)
        assert cache.bytes == sum(len(r.data) for _, r in order)


@pytest.mark.parametrize(("offset", "holds"), [(4, False), (5, True), (8, True), (9, False)])
def test_a_partition_holds_what_lies_between_its_tails_start_and_its_end(offset, holds):
    from millpond.catalog.partitions import PartitionRow
    from millpond.log.partition import LogPartition
    from millpond.model.ids import TopicId, TopicPartition

    partition = LogPartition(PartitionRow(TopicPartition(TopicId(b"t" * 16), 0), "me", 1, 0, 9, 0, 0))
    TailCache(1_000).push(partition.tail, run(5, 9))
    assert partition.holds_in_tail(offset) is holds
    partition.end_offset = 10  # somebody else has appended
    assert not partition.holds_in_tail(offset)


def test_what_is_evicted_is_given_back_to_memory_at_once():
    class Data(bytearray):
        pass

    cache, tail = TailCache(1_000), Tail()
    data = [Data(400) for _ in range(3)]
    alive = [weakref.ref(each) for each in data]
    for number in range(3):
        cache.push(tail, Run(number, number + 1, data[number]))
    del data
    assert [each() is not None for each in alive] == [False, True, True]
