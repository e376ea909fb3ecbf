"""The broker is killed and started again, and clients go on as if nothing had been."""

import threading
import time
import uuid

import pytest
from tests.clients.patience import JOIN_SECONDS, SECONDS_MAX

# kafka-python leaves the sockets behind with which it could not connect; see also the fixture `fragile`.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

MESSAGES = 2_000
BEFORE_KILL = 700
PAUSE_S = 0.0005


def test_an_idempotent_producer_loses_and_doubles_nothing(fragile):
    topic = fragile.topic()
    producer = fragile.producer(idempotent=True)
    sent = threading.Event()

    def produce():
        for number in range(MESSAGES):
            producer.send(topic, b"%d" % number)
            time.sleep(PAUSE_S)
            if number == BEFORE_KILL:
                sent.set()

    producing = threading.Thread(target=produce)
    producing.start()
    assert sent.wait(SECONDS_MAX)
    fragile.server.kill()
    fragile.server.start()
    producing.join()
    assert producer.flush() == list(range(MESSAGES))
    assert [int(each.value) for each in fragile.read(topic, MESSAGES)] == list(range(MESSAGES))


def test_a_group_goes_on_consuming(fragile):
    topic, group = fragile.topic(), f"g-{uuid.uuid4().hex[:12]}"
    producer = fragile.producer()
    consumer = fragile.consumer(topics=[topic], group=group)
    found = []

    def produce(start, count):
        for number in range(start, start + count):
            producer.send(topic, b"%d" % number)
        producer.flush()

    def consume(until):
        give_up = time.monotonic() + SECONDS_MAX
        while until - 1 not in found and time.monotonic() < give_up:
            if got := consumer.poll(JOIN_SECONDS):
                found.extend(int(each.value) for each in got)
                consumer.commit()

    produce(0, 500)
    consume(500)
    fragile.server.kill()
    fragile.server.start()
    produce(500, 500)
    consume(1000)
    assert found == list(range(1000))
    assert consumer.committed((topic, 0)) == 1000
