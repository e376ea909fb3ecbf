"""Consumers of the client library while connections are cut and brokers killed: every message, in order, once."""

import random
import threading

import pytest
from tests.faults.client.support import BrokerProcess
from tests.ledger import in_thread
from tests.proxy import Proxy

from millpond import Consumer, Producer
from millpond.model.errors import TimedOut, Unreachable
from millpond.testing import Faults, running_broker

COUNT = 5_000


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


def fill(address, count=COUNT):
    with Producer("t", address=address, batch_bytes=1_000) as producer:
        producer.send_many([b"%d" % number for number in range(count)])


def read(consumer, count, on_poll=lambda: None):
    found = []
    while len(found) < count:
        on_poll()
        found += consumer.poll(wait=10.0, bytes_max=4_000).messages
    return [message.number for message in found]


def test_connections_cut_at_random(proxy, figures):
    fill(proxy.address)
    dice = random.Random(3)
    proxy.plan = lambda: (dice.choice(["abort", "swallow"]), dice.randrange(3_000, 15_000))
    before = proxy.connections
    with Consumer("t", address=proxy.address, timeout=60.0) as consumer:
        numbers = read(consumer, COUNT)
    cuts = proxy.connections - before - 1
    figures.append(
        f"client library: {cuts} cuts while reading, {len(numbers):,} messages, each once and in order"
    )
    assert numbers == list(range(1, COUNT + 1))
    assert cuts >= 5


def test_a_connection_that_goes_silent(proxy):
    fill(proxy.address)
    proxy.plan = planned([("stall", 5_000)])
    with Consumer("t", address=proxy.address, timeout=2.0) as consumer:
        assert read(consumer, COUNT) == list(range(1, COUNT + 1))


def planned(fates):
    rest = iter(fates)
    return lambda: next(rest, None)


def test_a_connection_that_goes_silent_for_ever_is_an_error_in_time(proxy):
    fill(proxy.address, 10)
    with Consumer("t", address=proxy.address, timeout=2.0) as consumer:
        assert len(consumer.poll().messages) == 10
        proxy.plan = lambda: ("stall", 0)
        proxy.stall()
        with pytest.raises((TimedOut, Unreachable)):
            consumer.poll()
        proxy.plan = lambda: None
        proxy.cut()
        assert consumer.poll().messages == [], "it can go on"


@pytest.mark.parametrize("keeping", ["nowhere", "file", "group"])
def test_a_broker_that_is_killed_and_started_again(broker, tmp_path, keeping):
    """In the middle of reading, and while a poll waits."""
    broker.start()
    fill(broker.address, 1_000)
    kept = {"nowhere": {}, "file": {"position_file": tmp_path / "at"}, "group": {"group": "g"}}[keeping]
    turns = iter(range(1_000))

    def restart_now_and_then():
        if next(turns) in (1, 3):
            broker.kill()
            broker.start()

    with Consumer("t", address=broker.address, timeout=30.0, **kept) as consumer:
        assert read(consumer, 1_000, restart_now_and_then) == list(range(1, 1_001))
        waiting = threading.Thread(target=lambda: late.extend(consumer.poll(wait=60.0).messages))
        late = []
        waiting.start()
        broker.kill()
        broker.start()
        with Producer("t", address=broker.address) as producer:
            producer.send(b"late")
        waiting.join(60)
        assert [message.value for message in late] == [b"late"]


async def test_a_store_that_fails_one_time_in_ten(tmp_path):
    faults = Faults()
    async with running_broker(
        tmp_path, grpc=True, faults=faults, inline_bytes_max=0, tail_bytes_max=1, cache_bytes_max=1
    ) as broker:
        address = broker.listeners["grpc"]
        await in_thread(fill, address, 500)
        faults.error_rate = 0.1
        consumer = await in_thread(lambda: Consumer("t", address=address, timeout=30.0))
        assert await in_thread(read, consumer, 500) == list(range(1, 501))
        await in_thread(consumer.close)
