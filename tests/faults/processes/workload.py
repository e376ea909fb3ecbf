"""Clients that write and read all the time, and keep what they saw for the checker.

Each runs in a thread of its own until it is told to stop. Writers never give up: what was handed to a client that
promises to try again must be answered in the end, whatever happens to brokers.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import confluent_kafka
from tests.faults.processes.checker import LOST, OK, REFUSED, UNKNOWN, Attempt, Delivered, Seen, Value

import millpond
from millpond.client import Outcome
from millpond.model.errors import MillpondError

GIVE_UP_SECONDS = 240.0
"""For clients: longer than any fault of these tests."""
POLL_SECONDS = 0.1
WATERMARK_SECONDS = 30.0
RETRIABLE = frozenset(
    {
        confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
        confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
        confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
        confluent_kafka.KafkaError.REQUEST_TIMED_OUT,
        confluent_kafka.KafkaError._TRANSPORT,
        confluent_kafka.KafkaError._TIMED_OUT,
        confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
    }
)
"""Errors after which librdkafka's own consumer asks again."""
NO_LOGIN: Mapping[str, Any] = MappingProxyType({})
KEYS = 5
"""Of each writer."""
KAFKA_QUIET = logging.getLogger("tests.faults.kafka")
KAFKA_QUIET.addHandler(logging.NullHandler())
KAFKA_QUIET.propagate = False
RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500, "logger": KAFKA_QUIET}


class Client(threading.Thread):
    """`step` again and again, then `finish`. What goes wrong is raised by `stop`."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._stopping = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.step()
            self.finish()
        except BaseException as error:  # noqa: BLE001  # the test raises it
            self._error = error

    def step(self) -> None: ...

    def finish(self) -> None: ...

    def check(self) -> None:
        if self._error is not None:
            raise AssertionError(f"{self.name}: {self._error!r}") from self._error

    def tell_to_stop(self) -> None:
        self._stopping.set()

    def stop(self) -> None:
        self.tell_to_stop()
        self.join(GIVE_UP_SECONDS)
        self.check()
        assert not self.is_alive(), f"{self.name} does not end"


class Writer(Client):
    """One message to each partition in turn, about so many in a second."""

    def __init__(self, name: str, partitions: int, per_second: float, padding: int) -> None:
        super().__init__(name)
        self.padding = padding
        self.attempts: list[Attempt] = []
        self._partitions = partitions
        self._pause = 1 / per_second
        self._sent = 0

    def next_value(self) -> Value:
        number, partition = divmod(self._sent, self._partitions)
        self._sent += 1
        return Value(self.name, partition, number)

    @property
    def sent(self) -> int:
        return self._sent


class KafkaWriter(Writer):
    """librdkafka's idempotent producer with acks=all."""

    def __init__(
        self,
        name: str,
        bootstrap: Sequence[str],
        topic: str,
        partitions: int,
        per_second: float,
        padding: int = 0,
        login: Mapping[str, Any] = NO_LOGIN,
    ) -> None:
        super().__init__(name, partitions, per_second, padding)
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": ",".join(bootstrap),
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": int(GIVE_UP_SECONDS * 1000),
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 500,
                **RECONNECT,
                **login,
            }
        )

    def set_password(self, user: str, password: str) -> None:
        """For the connections to come."""
        self._producer.set_sasl_credentials(user, password)

    def step(self) -> None:
        value = self.next_value()
        began = time.monotonic()
        self._producer.produce(
            self._topic,
            value.encode(self.padding),
            key=_key(value),
            partition=value.partition,
            on_delivery=self._keep(value, began),
        )
        self._producer.poll(self._pause)

    def _keep(self, value: Value, began: float) -> Callable[[Any, Any], None]:
        def keep(error: Any, message: Any) -> None:
            offset = UNKNOWN if error is not None else message.offset()
            self.attempts.append(Attempt(value, began, time.monotonic(), error is None, offset))

        return keep

    def finish(self) -> None:
        left = self._producer.flush(GIVE_UP_SECONDS)
        assert left == 0, f"{left} messages were never answered"


class MillpondWriter(Writer):
    """The client library's producer."""

    def __init__(
        self,
        name: str,
        address: str,
        topic: str,
        partitions: int,
        per_second: float,
        padding: int = 0,
        login: Mapping[str, Any] = NO_LOGIN,
    ) -> None:
        super().__init__(name, partitions, per_second, padding)
        self._producer = millpond.Producer(topic, address=address, timeout=GIVE_UP_SECONDS, **login)
        self._open: deque[tuple[Value, float, Any]] = deque()

    def step(self) -> None:
        value = self.next_value()
        sent = self._producer.submit(value.encode(self.padding), partition=value.partition, key=_key(value))
        self._open.append((value, time.monotonic(), sent))
        time.sleep(self._pause)
        self._collect()

    def _collect(self) -> None:
        """Whatever is answered: partitions are not in step, so each is looked at."""
        waiting = self._open
        self._open = deque()
        for value, began, sent in waiting:
            if sent.done():
                self._keep(value, began, sent)
            else:
                self._open.append((value, began, sent))

    def _keep(self, value: Value, began: float, sent: Any) -> None:
        try:
            offset, acknowledged = sent.result(GIVE_UP_SECONDS).number - 1, True
        except MillpondError:
            offset, acknowledged = UNKNOWN, False
        self.attempts.append(Attempt(value, began, time.monotonic(), acknowledged, offset))

    def finish(self) -> None:
        self._producer.flush()
        for value, began, sent in self._open:
            self._keep(value, began, sent)
        self._producer.close()


def _key(value: Value) -> bytes:
    return f"{value.producer}-{value.number % KEYS}".encode()


class Reader(Client):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.seen: list[Seen] = []


class KafkaReader(Reader):
    """A member of a Kafka consumer group."""

    def __init__(
        self,
        name: str,
        bootstrap: Sequence[str],
        topic: str,
        group: str,
        login: Mapping[str, Any] = NO_LOGIN,
    ) -> None:
        super().__init__(name)
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": ",".join(bootstrap),
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
                **RECONNECT,
                **login,
            }
        )
        self._consumer.subscribe([topic])

    def set_password(self, user: str, password: str) -> None:
        """For the connections to come."""
        self._consumer.set_sasl_credentials(user, password)

    def step(self) -> None:
        for message in self._consumer.consume(100, POLL_SECONDS):
            if message.error() is None:
                self.seen.append(_seen(message))

    def finish(self) -> None:
        self._consumer.close()


class MillpondReader(Reader):
    """The client library's consumer, which keeps its own position over all partitions."""

    def __init__(self, name: str, address: str, topic: str, login: Mapping[str, Any] = NO_LOGIN) -> None:
        super().__init__(name)
        self._consumer = millpond.Consumer(
            topic, read_from=1, address=address, timeout=GIVE_UP_SECONDS, **login
        )

    def step(self) -> None:
        for message in self._consumer.poll(POLL_SECONDS).messages:
            self.seen.append(Seen(message.partition, message.number - 1, Value.decode(message.value)))

    def finish(self) -> None:
        self._consumer.close()


class QueueReader(Client):
    """A subscriber that acknowledges everything."""

    def __init__(self, name: str, servers: Sequence[str], topic: str, subscription: str, mode: str) -> None:
        super().__init__(name)
        self.delivered: list[Delivered] = []
        self._subscriber = millpond.Subscriber(
            topic, subscription, address=list(servers), create={"mode": mode}, timeout=GIVE_UP_SECONDS
        )
        self._subscriber.start()
        self._open: deque[tuple[Delivered, Any]] = deque()

    def step(self) -> None:
        self._collect()  # first: what is settled by now was settled before the next one is taken
        delivery = self._subscriber.receive(POLL_SECONDS)
        if delivery is not None:
            taken = time.monotonic()
            value = Value.decode(delivery.value)
            offset = delivery.number - 1
            place = Delivered(delivery.partition, offset, value, taken, math.inf, LOST, delivery.key)
            self._open.append((place, delivery.ack()))

    def _collect(self) -> None:
        waiting, self._open = self._open, deque()
        now = time.monotonic()
        for place, answer in waiting:
            if answer.done():
                self.delivered.append(place._replace(settled=now, answer=_answer(answer.outcome)))
            else:
                self._open.append((place, answer))

    def finish(self) -> None:
        self._subscriber.close()
        self._collect()
        self.delivered += [place for place, _ in self._open]


def _answer(outcome: Outcome) -> str:
    if outcome.is_ok:
        return OK
    return LOST if outcome in (Outcome.LOST, Outcome.NOT_OWNER) else REFUSED


def read_everything(
    bootstrap: Sequence[str], topic: str, partitions: int, login: Mapping[str, Any] = NO_LOGIN
) -> list[Seen]:
    """The whole log, as a Kafka client that belongs to no group reads it from the first to the last offset."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": ",".join(bootstrap),
            "group.id": "nobody",
            "enable.auto.commit": False,
            **RECONNECT,
            **login,
        }
    )
    try:
        ends = {
            number: _ends(consumer, confluent_kafka.TopicPartition(topic, number))
            for number in range(partitions)
        }
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, number, low) for number, (low, _) in ends.items()]
        )
        return _read_to(consumer, {number: high for number, (low, high) in ends.items() if high > low})
    finally:
        consumer.close()


def _ends(consumer: Any, partition: Any) -> tuple[int, int]:
    """(low, high). As a consumer's own loop does, it asks again after an error that is retriable: the partition may
    have just moved to another broker."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=WATERMARK_SECONDS)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in RETRIABLE or time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
        else:
            return low, high


def _read_to(consumer: Any, left: dict[int, int]) -> list[Seen]:
    seen: list[Seen] = []
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while left:
        assert time.monotonic() < deadline, f"could not read to the end: {left}"
        for message in consumer.consume(500, POLL_SECONDS):
            if message.error() is None:
                seen.append(_seen(message))
                if message.offset() + 1 >= left.get(message.partition(), math.inf):
                    del left[message.partition()]
    return seen


def _seen(message: Any) -> Seen:
    return Seen(message.partition(), message.offset(), Value.decode(message.value()))
