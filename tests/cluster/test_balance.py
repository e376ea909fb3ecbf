"""1, 3, 5, 2 brokers over 100 partitions: even shares, as few moves as that takes, and producers that notice nothing.

A move is an epoch that was raised. While brokers come and go, an idempotent librdkafka and the client library produce
all the time; what was acknowledged is compared with what is stored.
"""

import asyncio
import itertools
import threading
import time
from collections import Counter

from confluent_kafka import Producer as ConfluentProducer
from tests.cluster.near import near_brokers

from millpond.client import AsyncConsumer, AsyncProducer

TOPIC = "balanced"
PARTITIONS = 100
STEPS = (3, 5, 2)
PAUSE_SECONDS = 0.002


class Confluent:
    """A producer in a thread: what it was told of each message, and of its brokers."""

    def __init__(self, addresses):
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.refused: list[object] = []
        self.errors: list[object] = []
        self._stop = threading.Event()
        self._producer = ConfluentProducer(
            {
                "bootstrap.servers": addresses,
                "enable.idempotence": True,
                "linger.ms": 1,
                "error_cb": self.errors.append,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        for number in itertools.count():
            if self._stop.is_set():
                return
            value = b"confluent-%d" % number
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
            time.sleep(PAUSE_SECONDS)

    def _delivered(self, error, message):
        if error is not None:
            self.refused.append(error)
        else:
            self.acknowledged[message.value()] = (message.partition(), message.offset())

    def look(self):
        """Hear of the brokers that there are now: one that knows only those that go has nobody to ask."""
        self._producer.list_topics(timeout=30)

    def stop(self):
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "everything is answered"


async def produce(address, stop):
    """The client library: whatever is no retriable error is raised here. Where each message went."""
    answers = {}
    async with AsyncProducer(TOPIC, address=address, timeout=30) as producer:
        while not stop.is_set():
            number = len(answers)
            value = b"library-%d" % number
            answers[value] = await producer.submit(value, partition=number % PARTITIONS)
            await asyncio.sleep(PAUSE_SECONDS)
    placed = {value: await answer for value, answer in answers.items()}
    return {value: (each.partition, each.number - 1) for value, each in placed.items()}


def minimal(shares, brokers):
    """How many partitions must move at least so that the shares differ by one at most: all of those who leave, and what
    those who stay have above their quota, where the largest keep the odd ones."""
    stay = sorted((shares.get(each, 0) for each in brokers), reverse=True)
    share, odd = divmod(PARTITIONS, len(brokers))
    surplus = sum(max(0, each - share - (rank < odd)) for rank, each in enumerate(stay))
    return surplus + sum(count for each, count in shares.items() if each not in brokers)


async def standing(near):
    """Partitions by owner, and the sum of all epochs."""
    found = await near.settled()
    topology = near.brokers[0].topology.current
    shares = {each.session: each.partitions for each in found.brokers}
    return shares, sum(each.epoch for each in topology.partitions.values())


async def test_shares_are_even_moves_are_few_and_producers_notice_nothing(tmp_path, figures):
    async with near_brokers(tmp_path, 1) as near:
        await near.brokers[0].log.create_topic(TOPIC, PARTITIONS)
        confluent = Confluent(near.brokers[0].listeners["kafka"])
        stop = asyncio.Event()
        library = asyncio.create_task(produce(near.brokers[0].listeners["grpc"], stop))
        lines = []
        try:
            for wanted in STEPS:
                before = len(near.brokers)
                moved = least = 0
                while len(near.brokers) != wanted:
                    shares, epochs = await standing(near)
                    if len(near.brokers) < wanted:
                        await near.add()
                    else:
                        await asyncio.to_thread(confluent.look)
                        await near.remove(near.brokers[0])
                    after, epochs_after = await standing(near)
                    assert max(after.values()) - min(after.values()) <= 1
                    assert sum(after.values()) == PARTITIONS
                    least += minimal(shares, list(after))
                    moved += epochs_after - epochs
                assert moved == least
                spread = sorted(Counter(after.values()).items(), reverse=True)
                shown = ", ".join(f"{count} x {size}" for size, count in spread)
                lines.append(f"{before} to {wanted} brokers: {shown}; {moved} moves, {least} needed")
        finally:
            stop.set()
            await asyncio.to_thread(confluent.stop)
        by_library = await library
        assert confluent.refused == []
        assert not any(error.fatal() for error in confluent.errors)
        stored = await read_all(near.brokers[-1].listeners["grpc"])
    acknowledged = {**confluent.acknowledged, **by_library}
    assert len(confluent.acknowledged) > PARTITIONS
    assert len(by_library) > PARTITIONS
    assert {value: places for value, places in stored.items() if len(places) > 1} == {}, "stored twice"
    assert {value: places[0] for value, places in stored.items()} == acknowledged
    figures.extend(f"balance over {PARTITIONS} partitions: {line}" for line in lines)
    figures.append(
        f"balance: {len(acknowledged)} messages acknowledged by two clients meanwhile, lost 0, doubled 0, refused 0"
    )


async def read_all(address):
    """Where each value is, by what the log says in the end."""
    stored: dict[bytes, list[tuple[int, int]]] = {}
    async with AsyncConsumer(TOPIC, address=address) as consumer:
        while messages := (await consumer.poll(0.5)).messages:
            for each in messages:
                stored.setdefault(each.value, []).append((each.partition, each.number - 1))
    return stored
