"""Rows S26-S31, S35 and S36, and the regressions P1-P7: topics as queues, through real brokers and the client library.

Named after the rows of docs/seeds.md.
"""

import collections
import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time

import grpc
import pytest
from tests.seeds.processes import Server, environment, eventually

from millpond import Admin, Consumer, Producer, Publisher, Subscriber
from millpond.stubs import queue_pb2

QUICK = {"ack_timeout_ms": "30000", "backoff_ms": "20", "backoff_max_ms": "100", "attempts_max": "50"}
HOLDER = """
import sys, time
from millpond import Subscriber
address, topic, prefetch = sys.argv[1:]
with Subscriber(topic, "billing", address=address, consumer="holder", prefetch=int(prefetch)) as subscriber:
    for count, delivery in enumerate(subscriber, 1):
        print(delivery.number, flush=True)
        if count == int(prefetch):
            time.sleep(600)
"""
"""A consumer that takes some messages and says nothing of them."""


@pytest.fixture
def queue(server, topic):
    """A topic with a subscription of the given kind."""

    def make(partitions=1, **config):
        with Admin(address=server.grpc) as admin:
            admin.create_topic(topic, partitions=partitions)
            admin.create_subscription(topic, "billing", {**QUICK, **config})
        return topic

    return make


def send(server, topic, *values, key=None, partition=None):
    with Producer(topic, address=server.grpc) as producer:
        return [
            producer.submit(value.encode(), key=key, partition=partition).result().number for value in values
        ]


def subscribe(server, topic, consumer="worker", **named):
    return Subscriber(topic, "billing", address=server.grpc, consumer=consumer, **named)


def take(subscriber, count, seconds=20):
    """The next deliveries."""
    taken = []
    deadline = time.monotonic() + seconds
    while len(taken) < count:
        delivery = subscriber.receive(max(deadline - time.monotonic(), 0.01))
        assert delivery is not None, f"{len(taken)} of {count} came"
        taken.append(delivery)
    return taken


def nothing(subscriber, seconds=0.3):
    assert subscriber.receive(seconds) is None


def values(deliveries):
    return [each.value.decode() for each in deliveries]


def ack(*deliveries):
    assert {each.ack().result(20).value for each in deliveries} == {"ok"}


def test_s26_each_message_has_an_id_of_its_own(server, queue):
    topic = queue(partitions=3)
    for partition in range(3):
        send(server, topic, *map(str, range(5)), partition=partition)
    with subscribe(server, topic) as subscriber:
        deliveries = take(subscriber, 15)
        ids = [each.metadata.id for each in deliveries]
        places = {(each.metadata.partition, each.metadata.number) for each in deliveries}
    assert len(set(ids)) == 15
    assert places == set(itertools.product(range(3), range(1, 6)))


def test_s27_subscriptions_remember_what_they_have_consumed_each_for_itself(tmp_path):
    with Server(tmp_path) as server:
        with Admin(address=server.grpc) as admin:
            admin.create_topic("orders")
            for name in ("billing", "shipping"):
                admin.create_subscription("orders", name, QUICK)
        send(server, "orders", "1", "2", "3")
        with subscribe(server, "orders") as subscriber:
            first, _, third = take(subscriber, 3)
            ack(first, third)
        server.stop()
        server.start()
        with subscribe(server, "orders") as subscriber:
            [left] = take(subscriber, 1)
            assert left.value == b"2"
            ack(left)
            nothing(subscriber)
        with Subscriber("orders", "shipping", address=server.grpc) as subscriber:
            assert values(take(subscriber, 3)) == ["1", "2", "3"]


def test_s28_a_message_comes_again_until_it_is_acknowledged_and_counts_its_retries(server, queue):
    topic = queue(ack_timeout_ms="4000")
    send(server, topic, "work")
    with subscribe(server, topic) as subscriber:
        [first] = take(subscriber, 1)
        assert first.metadata.retry_count == 0
        assert first.nack().result(20).value == "ok"
        [second] = take(subscriber, 1)  # and let it run out
        assert (second.value, second.metadata.retry_count) == (b"work", 1)
        [third] = take(subscriber, 1)
        assert (third.value, third.metadata.retry_count) == (b"work", 2)
        assert second.ack().result(20).value == "stale"
        ack(third)
        nothing(subscriber)


def test_s29_what_was_published_and_what_was_acknowledged_survive_kill_9(tmp_path):
    with Server(tmp_path) as server:
        with Admin(address=server.grpc) as admin:
            admin.create_topic("orders")
            admin.create_subscription("orders", "billing", QUICK)
        send(server, "orders", *map(str, range(100)))
        acknowledged = set()
        with subscribe(server, "orders") as subscriber:
            for delivery in take(subscriber, 100):
                if int(delivery.value) % 2:
                    ack(delivery)
                    acknowledged.add(delivery.value)
            server.kill()
        server.start()
        with subscribe(server, "orders", "another") as subscriber:
            again = take(subscriber, 50)
            assert {each.value for each in again} == {b"%d" % n for n in range(100)} - acknowledged
            ack(*again)
            nothing(subscriber)


def test_s30_another_broker_takes_over_the_partitions_of_one_that_failed(tmp_path):
    """One broker at a time here; how several share partitions is shown by the cluster's tests."""
    with Server(tmp_path) as first:
        with Admin(address=first.grpc) as admin:
            admin.create_topic("orders", partitions=4)
            admin.create_subscription("orders", "billing", QUICK)
        for partition in range(4):
            send(first, "orders", "1", "2", partition=partition)
        with subscribe(first, "orders", prefetch=1) as subscriber:
            ack(*take(subscriber, 1))
            first.kill()
            first.start()  # another session: it claims the partitions, and the dispatchers with them
            ack(*take(subscriber, 7))
            nothing(subscriber)


def test_s31_a_key_has_one_consumer_in_published_order_and_keys_are_shared_out(server, queue):
    topic = queue(mode="key_shared")
    keys = [b"key-%d" % number for number in range(40)]
    seen, holders = collections.defaultdict(list), collections.defaultdict(set)
    with Producer(topic, address=server.grpc) as producer:
        for value in range(5):
            for key in keys:
                producer.submit(b"%d" % value, key=key)
    lock = threading.Lock()

    def work(subscriber, name):
        while sum(map(len, seen.values())) < 200:
            delivery = subscriber.receive(0.2)
            if delivery is not None:
                with lock:
                    seen[delivery.key].append(int(delivery.value))
                    holders[delivery.key].add(name)
                ack(delivery)

    with subscribe(server, topic, "anna") as anna, subscribe(server, topic, "bert") as bert:
        eventually(lambda: _consumers(server, topic) == 2, "both are attached before either takes anything")
        threads = [threading.Thread(target=work, args=each) for each in ((anna, "anna"), (bert, "bert"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert dict(seen) == {key: list(range(5)) for key in keys}
    shares = collections.Counter(name for names in holders.values() for name in names)
    assert min(shares["anna"], shares["bert"]) >= 8


def test_s33_s34_metadata_is_pushed_until_they_pause_and_data_is_fetched_on_request(server, topic):
    bodies = [os.urandom(100_000) for _ in range(3)]
    with Admin(address=server.grpc) as admin, Publisher(address=server.grpc) as publisher:
        admin.create_topic(topic, configs={"payload": "reference"})
        admin.create_subscription(topic, "billing", QUICK)
        for number, body in enumerate(bodies):
            publisher.submit(body, topic=topic, key=b"customer-7", attributes={"number": str(number)})
    with subscribe(server, topic) as subscriber:
        deliveries = take(subscriber, 3)
        for number, (delivery, body) in enumerate(zip(deliveries, bodies, strict=True)):
            metadata = delivery.metadata
            assert (metadata.topic, metadata.partition, metadata.number) == (topic, 0, number + 1)
            assert metadata.attributes["number"] == str(number).encode()
            assert (metadata.key, metadata.retry_count) == (b"customer-7", 0)
            assert metadata.age_s >= 0
            assert not delivery.value  # the broker never saw it
            assert delivery.data() == body
        ack(*deliveries)
        subscriber.pause()
        time.sleep(0.2)
        with Publisher(address=server.grpc) as publisher:
            publisher.submit(b"more", topic=topic, key=b"customer-7")
        nothing(subscriber)
        subscriber.resume()
        [more] = take(subscriber, 1)
        assert more.data() == b"more"
        ack(more)


def test_bodies_go_with_dead_letters_and_come_back_with_them(server, topic):
    body = os.urandom(100_000)
    with Admin(address=server.grpc) as admin, Publisher(address=server.grpc) as publisher:
        admin.create_topic(topic, configs={"payload": "reference"})
        admin.create_subscription(topic, "billing", {**QUICK, "attempts_max": "1"})
        publisher.submit(body, topic=topic, key=b"k")
        with subscribe(server, topic) as subscriber:
            [held] = take(subscriber, 1)
            assert held.nack().result(20).value == "ok"
            dead = f"{topic}.billing.dead"
            eventually(lambda: dead in {each.name for each in admin.list_topics()}, "a dead letter")
            admin.create_subscription(dead, "looking", QUICK)
            with Subscriber(dead, "looking", address=server.grpc) as looking:
                [letter] = take(looking, 1)
                assert letter.data() == body
                ack(letter)
            assert admin.redrive(topic, "billing") == 1
            [again] = take(subscriber, 1)
            assert again.data() == body
            ack(again)


def test_s35_producers_and_consumers_come_and_go(server, queue):
    topic = queue(partitions=2)
    taken = []
    for round_ in range(4):
        send(server, topic, f"{round_}a", partition=0)
        send(server, topic, f"{round_}b", partition=1)
        with subscribe(server, topic, f"worker-{round_}") as subscriber:
            deliveries = take(subscriber, 2)
            taken += values(deliveries)
            ack(*deliveries)
    assert sorted(taken) == sorted(f"{n}{letter}" for n in range(4) for letter in "ab")
    with Admin(address=server.grpc) as admin:
        state = admin.describe_subscription(topic, "billing")
        assert [each.floor for each in state.partitions] == [5, 5]
        assert state.consumers == []


@pytest.mark.parametrize("mode", ["shared", "key_shared", "exclusive", "failover", "multicast"])
def test_s36_each_kind_of_subscription_gives_out_what_it_should(server, queue, mode):
    topic = queue(mode=mode)
    send(server, topic, *map(str, range(10)), key=b"same")
    with subscribe(server, topic, "anna") as anna:
        first = take(anna, 1 if mode == "key_shared" else 10)
        assert values(first) == list(map(str, range(len(first))))
        ack(*first)
        if mode == "key_shared":
            while len(first) < 10:
                first += take(anna, 1)
                ack(first[-1])
            assert values(first) == list(map(str, range(10)))
        nothing(anna)
    with subscribe(server, topic, "bert") as bert:
        if mode == "multicast":
            assert values(take(bert, 10)) == list(map(str, range(10)))
        else:
            nothing(bert)


# -- bugs of others, which ours must not have ----------------------------------------------------------------------


def test_p1_a_key_shared_consumer_that_disconnects_does_not_stop_the_others(server, queue):
    topic = queue(mode="key_shared", ack_timeout_ms="60000")
    with Producer(topic, address=server.grpc) as producer:
        for number in range(60):
            producer.submit(b"%d" % number, key=b"key-%d" % (number % 20))
    taken = []
    with holding(server, topic, 10) as holder, subscribe(server, topic, "other") as other:
        time.sleep(0.5)  # the other is attached, and has the keys that are left for it
        holder.kill()
        while len(taken) < 60:
            taken += take(other, 1)
            ack(taken[-1])
    order = collections.defaultdict(list)
    for each in taken:
        order[each.key].append(int(each.value))
    assert all(numbers == sorted(set(numbers)) for numbers in order.values())
    assert {each.value for each in taken} == {b"%d" % number for number in range(60)}


def test_p2_a_nack_keeps_the_key_with_one_consumer_and_in_order(server, queue):
    topic = queue(mode="key_shared")
    send(server, topic, "1", "2", "3", key=b"k")
    with subscribe(server, topic, "anna") as anna, subscribe(server, topic, "bert") as bert:
        seen = []
        while len(seen) < 6:
            for mine, other in ((anna, bert), (bert, anna)):
                delivery = mine.receive(0.1)
                if delivery is None:
                    continue
                nothing(other, 0.05)
                seen.append((delivery.value, delivery.metadata.retry_count))
                if delivery.metadata.retry_count == 0:
                    delivery.nack(0.05).result(20)
                else:
                    ack(delivery)
    assert seen == [(value, attempt) for value in (b"1", b"2", b"3") for attempt in (0, 1)]


def test_p3_consumers_that_come_and_go_never_hold_a_key_together(server, queue):
    topic = queue(mode="key_shared")
    with Producer(topic, address=server.grpc) as producer:
        for number in range(200):
            producer.submit(b"%d" % number, key=b"key-%d" % (number % 4))
    held, done, wrong = {}, [], []
    lock, deadline = threading.Lock(), time.monotonic() + 60

    def work(name):
        rounds = itertools.count()
        while len(done) < 200 and time.monotonic() < deadline:
            with subscribe(server, topic, f"{name}-{next(rounds)}", prefetch=8) as subscriber:
                for _ in range(10):
                    delivery = subscriber.receive(0.2)
                    if delivery is None:
                        continue
                    with lock:
                        if delivery.key in held:
                            wrong.append((delivery.key, held[delivery.key], name))
                        held[delivery.key] = name
                    time.sleep(0.001)
                    with lock:
                        held.pop(delivery.key, None)
                        done.append((delivery.key, int(delivery.value)))
                    ack(delivery)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("anna", "bert", "carl")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []
    assert len(done) == len(set(done)) == 200
    for key in {key for key, _ in done}:
        numbers = [number for each, number in done if each == key]
        assert numbers == sorted(numbers)


def test_p5_messages_of_a_consumer_that_crashed_or_hangs_go_to_others(server, queue):
    topic = queue(ack_timeout_ms="4000")
    send(server, topic, "1", "2", "3")
    with holding(server, topic, 2), subscribe(server, topic, "other", prefetch=10) as other:
        ack(*take(other, 1))
        again = take(other, 2)
        assert [each.metadata.retry_count for each in again] == [1, 1]
        ack(*again)
        nothing(other)


def test_p7_ids_that_were_never_given_out_are_told_so_and_nobody_is_harmed(server, queue):
    topic = queue()
    send(server, topic, "1")
    with subscribe(server, topic) as subscriber, grpc.insecure_channel(server.grpc) as channel:
        [held] = take(subscriber, 1)
        call = channel.stream_stream(
            "/millpond.v1.Queue/Subscribe",
            request_serializer=queue_pb2.SubscribeRequest.SerializeToString,
            response_deserializer=queue_pb2.SubscribeResponse.FromString,
        )
        attach = queue_pb2.Attach(topic=topic, subscription="billing", consumer="mallory")
        forged = [b"", b"x", bytes(33), held.ack_id[:-1] + b"?", b"\xff" * 1000]
        answers = queue_pb2.Answers(request=7, acks=forged, nacks=forged)
        stream = call(
            iter([queue_pb2.SubscribeRequest(attach=attach), queue_pb2.SubscribeRequest(answers=answers)]),
            timeout=20,
        )
        results = next(each.results[0] for each in stream if each.results)
        assert results.request == 7
        assert set(results.answers) == {queue_pb2.ANSWER_UNKNOWN}
        assert len(results.answers) == 2 * len(forged)
        stream.cancel()
        ack(held)
    eventually(lambda: _floor(server, topic) == 2, "it is settled")


def test_queue_and_log_and_groups_read_the_same_topic(server, queue):
    topic = queue()
    send(server, topic, "1", "2")
    with subscribe(server, topic) as subscriber:
        ack(*take(subscriber, 2))
    with Consumer(topic, address=server.grpc) as consumer:
        assert [message.value for message in consumer.poll(wait=5).messages] == [b"1", b"2"]


def _consumers(server, topic):
    with Admin(address=server.grpc) as admin:
        return len(admin.describe_subscription(topic, "billing").consumers)


def _floor(server, topic):
    with Admin(address=server.grpc) as admin:
        return admin.describe_subscription(topic, "billing").partitions[0].floor


@contextlib.contextmanager
def holding(server, topic, count):
    """A process that holds so many messages and does nothing."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, server.grpc, topic, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        for _ in range(count):
            assert holder.stdout.readline()
        yield holder
    finally:
        holder.kill()
        holder.communicate()
