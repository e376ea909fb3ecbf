"""Single stories of a lane, where the properties leave it free to be wasteful."""

import pytest

from millpond.client.lane import IN_FLIGHT_MAX, Lane, ProducerIdentity, QueuedRecord
from millpond.client.message import Placed, Sent
from millpond.model.errors import (
    Defect,
    OutcomeUnknown,
    OutOfOrderSequence,
    RecordTooLarge,
    StoreUnavailable,
    TimedOut,
    Unreachable,
)
from millpond.records import Codec, Record, read_header

BUSY = StoreUnavailable(reason="busy")
OUT_OF_ORDER = OutOfOrderSequence(producer_id=1, sequence=1, expected=0)
TIMED_OUT, NEVER_SENT = TimedOut(timeout_ms=1), Unreachable(address="", reason="")


class Story:
    """A lane whose batches are two messages each."""

    def __init__(self):
        self.lane = Lane(0, "", batch_bytes=2, compression=Codec.NONE)
        self.lane.set_identity(ProducerIdentity(1, 0))
        self.sents = []

    def add(self, count, deadline=10.0):
        for number in range(count):
            self.sents.append(Sent())
            self.lane.add(QueuedRecord(Record(b"%d" % number), 1, self.sents[-1]), deadline)

    def send(self, now=0.0):
        """(epoch, sequence) of everything that goes out now."""
        sent = []
        while (batch := self.lane.next_batch(now, 0)) is not None:
            header = read_header(batch.data)
            sent.append((header.producer_epoch, header.base_sequence))
        return sent


@pytest.fixture
def story():
    """One batch has been taken, so that five may be in flight."""
    story = Story()
    story.add(2)
    assert story.send() == [(0, 0)]
    assert story.lane.settle(1) == 2
    return story


def test_the_first_goes_alone():
    story = Story()
    story.add(6)
    assert story.send() == [(0, 0)]
    story.lane.settle(1)
    assert story.send() == [(0, 2), (0, 4)]


def test_five_are_in_flight(story):
    story.add(20)
    assert len(story.send()) == IN_FLIGHT_MAX
    assert story.send() == []


def test_a_small_batch_waits_while_another_is_in_flight(story):
    story.add(3)
    assert story.send() == [(0, 2)]
    story.lane.settle(3)
    assert story.send() == [(0, 4)]


def test_nothing_is_sent_behind_a_failure_until_what_is_in_flight_is_answered(story):
    story.add(8)
    assert story.send() == [(0, 2), (0, 4), (0, 6), (0, 8)]
    for _ in range(3):
        assert story.lane.settle(BUSY) is None
        assert story.send() == []
    story.lane.settle(BUSY)
    assert story.send() == [(0, 2), (0, 4), (0, 6), (0, 8)]


def test_beyond_a_gap_nothing_goes_out_until_the_rest_is_answered(story):
    story.add(6)
    story.send()
    story.add(2)
    story.lane.settle(Defect(reason=""))
    assert story.send() == []
    story.lane.settle(OUT_OF_ORDER)
    assert story.send() == []
    story.lane.settle(OUT_OF_ORDER)
    assert story.send() == [(1, 0)], "a new epoch, of which the first goes alone"
    story.lane.settle(3)
    assert story.send() == [(1, 2), (1, 4)]


def test_beyond_a_gap_only_what_is_uncertain_is_sent_as_it_was(story):
    story.add(6)
    story.send()
    story.lane.settle(Defect(reason=""))
    story.lane.settle(OUT_OF_ORDER)
    story.lane.lose_in_flight()
    assert story.send() == [(0, 6)]
    story.lane.settle(OUT_OF_ORDER)
    assert story.send() == [(1, 0)]


def test_what_may_be_stored_keeps_its_place_after_it_was_given_up(story):
    story.add(2, deadline=1.0)
    story.add(2, deadline=5.0)
    story.send()
    story.lane.lose_in_flight()
    assert story.lane.expire(1.0, TIMED_OUT, NEVER_SENT) == 2
    assert story.lane.oldest_deadline == 5.0
    assert story.send() == [(0, 2)]
    assert story.lane.settle(3) == 0
    assert story.send() == [(0, 4)]
    assert story.lane.settle(5) == 2
    assert isinstance(story.sents[2]._error, TimedOut)
    assert story.sents[4].result(0) == Placed(0, 5)


def test_what_was_certainly_not_stored_says_why(story):
    story.add(2, deadline=1.0)
    story.send()
    story.lane.settle(BUSY)
    assert story.lane.expire(1.0, TIMED_OUT, NEVER_SENT) == 2
    assert story.lane.is_idle
    with pytest.raises(StoreUnavailable):
        story.sents[-1].result(0)
    story.add(2)
    assert story.send() == [(1, 0)]


def test_what_was_out_of_order_because_of_another_says_what_befell_that_one(story):
    story.add(4, deadline=1.0)
    story.send()
    story.lane.settle(BUSY)
    story.lane.settle(OUT_OF_ORDER)
    assert story.lane.expire(1.0, TIMED_OUT, NEVER_SENT) == 4
    for sent in story.sents[2:]:
        with pytest.raises(StoreUnavailable):
            sent.result(0)


def test_what_follows_something_uncertain_is_uncertain(story):
    """Copies of both may still be on their way: out of order says nothing of the second then."""
    story.add(4, deadline=1.0)
    story.send()
    story.lane.lose_in_flight()
    assert story.send() == [(0, 2)]
    story.lane.settle(BUSY)
    story.lane._single_in_flight = False
    assert story.send() == [(0, 2), (0, 4)]
    story.lane.settle(BUSY)
    story.lane.settle(OUT_OF_ORDER)
    story.lane.expire(1.0, TIMED_OUT, NEVER_SENT)
    for sent in story.sents[2:]:
        with pytest.raises(TimedOut):
            sent.result(0)
    assert story.send() == [(0, 2), (0, 4)], "they keep their places"


def test_nothing_new_goes_out_while_an_outcome_is_unknown(story):
    """A broker remembers five batches. One that is stored behind them would make it forget the one that is asked for,
    which then seems to be out of order though it is stored."""
    story.add(10)
    assert len(story.send()) == IN_FLIGHT_MAX
    story.lane.settle(OutcomeUnknown())
    story.add(2)
    for number in (5, 7, 9, 11):
        assert story.lane.settle(number) == 2
    assert story.send() == [(0, 2)], "alone, though the next batch is full"
    assert story.lane.settle(BUSY) is None
    assert story.send() == [(0, 2)]
    assert story.lane.settle(3) == 2
    assert story.send() == [(0, 12)]


def test_what_was_given_up_and_then_certainly_not_stored_is_not_sent_again(story):
    story.add(2, deadline=1.0)
    story.send()
    story.lane.expire(1.0, TIMED_OUT, NEVER_SENT)
    assert not story.lane.is_idle
    story.lane.settle(BUSY)
    assert story.lane.is_idle


def test_what_was_never_sent_says_so(story):
    story.add(1, deadline=1.0)
    assert story.lane.expire(1.0, TIMED_OUT, NEVER_SENT) == 1
    with pytest.raises(Unreachable):
        story.sents[-1].result(0)


def test_the_guilty_one_is_found_by_halves(story):
    story.add(2)
    story.send()
    assert story.lane.settle(RecordTooLarge(size=2, limit=1)) is None
    assert story.send() == [(1, 0)]
    assert story.lane.settle(RecordTooLarge(size=2, limit=1)) == 1
    assert story.send() == [(2, 0)]
    assert story.lane.settle(3) == 1
    assert isinstance(story.sents[-2]._error, RecordTooLarge)
    assert story.sents[-1].result(0) == Placed(0, 3)


def test_a_pause_is_kept(story):
    story.add(2)
    story.lane.resume_at = 1.0
    assert story.send(now=0.5) == []
    assert story.send(now=1.0) == [(0, 2)]


def test_abandoning_frees_everything(story):
    story.add(5)
    story.send()
    assert story.lane.abandon(Defect(reason="")) == 5
    assert story.lane.is_idle
    assert not story.lane.is_full
