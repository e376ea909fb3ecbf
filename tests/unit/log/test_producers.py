"""Sequences of idempotent producers while their batches are on their way."""

import asyncio

import pytest

from millpond.log.producers import Sequences
from millpond.model.errors import OutOfOrderSequence, ProducerFenced
from millpond.model.producers import CommittedBatch, ProducerState, SequencedBatch


def numbered(first, last=None, *, producer=7, epoch=0):
    return SequencedBatch(producer, epoch, first, first if last is None else last, 0, False, -1)


@pytest.fixture
def sequences():
    made = Sequences()
    made.load({})
    return made


@pytest.fixture
async def send(sequences):
    def sent(batch):
        assert sequences.admit(batch) is None
        future = asyncio.get_running_loop().create_future()
        sequences.expect(batch, future)
        return future

    return sent


async def test_a_repeat_of_a_batch_in_flight_shares_its_future(sequences, send):
    first, second = send(numbered(0, 1)), send(numbered(2))
    assert sequences.admit(numbered(0, 1)) is first
    assert sequences.admit(numbered(2)) is second


async def test_a_repeat_of_a_committed_batch_gets_its_offset(sequences, send):
    send(numbered(0))
    send(numbered(1))
    sequences.commit(numbered(0), 40)
    assert sequences.admit(numbered(0)) == CommittedBatch(0, 0, 40, 0)
    sequences.commit(numbered(1), 41)
    assert sequences.admit(numbered(1)).offset == 41


async def test_a_gap_is_refused_whether_in_flight_or_committed(sequences, send):
    send(numbered(0))
    with pytest.raises(OutOfOrderSequence):
        sequences.admit(numbered(2))
    sequences.commit(numbered(0), 0)
    with pytest.raises(OutOfOrderSequence):
        sequences.admit(numbered(2))
    assert sequences.admit(numbered(1)) is None


async def test_a_batch_with_other_bounds_is_no_repeat(sequences, send):
    send(numbered(0, 2))
    with pytest.raises(OutOfOrderSequence):
        sequences.admit(numbered(0, 1))


async def test_more_than_five_may_be_in_flight_and_only_the_last_five_are_remembered(sequences, send):
    futures = [send(numbered(i)) for i in range(8)]
    assert sequences.admit(numbered(3)) is futures[3]
    with pytest.raises(OutOfOrderSequence):
        sequences.admit(numbered(2))
    for i in range(8):
        sequences.commit(numbered(i), 100 + i)
    assert sequences.admit(numbered(3)).offset == 103
    assert sequences.admit(numbered(8)) is None


async def test_repeats_are_found_while_some_are_committed_and_some_are_not(sequences, send):
    futures = [send(numbered(i)) for i in range(4)]
    sequences.commit(numbered(0), 10)
    sequences.commit(numbered(1), 11)
    assert [sequences.admit(numbered(i)).offset for i in (0, 1)] == [10, 11]
    assert [sequences.admit(numbered(i)) for i in (2, 3)] == futures[2:]


async def test_a_new_epoch_starts_at_nought_and_fences_the_old_one(sequences, send):
    send(numbered(0))
    with pytest.raises(OutOfOrderSequence):
        sequences.admit(numbered(1, epoch=1))
    send(numbered(0, epoch=1))
    with pytest.raises(ProducerFenced):
        sequences.admit(numbered(1, epoch=0))


async def test_producers_do_not_mind_each_other(sequences, send):
    send(numbered(0, producer=1))
    send(numbered(0, producer=2))
    sequences.commit(numbered(0, producer=2), 5)
    assert sequences.admit(numbered(1, producer=1)) is None
    with pytest.raises(OutOfOrderSequence):
        sequences.admit(numbered(2, producer=2))


async def test_sequences_go_on_at_nought_after_the_largest(sequences, send):
    send(numbered(2**31 - 2, 2**31 - 1))
    assert sequences.admit(numbered(0)) is None


def test_without_state_any_first_sequence_is_taken(sequences):
    assert sequences.admit(numbered(17)) is None


def test_what_the_catalog_knows_counts():
    sequences = Sequences()
    assert sequences.stale
    sequences.load({7: ProducerState(7, 0, (CommittedBatch(3, 4, 30, 0),))})
    assert not sequences.stale
    assert sequences.admit(numbered(3, 4)).offset == 30
    assert sequences.admit(numbered(5)) is None


async def test_after_a_failure_the_producer_goes_on_from_the_failed_batch(sequences, send):
    """Without state sequence 1 would be taken for a first one, and be committed before 0 is sent again."""
    first = send(numbered(0))
    send(numbered(1))
    sequences.fail(numbered(0), first)
    sequences.load({})
    with pytest.raises(OutOfOrderSequence):
        sequences.admit(numbered(1))
    send(numbered(0))
    send(numbered(1))


async def test_a_new_epoch_need_not_go_on_from_the_failed_batch(sequences, send):
    sequences.fail(numbered(3), send(numbered(3)))
    sequences.load({})
    assert sequences.admit(numbered(0, epoch=1)) is None


async def test_a_failure_leaves_what_was_sent_before_it(sequences, send):
    """Uploads end in any order: the second may fail while the first is still on its way."""
    first, second = send(numbered(0)), send(numbered(1))
    third = send(numbered(2))
    sequences.fail(numbered(1), second)
    sequences.fail(numbered(2), third)
    assert not sequences.stale
    assert sequences.admit(numbered(0)) is first
    with pytest.raises(OutOfOrderSequence):
        sequences.admit(numbered(2))
    send(numbered(1))
    sequences.commit(numbered(0), 0)
    sequences.commit(numbered(1), 1)
    assert sequences.stale
    assert sequences.admit(numbered(2)) is None


async def test_a_failed_batch_that_was_sent_again_is_not_failed_twice(sequences, send):
    first, second = send(numbered(0)), send(numbered(1))
    sequences.fail(numbered(0), first)
    sequences.load({})
    again = send(numbered(0))
    sequences.fail(numbered(1), second)
    assert sequences.admit(numbered(0)) is again


async def test_after_a_failure_the_catalog_is_asked_again_once_nothing_is_on_its_way(sequences, send):
    first, other = send(numbered(0)), send(numbered(0, producer=8))
    sequences.fail(numbered(0), first)
    assert not sequences.stale
    sequences.fail(numbered(0, producer=8), other)
    assert sequences.stale
    sequences.load({7: ProducerState(7, 0, (CommittedBatch(0, 0, 12, 0),))})
    assert sequences.admit(numbered(0)).offset == 12  # it had been committed after all


async def test_a_commit_that_nobody_waits_for_is_taken_in(sequences):
    sequences.commit(numbered(0), 3)
    assert sequences.admit(numbered(0)).offset == 3
