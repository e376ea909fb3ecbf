"""The rule that accepts an idempotent producer's next batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import OutOfOrderSequence, ProducerFenced
from millpond.model.producers import (
    REMEMBERED_BATCHES,
    SEQUENCE_MAX,
    CommittedBatch,
    ProducerState,
    SequencedBatch,
    check_sequence,
    next_sequence,
    pack_batches,
    unpack_batches,
)


def batch(first, last=None, epoch=0, offset=0):
    return SequencedBatch(7, epoch, first, first if last is None else last, 0, False, offset)


def state(*batches, epoch=0):
    made = ProducerState(7, epoch)
    for each in batches:
        made = made.after(each)
    return made


@pytest.mark.parametrize("first", [0, 1, 41, SEQUENCE_MAX])
def test_without_state_any_first_sequence_is_accepted(first):
    assert check_sequence(None, batch(first)) is None


def test_after_a_marker_has_raised_the_epoch_sequences_begin_at_nought():
    assert check_sequence(ProducerState(7, 3), batch(0, epoch=3)) is None
    with pytest.raises(OutOfOrderSequence):
        check_sequence(ProducerState(7, 3), batch(1, epoch=3))
    with pytest.raises(ProducerFenced):
        check_sequence(ProducerState(7, 3), batch(0, epoch=2))


def test_the_next_sequence_is_accepted():
    assert check_sequence(state(batch(0, 4)), batch(5)) is None


@pytest.mark.parametrize("first", [6, 4, 3])
def test_a_gap_or_an_overlap_is_out_of_order(first):
    with pytest.raises(OutOfOrderSequence, match=f"sent sequence {first} where 5 was expected"):
        check_sequence(state(batch(0, 4)), batch(first))


@pytest.mark.parametrize("number", range(REMEMBERED_BATCHES))
def test_a_repeat_of_any_remembered_batch_is_told_its_offset(number):
    batches = [batch(n * 2, n * 2 + 1, offset=n * 10) for n in range(REMEMBERED_BATCHES)]
    assert check_sequence(state(*batches), batches[number]).offset == number * 10


def test_the_sixth_batch_back_is_forgotten():
    batches = [batch(n) for n in range(REMEMBERED_BATCHES + 1)]
    with pytest.raises(OutOfOrderSequence):
        check_sequence(state(*batches), batches[0])
    assert check_sequence(state(*batches), batches[1]) is not None


@pytest.mark.parametrize("last", [3, 5])
def test_a_batch_of_another_length_is_no_repeat(last):
    with pytest.raises(OutOfOrderSequence):
        check_sequence(state(batch(0, 4)), batch(0, last))


def test_an_older_epoch_is_fenced_even_with_the_right_sequence():
    with pytest.raises(ProducerFenced, match="epoch 1 has been replaced by epoch 2"):
        check_sequence(state(batch(0, epoch=2), epoch=2), batch(1, epoch=1))


def test_a_newer_epoch_begins_at_nought_and_knows_no_repeats():
    old = state(batch(0), batch(1))
    assert check_sequence(old, batch(0, epoch=1)) is None
    with pytest.raises(OutOfOrderSequence, match="where 0 was expected"):
        check_sequence(old, batch(2, epoch=1))


def test_a_newer_epoch_forgets_the_batches_of_the_old():
    after = state(batch(0), batch(1)).after(batch(0, epoch=3, offset=9))
    assert (after.epoch, after.batches) == (3, (CommittedBatch(0, 0, 9, 0),))


@pytest.mark.parametrize(
    ("sequence", "following"), [(0, 1), (SEQUENCE_MAX - 1, SEQUENCE_MAX), (SEQUENCE_MAX, 0)]
)
def test_sequences_wrap_around(sequence, following):
    assert next_sequence(sequence) == following
    assert check_sequence(state(batch(sequence)), batch(following)) is None


def test_after_the_wrap_one_is_a_gap():
    with pytest.raises(OutOfOrderSequence):
        check_sequence(state(batch(SEQUENCE_MAX)), batch(1))


INT, LONG = st.integers(0, SEQUENCE_MAX), st.integers(-1, 2**63 - 1)


@given(st.lists(st.builds(CommittedBatch, INT, INT, LONG, LONG), max_size=5).map(tuple))
def test_packed_batches_come_back(batches):
    assert unpack_batches(pack_batches(batches)) == batches
