import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.queues.settled_offsets import CHUNK_BYTES, CHUNK_OFFSETS, FULL, SettledOffsets

NEAR = st.integers(0, 40)
BORDER = st.integers(CHUNK_OFFSETS - 3, CHUNK_OFFSETS + 3) | st.integers(
    3 * CHUNK_OFFSETS - 2, 3 * CHUNK_OFFSETS + 2
)
OFFSET = NEAR | NEAR | BORDER
RANGE = st.tuples(OFFSET, st.sampled_from([1, 2, 3, 20, CHUNK_OFFSETS, 2 * CHUNK_OFFSETS + 1])).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)
STEP = st.tuples(st.lists(OFFSET, max_size=8), st.lists(RANGE, max_size=3))
MILLION = 1_000_000


def settle(settled, offsets, ranges=()):
    settled.apply(settled.plan(offsets, ranges))


def stored_again(settled):
    """As it comes back from the catalog."""
    return SettledOffsets(settled.floor, {number: bytes(bits) for number, bits in settled.chunks.items()})


@settings(deadline=None)
@given(floor=NEAR, steps=st.lists(STEP, max_size=6))
def test_it_is_a_set_whatever_is_settled(floor, steps):
    settled, expected = SettledOffsets(floor), set(range(floor))
    for offsets, ranges in steps:
        settle(settled, offsets, ranges)
        expected |= {*offsets, *(offset for start, end in ranges for offset in range(start, end))}
        end = max(expected, default=0) + 2
        assert settled.floor == next(offset for offset in range(end) if offset not in expected)
        looked_at = {*range(50), *offsets, settled.floor, settled.floor + 1, end}
        assert {offset for offset in looked_at if offset in settled} == looked_at & expected
        assert {offset for offset in looked_at if offset in stored_again(settled)} == looked_at & expected
        for offset in [0, settled.floor, *offsets]:
            assert settled.next_open(offset) == next(o for o in range(offset, end + 1) if o not in expected)
        assert bool(settled.chunks) == any(offset > settled.floor for offset in expected)


@given(first=STEP, second=STEP)
def test_a_plan_changes_nothing_until_it_is_applied_and_may_be_applied_twice(first, second):
    settled = SettledOffsets()
    settle(settled, *first)
    before = settled.floor, dict(settled.chunks)
    change = settled.plan(*second)
    assert (settled.floor, dict(settled.chunks)) == before
    assert settled.plan(*second) == change
    settled.apply(change)
    once = settled.floor, dict(settled.chunks)
    settled.apply(change)
    assert (settled.floor, dict(settled.chunks)) == once


@given(steps=st.lists(STEP, min_size=1, max_size=4))
def test_no_chunk_is_kept_that_says_nothing(steps):
    settled = SettledOffsets()
    for step in steps:
        settle(settled, *step)
    for number, bits in settled.chunks.items():
        assert len(bits) == CHUNK_BYTES
        assert (number + 1) * CHUNK_OFFSETS > settled.floor, "it lies below the floor"
        assert int.from_bytes(bits, "little") >> max(settled.floor - number * CHUNK_OFFSETS, 0), "it is empty"


def test_a_chunk_that_becomes_full_and_lies_below_the_floor_is_removed():
    settled = SettledOffsets()
    settle(settled, range(1, CHUNK_OFFSETS + 5))
    assert set(settled.chunks) == {0, 1}
    change = settled.plan([0])
    assert (change.floor, dict(change.chunks), change.removed) == (CHUNK_OFFSETS + 5, {}, (0, 1))


def test_only_what_changes_is_stored():
    settled = SettledOffsets()
    settle(settled, [5, CHUNK_OFFSETS * 3, CHUNK_OFFSETS * 7])
    assert set(settled.plan([CHUNK_OFFSETS * 3 + 1]).chunks) == {3}
    assert not settled.plan([]).chunks


def test_ten_million_settled_above_one_that_is_not_take_little_and_go_at_once():
    settled = SettledOffsets()
    settle(settled, (), [(1, 10 * MILLION)])
    assert settled.floor == 0
    whole = [bits for bits in settled.chunks.values() if bits == FULL]
    assert len(settled.chunks) == -(-10 * MILLION // CHUNK_OFFSETS)
    assert len({id(bits) for bits in whole}) == 1, "whole chunks are one object"
    assert sys.getsizeof(settled.chunks) < 100_000
    change = settled.plan([0])
    assert (change.floor, dict(change.chunks), len(change.removed)) == (10 * MILLION, {}, len(settled.chunks))


def test_whole_chunks_are_one_object_when_they_come_from_the_catalog():
    settled = SettledOffsets(5, {number: bytes(bytearray(FULL)) for number in range(1, 50)})
    assert {id(bits) for bits in settled.chunks.values()} == {id(FULL)}


class Counting(dict):
    """Chunks that count how often one is looked at."""

    looks = 0

    def get(self, number, default=None):
        self.looks += 1
        return super().get(number, default)

    def __contains__(self, number):
        self.looks += 1
        return super().__contains__(number)

    def __getitem__(self, number):
        self.looks += 1
        return super().__getitem__(number)


def test_one_more_settled_offset_looks_at_few_chunks_however_many_there_are():
    settled = SettledOffsets()
    settle(settled, (), [(1, 10 * MILLION)])
    settled.chunks = Counting(settled.chunks)
    settled.plan([10 * MILLION + 1])
    assert 0 < settled.chunks.looks <= 8


@pytest.mark.parametrize("start", [0, 3])
def test_a_log_that_begins_far_away_is_no_chunks_at_all(start):
    """However many offsets have expired: nothing is filled bit by bit."""
    settled = SettledOffsets(3)
    settle(settled, [10])
    change = settled.plan([11, 10**12], [(start, 10**12)])
    assert (change.floor, dict(change.chunks), change.removed) == (10**12 + 1, {}, (0,))


@settings(max_examples=20)
@given(order=st.permutations(range(6)))
def test_ranges_may_come_in_any_order_and_overlap(order):
    ranges = [(number * 10, number * 10 + 15) for number in order]
    assert SettledOffsets().plan((), ranges).floor == 65
