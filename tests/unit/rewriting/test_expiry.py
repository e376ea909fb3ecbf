"""The lines that retention draws: by age and by size, from an extent's row alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.extents import LATE_MS, NO_APPEND_TIME, Extent
from millpond.model.ids import TopicId, TopicPartition
from millpond.rewriting.expiry import AHEAD_MS_MAX, AgeLimit, expired_by_age, expired_by_size

WHERE = TopicPartition(TopicId(b"t" * 16), 0)
RETENTION = 1_000
GRACE = 300
LONG_AGO = 0


def extent(base, end, low, high, length=100, appended_at=LONG_AGO, late_at=None):
    """Late, unless `late_at` says otherwise: all times here are far from those of the appends."""
    late_at = appended_at if late_at is None else late_at
    key = "journal/s/1"
    return Extent(
        WHERE, base, end, 1, 0, length, end - base, low, high, False, key, None, (), appended_at, late_at
    )


def at_cutoff(cutoff_ms, *, grace_ms=0):
    return AgeLimit(cutoff_ms + RETENTION, RETENTION, grace_ms)


# -- by age -----------------------------------------------------------------------------------------------------


def test_extents_older_than_the_line_go_and_the_one_it_runs_through_is_named():
    extents = [extent(0, 5, 10, 20), extent(5, 9, 15, 40), extent(9, 12, 50, 60)]
    assert expired_by_age(extents, 0, at_cutoff(20)).offset == 0
    line = expired_by_age(extents, 0, at_cutoff(21))
    assert (line.offset, line.boundary) == (5, extents[1])
    assert expired_by_age(extents, 0, at_cutoff(41)).offset == 9
    assert expired_by_age(extents, 0, at_cutoff(41)).boundary is None
    assert expired_by_age(extents, 0, at_cutoff(99)).offset == 12


def test_a_young_extent_protects_the_old_ones_behind_it():
    """As in Kafka a prefix expires."""
    assert expired_by_age([extent(0, 5, 90, 90), extent(5, 9, 1, 1)], 0, at_cutoff(50)).offset == 0


def test_an_extent_without_timestamps_is_as_old_as_its_append():
    undated = extent(0, 5, -1, -1, appended_at=100)
    assert expired_by_age([undated], 0, at_cutoff(100)).offset == 0
    assert expired_by_age([undated], 0, at_cutoff(101)).offset == 5


def test_an_extent_that_compaction_left_empty_goes_with_what_follows_it():
    empty = Extent(WHERE, 0, 5, 1, 0, 61, 0, -1, -1, True, "segment/s/1", None, (), 100)
    assert expired_by_age([empty], 0, at_cutoff(99)).offset == 0
    assert expired_by_age([empty, extent(5, 9, 1, 1)], 0, at_cutoff(50)).offset == 9


@pytest.mark.parametrize("appended_at", [5_000, 5_001])
def test_old_records_are_stored_for_the_grace_whatever_their_age(appended_at):
    arrived = extent(0, 5, 1, 2, appended_at=appended_at)
    for now_ms in (appended_at, appended_at + GRACE - 1):
        line = expired_by_age([arrived], 0, AgeLimit(now_ms, RETENTION, GRACE))
        assert (line.offset, line.due_ms) == (0, appended_at + GRACE)
    assert expired_by_age([arrived], 0, AgeLimit(appended_at + GRACE, RETENTION, GRACE)).offset == 5


def test_the_grace_is_never_longer_than_the_retention():
    arrived = extent(0, 5, 1, 2, appended_at=5_000)
    assert expired_by_age([arrived], 0, AgeLimit(5_009, 10, GRACE)).offset == 0
    assert expired_by_age([arrived], 0, AgeLimit(5_010, 10, GRACE)).offset == 5


def test_a_line_runs_through_an_extent_only_after_the_grace():
    wide = extent(0, 5, 1, 5_000, appended_at=5_000)
    assert expired_by_age([wide], 0, AgeLimit(5_000 + GRACE - 1, RETENTION, GRACE)).boundary is None
    assert expired_by_age([wide], 0, AgeLimit(5_000 + GRACE, RETENTION, GRACE)).boundary == wide


def test_an_extent_without_an_append_time_stops_the_line_when_its_age_matters():
    unknown = extent(0, 5, 10, 20, appended_at=NO_APPEND_TIME)
    assert expired_by_age([unknown], 0, at_cutoff(10)).unexamined is None
    line = expired_by_age([unknown, extent(5, 9, 1, 1)], 0, at_cutoff(11))
    assert (line.offset, line.unexamined, line.boundary) == (0, unknown, None)
    future = extent(0, 5, 2_000, 2_000 + AHEAD_MS_MAX, appended_at=NO_APPEND_TIME)
    assert expired_by_age([future], 0, AgeLimit(1_999, 10, 0)).unexamined == future


def test_an_append_time_that_is_far_in_the_future_is_none():
    now_ms = 10_000
    near = extent(0, 5, 1, 1, appended_at=now_ms + AHEAD_MS_MAX)
    far = extent(0, 5, 1, 1, appended_at=now_ms + AHEAD_MS_MAX + 1)
    limit = AgeLimit(now_ms, RETENTION, GRACE)
    assert expired_by_age([near], 0, limit).unexamined is None
    assert expired_by_age([far], 0, limit).unexamined == far


def test_records_that_were_not_late_expire_inside_an_extent_whose_newest_part_is_young():
    """Else a topic with a short retention would expire in fits, as merging has it."""
    merged = extent(0, 8, 10_000, 17_000, appended_at=17_000, late_at=NO_APPEND_TIME)
    limit = AgeLimit(23_500, 10_000, GRACE)
    assert limit.cutoff_in(merged) == 13_500
    assert expired_by_age([merged], 0, limit).boundary == merged
    with_short_grace = AgeLimit(23_500, 10_000, 10_000)
    assert with_short_grace.cutoff_in(merged) == 13_500 - LATE_MS
    late = replace(merged, late_at=16_000)
    assert with_short_grace.cutoff_in(late) is None
    assert expired_by_age([late], 0, with_short_grace).boundary is None


PART = st.tuples(st.integers(0, 3_000), st.lists(st.integers(-4_000, 300), min_size=1, max_size=3))
"""How long after the part before it a part is appended, and the times of its batches against that."""


@given(
    st.lists(st.lists(PART, min_size=1, max_size=3), max_size=5),
    st.integers(0, 12_000),
    st.integers(0, 6_000),
    st.integers(0, 6_000),
)
def test_the_line_by_age_against_a_naive_walk_over_batches(shapes, after_ms, retention_ms, grace_ms):
    """Each extent is merged of parts, each part has some batches of one record."""
    extents, batches, now_ms = [], [], 100_000
    for parts in shapes:
        base, first, late = len(batches), len(batches), []
        for later_ms, times in parts:
            now_ms += later_ms
            batches += [(now_ms + time, now_ms) for time in times]
            late += [now_ms] if min(times) < -LATE_MS else []
        own = [time for time, _ in batches[first:]]
        late_at = max(late, default=NO_APPEND_TIME)
        extents.append(extent(base, len(batches), min(own), max(own), appended_at=now_ms, late_at=late_at))
    limit = AgeLimit(now_ms + after_ms, retention_ms, grace_ms)
    stored_ms = min(retention_ms, grace_ms)
    line = expired_by_age(extents, 0, limit)
    offset = line.offset
    if line.boundary is not None:
        cutoff_ms = limit.cutoff_in(line.boundary)
        while batches[offset][0] < cutoff_ms:
            offset += 1
        assert line.boundary.base_offset <= offset < line.boundary.end_offset
    for time, appended_at in batches[:offset]:
        assert limit.now_ms - time > retention_ms
        assert limit.now_ms - appended_at >= stored_ms
    if offset < len(batches):
        whole = next(each for each in extents if each.end_offset > offset)
        is_old = limit.now_ms - batches[offset][0] > retention_ms
        assert not is_old or limit.now_ms - whole.appended_at < stored_ms
        if line.boundary is None:
            early = AgeLimit(line.due_ms - 1, retention_ms, grace_ms)
            assert early.now_ms < limit.now_ms or expired_by_age(extents, 0, early).offset == offset


# -- by size ----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 50), max_size=12), st.integers(-20, 400))
def test_by_size_as_much_goes_as_leaves_the_allowed_size(lengths, allowed):
    extents = [extent(i, i + 1, 0, 0, length) for i, length in enumerate(lengths)]
    kept = lengths[expired_by_size(extents, 0, sum(lengths) - allowed) :]
    gone = len(lengths) - len(kept)
    if sum(lengths) > allowed >= 0:
        assert sum(kept) >= allowed
        assert not kept or sum(kept) - kept[0] < allowed
    elif sum(lengths) <= allowed:
        assert gone == 0
