"""Cutting what a reader is given from runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.reading.runs import Run, stamped, take
from millpond.records import Record, build_batch, walk


def make_run(base, *counts, size=10):
    data, following = bytearray(), base
    for count in counts:
        data += build_batch([Record(b"v" * size)] * count, base_offset=following, now_ms=0)
        following += count
    return Run(base, following, bytes(data))


def offsets(taken):
    return [header.base_offset for data in taken for _, header in walk(data)]


BATCH = len(make_run(0, 1).data)
NO_END = 2**62


def test_a_whole_run_is_handed_out_untouched():
    run = make_run(0, 1, 2)
    taken, following = take([run], 0, 10_000, NO_END)
    assert taken[0] is run.data
    assert following == 3


def test_an_offset_inside_a_batch_returns_the_whole_batch():
    taken, following = take([make_run(0, 5, 5)], 7, 10_000, NO_END)
    assert offsets(taken) == [5]
    assert following == 10


def test_at_least_one_batch_however_small_the_budget():
    for budget in (0, 1, BATCH - 1, BATCH):
        taken, following = take([make_run(0, 1, 1), make_run(2, 1)], 0, budget, NO_END)
        assert (offsets(taken), following) == ([0], 1)


def test_as_many_whole_batches_as_fit():
    runs = [make_run(0, 1, 1, 1), make_run(3, 1, 1)]
    for budget in range(BATCH, 5 * BATCH + 1, 7):
        taken, following = take(runs, 0, budget, NO_END)
        assert offsets(taken) == list(range(budget // BATCH))
        assert following == budget // BATCH


def test_a_run_that_does_not_fit_ends_the_answer_even_if_the_next_would():
    runs = [make_run(0, 1), make_run(1, 1, size=500), make_run(2, 1)]
    taken, following = take(runs, 0, 3 * BATCH, NO_END)
    assert (offsets(taken), following) == ([0], 1)


def test_nothing_that_starts_at_or_past_the_end():
    runs = [make_run(0, 2, 2), make_run(4, 2)]
    assert take(runs, 0, 10_000, 4) == ([runs[0].data], 4)
    assert offsets(take(runs, 0, 10_000, 2)[0]) == [0]
    assert offsets(take(runs, 0, 10_000, 3)[0]) == [0, 2]  # the batch that holds 2 starts below the end
    assert take(runs, 0, 10_000, 0) == ([], 0)


def test_no_runs_no_answer():
    assert take([], 5, 100, NO_END) == ([], 5)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_stamping_gives_consecutive_offsets_and_the_epoch(kind):
    data = kind(make_run(0, 2, 1).data)
    run = stamped(data, list(walk(data)), 40, 9)
    assert [(h.base_offset, h.leader_epoch) for _, h in walk(run.data)] == [(40, 9), (42, 9)]
    assert (run.base_offset, run.end_offset) == (40, 43)
    assert (run.data is data) == (kind is bytearray)


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=4),
    st.data(),
)
def test_taking_against_a_naive_walk_over_batches(shape, data):
    runs, following = [], 3
    for counts in shape:
        runs.append(make_run(following, *counts))
        following = runs[-1].end_offset
    offset = data.draw(st.integers(3, following - 1))
    budget = data.draw(st.integers(0, 1_500))
    end = data.draw(st.integers(offset, following + 2))
    batches = [(h.base_offset, h.next_offset, h.size) for run in runs for _, h in walk(run.data)]
    wanted, room = [], budget
    for base, after, size in batches:
        if after <= offset:
            continue
        if base >= end or (wanted and size > room):
            break
        wanted.append((base, after))
        room -= size
    from_here = [run for run in runs if run.end_offset > offset]
    taken, after = take(from_here, offset, budget, end)
    assert offsets(taken) == [base for base, _ in wanted]
    assert after == (wanted[-1][1] if wanted else offset)
