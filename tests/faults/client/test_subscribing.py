"""Subscribers of the client library while connections are cut or go silent, and brokers are killed: every message is
dealt with, what was acknowledged does not come again, and the messages of a key are never seen out of order."""

import asyncio
import random
import threading
import time
from collections import defaultdict
from dataclasses import replace

import pytest
from tests.faults.client.support import BrokerProcess
from tests.proxy import Proxy

from millpond import Admin, AsyncSubscriber, Outcome, Producer, Subscriber
from millpond.client import link
from millpond.testing import running_broker

COUNT = 3_000
KEYS = [b"%d" % number for number in range(40)]
PATIENCE_SECONDS = 120


@pytest.fixture
def broker(tmp_path):
    process = BrokerProcess(tmp_path)
    yield process
    process.stop()


@pytest.fixture
def proxy(broker):
    """The broker tells its clients that this is where it is."""
    proxy = Proxy(broker.address)
    broker.start(grpc_advertise=proxy.address)
    yield proxy
    proxy.close()


def prepare(address, count=COUNT, **config):
    with Admin(address=address) as admin:
        admin.create_topic("t", partitions=2)
        admin.create_subscription(
            "t", "s", {"mode": "key_shared", "backoff_ms": 0, "attempts_max": 1_000, **config}
        )
    with Producer("t", address=address) as producer:
        sent = [producer.submit(b"%d" % number, key=KEYS[number % len(KEYS)]) for number in range(count)]
        for each in sent:
            each.result(60)


class Ledger:
    """What all consumers have seen, in order, by key; and what was certainly acknowledged."""

    def __init__(self):
        self._changing = threading.Lock()
        self.seen = defaultdict(list)
        self.acknowledged = set()
        self.again = []

    def note(self, delivery):
        with self._changing:
            number = int(delivery.value)
            self.seen[delivery.key].append(number)
            if number in self.acknowledged:
                self.again.append(number)

    def settle(self, delivery):
        """Waits; so the next message of a key is not taken before."""
        if delivery.ack().result(PATIENCE_SECONDS) is Outcome.OK:
            with self._changing:
                self.acknowledged.add(int(delivery.value))

    def check(self, count=COUNT):
        assert self.acknowledged <= set(range(count))
        assert {number for found in self.seen.values() for number in found} == set(range(count))
        assert self.again == [], "what was acknowledged does not come again"
        for key, found in self.seen.items():
            assert found == sorted(found), f"key {key} went back: {found}"


def consume(address, ledger, subscribers):
    subscriber = Subscriber("t", "s", address=address, prefetch=50, timeout=5)
    subscribers.append(subscriber)

    def handle(delivery):
        ledger.note(delivery)
        ledger.settle(delivery)

    subscriber.run(handle, workers=8)


def in_thread(*arguments):
    thread = threading.Thread(target=consume, args=arguments, daemon=True)
    thread.start()
    return thread


def until_done(address, disturb):
    deadline = time.monotonic() + PATIENCE_SECONDS
    with Admin(address=address, timeout=60) as admin:
        while True:
            assert time.monotonic() < deadline, "it does not come to an end"
            disturb()
            if admin.describe_subscription("t", "s").backlog == 0:
                return


@pytest.mark.parametrize("how", ["cut", "drop_responses"])
def test_connections_that_break_lose_nothing_and_keep_the_order(broker, proxy, how):
    prepare(broker.address)
    ledger, subscribers, chance = Ledger(), [], random.Random(7)
    threads = [in_thread(proxy.address, ledger, subscribers) for _ in range(2)]
    pause = threading.Event()

    def disturb():
        pause.wait(chance.uniform(0.05, 0.4))
        getattr(proxy, how)()

    until_done(broker.address, disturb)
    for subscriber in subscribers:
        subscriber.close()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    ledger.check()


def test_a_broker_that_is_killed_loses_nothing_and_keeps_the_order(broker):
    broker.start()
    prepare(broker.address)
    ledger, subscribers, chance = Ledger(), [], random.Random(3)
    threads = [in_thread(broker.address, ledger, subscribers) for _ in range(2)]
    pause, kills = threading.Event(), []

    def disturb():
        pause.wait(chance.uniform(0.2, 0.6))
        if len(kills) < 4:
            kills.append(broker.kill())
            broker.start()

    until_done(broker.address, disturb)
    for subscriber in subscribers:
        subscriber.close()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert kills
    ledger.check()


async def test_a_connection_that_goes_silent_is_given_up(monkeypatch):
    monkeypatch.setattr(link, "HEARTBEAT_S", 0.1)
    async with running_broker(grpc=True) as broker:
        proxy = Proxy(broker.listeners["grpc"])
        monkeypatch.setattr(broker.administration, "describe_topic", _through(broker, proxy.address))
        await broker.log.create_topic("t", 1, {})
        await broker.queues.create("t", "s", {})
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            AsyncSubscriber("t", "s", address=proxy.address, timeout=4) as subscriber,
        ):
            await broker.produce("t", b"before")
            first = await anext(subscriber)
            assert await first.ack() is Outcome.OK
            proxy.stall()
            await broker.produce("t", b"after")
            second = await anext(subscriber)
            assert second.value == b"after"
            assert await second.ack() is Outcome.OK
        proxy.close()


def _through(broker, address):
    """The broker says that it is reached through the proxy."""
    describe = broker.administration.describe_topic

    async def describing(name):
        found = await describe(name)
        return replace(
            found, partitions=[replace(each, owner={"grpc": address}) for each in found.partitions]
        )

    return describing


def test_an_ack_whose_answer_was_lost_is_told_so(broker, proxy):
    prepare(broker.address, count=1)
    with Subscriber("t", "s", address=proxy.address, timeout=5) as subscriber:
        delivery = next(subscriber)
        proxy.cut()
        outcome = delivery.ack().result(PATIENCE_SECONDS)
        assert outcome is Outcome.LOST
        again = next(subscriber)
        assert again.ack().result(PATIENCE_SECONDS) is Outcome.OK
