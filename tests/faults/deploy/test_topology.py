"""The topology of compose.yaml as plain processes: three brokers over one PostgreSQL and one S3.

Topics are spread over the brokers, clients may ask any of them and are sent to the owner, and what a broker leaves
behind is served by the others: at once if it left in order, after its lease if not.
"""

import signal
import threading
import time
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition

from millpond import Admin, Consumer, Producer

WAIT_SECONDS_MAX = 60.0


def send(broker, topic, *values):
    with Producer(topic, address=broker.grpc, timeout=WAIT_SECONDS_MAX) as producer:
        return [placed.number for placed in producer.send_many(values)]


def wait_until_known(broker, topic):
    """Brokers hear within about a second of topics that others made."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    with Admin(address=broker.grpc) as admin:
        while topic not in {each.name for each in admin.list_topics()}:
            assert time.monotonic() < deadline, f"{broker.name} does not hear of {topic}"
            time.sleep(0.05)


def read(broker, topic):
    """All of it."""
    wait_until_known(broker, topic)
    values = []
    with Consumer(topic, address=broker.grpc) as consumer:
        while messages := consumer.poll().messages:
            values += [message.value for message in messages]
    return values


def send_by_kafka(broker, topic, *values):
    refused = []
    producer = KafkaProducer({"bootstrap.servers": broker.kafka})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    assert refused == [None] * len(values)


def read_by_kafka(broker, topic, count):
    settings = {"bootstrap.servers": broker.kafka, "group.id": "unused", "enable.auto.commit": False}
    consumer = KafkaConsumer({**settings, "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, WAIT_SECONDS_MAX)]
    finally:
        consumer.close()


def test_brokers_that_start_together_are_ready_and_share_a_catalog(cluster):
    for broker in cluster.brokers:
        with urlopen(f"http://{broker.http}/readyz", timeout=WAIT_SECONDS_MAX) as answer:
            assert answer.status == 200
    clusters = set()
    for broker in cluster.brokers:
        with Admin(address=broker.grpc) as admin:
            clusters.add(admin.describe_broker().cluster_id)
    assert len(clusters) == 1


@pytest.mark.parametrize("maker", [0, 1, 2])
def test_every_broker_takes_and_gives_the_messages_of_a_topic(cluster, maker):
    topic, expected = f"made-on-{maker}", []
    makers_first = [cluster.brokers[maker], *cluster.brokers]
    for broker in makers_first:
        value = f"through {broker.name}".encode()
        expected.append(value)
        assert send(broker, topic, value) == [len(expected)]
    for broker in cluster.brokers:
        assert read(broker, topic) == expected
        with Admin(address=broker.grpc) as admin:
            owners = {each.owner for each in admin.describe_topic(topic).partitions}
        assert owners <= {each.grpc for each in cluster.brokers}


@pytest.mark.parametrize("owner", [0, 1, 2])
def test_kafka_clients_use_the_owner_and_see_the_same_messages(cluster, owner):
    topic, broker = f"kafka-on-{owner}", cluster.brokers[owner]
    send_by_kafka(broker, topic, b"by kafka")
    send(cluster.brokers[(owner + 1) % 3], topic, b"by grpc")
    assert read_by_kafka(broker, topic, 2) == [b"by kafka", b"by grpc"]
    assert read(cluster.brokers[(owner + 2) % 3], topic) == [b"by kafka", b"by grpc"]


def test_kafka_clients_are_sent_on_to_the_owner(cluster):
    send(cluster.brokers[1], "elsewhere", b"one")
    for broker in cluster.brokers:
        send_by_kafka(broker, "elsewhere", broker.name.encode())
    for broker in cluster.brokers:
        assert read_by_kafka(broker, "elsewhere", 4) == [
            b"one",
            *(each.name.encode() for each in cluster.brokers),
        ]


def test_groups_and_transactions_are_found_from_every_broker(cluster):
    first, second, third = cluster.brokers
    send(third, "grouped", b"one", b"two")
    for number, broker in enumerate(cluster.brokers):
        with Consumer("grouped", group=f"readers-{number}", address=broker.grpc) as consumer:
            assert len(consumer.poll().messages) == 2
        for asked in cluster.brokers:
            with Admin(address=asked.grpc) as admin:
                assert admin.describe_group(f"readers-{number}").lag == 0
    for number, broker in enumerate((first, second, third)):
        producer = KafkaProducer({"bootstrap.servers": broker.kafka, "transactional.id": f"x{number}"})
        producer.init_transactions(WAIT_SECONDS_MAX)
        producer.begin_transaction()
        producer.produce("committed", broker.name.encode())
        producer.commit_transaction(WAIT_SECONDS_MAX)
    committed = sorted(each.name.encode() for each in cluster.brokers)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while sorted(read(first, "committed")) != committed:  # its owner hears of the last marker in a moment
        assert time.monotonic() < deadline


class Insistent(threading.Thread):
    """Sends numbers through one broker until it is told to stop, each again until it is acknowledged."""

    def __init__(self, broker, topic):
        super().__init__()
        self.acknowledged = []
        self.progress = threading.Condition()
        self._address, self._topic = broker.grpc, topic
        self._enough = threading.Event()

    def run(self):
        with Producer(self._topic, address=self._address, timeout=WAIT_SECONDS_MAX) as producer:
            number = 0
            while not self._enough.is_set():
                placed = producer.send(b"%d" % number)
                with self.progress:
                    self.acknowledged.append((placed.number, b"%d" % number))
                    self.progress.notify_all()
                number += 1

    def wait_for(self, more):
        with self.progress:
            enough = len(self.acknowledged) + more
            assert self.progress.wait_for(lambda: len(self.acknowledged) >= enough, WAIT_SECONDS_MAX)

    def finish(self):
        self._enough.set()
        self.join(WAIT_SECONDS_MAX)
        assert not self.is_alive()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_acknowledged_is_there_after_a_broker_went_and_came_back(cluster, how):
    first, second, third = cluster.brokers
    topics = {broker: f"{how.name.lower()}-{broker.name}" for broker in cluster.brokers}
    for broker, topic in topics.items():
        send(broker, topic, b"before")
    senders = [Insistent(entrance, topics[second]) for entrance in cluster.brokers]
    for sender in senders:
        sender.start()
        sender.wait_for(5)
    code = second.end(how)
    assert code == (0 if how == signal.SIGTERM else -signal.SIGKILL)
    send(first, topics[third], b"meanwhile")  # others go on
    second.start()
    for sender in senders:
        sender.wait_for(5)
        sender.finish()
    for broker in cluster.brokers:
        found = read(broker, topics[second])
        for sender in senders:
            assert [found[number - 1] for number, _ in sender.acknowledged] == [
                v for _, v in sender.acknowledged
            ]
        assert len(found) == 1 + sum(len(sender.acknowledged) for sender in senders), "stored once"
        assert read(broker, topics[first]) == [b"before"]
        assert read(broker, topics[third]) == [b"before", b"meanwhile"]
    send_by_kafka(second, topics[first], b"after")
    assert read(first, topics[first]) == [b"before", b"after"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_others_serve_what_a_broker_left_behind(cluster, how):
    topics = [f"left-{how.name.lower()}-{number}" for number in range(6)]
    for topic in topics:
        send(cluster.brokers[0], topic, b"one")
    first, second, third = cluster.brokers
    second.end(how)
    for topic in topics:
        for broker in (first, third):
            with Producer(topic, address=broker.grpc, timeout=WAIT_SECONDS_MAX) as producer:
                producer.send(b"more")
        assert read(first, topic) == [b"one", b"more", b"more"]
