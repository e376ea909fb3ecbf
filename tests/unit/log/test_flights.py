"""The rules of flights, alone: their order, what is split, and what a failure takes with it. `test_flight_mutants.py`
checks that the histories find mistakes."""

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.unit.log.flight_histories import FlightHistory

from millpond.log.flights import Flights, Phase

A, B = "a", "b"
HISTORIES = settings(max_examples=150, stateful_step_count=40)


class Cargo(list):
    """The names of a flight's partitions."""

    def split(self, topic_partitions):
        part = Cargo(each for each in self if each in topic_partitions)
        self[:] = [each for each in self if each not in topic_partitions]
        return part


def launched(flights, *partitions, uploads=True, is_joint=False):
    return flights.launch(Cargo(partitions), frozenset(partitions), uploads=uploads, is_joint=is_joint)


def test_histories():
    run_state_machine_as_test(FlightHistory, settings=HISTORIES)


def test_a_flight_without_upload_is_ready_at_once():
    flights = Flights()
    flight = launched(flights, A, uploads=False)
    assert flights.take_ready() == [flight]
    assert flight.phase is Phase.COMMITTING
    assert flights.take_ready() == []


def test_a_flight_waits_for_the_earlier_one_of_its_partition():
    flights = Flights()
    first, second = launched(flights, A), launched(flights, A)
    flights.uploaded(second)
    assert flights.take_ready() == []
    flights.uploaded(first)
    assert flights.take_ready() == [first, second]


def test_partitions_that_nothing_holds_up_are_split_off():
    flights = Flights()
    slow, both, behind = launched(flights, A), launched(flights, A, B), launched(flights, B)
    flights.uploaded(both)
    flights.uploaded(behind)
    part, last = flights.take_ready()
    assert (part.partitions, part.cargo) == ({B}, [B])
    assert (both.partitions, both.cargo) == ({A}, [A])
    assert last is behind
    assert part in behind.predecessors
    assert [*flights] == [slow, part, both, behind]


def test_a_joint_flight_is_not_split():
    flights = Flights()
    slow, joint = launched(flights, A), launched(flights, A, B, is_joint=True)
    flights.uploaded(joint)
    assert flights.take_ready() == []
    flights.uploaded(slow)
    assert flights.take_ready() == [slow, joint]


def test_a_failed_upload_condemns_what_follows_on_its_partitions():
    flights = Flights()
    first, second = launched(flights, A), launched(flights, A, B)
    assert flights.ended(first, frozenset({A})) == {A}
    assert flights.condemned == {A}
    flights.uploaded(second)
    assert flights.take_ready() == [second]
    assert second.refused_earlier() == {A}
    assert flights.ended(second, frozenset({A})) == {A}
    assert flights.condemned == frozenset()


def test_the_writer_knows_of_a_refusal_before_the_event_loop_does():
    flights = Flights()
    first, second = launched(flights, A, B, uploads=False), launched(flights, A, B, uploads=False)
    assert flights.take_ready() == [first, second]
    first.record_refusals(frozenset({B}))
    assert second.refused_earlier() == {B}
    assert flights.condemned == frozenset()


def test_a_condemned_share_that_was_split_off_frees_its_partition_when_it_ends():
    """The rest of its flight waits for another upload, which is no reason to refuse appends."""
    flights = Flights()
    failing, slow, both = launched(flights, A), launched(flights, B), launched(flights, A, B)
    flights.uploaded(both)
    flights.ended(failing, frozenset({A}))
    [part] = flights.take_ready()
    assert flights.condemned == {A}
    flights.ended(part, frozenset({A}))
    assert flights.condemned == frozenset()
    assert [*flights] == [slow, both]


def test_nothing_depends_on_a_joint_flight():
    flights = Flights()
    joint, behind = launched(flights, A, is_joint=True), launched(flights, A)
    assert flights.ended(joint, frozenset({A})) == frozenset()
    assert flights.condemned == frozenset()
    assert behind.refused_earlier() == frozenset()
