"""The read plan, against a naive one."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from millpond.model.extents import Extent, IndexEntry
from millpond.model.ids import TopicId, TopicPartition
from millpond.reading.plan import GAP_BYTES_MAX, JOINT_BYTES_MAX, plan_reads, plan_slices, slice_extent

WHERE = TopicPartition(TopicId(b"t" * 16), 0)


def extent(base, end, *, position=0, length=1_000, key="journal/s/1", index=()):
    entries = tuple(IndexEntry(*entry, 0) for entry in index)
    inline = b"x" * length if key is None else None
    return Extent(WHERE, base, end, 1, position, length, end - base, 0, 0, False, key, inline, entries)


def reads_of(extents, offset, wanted):
    """The reads for one reader."""
    return plan_reads([plan_slices(extents, offset, wanted)])


INDEXED = extent(100, 200, position=64, length=10_000, index=[(0, 0), (30, 3_000), (60, 6_000)])


def test_a_small_extent_is_read_whole():
    piece = slice_extent(extent(10, 20), 15, 1)
    assert (piece.start, piece.length, piece.base_offset) == (0, 1_000, 10)


def test_a_large_extent_is_entered_by_its_index():
    piece = slice_extent(INDEXED, 145, 1)
    assert (piece.start, piece.length, piece.base_offset) == (3_000, 3_000, 130)


def test_a_slice_ends_at_the_first_entry_past_the_budget():
    assert slice_extent(INDEXED, 100, 3_000).length == 3_000
    assert slice_extent(INDEXED, 100, 3_001).length == 6_000
    assert slice_extent(INDEXED, 170, 1).length == 4_000
    assert slice_extent(INDEXED, 100, 99_999).length == 10_000


def test_neighbours_inside_one_object_are_one_read():
    first, second = extent(0, 5, position=64), extent(5, 9, position=64 + 1_000 + 64)
    [read] = reads_of([first, second], 0, 10_000)
    assert (read.key, read.position, read.end) == ("journal/s/1", 64, 64 + 1_000 + 64 + 1_000)
    assert [part.slice.extent for part in read.parts] == [first, second]


def test_what_lies_too_far_apart_or_elsewhere_is_read_on_its_own():
    first = extent(0, 5)
    far = extent(5, 9, position=1_000 + GAP_BYTES_MAX + 1)
    assert len(reads_of([first, replace(far, position=far.position - 1)], 0, 10_000)) == 1
    assert len(reads_of([first, far], 0, 10_000)) == 2
    assert len(reads_of([replace(first, position=5_000), extent(5, 9)], 0, 10_000)) == 1  # backwards
    assert len(reads_of([first, extent(5, 9, position=1_000, key="journal/s/2")], 0, 10_000)) == 2


def test_inline_extents_are_not_put_together():
    reads = reads_of([extent(0, 5, key=None), extent(5, 9, key=None)], 0, 10_000)
    assert [(read.key, len(read.parts)) for read in reads] == [(None, 1), (None, 1)]


def test_the_plan_stops_at_its_budget_but_has_at_least_one_slice():
    extents = [extent(n, n + 1, position=n * 1_000) for n in range(5)]
    for wanted, slices in ((0, 1), (1, 1), (1_000, 1), (1_001, 2), (3_500, 4), (99_999, 5)):
        [read] = reads_of(extents, 0, wanted)
        assert len(read.parts) == slices


def test_no_extents_no_reads():
    assert reads_of([], 5, 100) == []


@st.composite
def logs(draw):
    """Consecutive extents over a few objects, some inline, some with an index of true batch starts."""
    extents, starts, offset, ends = [], [], draw(st.integers(0, 50)), {}
    for _ in range(draw(st.integers(1, 6))):
        sizes = draw(st.lists(st.integers(100, 4_000), min_size=1, max_size=8))
        batches, position = [], 0
        for n, size in enumerate(sizes):
            batches.append((n * 2, position))
            position += size
        chosen = draw(st.lists(st.sampled_from(batches[1:]), unique=True)) if len(batches) > 1 else []
        index = [batches[0], *sorted(chosen)] if chosen else []
        key = draw(st.sampled_from(["journal/s/1", "journal/s/2", None]))
        place = ends.get(key, 0) + draw(st.sampled_from([0, 64, 70_000])) if key else 0
        end = offset + 2 * len(sizes)
        extents.append(extent(offset, end, position=place, length=position, key=key, index=index))
        starts.append([(offset + o, p) for o, p in batches])
        ends[key] = place + position
        offset = end
    return extents, starts


@given(logs(), st.data())
def test_a_plan_covers_the_offset_and_what_follows_without_a_gap(log, data):
    extents, starts = log
    offset = data.draw(st.integers(extents[0].base_offset, extents[-1].end_offset - 1))
    wanted = data.draw(st.integers(0, 20_000))
    found = [each for each in extents if each.end_offset > offset]
    slices = plan_slices(found, offset, wanted)
    of = {each.base_offset: begins for each, begins in zip(extents, starts, strict=True)}
    for number, piece in enumerate(slices):
        begins = of[piece.extent.base_offset]
        assert (piece.base_offset, piece.start) in begins  # whole batches from a true start
        end = piece.start + piece.length
        assert end == piece.extent.length or end in [position for _, position in begins]
        if number:
            before = slices[number - 1]
            assert before.start + before.length == before.extent.length  # nothing is left out
            assert piece.start == 0
            assert piece.extent is found[number]
    first = slices[0]
    after = [o for o, p in of[first.extent.base_offset] if p >= first.start + first.length]
    assert first.base_offset <= offset < (after[0] if after else first.extent.end_offset)
    total = sum(piece.length for piece in slices)
    assert len(slices) == 1 or total - slices[-1].length < wanted  # the last one was still needed
    assert total >= wanted or slices[-1].extent is extents[-1] or not wanted


@given(logs())
def test_reads_cover_exactly_their_slices(log):
    extents, _ = log
    for read in reads_of(extents, extents[0].base_offset, 10**6):
        assert len({part.slice.extent.key for part in read.parts}) == 1
        assert read.key is not None or len(read.parts) == 1
        for part in read.parts:
            assert read.position <= part.slice.position
            assert part.slice.end <= read.end


def beside(partition, place, length=1_000):
    """The piece of a partition in a flush that holds pieces of equal length, one for each partition."""
    where = TopicPartition(WHERE.topic_id, partition)
    return replace(extent(0, 5, position=place * length, length=length), topic_partition=where)


def test_the_pieces_of_all_partitions_in_a_flush_are_one_read():
    wanted = [plan_slices([beside(partition, partition)], 0, 10_000) for partition in (2, 0, 1)]
    [read] = plan_reads(wanted)
    assert [(part.reader, part.place) for part in read.parts] == [(1, 0), (2, 0), (0, 0)]
    assert (read.position, read.length) == (0, 3_000)


def test_no_read_is_longer_than_the_limit_unless_one_slice_is():
    length = JOINT_BYTES_MAX // 2
    wanted = [plan_slices([beside(partition, partition, length)], 0, length) for partition in range(5)]
    assert [len(read.parts) for read in plan_reads(wanted)] == [2, 2, 1]
    assert [read.length for read in plan_reads([plan_slices([beside(0, 0, 3 * length)], 0, 3 * length)])] == [
        3 * length
    ]


def test_what_the_first_reader_needs_is_read_first():
    near, far = beside(0, 0), beside(1, 1_000)
    later = replace(far, base_offset=5, end_offset=9, position=5_000_000)
    reads = plan_reads([plan_slices([far, later], 0, 10_000), plan_slices([near], 0, 10_000)])
    assert [(read.parts[0].reader, read.parts[0].place) for read in reads] == [(0, 0), (0, 1), (1, 0)]


@given(st.lists(logs(), min_size=1, max_size=4))
def test_several_readers_get_the_slices_that_each_would_get_alone(several):
    wanted = [plan_slices(extents, extents[0].base_offset, 10**6) for extents, _ in several]
    parts = [part for read in plan_reads(wanted) for part in read.parts]
    found = {(part.reader, part.place): part.slice for part in parts}
    assert len(found) == len(parts)
    assert found == {
        (reader, place): piece for reader, slices in enumerate(wanted) for place, piece in enumerate(slices)
    }
