"""What a publisher makes of attributes and times, how credit is shared, and which worker gets what."""

from datetime import UTC, datetime

import pytest
from tests.unit.client.deliveries import NoLink, delivery

from millpond.client.inbox import DeliveryOrder
from millpond.client.link import BrokerCredit
from millpond.client.publishing import headers_of
from millpond.client.workers import WorkerLanes
from millpond.model.errors import InvalidRecord


def test_attributes_become_headers_and_text_becomes_utf8():
    assert headers_of({"a": b"\xff", "b": "ü", "c": None}) == [
        ("a", b"\xff"),
        ("b", "ü".encode()),
        ("c", None),
    ]


def test_reserved_names_are_refused_where_the_mistake_is_made():
    with pytest.raises(InvalidRecord, match="millpond-attempts"):
        headers_of({"millpond-attempts": b"0"})


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"deliver_at": 1_700}, ("millpond-deliver-at", b"1700")),
        ({"deliver_at": datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)}, ("millpond-deliver-at", b"2000")),
        ({"delay": 1.5}, ("millpond-delay", b"1500")),
        ({"delay": 0}, ("millpond-delay", b"0")),
    ],
)
def test_when_to_deliver_is_a_header_too(named, expected):
    assert headers_of(None, **named) == [expected]


@pytest.mark.parametrize("named", [{"deliver_at": 1, "delay": 1}, {"delay": -1}, {"delay": float("nan")}])
def test_times_that_make_no_sense_are_refused(named):
    with pytest.raises(ValueError, match="delay"):
        headers_of(None, **named)


# -- credit ----------------------------------------------------------------------------------------------------------


def test_credit_is_granted_once_and_again_as_it_is_given_back():
    credit = BrokerCredit(8, 800)
    assert credit.take() == (8, 800)
    assert credit.take() is None
    assert [credit.return_credit(10) for _ in range(2)] == [False, True], "a quarter is worth a request"
    assert credit.take() == (2, 20)


def test_many_bytes_are_worth_a_request_though_they_are_few_messages():
    credit = BrokerCredit(1_000, 400)
    credit.take()
    assert not credit.return_credit(99)
    assert credit.return_credit(1)
    assert credit.take() == (2, 100)


def test_one_message_at_a_time_is_granted_one_at_a_time():
    credit = BrokerCredit(1, 1_000)
    for _ in range(3):
        assert credit.take()[0] == 1
        assert credit.take() is None
        assert credit.return_credit(10)


def test_a_smaller_share_is_reached_as_it_is_given_back_and_never_granted_twice():
    credit = BrokerCredit(10, 1_000)
    credit.take()
    credit.resize(4, 400)
    granted = []
    for _ in range(10):
        credit.return_credit(100)
        granted.append(credit.take())
    assert sum(each[0] for each in granted if each) == 4
    assert sum(each[1] for each in granted if each) == 400


# -- workers ---------------------------------------------------------------------------------------------------------


def test_messages_of_a_key_go_to_one_worker_and_others_to_whoever_has_least_to_do():
    lanes, link = WorkerLanes(4), NoLink()
    by_key = {lanes.add(delivery(link, number, b"k"), DeliveryOrder.KEY) for number in range(10)}
    assert len(by_key) == 1
    lanes = WorkerLanes(3)
    assert [lanes.add(delivery(link, number), DeliveryOrder.KEY) for number in range(6)] == [0, 1, 2, 0, 1, 2]
    lanes.next(1)
    lanes.done(1)
    assert lanes.add(delivery(link, 7), DeliveryOrder.NONE) == 1


def test_a_partition_that_is_in_order_stays_with_one_worker():
    lanes, link = WorkerLanes(4), NoLink()
    used = {
        lanes.add(delivery(link, number, b"%d" % number, partition=6), DeliveryOrder.PARTITION)
        for number in range(9)
    }
    assert used == {2}
    assert [lanes.next(2).number for _ in range(9)] == list(range(9))
    assert lanes.next(2) is None
