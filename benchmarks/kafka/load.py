"""The load on a broker, through librdkafka: produce, consume, and one message at a time.

Payloads are random and distinct, because zeros are written faster than data. Idempotence is off and acks are
all, as in a plain producer. Queues are large, so that the client waits only for the broker. The Python loop
costs about a microsecond per message, so figures for 100 bytes measure the client as much as the broker.
"""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.subjects import Subject

PAYLOADS = 1024
CONSUME_AT_ONCE = 10_000
ANSWER_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of messages, their number, and the number of partitions."""

    message_bytes: int
    partitions: int
    messages: int

    @property
    def name(self) -> str:
        return f"{self.message_bytes} B, {self.partitions} partition{'s' if self.partitions > 1 else ''}"

    @property
    def megabytes(self) -> float:
        return self.message_bytes * self.messages / 1e6


@dataclass(frozen=True, slots=True)
class Throughput:
    megabytes_per_s: float
    cpu_s_per_gb: float


@contextmanager
def fresh_topic(subject: Subject, partitions: int) -> Iterator[str]:
    admin = AdminClient(subject.client)
    name = f"bench-{uuid.uuid4().hex[:12]}"
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(ANSWER_S_MAX)
    try:
        yield name
    finally:
        for future in admin.delete_topics([name]).values():
            future.result(ANSWER_S_MAX)


def produce(subject: Subject, topic: str, shape: Shape) -> Throughput:
    producer = Producer(
        {
            **subject.client,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
        }
    )
    payloads = _payloads(shape.message_bytes)
    _warm_up(producer, topic, shape.partitions)
    cpu_s, begun = subject.cpu_s(), time.perf_counter()
    for number in range(shape.messages):
        _send(producer, topic, payloads[number % PAYLOADS], number % shape.partitions)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(ANSWER_S_MAX) == 0, "everything is answered in time"
    return _throughput(subject, shape, begun, cpu_s)


def consume(subject: Subject, topic: str, shape: Shape) -> Throughput:
    consumer = Consumer(
        {
            **subject.client,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,  # otherwise the client sleeps for a second whenever its queue is full
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(shape.partitions)])
    wanted = shape.messages + shape.partitions  # includes the warm-up messages
    cpu_s, begun = subject.cpu_s(), time.perf_counter()
    while wanted > 0:
        at_once = min(wanted, CONSUME_AT_ONCE)  # asking for more than is left would wait for it
        wanted -= sum(1 for each in consumer.consume(at_once, 1) if each.error() is None)
        assert time.perf_counter() - begun < ANSWER_S_MAX, "everything is read in time"
    measured = _throughput(subject, shape, begun, cpu_s)
    consumer.close()
    return measured


def acknowledgements(subject: Subject, topic: str, count: int) -> list[float]:
    """Seconds from the send of a message to its acknowledgement, one in flight."""
    producer = Producer({**subject.client, "acks": "all", "linger.ms": 0})
    payloads = _payloads(1000)
    _warm_up(producer, topic, 1)
    samples = []
    for number in range(count):
        begun = time.perf_counter()
        producer.produce(topic, payloads[number % PAYLOADS], partition=0)
        while len(producer):
            producer.poll(1)
        samples.append(time.perf_counter() - begun)
    return samples


def end_to_end(subject: Subject, topic: str, count: int) -> list[float]:
    """Seconds from the send of a message to its receipt by a consumer that waits at the tail."""
    producer = Producer({**subject.client, "acks": "all", "linger.ms": 0})
    consumer = Consumer({**subject.client, "group.id": "bench", "fetch.wait.max.ms": 100})
    payloads = _payloads(1000)
    _warm_up(producer, topic, 1)
    consumer.assign([TopicPartition(topic, 0, 0)])
    while _next(consumer) is None:
        pass
    samples = []
    for number in range(count):
        begun = time.perf_counter()
        producer.produce(topic, payloads[number % PAYLOADS], partition=0)
        producer.poll(0)
        while _next(consumer) is None:
            pass
        samples.append(time.perf_counter() - begun)
    consumer.close()
    producer.flush(ANSWER_S_MAX)
    return samples


def _next(consumer: Consumer) -> Message | None:
    message = consumer.poll(1)
    return message if message is not None and message.error() is None else None


def _payloads(size: int) -> list[bytes]:
    return [os.urandom(size) for _ in range(PAYLOADS)]


def _warm_up(producer: Producer, topic: str, partitions: int) -> None:
    for number in range(partitions):
        producer.produce(topic, b"first", partition=number)
    assert producer.flush(ANSWER_S_MAX) == 0


def _send(producer: Producer, topic: str, payload: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, payload, partition=partition)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def _throughput(subject: Subject, shape: Shape, begun: float, cpu_s: float) -> Throughput:
    seconds = time.perf_counter() - begun
    used_s = subject.cpu_s() - cpu_s
    return Throughput(shape.megabytes / seconds, used_s / (shape.megabytes / 1000))
