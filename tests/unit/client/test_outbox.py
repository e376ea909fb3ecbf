"""Answers on their way: how they travel together, and who hears what."""

import asyncio
import threading

import pytest
from tests.unit.client.deliveries import NoLink, delivery

from millpond.client.delivery import AckAction, Acknowledgement, Outcome
from millpond.client.outbox import (
    ACK_REQUESTS_IN_FLIGHT_MAX,
    ANSWERS_MAX,
    LATE_S,
    REASON_CHARACTERS_MAX,
    REQUESTS_IN_FLIGHT_MAX,
    REQUESTS_IN_FLIGHT_WHEN_LATE_MAX,
    Outbox,
    OutboxItem,
)
from millpond.stubs import queue_pb2 as pb

LINK = NoLink()
OK, STALE = pb.ANSWER_OK, pb.ANSWER_STALE


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def add(outbox, kind, number, ms=None, partition=0, reason=""):
    item = OutboxItem(kind, delivery(LINK, number, partition=partition), Acknowledgement(), ms, reason)
    outbox.add(item)
    return item


def ids(*numbers):
    return [b"0/1/%d" % each for each in numbers]


def test_answers_that_collected_go_in_one_request_and_each_hears_its_own_result():
    outbox = Outbox(Clock())
    acks = [add(outbox, AckAction.ACK, number) for number in (1, 2)]
    nack = add(outbox, AckAction.NACK, 3, 500)
    extend = add(outbox, AckAction.EXTEND, 4, 9_000)
    request = outbox.next_request()
    assert (request.acks, request.nacks, request.extends) == (ids(1, 2), ids(3), ids(4))
    assert (request.nack_delay_ms, request.extend_ms, outbox.next_request()) == (500, 9_000, None)
    assert not outbox.is_idle
    notable = outbox.settle(pb.Results(request=request.request, answers=[OK, STALE, OK, OK]))
    outcomes = [item.acknowledgement.outcome for item in (*acks, nack, extend)]
    assert outcomes == [Outcome.OK, Outcome.STALE, Outcome.OK, Outcome.OK]
    assert notable == [acks[1], nack], "what was refused, by either side"
    assert outbox.is_idle


def test_a_nack_without_a_delay_is_left_to_the_broker():
    outbox = Outbox(Clock())
    add(outbox, AckAction.NACK, 1)
    assert not outbox.next_request().HasField("nack_delay_ms")


def test_nacks_with_reasons_go_in_one_request_unless_it_becomes_large():
    outbox = Outbox(Clock())
    for number in (1, 2):
        add(outbox, AckAction.NACK, number)
    assert not outbox.next_request().nack_reasons
    for number, reason in ((3, ""), (4, "bad"), (5, "worse")):
        add(outbox, AckAction.NACK, number, reason=reason)
    request = outbox.next_request()
    assert (request.nacks, request.nack_reasons) == (ids(3, 4, 5), ["", "bad", "worse"])
    half = "x" * (REASON_CHARACTERS_MAX // 2)
    for number in (6, 7, 8):
        add(outbox, AckAction.NACK, number, reason=half)
    assert [outbox.next_request().nacks for _ in range(2)] == [ids(6, 7), ids(8)]


def test_different_delays_need_different_requests_and_keep_their_order():
    outbox = Outbox(Clock())
    for number, ms in ((1, 5), (2, 5), (3, 7), (4, 5)):
        add(outbox, AckAction.NACK, number, ms)
    requests = [outbox.next_request() for _ in range(3)]
    assert [(request.nack_delay_ms, request.nacks) for request in requests] == [
        (5, ids(1, 2)),
        (7, ids(3)),
        (5, ids(4)),
    ]


def test_only_so_many_requests_are_under_way_and_none_is_too_large():
    outbox = Outbox(Clock())
    for number in range(3 * ANSWERS_MAX):
        add(outbox, AckAction.ACK, number)
    sizes = [len(outbox.next_request().acks) for _ in range(ACK_REQUESTS_IN_FLIGHT_MAX)]
    assert sizes == [ANSWERS_MAX, ANSWERS_MAX]
    assert outbox.next_request() is None
    outbox.settle(pb.Results(request=1, answers=[OK] * ANSWERS_MAX))
    assert len(outbox.next_request().acks) == ANSWERS_MAX


def test_a_second_request_goes_when_it_has_as_many_acks_as_the_first():
    outbox = Outbox(Clock())
    for number in range(3):
        add(outbox, AckAction.ACK, number)
    first = outbox.next_request()
    for number in (3, 4):
        add(outbox, AckAction.ACK, number)
        assert outbox.next_request() is None
    add(outbox, AckAction.ACK, 5)
    assert outbox.next_request().acks == ids(3, 4, 5)
    add(outbox, AckAction.ACK, 6)
    outbox.settle(pb.Results(request=first.request, answers=[OK] * 3))
    assert outbox.next_request() is None, "the second one is under way"
    outbox.settle(pb.Results(request=first.request + 1, answers=[OK] * 3))
    assert outbox.next_request().acks == ids(6), "alone: there is nobody to wait for"


def test_a_refusal_does_not_wait_for_company_as_acks_do():
    outbox = Outbox(Clock())
    for number in range(ACK_REQUESTS_IN_FLIGHT_MAX):
        add(outbox, AckAction.ACK, number)
        outbox.next_request()
    add(outbox, AckAction.ACK, 8)
    assert outbox.next_request() is None
    add(outbox, AckAction.NACK, 9)
    add(outbox, AckAction.ACK, 10)
    request = outbox.next_request()
    assert (request.acks, request.nacks) == (ids(8, 10), ids(9))
    for number in range(REQUESTS_IN_FLIGHT_MAX):
        add(outbox, AckAction.NACK, number)
        request = outbox.next_request()
    assert request is None, "but of all together there is a limit, too"


def test_a_lost_connection_answers_for_everything_that_was_not_answered():
    outbox = Outbox(Clock())
    sent = add(outbox, AckAction.ACK, 1)
    outbox.next_request()
    pending = add(outbox, AckAction.NACK, 2)
    assert list(outbox.lose()) == [sent, pending]
    assert {sent.acknowledgement.outcome, pending.acknowledgement.outcome} == {Outcome.LOST}
    assert outbox.is_idle
    assert outbox.settle(pb.Results(request=1, answers=[OK])) == [], "a late answer finds nobody"


def test_a_heartbeat_is_a_request_without_answers():
    outbox = Outbox(Clock())
    beat = outbox.heartbeat()
    assert (len(beat.acks), outbox.has_heartbeat_in_flight) == (0, True)
    outbox.settle(pb.Results(request=beat.request))
    assert not outbox.has_heartbeat_in_flight


def ack_of(outbox, clock, *partitions):
    """Requests of these partitions, which are not answered in time."""
    for partition in partitions:
        add(outbox, AckAction.ACK, 1, partition=partition)
    request = outbox.next_request()
    clock.now += LATE_S
    return request


def test_a_partition_that_cannot_be_saved_holds_up_no_other():
    clock = Clock()
    outbox = Outbox(clock)
    late = ack_of(outbox, clock, 0, 1)
    assert outbox.is_late
    for number in (2, 3):
        for partition in (0, 1):
            add(outbox, AckAction.ACK, number, partition=partition)
    stuck, free = outbox.next_request(), outbox.next_request()
    assert (stuck.acks, free.acks) == ([b"0/1/2", b"0/1/3"], [b"1/1/2", b"1/1/3"]), "each by itself"
    add(outbox, AckAction.ACK, 4, partition=0)
    add(outbox, AckAction.ACK, 4, partition=1)
    assert outbox.next_request() is None, "and one at a time"
    outbox.settle(pb.Results(request=free.request, answers=[OK, OK]))
    again = outbox.next_request()
    assert again.acks == [b"1/1/4"]
    for each, count in ((late, 2), (stuck, 2), (again, 1)):
        outbox.settle(pb.Results(request=each.request, answers=[OK] * count))
    add(outbox, AckAction.ACK, 5, partition=1)
    add(outbox, AckAction.ACK, 5, partition=0)
    assert outbox.next_request().acks == [b"0/1/4", b"1/1/5", b"0/1/5"], "together again, in their order"


def test_requests_have_a_limit_though_many_partitions_cannot_be_saved():
    clock = Clock()
    outbox = Outbox(clock)
    ack_of(outbox, clock, 0)
    items = [add(outbox, AckAction.ACK, 2, partition=partition) for partition in range(50)]
    while outbox.next_request() is not None:
        clock.now += LATE_S
    assert len(outbox._in_flight) == REQUESTS_IN_FLIGHT_WHEN_LATE_MAX
    assert not outbox.is_idle
    assert set(items) < set(outbox.lose())
    assert outbox.is_idle


async def test_an_acknowledgement_can_be_awaited_by_several_and_by_one_that_gives_up():
    waiting = Acknowledgement()

    async def wait():
        return await waiting

    first, second = (asyncio.ensure_future(wait()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    waiting.settle(Outcome.STALE)
    assert await second is Outcome.STALE
    assert await waiting is Outcome.STALE
    assert not Outcome.STALE.is_ok


def test_an_acknowledgement_can_be_waited_for_in_a_thread():
    waiting = Acknowledgement()
    with pytest.raises(TimeoutError):
        waiting.result(timeout=0.001)
    threading.Timer(0.01, waiting.settle, [Outcome.OK]).start()
    assert waiting.result(timeout=30) is Outcome.OK
    assert waiting.done()
