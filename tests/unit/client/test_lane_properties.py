"""A lane against a model of the broker: whatever is refused, lost, late or given up, in whatever order."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.client.model_broker import POISON, ModelBroker, Wire

from millpond.client import lane as lanes
from millpond.client.lane import IN_FLIGHT_MAX, SEQUENCE_END, Lane, ProducerIdentity, QueuedRecord
from millpond.client.message import Sent
from millpond.model.errors import (
    Defect,
    InvalidRecord,
    OutcomeUnknown,
    StoreUnavailable,
    TimedOut,
    Unreachable,
)
from millpond.records import Codec, Record

TIMEOUT = 10.0
ROUNDS_MAX = 1_000
REASONS = (TimedOut, Defect, InvalidRecord, StoreUnavailable, Unreachable)
"""Sequences are the lane's own business: nobody is told of them."""
MAY_BE_STORED = (TimedOut, Defect)
"""A broker's own bug says nothing of an earlier attempt, and so neither does the client."""


class LaneMachine(RuleBasedStateMachine):
    @initialize(near_the_end=st.booleans())
    def begin(self, near_the_end):
        self.broker = ModelBroker()
        self.lane = Lane(0, "", batch_bytes=3, compression=Codec.NONE)
        self.wire = Wire(self.broker)
        self.zombies = []
        self.sents = {}
        self.now = 0.0
        self.identities = 0
        self.was_uncertain = False
        self.identify()
        if near_the_end:
            self.lane._sequence = SEQUENCE_END - 3

    # -- the application ----------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 8), poison=st.integers(0, 30))
    def add(self, count, poison):
        for number in range(count):
            value = b"%s%06d" % (POISON if number == poison else b"", len(self.sents))
            sent = self.sents[value] = Sent()
            self.lane.add(QueuedRecord(Record(value), 1, sent), self.now + TIMEOUT)

    @rule(seconds=st.sampled_from([0.1, 4.0, TIMEOUT]))
    def time_passes(self, seconds):
        self.now += seconds
        self.lane.expire(self.now, TimedOut(timeout_ms=0), Unreachable(address="", reason=""))
        late = [sent for sent in self.sents.values() if not sent.done()]
        assert self.lane.oldest_deadline > self.now
        assert bool(late) <= (not self.lane.is_idle)

    # -- the connection -----------------------------------------------------------------------------------------

    @rule()
    def send(self):
        self.identify()
        while (batch := self.lane.next_batch(self.now, 0)) is not None:
            self.wire.send(batch.data)

    @precondition(lambda self: self.wire.requests)
    @rule(count=st.integers(1, IN_FLIGHT_MAX))
    def arrives(self, count):
        for _ in range(min(count, len(self.wire.requests))):
            self.wire.deliver()

    @precondition(lambda self: self.wire.requests)
    @rule(count=st.integers(1, 6))
    def cannot_be_stored_now(self, count):
        for _ in range(min(count, len(self.wire.requests))):
            self.wire.deliver(StoreUnavailable(reason=""))

    @precondition(lambda self: self.wire.requests)
    @rule()
    def is_stored_but_the_broker_does_not_know(self):
        self.wire.deliver(OutcomeUnknown())
        self.was_uncertain = True

    @precondition(lambda self: self.wire.requests and not self.zombies)
    @rule()
    def is_refused_for_good(self):
        self.wire.deliver(Defect(reason=""))

    @precondition(lambda self: self.wire.answers)
    @rule(count=st.integers(1, IN_FLIGHT_MAX))
    def is_answered(self, count):
        for _ in range(min(count, len(self.wire.answers))):
            self.lane.settle(self.wire.answers.popleft())

    @precondition(lambda self: self.wire.requests or self.wire.answers)
    @rule()
    def is_cut(self):
        self.zombies.append(self.wire)
        self.wire = Wire(self.broker)
        self.lane.lose_in_flight()
        self.was_uncertain = True

    @precondition(lambda self: any(zombie.requests for zombie in self.zombies))
    @rule(data=st.data(), count=st.integers(1, 3))
    def arrives_late(self, data, count):
        zombie = data.draw(st.sampled_from([each for each in self.zombies if each.requests]))
        for _ in range(min(count, len(zombie.requests))):
            zombie.deliver()

    @precondition(lambda self: self.zombies)
    @rule()
    def never_arrives(self):
        self.zombies.clear()

    # -- what must hold -----------------------------------------------------------------------------------------

    def identify(self):
        if self.lane.needs_identity:
            self.identities += 1
            self.lane.set_identity(ProducerIdentity(self.identities, 0))

    @invariant()
    def stored_once_and_in_order(self):
        assert self.broker.stored == sorted(set(self.broker.stored))

    @invariant()
    def answers_are_true(self):
        for value, sent in self.sents.items():
            if sent._placed is not None:
                assert self.broker.stored[sent._placed.number - 1] == value
            elif sent._error is not None and not isinstance(sent._error, MAY_BE_STORED):
                assert value not in self.broker.stored

    @invariant()
    def nobody_suffers_from_the_machine_itself(self):
        for sent in self.sents.values():
            assert sent._error is None or isinstance(sent._error, REASONS), sent._error

    @invariant()
    def no_more_is_in_flight_than_a_broker_remembers(self):
        assert len(self.wire.requests) + len(self.wire.answers) <= IN_FLIGHT_MAX

    @invariant()
    def only_poison_is_refused_as_invalid(self):
        for value, sent in self.sents.items():
            if isinstance(sent._error, InvalidRecord) and not value.startswith(POISON):
                assert self.was_uncertain, "halves are tried unless copies are about"

    def teardown(self):
        """Everything works again: everybody is answered."""
        if not hasattr(self, "lane"):
            return
        for _ in range(ROUNDS_MAX):
            if self.lane.is_idle:
                break
            self.send()
            while self.wire.requests:
                self.wire.deliver()
            while self.wire.answers:
                self.lane.settle(self.wire.answers.popleft())
        assert all(sent.done() for sent in self.sents.values()), "a message is neither answered nor refused"
        assert self.lane.is_idle
        assert self.lane._waiting_bytes == 0
        for zombie in self.zombies:
            while zombie.requests:
                zombie.deliver()
        self.stored_once_and_in_order()
        self.answers_are_true()


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr(lanes, "EPOCH_MAX", 2)


TestLane = LaneMachine.TestCase
TestLane.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestLane.pytestmark = [pytest.mark.usefixtures("few_epochs")]
