"""What Spark writes, Kafka's clients read: soon, from a broker that runs on the same data."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from tests.spark.sink.rows import values

from millpond.spark.place import Place, database
from millpond.spark.sink.topics import create
from millpond.testing import Millpond

ROWS = 300
SOON_S = 30
"""The broker looks ten times a second; the rest is for a busy machine."""
ROW = """
    SELECT concat('key-', id) AS key, concat('value-', id) AS value,
      array(named_struct('key', 'number', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers,
      timestamp_millis(1700000000000 + id) AS timestamp
    FROM range(300)
"""


def consume(address: str, topic: str, partitions: int, count: int, seconds: float = SOON_S) -> list:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found, give_up = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < give_up:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    consumer.close()
    return found


def produce_keys(address: str, topic: str) -> None:
    """With the partitioner that Java's client has."""
    producer = Producer({"bootstrap.servers": address, "partitioner": "murmur2_random"})
    for number in range(ROWS):
        producer.produce(topic, key=f"key-{number}", value=b"")
    producer.flush(SOON_S)


def produce_some(address: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": address})
    for _ in range(count):
        producer.produce("t", value=b"kafka")
    producer.flush(SOON_S)


@pytest.fixture
def pond():
    """A broker on a thread of its own."""
    with Millpond({"grpc_listen": "", "http_listen": ""}) as running:
        yield running


def save(frame, pond, **options) -> None:
    frame.write.format("millpond").options(path=str(pond.data_dir), **options).mode("append").save()


def hears_of(pond, topic) -> None:
    """Brokers look for new topics now and then."""
    give_up = time.monotonic() + SOON_S
    while not pond.broker.log.topics.knows(topic):
        assert time.monotonic() < give_up, f"the broker does not hear of {topic}"
        time.sleep(0.02)


def make(pond, name, partitions):
    create(database(Place.at(pond.data_dir)), name, partitions, {}, now_ms=1)


def test_a_kafka_consumer_reads_what_spark_wrote_where_kafkas_own_partitioner_puts_it(spark, pond):
    make(pond, "written", 5)
    make(pond, "produced", 5)
    for name in ("written", "produced"):
        hears_of(pond, name)
    produce_keys(pond.bootstrap_servers, "produced")
    save(spark.sql(ROW).repartition(2), pond, topic="written")
    found = consume(pond.bootstrap_servers, "written", 5, ROWS)
    produced = consume(pond.bootstrap_servers, "produced", 5, ROWS)
    assert len(found) == ROWS
    for message in found:
        number = int(message.key().removeprefix(b"key-"))
        assert message.value() == b"value-%d" % number
        assert message.headers() == [("number", b"%d" % number)]
        assert message.timestamp() == (1, 1_700_000_000_000 + number)  # 1: the producer's time
    assert {m.key(): m.partition() for m in found} == {m.key(): m.partition() for m in produced}


def test_a_consumer_that_waits_hears_of_it_soon_and_the_brokers_own_appends_go_on(spark, pond):
    make(pond, "t", 1)
    hears_of(pond, "t")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consume, pond.bootstrap_servers, "t", 1, ROWS + 10, seconds=120)
        for _ in range(2):
            save(spark.range(ROWS // 2).selectExpr("'spark' AS value"), pond, topic="t")
            produce_some(pond.bootstrap_servers, 5)
        ended = time.monotonic()
        found = waiting.result()
        assert time.monotonic() - ended < SOON_S
    assert [message.offset() for message in found] == list(range(ROWS + 10))
    assert [message.value() for message in found] == ([b"spark"] * (ROWS // 2) + [b"kafka"] * 5) * 2
    assert len(values(Place.at(pond.data_dir), "t")) == ROWS + 10


def test_a_topic_that_spark_created_is_served(spark, pond):
    rows = spark.range(4).coalesce(1).selectExpr("'v' AS value")
    save(rows, pond, topic="new", partitions="2")
    hears_of(pond, "new")
    found = consume(pond.bootstrap_servers, "new", 2, 4)
    assert sorted(message.partition() for message in found) == [0, 0, 1, 1]
