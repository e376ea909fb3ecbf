"""Subscribers and publishers without an event loop, and from several threads."""

import asyncio
import threading
from collections import defaultdict

import pytest

from millpond import Admin, Consumer, Outcome, Publisher, Subscriber
from millpond.model.errors import Stopping, UnknownSubscription
from millpond.testing import Millpond

WAIT_SECONDS_MAX = 30


@pytest.fixture(scope="module")
def address():
    with Millpond() as broker:
        yield broker.grpc


@pytest.fixture
def topic(address, request):
    name = request.node.name.replace("[", "-").replace("]", "")[-200:]
    with Admin(address=address) as admin:
        admin.create_topic(name, partitions=2)
        admin.create_subscription(name, "s", {"mode": "key_shared", "backoff_ms": 0})
    return name


def publish(address, topic, *pairs, **named):
    with Publisher(address=address) as publisher:
        sent = [publisher.submit(data, topic=topic, key=key, **named) for key, data in pairs]
        return [each.result(WAIT_SECONDS_MAX) for each in sent]


def backlog(address, topic):
    with Admin(address=address) as admin:
        return admin.describe_subscription(topic, "s").backlog


def test_messages_are_published_delivered_and_acknowledged(address, topic):
    publish(address, topic, *[(b"%d" % number, b"x") for number in range(500)], attributes={"a": "b"})
    with Subscriber(topic, "s", address=address) as subscriber:
        for count, delivery in enumerate(subscriber, 1):
            assert (delivery.value, delivery.data(), delivery.metadata.attributes) == (
                b"x",
                b"x",
                {"a": b"b"},
            )
            acknowledged = delivery.ack()
            if count == 500:
                break
        assert acknowledged.result(WAIT_SECONDS_MAX) is Outcome.OK
        assert subscriber.flush() == []
        assert backlog(address, topic) == 0


def test_a_nack_comes_back_and_an_extension_is_answered(address, topic):
    publish(address, topic, (b"k", b"x"))
    with Subscriber(topic, "s", address=address) as subscriber:
        assert next(subscriber).nack(0).result(WAIT_SECONDS_MAX) is Outcome.OK
        again = subscriber.receive(WAIT_SECONDS_MAX)
        assert again.metadata.retry_count == 1
        assert again.extend(5).result(WAIT_SECONDS_MAX) is Outcome.OK
        assert subscriber.receive(0.05) is None
        again.ack()


def test_large_values_and_bodies_by_reference_are_fetched(address, topic):
    with Admin(address=address) as admin:
        admin.create_topic(f"{topic}-films", configs={"payload": "reference"})
    publish(address, f"{topic}-films", (None, b"a film"))
    publish(address, topic, (b"k", bytes(5_000)))
    with Subscriber(f"{topic}-films", "s", address=address, create={"mode": "shared"}) as films:
        film = next(films)
        assert (film.value, film.data()) == (None, b"a film")
    with Subscriber(topic, "s", address=address, value_bytes_max=10) as subscriber:
        large = next(subscriber)
        assert (large.value, large.data()) == (None, bytes(5_000))


def test_a_large_body_goes_by_reference_where_the_topic_says_so(address, topic):
    with Admin(address=address) as admin:
        admin.create_topic(f"{topic}-mixed", configs={"payload": "large", "max.message.bytes": "10000"})
    publish(address, f"{topic}-mixed", (None, b"small"), (None, bytes(20_000)))
    with Subscriber(f"{topic}-mixed", "s", address=address, create={"mode": "shared"}) as mixed:
        small, large = next(mixed), next(mixed)
        assert (small.value, large.value, large.data()) == (b"small", None, bytes(20_000))


def test_threads_share_the_work_and_keep_the_order_of_keys(address, topic):
    keys = [b"%d" % number for number in range(7)]
    publish(address, topic, *[(key, b"%d" % number) for number in range(30) for key in keys])
    seen, failed, running = defaultdict(list), set(), set()
    changing = threading.Lock()

    def handle(delivery):
        with changing:
            assert delivery.key not in running
            running.add(delivery.key)
        number = int(delivery.value)
        with changing:
            running.discard(delivery.key)
            if number % 9 == 0 and (delivery.key, number) not in failed:
                failed.add((delivery.key, number))
                raise ValueError(number)
            seen[delivery.key].append(number)
            if sum(map(len, seen.values())) == 30 * len(keys):
                done.set()

    done = threading.Event()
    subscriber = Subscriber(topic, "s", address=address)
    running_it = threading.Thread(target=subscriber.run, args=[handle], kwargs={"workers": 3})
    running_it.start()
    assert done.wait(WAIT_SECONDS_MAX)
    subscriber.close()
    running_it.join(WAIT_SECONDS_MAX)
    assert not running_it.is_alive()
    assert seen == {key: list(range(30)) for key in keys}
    assert len(failed) == 4 * len(keys)


def test_a_handler_whose_own_work_was_cancelled_has_failed_and_its_thread_goes_on(address, topic):
    publish(address, topic, (b"k", b"x"))
    counts = []

    def handle(delivery):
        counts.append(delivery.metadata.retry_count)
        if len(counts) == 1:
            raise asyncio.CancelledError
        done.set()

    done = threading.Event()
    subscriber = Subscriber(topic, "s", address=address)
    running_it = threading.Thread(target=subscriber.run, args=[handle], daemon=True)
    running_it.start()
    assert done.wait(WAIT_SECONDS_MAX)
    subscriber.close()
    running_it.join(WAIT_SECONDS_MAX)
    assert counts == [0, 1]


def test_a_handler_that_wants_the_program_to_end_ends_run_and_its_message_is_refused(address, topic):
    publish(address, topic, (b"k", b"x"))
    raised = []

    def run_it():
        try:
            subscriber.run(leave, workers=2)
        except SystemExit as error:
            raised.append(error.code)

    def leave(_):
        raise SystemExit("no more")

    with Subscriber(topic, "s", address=address) as subscriber:
        running_it = threading.Thread(target=run_it, daemon=True)
        running_it.start()
        running_it.join(WAIT_SECONDS_MAX)
        assert raised == ["no more"]
        assert subscriber.receive(WAIT_SECONDS_MAX).metadata.retry_count == 1
        with Admin(address=address) as admin:
            partitions = admin.describe_subscription(topic, "s", failing_max=1).partitions
        [failing] = [each for partition in partitions for each in partition.failing]
        assert (failing.number, failing.attempts, failing.why) == (1, 1, "leased")
        assert failing.reasons == ["SystemExit: no more"]


def test_several_threads_may_iterate_over_one_subscriber(address, topic):
    publish(address, topic, *[(b"%d" % number, b"%d" % number) for number in range(300)])
    found = []

    def consume():
        for delivery in subscriber:
            found.append(int(delivery.value))
            delivery.ack()

    subscriber = Subscriber(topic, "s", address=address, prefetch=10)
    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    while backlog(address, topic):
        pass
    subscriber.close()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX)
    assert sorted(found) == list(range(300))


def test_a_transaction_is_all_or_nothing(address, topic):
    publish(address, topic, (b"k", b"x"))
    with Subscriber(topic, "s", address=address) as subscriber:
        delivery = next(subscriber)
        with subscriber.transaction() as transaction:
            transaction.ack(delivery)
            transaction.publish(b"made of it", topic=f"{topic}-out", key=b"k")
        assert transaction.placed == [(0, 1)]
    with Consumer(f"{topic}-out", address=address) as consumer:
        assert [each.value for each in consumer.poll().messages] == [b"made of it"]
    assert backlog(address, topic) == 0


def test_what_cannot_be_is_told_and_closing_ends_iteration(address, topic):
    with Subscriber(topic, "nothing", address=address) as subscriber, pytest.raises(UnknownSubscription):
        next(subscriber)
    subscriber = Subscriber(topic, "s", address=address)
    subscriber.pause()
    subscriber.resume()
    threading.Timer(0.05, subscriber.close).start()
    assert list(subscriber) == []
    with pytest.raises(Stopping):
        subscriber.receive(0)


def test_administration(address, topic):
    with Admin(address=address) as admin:
        admin.create_subscription(topic, "new", read_from=1)
        assert admin.alter_subscription(topic, "new", {"attempts_max": 3}).config["attempts_max"] == "3"
        assert [each.name for each in admin.list_subscriptions(topic)] == ["new", "s"]
        admin.reset_subscription(topic, "new", "latest")
        assert (admin.redrive(topic, "new"), admin.unblock(topic, "new")) == (0, 0)
        admin.delete_subscription(topic, "new")
