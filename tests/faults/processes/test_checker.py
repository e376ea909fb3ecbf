"""The checker itself: it accepts what is right and names every kind of wrong."""

import math

import pytest
from tests.faults.processes.checker import (
    LOST,
    OK,
    REFUSED,
    Attempt,
    Delivered,
    Seen,
    Value,
    check_epochs,
    check_key_order,
    check_log,
    check_queue,
    check_reader,
    check_sequential,
    failover_seconds,
    log_of,
    percentile,
    rates,
    repeats,
    windows,
)

VALUES = [Value("p", 0, number) for number in range(4)]
SEEN = [Seen(0, offset, value) for offset, value in enumerate(VALUES)]
LOG = log_of(SEEN)
SENT = [Attempt(value, offset, offset + 0.5, True, offset) for offset, value in enumerate(VALUES)]


def wrong(verdict) -> set[str]:
    return {name for name, found in verdict.faults.items() if found}


def took(seen: Seen, *, at: float = 1.0, settled: float = 2.0, answer: str = OK) -> Delivered:
    return Delivered(*seen, at, settled, answer)


def test_a_value_survives_the_wire() -> None:
    for padding in (0, 100):
        assert Value.decode(Value("kafka-1", 3, 17).encode(padding)) == Value("kafka-1", 3, 17)


def test_what_is_right_is_clean() -> None:
    assert check_log(SENT, LOG).is_clean
    assert check_sequential(SEEN, LOG).is_clean
    assert check_queue([took(each) for each in SEEN], LOG).is_clean


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    unsure = [attempt._replace(acknowledged=False, offset=-1) for attempt in SENT]
    assert check_log(unsure, LOG).is_clean
    assert check_log(unsure, {0: SEEN[:2]}).is_clean


@pytest.mark.parametrize(
    ("fault", "log"),
    [
        ("lost", SEEN[:3]),
        ("lost", [SEEN[0], *SEEN[2:]]),
        ("duplicated", [*SEEN, Seen(0, 4, VALUES[3])]),
        ("reordered", [SEEN[0], Seen(0, 1, VALUES[2]), Seen(0, 2, VALUES[1]), SEEN[3]]),
        ("renumbered", [each._replace(offset=each.offset + 1) for each in SEEN]),
        ("offsets out of order", [*SEEN[:3], Seen(0, 2, VALUES[3])]),
        ("invented", [*SEEN, Seen(0, 4, Value("nobody", 0, 0))]),
        ("in another partition", [each._replace(partition=1) for each in SEEN]),
    ],
)
def test_a_wrong_log_is_named(fault: str, log: list[Seen]) -> None:
    assert fault in wrong(check_log(SENT, log_of(log)))


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("unseen", SEEN[:3]),
        ("inconsistent", [*SEEN, Seen(0, 1, VALUES[2])]),
        ("inconsistent", [*SEEN, Seen(0, 9, VALUES[2])]),
    ],
)
def test_a_wrong_reading_is_named(fault: str, seen: list[Seen]) -> None:
    assert wrong(check_reader(seen, LOG)) == {fault}


def test_a_group_may_see_a_message_again() -> None:
    again = [*SEEN, SEEN[2]]
    assert check_reader(again, LOG).is_clean
    assert repeats(again) == 1


@pytest.mark.parametrize("seen", [[*SEEN, SEEN[3]], [SEEN[1], SEEN[0], *SEEN[2:]]])
def test_a_reader_with_a_position_sees_each_once_and_in_order(seen: list[Seen]) -> None:
    assert wrong(check_sequential(seen, LOG)) == {"not in sequence"}


@pytest.mark.parametrize(
    ("fault", "delivered"),
    [
        ("unsettled", [took(each) for each in SEEN[:3]]),
        ("unsettled", [took(each, answer=REFUSED if each.offset == 1 else OK) for each in SEEN]),
        ("inconsistent", [*map(took, SEEN), took(Seen(0, 1, VALUES[2]), answer=REFUSED)]),
        ("delivered after its acknowledgement", [*map(took, SEEN), took(SEEN[0], at=3.0)]),
    ],
)
def test_a_wrong_queue_is_named(fault: str, delivered: list[Delivered]) -> None:
    assert wrong(check_queue(delivered, LOG)) == {fault}


def test_a_message_may_come_again_until_its_acknowledgement_is_durable() -> None:
    refused = took(SEEN[0], at=0.1, answer=REFUSED)
    assert check_queue([refused, *map(took, SEEN)], LOG).is_clean


def test_an_acknowledgement_whose_answer_was_lost_may_be_durable_or_not() -> None:
    lost = took(SEEN[0], at=0.1, settled=math.inf, answer=LOST)
    assert check_queue([lost, *map(took, SEEN[1:])], LOG).is_clean
    assert check_queue([lost, *map(took, SEEN)], LOG).is_clean


def test_epochs_never_fall_along_a_partition() -> None:
    assert check_epochs([(0, 0, 1), (0, 1, 1), (0, 2, 3), (1, 0, 1)]).is_clean
    assert wrong(check_epochs([(0, 0, 2), (0, 1, 1)])) == {"epochs fall"}


def test_a_failover_ends_with_the_first_answer_to_what_was_sent_after_it() -> None:
    assert failover_seconds(SENT, {0}, 1.5) == [1.0]
    assert failover_seconds(SENT, {1}, 1.5) == []


def test_the_longest_time_without_an_answer() -> None:
    assert windows([SENT[0], SENT[3]]) == [(3.0, 0.5, 0)]


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 2), (0.99, 4), (1.0, 4)])
def test_percentiles_are_values_that_occurred(share: float, value: int) -> None:
    assert percentile([4, 1, 3, 2], share) == value


def test_what_was_acknowledged_of_a_key_is_in_order_whoever_took_it() -> None:
    first, second, third = [
        took(each, at=float(number))._replace(key=b"k") for number, each in enumerate(SEEN[:3])
    ]
    assert check_key_order([third, first, second]).is_clean
    early = third._replace(taken=0.5)
    assert wrong(check_key_order([first, second, early])) == {"out of key order"}
    assert check_key_order([first, second, early._replace(answer=LOST)]).is_clean
    assert check_key_order([first, second, early._replace(key=b"other")]).is_clean
    assert check_key_order([first, second, early._replace(partition=1)]).is_clean
    assert check_key_order([first, second, early._replace(key=None)]).is_clean


def test_what_is_acknowledged_is_counted_second_by_second() -> None:
    times = (0.0, 0.1, 0.9, 2.5, 3.2)
    sent = [SENT[0]._replace(ended=10 + each) for each in times]
    assert rates([*sent, SENT[0]._replace(ended=11.5, acknowledged=False)]) == [3, 0, 1]
