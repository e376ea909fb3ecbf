"""Consumers of a subscription that lie, flood, fall silent or vanish. Each hears what is wrong, and harms nobody else:
beside them a well-behaved one gets every message."""

import random

import grpc
import pytest
from tests.hostile.rpc.consumers import Consumer
from tests.hostile.rpc.siege import eventually

from millpond.stubs import admin_pb2
from millpond.stubs import queue_pb2 as pb

INVALID = grpc.StatusCode.INVALID_ARGUMENT
OK, STALE, UNKNOWN = pb.ANSWER_OK, pb.ANSWER_STALE, pb.ANSWER_UNKNOWN
UNREAD_BYTES_MAX = 400 * 2**20


def test_ids_that_were_forged_damaged_or_belong_to_others_acknowledge_nothing(queues):
    queues.subscribe("other")
    queues.produce(3)
    mine, theirs = queues.consumer(credit=10), queues.consumer("c", "other", credit=10)
    ids = [each.ack_id for each in mine.deliveries(3)]
    foreign = [each.ack_id for each in theirs.deliveries(3)]
    chance = random.Random(7)
    forged = [
        b"",
        b"\0",
        bytes(33),
        b"\xff" * 33,
        chance.randbytes(33),
        bytes(1_000_000),
        ids[0][:-1],
        ids[0] + b"\0",
    ]
    forged += [
        ids[0][:place] + bytes([ids[0][place] ^ 1 << chance.randrange(8)]) + ids[0][place + 1 :]
        for place in range(len(ids[0]))
    ]
    for what in ("acks", "nacks", "extends"):
        assert mine.answer(**{what: forged + foreign}) == [UNKNOWN] * (len(forged) + 3)
    assert mine.answer(acks=ids) == [OK] * 3, "and the true ones are as good as before"
    assert mine.answer(acks=ids, nacks=ids, extends=ids) == [STALE] * 9
    assert theirs.answer(acks=foreign) == [OK] * 3


def test_one_that_does_not_hold_a_message_cannot_settle_it_with_an_id_of_the_past(queues):
    queues.subscribe("quick", ack_timeout_ms=1_000, backoff_ms=0)
    queues.produce(1)
    first = queues.consumer("first", "quick", credit=1)
    [old] = first.deliveries(1)
    second = queues.consumer("second", "quick", credit=1)
    [new] = second.deliveries(1)
    assert first.answer(acks=[old.ack_id], nacks=[old.ack_id], extends=[old.ack_id]) == [STALE] * 3
    assert new.retry_count == 1
    assert second.answer(acks=[new.ack_id]) == [OK]


FIRST = {
    "nothing": None,
    "credit": {"credit": {"messages": 1}},
    "an answer": {"answers": {"acks": [b"x"]}},
    "an empty request": {},
    "no such topic": {"attach": {"topic": "nowhere", "subscription": "s", "consumer": "c"}},
    "no such subscription": {"attach": {"topic": "t", "subscription": "nothing", "consumer": "c"}},
    "no name": {"attach": {"topic": "t", "subscription": "s"}},
    "a name without end": {"attach": {"topic": "t", "subscription": "s", "consumer": "c" * 100_000}},
}


@pytest.mark.parametrize("first", FIRST)
def test_a_stream_that_does_not_attach_is_refused(queues, first):
    consumer = Consumer(queues.client)
    if FIRST[first] is None:
        consumer.end()
    else:
        consumer.say(**FIRST[first])
    assert consumer.status() is (grpc.StatusCode.NOT_FOUND if first.startswith("no such") else INVALID)
    assert queues.consumers() == []


LATER = {
    "attaching twice": [{"attach": {"topic": "t", "subscription": "s", "consumer": "c"}}],
    "an empty request": [{}],
    "too much credit": [{"credit": {"messages": 2**32 - 1}}],
    "too much credit by and by": [{"credit": {"messages": 900_000}}] * 2,
    "too many answers": [{"answers": {"acks": [b""] * 5_000, "nacks": [b""] * 5_000, "extends": [b""]}}],
    "bytes that are no request": [b"\xff" * 10],
}


@pytest.mark.parametrize("later", LATER)
def test_a_consumer_that_breaks_the_rules_is_let_go_and_its_messages_go_to_others(queues, later):
    queues.produce(1)
    consumer = queues.consumer("rude")
    if "credit" not in later:
        consumer.say(credit={"messages": 1})
        consumer.deliveries(1)
    for each in LATER[later]:
        if isinstance(each, bytes):
            consumer.say(raw=each)
        else:
            consumer.say(**each)
    assert consumer.status() is INVALID
    other = queues.consumer("other", credit=1)
    [found] = other.deliveries(1)
    assert other.answer(acks=[found.ack_id]) == [OK]


def test_credit_without_end_in_bytes_is_just_much(queues):
    queues.produce(2)
    consumer = queues.consumer()
    for _ in range(3):
        consumer.say(credit={"messages": 1, "bytes": 2**64 - 1})
    assert len(consumer.deliveries(2)) == 2


def test_a_flood_of_answers_without_reading_results_is_not_read_for_ever(queues):
    """The stream is not read past what may be in progress, so the flood stays with its sender."""
    queues.produce(1)
    flooding = queues.consumer("flooding")
    for _ in range(2_000):
        flooding.say(answers={"acks": [b"x" * 33] * 1_000})
    reader = queues.consumer("reader", credit=1)
    [found] = reader.deliveries(1)
    assert reader.answer(acks=[found.ack_id]) == [OK]


@pytest.mark.parametrize("how", ["cancel", "half close", "close the connection"])
def test_whoever_vanishes_in_the_middle_leaves_its_messages_to_others(queues, how):
    queues.produce(3)
    client = queues.siege.attacker()
    gone = Consumer(client, topic="t", subscription="s", consumer="gone")
    gone.say(credit={"messages": 10})
    gone.deliveries(3)
    if how == "cancel":
        gone.stream.cancel()
    elif how == "half close":
        gone.end()
    else:
        client.channel.close()
    eventually(lambda: queues.consumers() == [], "it is noticed")
    other = queues.consumer("other", credit=10)
    found = other.deliveries(3)
    assert sorted((each.number, each.retry_count) for each in found) == [(1, 1), (2, 1), (3, 1)]


def test_a_hundred_that_come_and_go_leave_nothing_behind(queues):
    queues.produce(1)
    for number in range(100):
        consumer = queues.consumer(f"c-{number}")
        if number % 2:
            consumer.say(detach={})
            assert consumer.status() is grpc.StatusCode.OK
        else:
            consumer.stream.cancel()
    eventually(lambda: queues.consumers() == [], "all are gone")
    last = queues.consumer("last", credit=1)
    [found] = last.deliveries(1)
    assert (found.retry_count, last.answer(acks=[found.ack_id])) == (0, [OK])


@pytest.mark.parametrize("what", ["topic", "subscription"])
def test_what_is_deleted_under_a_consumer_ends_its_stream_with_the_reason(queues, what):
    queues.produce(1)
    consumer = queues.consumer(credit=10)
    consumer.deliveries(1)
    if what == "topic":
        queues.ask("Admin.DeleteTopic", admin_pb2.DeleteTopicRequest(name="t"))
    else:
        queues.ask("Queue.DeleteSubscription", pb.DeleteSubscriptionRequest(topic="t", name="s"))
    assert consumer.status() is grpc.StatusCode.NOT_FOUND
