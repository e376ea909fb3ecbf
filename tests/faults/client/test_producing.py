"""Producers of the client library while connections are cut, brokers killed, and stores fail: what was acknowledged is
there, once, at its number, in its producer's order."""

import random
import threading

import pytest
from tests.faults.client.support import BrokerProcess
from tests.ledger import Ledger, in_thread, read_all
from tests.proxy import Proxy

from millpond import AsyncProducer, Producer
from millpond.testing import Faults, running_broker

PRODUCERS = 4
TIMEOUT = 60.0


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


def produce(address, name, count, ledger, pace, timeout=TIMEOUT, **named):
    """One producer's thread: submits all, then notes what became of each."""
    with Producer("orders", address=address, timeout=timeout, batch_bytes=4_096, **named) as producer:
        sents = []
        for number in range(count):
            pace(number)
            value = b"%s:%d:%s" % (name, number, b"x" * (number % 90))
            sents.append((value, producer.submit(value, key=name)))
        for value, sent in sents:
            ledger.note(value, sent)


def run_producers(address, count, trouble, **named):
    """`trouble` is called again and again while they produce. They wait for it, so that it falls among their work."""
    ledger, turn = Ledger(), threading.Semaphore(0)

    def pace(number):
        if number % 100 == 99:
            turn.acquire()

    names = [b"p%d" % number for number in range(PRODUCERS)]
    threads = [
        threading.Thread(target=produce, args=(address, name, count, ledger, pace), kwargs=named)
        for name in names
    ]
    for thread in threads:
        thread.start()
    rounds = 0
    while any(thread.is_alive() for thread in threads):
        trouble()
        rounds += 1
        turn.release(PRODUCERS)
        for thread in threads:
            thread.join(0.01)
    return ledger, rounds


def stored_of(proxy):
    proxy.plan = lambda: None
    return read_all("orders", proxy.address)


def check(ledger, stored, figures, what):
    lost, misplaced, duplicates, wrong_order = ledger.check(stored)
    figures.append(
        f"client library: {what}, acknowledged {len(ledger.placed):,}, lost {lost}, duplicates {duplicates}, "
        f"out of order {wrong_order}, refused {sum(ledger.refused.values())}"
    )
    assert (lost, misplaced, duplicates, wrong_order) == (0, 0, 0, 0)


def fates(dice, kinds, bytes_max):
    return lambda: (dice.choice(kinds), dice.randrange(500, bytes_max))


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_connections_cut_at_random(broker, proxy, figures, compression):
    proxy.plan = fates(random.Random(7), ["abort", "swallow"], 30_000)
    ledger, _ = run_producers(proxy.address, 2_000, lambda: None, compression=compression)
    cuts = proxy.connections - PRODUCERS
    assert len(ledger.placed) == PRODUCERS * 2_000, ledger.refused
    assert cuts >= 10
    check(ledger, stored_of(proxy), figures, f"{cuts} cuts ({compression})")


def test_connections_that_go_silent(broker, proxy, figures):
    """A new connection is tried while there is time, and it is enough."""
    dice = random.Random(5)
    ends = iter([("stall", dice.randrange(2_000, 40_000)) for _ in range(PRODUCERS)])
    proxy.plan = lambda: next(ends, None)
    ledger, _ = run_producers(proxy.address, 1_000, lambda: None, timeout=10.0)
    assert len(ledger.placed) == PRODUCERS * 1_000, ledger.refused
    check(ledger, stored_of(proxy), figures, f"{PRODUCERS} connections went silent")


@pytest.mark.parametrize("trouble", ["stall", "cut", "drop_responses"])
def test_topics_that_share_a_connection_which_breaks(broker, proxy, trouble):
    """Each topic has its own stream and sequences: all of them recover, and nothing is stored twice."""
    topics, count = ("a", "b", "c"), 100
    with Producer(address=proxy.address, timeout=20.0) as producer:
        for topic in topics:
            producer.send(b"0", topic=topic)
        getattr(proxy, trouble)()
        sents = [producer.submit(b"%d" % n, topic=topic) for n in range(1, count) for topic in topics]
        for sent in sents:
            sent.result(TIMEOUT)
    for topic in topics:
        stored = read_all(topic, broker.address)
        assert [int(message.value) for message in stored] == list(range(count)), topic


def test_a_broker_that_is_killed_again_and_again(broker, figures):
    kills = []
    broker.start()

    def trouble():
        if len(kills) < 8:
            broker.kill()
            broker.start()
            kills.append(1)

    ledger, _ = run_producers(broker.address, 2_000, trouble)
    assert len(ledger.placed) == PRODUCERS * 2_000, ledger.refused
    check(ledger, read_all("orders", broker.address), figures, f"{len(kills)} kills")


async def test_a_store_that_fails_one_time_in_ten(tmp_path, figures):
    faults = Faults(error_rate=0.1, random=random.Random(3))
    async with running_broker(tmp_path, grpc=True, faults=faults, inline_bytes_max=0) as broker:
        address = broker.listeners["grpc"]
        ledger, _ = await in_thread(run_producers, address, 1_500, lambda: None)
        assert len(ledger.placed) == PRODUCERS * 1_500, ledger.refused
        faults.error_rate = 0.0
        check(ledger, await in_thread(read_all, "orders", address), figures, "1 in 10 store calls failed")


async def test_messages_that_were_given_up_are_stored_once_or_not_at_all(broker, proxy, figures):
    """With a short timeout many are refused as timed out; nobody is told anything untrue."""
    proxy.plan = fates(random.Random(11), ["abort", "swallow", "stall"], 10_000)
    ledger = Ledger()
    async with AsyncProducer("orders", address=proxy.address, timeout=0.4, batch_bytes=2_048) as producer:
        for round_ in range(600):
            if round_ >= 60 and ledger.refused:
                break
            values = [b"p:%d" % number for number in range(round_ * 50, round_ * 50 + 50)]
            futures = [(value, await ledger.submit(producer, value)) for value in values]
            for value, future in futures:
                if future is not None:
                    await ledger.note_async(value, future)
    stored = await in_thread(stored_of, proxy)
    assert ledger.refused
    check(ledger, stored, figures, "timeouts of 0.4 s in a network that cuts and stalls")
