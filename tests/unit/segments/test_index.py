"""The sparse index: complete, sparse, packed, and a right place to start any search."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import CorruptObject
from millpond.model.extents import IndexEntry
from millpond.segments.index import (
    Batch,
    build_index,
    entry_for_offset,
    entry_for_timestamp,
    pack_index,
    unpack_index,
)

EVERY = 100


@st.composite
def extents(draw: st.DrawFn) -> list[Batch]:
    """Batches in order, with gaps in their offsets as compaction leaves them."""
    sizes = draw(st.lists(st.integers(1, 250), max_size=40))
    jumps = draw(st.lists(st.integers(1, 1000), min_size=len(sizes), max_size=len(sizes)))
    stamps = draw(st.lists(st.integers(-1, 10**15), min_size=len(sizes), max_size=len(sizes)))
    positions = [0, *accumulate(sizes)][: len(sizes)]
    offsets = [0, *accumulate(jumps)][: len(sizes)]
    return list(zip(offsets, positions, stamps, strict=True))


indexes = extents().map(lambda batches: build_index(batches, EVERY))


def test_small_extents_have_none() -> None:
    assert build_index([]) == ()
    assert build_index([(0, 0, 5)]) == ()
    assert build_index([(0, 0, 5), (10, 65_535, 9)]) == ()


def test_example() -> None:
    batches = [(0, 0, 5), (10, 40_000, 9), (20, 65_536, 7), (30, 100_000, 3), (40, 131_072, 1)]
    assert build_index(iter(batches)) == (
        IndexEntry(0, 0, 9),
        IndexEntry(20, 65_536, 7),
        IndexEntry(40, 131_072, 1),
    )


@given(extents())
def test_sparse_and_nothing_left_out(batches: list[Batch]) -> None:
    index = build_index(batches, EVERY)
    starts = {(offset, position) for offset, position, _ in batches}
    assert all((entry.offset, entry.position) in starts for entry in index)
    assert all(after.position - before.position >= EVERY for before, after in pairwise(index))
    if batches and batches[-1][1] >= EVERY:
        assert index[0].position == 0
        places = [entry.position for entry in index]
        for _, position, _ in batches:
            assert position - max(place for place in places if place <= position) < EVERY
    else:
        assert index == ()


@given(extents(), st.integers(-1, 50_000))
def test_search_by_offset(batches: list[Batch], offset: int) -> None:
    index = build_index(batches, EVERY)
    expected = [entry for entry in index if entry.offset <= offset]
    assert entry_for_offset(index, offset) == (expected[-1] if expected else None)


@given(extents(), st.integers(-1, 10**15))
def test_search_by_time_starts_at_or_before_the_first_such_batch(
    batches: list[Batch], timestamp: int
) -> None:
    index = build_index(batches, EVERY)
    entry = entry_for_timestamp(index, timestamp)
    wanted = [position for _, position, newest in batches if newest >= timestamp]
    if not index or not wanted:
        assert entry is None
    else:
        assert entry is not None
        assert entry.position <= wanted[0] < entry.position + EVERY


@given(indexes)
def test_round_trip(index: tuple[IndexEntry, ...]) -> None:
    packed = pack_index(index)
    assert unpack_index(packed) == unpack_index(memoryview(packed)) == index
    assert len(packed) == (1 + 20 * len(index) if index else 0)


def test_extreme_values() -> None:
    index = (IndexEntry(0, 0, -(2**63)), IndexEntry(2**64 - 1, 2**32 - 1, 2**63 - 1))
    assert unpack_index(pack_index(index)) == index


@pytest.mark.parametrize(
    "data",
    [
        b"\1",
        b"\2" + bytes(20),
        b"\1" + bytes(19),
        b"\1" + bytes(21),
        b"\1" + bytes(40),
        pack_index((IndexEntry(5, 0, 1), IndexEntry(4, 100, 1))),
        pack_index((IndexEntry(0, 100, 1), IndexEntry(4, 100, 1))),
    ],
)
def test_what_cannot_have_been_written(data: bytes) -> None:
    with pytest.raises(CorruptObject):
        unpack_index(data, "segments/x")
