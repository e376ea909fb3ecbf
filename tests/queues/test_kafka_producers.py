"""A topic that Kafka's clients write and read, as a queue: what they ask for is honoured, what they forge is not, and
neither side's reading changes the other's."""

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millpond import Subscriber

QUICK = {"ack_timeout_ms": 60_000, "backoff_ms": 0}
SECONDS_MAX = 20


@pytest.fixture
def pond(millpond):
    millpond.admin().create_topic("orders")
    return millpond


def produce(pond, *messages):
    producer = Producer({"bootstrap.servers": pond.bootstrap_servers})
    for value, headers in messages:
        producer.produce("orders", value, key=b"k", headers=headers)
    assert producer.flush(SECONDS_MAX) == 0


def subscriber(pond, name="billing", **values):
    return Subscriber("orders", name, address=pond.grpc, create={**QUICK, **values})


def take(subscriber, count):
    held = [subscriber.receive(SECONDS_MAX) for _ in range(count)]
    assert None not in held
    return held


def test_delays_that_kafka_producers_ask_for_are_honoured(pond):
    now_ms = int(time.time() * 1000)
    due = {b"at": now_ms + 1_500, b"after": now_ms + 700, b"now": 0}
    produce(
        pond,
        (b"at", [("millpond-deliver-at", b"%d" % due[b"at"])]),
        (b"after", [("millpond-delay", b"700")]),
        (b"now", []),
    )
    with subscriber(pond) as billing:
        came = {}
        for _ in due:
            [held] = take(billing, 1)
            came[held.value] = time.time() * 1000
            assert held.ack().result(SECONDS_MAX).is_ok
    assert came.keys() == due.keys()
    assert [value for value in due if came[value] < due[value]] == []


def test_what_kafka_producers_forge_is_not_believed(pond):
    forged = [
        ("millpond-attempts", b"999"),
        ("millpond-redrive-to", b"nobody"),
        ("millpond-subscription", b"nobody"),
        ("millpond-source-offset", b"-1"),
        ("color", b"red"),
    ]
    produce(pond, (b"1", forged))
    with subscriber(pond) as billing:
        [held] = take(billing, 1)
        assert (held.value, held.metadata.retry_count) == (b"1", 0)
        assert dict(held.metadata.attributes) == {"color": b"red"}


def test_acknowledgements_and_committed_offsets_do_not_meddle(pond):
    produce(pond, *((b"%d" % number, []) for number in range(10)))
    settings = {
        "bootstrap.servers": pond.bootstrap_servers,
        "group.id": "billing",
        "auto.offset.reset": "earliest",
    }
    group = Consumer({**settings, "enable.auto.commit": False})
    group.subscribe(["orders"])
    with subscriber(pond) as billing:
        for delivery in take(billing, 4):
            assert delivery.ack().result(SECONDS_MAX).is_ok
        read = read_some(group, 10)
        assert [message.value() for message in read] == [b"%d" % number for number in range(10)]
        group.commit(read[6], asynchronous=False)
        rest = take(billing, 6)
        assert [each.value for each in rest] == [b"%d" % number for number in range(4, 10)]
        for delivery in rest:
            assert delivery.ack().result(SECONDS_MAX).is_ok
    [committed] = group.committed([TopicPartition("orders", 0)], SECONDS_MAX)
    assert committed.offset == 7
    group.close()


def read_some(consumer, count):
    messages, until = [], time.monotonic() + SECONDS_MAX
    while len(messages) < count and time.monotonic() < until:
        messages += [each for each in consumer.consume(count, 0.2) if each.error() is None]
    return messages
