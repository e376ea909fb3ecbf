"""The same questions through librdkafka, for what only a whole client does: balancing, resuming, delivering."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.peers.differential.subject import Subject, dashed, now_ms, probe

try:
    import confluent_kafka
    from confluent_kafka import admin
except ImportError:  # the other probes need nothing but sockets
    confluent_kafka = None

DELIVERY_SECONDS_MAX = 20.0
QUIET_SECONDS = 1.5
MISSING = "confluent-kafka is not installed"


def with_client(function: Callable[[Subject], Any]) -> Callable[[Subject], Any]:
    """A probe that says so when there is no client."""

    def wrapped(subject: Subject) -> Any:
        return MISSING if confluent_kafka is None else function(subject)

    wrapped.__name__ = function.__name__
    return probe(wrapped)


def _producer(subject: Subject, **settings: Any) -> Any:
    return confluent_kafka.Producer({"bootstrap.servers": subject.address, **dashed(settings)})


@contextmanager
def _consumer(subject: Subject, group: str, **settings: Any) -> Iterator[Any]:
    given = {
        "bootstrap.servers": subject.address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        **dashed(settings),
    }
    consumer = confluent_kafka.Consumer(given)
    try:
        yield consumer
    finally:
        consumer.close()


def _send(producer: Any, topic: str, *values: str, **rest: Any) -> list[Any]:
    reports: list[Any] = []

    def told(error: Any, message: Any) -> None:
        reports.append(error.name() if error else [message.partition(), message.offset()])

    for value in values:
        producer.produce(topic, value, on_delivery=told, **rest)
    producer.flush(DELIVERY_SECONDS_MAX)
    return reports


def _read(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + DELIVERY_SECONDS_MAX
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            found.append(message.error().name())
        else:
            found.append([message.partition(), message.offset(), (message.value() or b"").decode()])
    return found


@with_client
def client_delivers_with_every_codec(subject: Subject) -> Any:
    topic = subject.topic()
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        _send(
            _producer(subject, compression_type=codec, linger_ms=50),
            topic,
            *(f"{codec} {n}" for n in range(3)),
        )
    with _consumer(subject, subject.name()) as consumer:
        consumer.subscribe([topic])
        return _read(consumer, 3 * len(codecs))


@with_client
def client_keeps_keys_headers_and_nulls(subject: Subject) -> Any:
    topic, at = subject.topic(), now_ms() - 5000
    producer = _producer(subject)
    producer.produce(topic, b"v", key=b"k", headers=[("a", b"1"), ("a", b"2"), ("b", None)], timestamp=at)
    producer.produce(topic, None, key=b"gone", timestamp=at)
    producer.produce(topic, b"", key=b"", timestamp=at)
    producer.flush(DELIVERY_SECONDS_MAX)
    seen = []
    with _consumer(subject, subject.name()) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + DELIVERY_SECONDS_MAX
        while len(seen) < 3 and time.monotonic() < deadline:
            if (message := consumer.poll(0.2)) is not None and not message.error():
                kind, stamp = message.timestamp()
                seen.append(
                    [repr(message.key()), repr(message.value()), repr(message.headers()), kind, stamp - at]
                )
    return seen


@with_client
def client_is_refused_what_is_too_large(subject: Subject) -> Any:
    topic = subject.topic(max_message_bytes="2000")
    producer = _producer(subject, message_max_bytes="3000000")
    return {"large": _send(producer, topic, "x" * 5000), "small": _send(producer, topic, "x")}


@with_client
def client_produces_to_unknown_topics(subject: Subject) -> Any:
    name = subject.name()
    producer = _producer(subject, allow_auto_create_topics="true", message_timeout_ms="8000")
    made = _send(producer, name, "a")
    strict = _producer(subject, message_timeout_ms="4000")
    return {"may create": made, "invalid name": _send(strict, "a/b", "a")}


@with_client
def client_group_resumes_where_it_committed(subject: Subject) -> Any:
    topic, group = subject.topic(), subject.name()
    _send(_producer(subject), topic, *"abcd")
    seen = {}
    with _consumer(subject, group) as consumer:
        consumer.subscribe([topic])
        seen["first"] = _read(consumer, 2)
        done = consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 2)], asynchronous=False)
        seen["committed"] = [[each.partition, each.offset] for each in done]
    with _consumer(subject, group) as consumer:
        consumer.subscribe([topic])
        seen["then"] = _read(consumer, 2)
    return seen


@with_client
def client_resets_an_offset_out_of_range(subject: Subject) -> Any:
    topic = subject.topic()
    _send(_producer(subject), topic, *"abc")
    seen = {}
    for policy in ("earliest", "latest", "error"):
        with _consumer(subject, subject.name(), auto_offset_reset=policy) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 99)])
            if policy == "latest":
                consumer.poll(QUIET_SECONDS)
                _send(_producer(subject), topic, "new")
            seen[policy] = _read(consumer, 1)
    return seen


def _assigned(consumers: list[Any], total: int) -> list[list[int]]:
    """Partitions per member, once everything is given out and nothing has moved for a while."""
    deadline, last, since = time.monotonic() + 30, None, time.monotonic()
    while time.monotonic() < deadline:
        for consumer in consumers:
            consumer.poll(0.1)
        now = sorted(sorted(each.partition for each in consumer.assignment()) for consumer in consumers)
        if now != last:
            last, since = now, time.monotonic()
        if sum(map(len, now)) == total and time.monotonic() - since > QUIET_SECONDS:
            break
    return last or []


def _balanced(subject: Subject, strategy: str) -> Any:
    topic, group = subject.topic(6), subject.name()
    settings = {"partition_assignment_strategy": strategy, "heartbeat_interval_ms": 500}
    seen = {}
    with _consumer(subject, group, **settings) as first:
        first.subscribe([topic])
        seen["one"] = _assigned([first], 6)
        with _consumer(subject, group, **settings) as second:
            second.subscribe([topic])
            seen["two"] = _assigned([first, second], 6)
        seen["one again"] = _assigned([first], 6)
    return seen


@with_client
def client_groups_balance_by_range(subject: Subject) -> Any:
    return _balanced(subject, "range")


@with_client
def client_groups_balance_cooperatively(subject: Subject) -> Any:
    return _balanced(subject, "cooperative-sticky")


@with_client
def client_transactions(subject: Subject) -> Any:
    source, sink, group = subject.topic(), subject.topic(), subject.name()
    _send(_producer(subject), source, *"abcd")
    producer = _producer(subject, transactional_id=subject.name())
    producer.init_transactions(DELIVERY_SECONDS_MAX)
    with _consumer(subject, group) as consumer:
        consumer.subscribe([source])
        for commits in (True, False):
            read = _read(consumer, 2)
            producer.begin_transaction()
            for _, _, value in read:
                producer.produce(sink, value.upper())
            producer.flush(DELIVERY_SECONDS_MAX)
            position = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
            (producer.commit_transaction if commits else producer.abort_transaction)(DELIVERY_SECONDS_MAX)
        partitions = [confluent_kafka.TopicPartition(source, 0)]
        kept = [each.offset for each in consumer.committed(partitions, DELIVERY_SECONDS_MAX)]
    with _consumer(subject, subject.name(), isolation_level="read_committed") as reader:
        reader.subscribe([sink])
        committed = _read(reader, 2)
    with _consumer(subject, subject.name(), isolation_level="read_uncommitted") as reader:
        reader.subscribe([sink])
        everything = _read(reader, 4)
    return {"source": kept, "committed": committed, "everything": everything}


@with_client
def client_fences_an_older_producer(subject: Subject) -> Any:
    topic, name = subject.topic(), subject.name()
    old, new = (_producer(subject, transactional_id=name) for _ in range(2))
    old.init_transactions(DELIVERY_SECONDS_MAX)
    old.begin_transaction()
    _send(old, topic, "old")
    new.init_transactions(DELIVERY_SECONDS_MAX)
    try:
        old.commit_transaction(DELIVERY_SECONDS_MAX)
        outcome = "committed"
    except confluent_kafka.KafkaException as error:
        outcome = error.args[0].name()
    return outcome


def _future(future: Any) -> Any:
    try:
        return future.result(DELIVERY_SECONDS_MAX)
    except confluent_kafka.KafkaException as error:
        return error.args[0].name()


@with_client
def client_administers_groups(subject: Subject) -> Any:
    topic, group = subject.topic(2), subject.name()
    _send(_producer(subject), topic, *"abc", partition=0)
    client = admin.AdminClient({"bootstrap.servers": subject.address})
    kinds = confluent_kafka.ConsumerGroupTopicPartitions
    place = confluent_kafka.TopicPartition
    seen = {}
    with _consumer(subject, group) as consumer:
        consumer.subscribe([topic])
        _read(consumer, 3)
        consumer.commit(asynchronous=False)
        described = _future(client.describe_consumer_groups([group])[group])
        seen["described"] = [described.state.name, len(described.members), described.partition_assignor]
        moved = client.alter_consumer_group_offsets([kinds(group, [place(topic, 0, 1)])])[group]
        seen["moved while it runs"] = _told_offsets(_future(moved))
        seen["deleted while it runs"] = _future(client.delete_consumer_groups([group])[group])
    moved = client.alter_consumer_group_offsets([kinds(group, [place(topic, 0, 1)])])[group]
    seen["moved"] = _told_offsets(_future(moved))
    seen["offsets"] = _told_offsets(_future(client.list_consumer_group_offsets([kinds(group)])[group]))
    listed = client.list_consumer_groups().result(DELIVERY_SECONDS_MAX)
    seen["listed"] = [each.state.name for each in listed.valid if each.group_id == group]
    seen["deleted"] = _future(client.delete_consumer_groups([group])[group])
    return seen


def _told_offsets(answer: Any) -> Any:
    if isinstance(answer, str):
        return answer
    rows = answer.topic_partitions
    return [[each.partition, each.offset, each.error.name() if each.error else None] for each in rows]
