"""The seeds' local Kafka service, row by row (S12, S14 to S21, S24), on processes and through their real interfaces."""

import json
import logging
import secrets
import shutil
import subprocess
from pathlib import Path

import boto3
import confluent_kafka
import httpx
import psycopg
import pytest
from tests.seeds.minikafka import MiniKafka
from tests.seeds.processes import PATIENCE_SECONDS, Server, eventually

from millpond import Admin, Consumer, Producer

ROOT = Path(__file__).parents[2]
BUCKET = "seeds"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
FORM = "application/x-www-form-urlencoded"
LARGE = 40_000
"""More than rides in the catalog."""


class Curl:
    """`curl`, or where there is none the same bytes."""

    def __init__(self, url):
        self._url = url

    def __call__(self, method, path, *headers, data=None):
        """(status, JSON)"""
        if shutil.which("curl") is None:
            given = {"content-type": FORM, **dict(header.split(": ") for header in headers)}
            answer = httpx.request(
                method,
                self._url + path,
                headers=given,
                content=data,
                trust_env=False,
                timeout=PATIENCE_SECONDS,
            )
            return answer.status_code, answer.json()
        command = [
            "curl",
            "-s",
            "-S",
            "--noproxy",
            "*",
            "-w",
            "\n%{http_code}",
            "-X",
            method,
            self._url + path,
        ]
        for header in headers:
            command += ["-H", header]
        if data is not None:
            command += ["-d", data]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body)

    def create(self, name, **more):
        return self(
            "POST", "/topics", "Content-Type: application/json", data=json.dumps({"name": name, **more})
        )

    def produce(self, topic, data, partition=0):
        return self("POST", f"/topics/{topic}/produce/{partition}", data=data)

    def fetch(self, topic, query="offset=0", partition=0):
        return self("GET", f"/topics/{topic}/fetch/{partition}?{query}")


@pytest.fixture
def curl(server):
    return Curl(server.url)


def kafka_producer(address):
    return confluent_kafka.Producer({"bootstrap.servers": address})


def kafka_read(address, topic, count):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": f"readers of {topic}"})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), PATIENCE_SECONDS)
            assert messages, f"{len(found)} of {count} messages came"
            assert all(message.error() is None for message in messages)
            found += messages
        return [(message.offset(), message.key(), message.value()) for message in found]
    finally:
        consumer.close()


# -- S12 --------------------------------------------------------------------------------------------------------------


def test_s12_the_image_and_its_company_are_described():
    """Building them is for whoever has Docker; `tests/deploy` looks closer."""
    assert "millpond" in (ROOT / "Dockerfile").read_text()
    composed = (ROOT / "compose.yaml").read_text()
    assert [word for word in ("postgresql://", "s3://", "millpond") if word not in composed] == []


# -- S14, S15: Kafka, S3 ----------------------------------------------------------------------------------------------


def test_s14_a_kafka_client_reads_what_grpc_produced(server, mini, topic):
    mini.produce(topic, b"from MiniKafka")
    with Producer(topic, address=server.grpc) as producer:
        producer.send(b"from the client library", key=b"k")
    assert kafka_read(server.kafka, topic, 2) == [
        (0, None, b"from MiniKafka"),
        (1, b"k", b"from the client library"),
    ]


def test_s14_grpc_reads_what_a_kafka_client_produced(server, mini, topic):
    producer = kafka_producer(server.kafka)
    for value in (b"one", b"two"):
        producer.produce(topic, value, key=b"k")
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert mini.poll(topic, 1) == ([b"one", b"two"], 3)
    with Consumer(topic, address=server.grpc) as consumer:
        assert [(each.number, each.key) for each in consumer.poll().messages] == [(1, b"k"), (2, b"k")]


@pytest.fixture(scope="module")
def s3():
    """The endpoint of an S3 with one bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = bucket_client(endpoint)
    client.create_bucket(Bucket=BUCKET)
    client.close()
    yield endpoint
    moto.stop()


def bucket_client(endpoint):
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def objects_in(endpoint, prefix):
    client = bucket_client(endpoint)
    found = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    client.close()
    return {each["Key"]: each["Size"] for each in found}


def test_s15_messages_are_persisted_to_s3(tmp_path, s3, kinds):
    store = f"s3://{BUCKET}/s15?endpoint={s3}"
    with Server(tmp_path, variables=CREDENTIALS, storage=store, flush_delay="5ms") as server:
        with MiniKafka(server.grpc, kinds) as mini:
            assert [mini.produce("topic", bytes([n]) * LARGE) for n in range(3)] == [1, 2, 3]
        assert sum(objects_in(s3, "s15/").values()) > 3 * LARGE
        server.kill()
        server.start()
        with MiniKafka(server.grpc, kinds) as mini:
            assert mini.poll("topic", 1) == ([bytes([n]) * LARGE for n in range(3)], 4)
            assert mini.produce("topic", b"next") == 4


@pytest.fixture
def catalog(postgres_url):
    """A database of its own."""
    name = f"seeds_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    assert "/postgres?" in postgres_url
    return postgres_url.replace("/postgres?", f"/{name}?")


def test_s24_a_broker_on_s3_and_postgresql_serves_and_survives_a_restart(tmp_path, s3, catalog, kinds):
    """Nothing of it is on this machine's disk: the second broker starts in another folder."""
    settings = {"storage": f"s3://{BUCKET}/s24?endpoint={s3}", "catalog": catalog, "flush_delay": "5ms"}
    values = [b"small", bytes(LARGE), b"small again"]
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    with (
        Server(tmp_path / "first", variables=CREDENTIALS, **settings) as server,
        MiniKafka(server.grpc, kinds) as mini,
    ):
        assert [mini.produce("topic", value) for value in values] == [1, 2, 3]
        assert mini.poll("topic", 1) == (values, 4)
    with (
        Server(tmp_path / "second", variables=CREDENTIALS, **settings) as server,
        MiniKafka(server.grpc, kinds) as mini,
    ):
        assert mini.poll("topic", 1) == (values, 4)
        assert mini.produce("topic", b"next") == 4
    assert not (tmp_path / "second" / "data").exists()


def test_s24_the_owner_of_each_partition_can_be_found(server, topic):
    """Requests go to the same agent: clients learn from any broker which one that is."""
    with Admin(address=server.grpc) as admin, Producer(topic, address=server.grpc) as producer:
        producer.send(b"x")
        [partition] = admin.describe_topic(topic).partitions
        assert partition.owner == server.grpc


# -- S16: control plane -----------------------------------------------------------------------------------------------


def test_s16_a_topic_is_created_with_100_partitions_and_only_once(server, curl, topic):
    status, made = curl.create(topic)
    assert (status, made["name"], made["partitions"]) == (200, topic, 100)
    status, refused = curl.create(topic)
    assert (status, refused["code"]) == (409, "TopicAlreadyExistsException")
    with Admin(address=server.grpc) as admin:
        assert admin.describe_topic(topic).topic.partitions == 100


def test_s16_the_number_of_partitions_can_be_given(curl, topic):
    status, made = curl.create(topic, partitions=3)
    assert (status, made["partitions"]) == (200, 3)


def test_s16_what_is_no_topic_is_told(curl):
    for body in ("", "{", "[]", '{"nom": "x"}', '{"name": 7}'):
        status, refused = curl("POST", "/topics", "Content-Type: application/json", data=body)
        assert status == 400, body
        assert refused["code"]


# -- S17: producing ---------------------------------------------------------------------------------------------------


def test_s17_key_and_value_are_produced_as_curl_sends_them(server, curl, topic):
    curl.create(topic)
    for number in range(3):
        status, made = curl.produce(topic, f"key:value {number}")
        assert status == 200
        assert {name: made[name] for name in ("topic", "partition", "offset", "number")} == {
            "topic": topic,
            "partition": 0,
            "offset": number,
            "number": number + 1,
        }
    assert kafka_read(server.kafka, topic, 3) == [(n, b"key", b"value %d" % n) for n in range(3)]


def test_s17_the_answer_comes_after_the_commit(tmp_path):
    with Server(tmp_path) as server:
        curl = Curl(server.url)
        curl.create("hello")
        status, made = curl.produce("hello", "key:value")
        server.kill()
        server.start()
        assert (status, made["offset"]) == (200, 0)
        status, found = Curl(server.url).fetch("hello")
        assert (status, [each["offset"] for each in found["messages"]]) == (200, [0])


# -- S18: the limit ---------------------------------------------------------------------------------------------------


def test_s18_a_topic_limits_its_messages(curl, topic):
    status, _ = curl.create(topic, configs={"max.message.bytes": "1024"})
    assert status == 200
    assert curl.produce(topic, "key:" + "x" * 900)[0] == 200
    status, refused = curl.produce(topic, "key:" + "x" * 1024)
    assert (status, refused["code"]) == (413, "RecordTooLarge")
    assert curl.produce(topic, "key:next")[1]["offset"] == 1


def test_s18_the_same_limit_holds_for_kafka_clients(server, curl, topic):
    curl.create(topic, configs={"max.message.bytes": "1024"})
    producer, outcomes = kafka_producer(server.kafka), []
    for size in (100, 2_000, 100):
        producer.produce(
            topic,
            bytes(size),
            partition=0,
            on_delivery=lambda error, _: outcomes.append(error and error.name()),
        )
        producer.flush(PATIENCE_SECONDS)
    assert outcomes == [None, "MSG_SIZE_TOO_LARGE", None]


# -- S19: querying ----------------------------------------------------------------------------------------------------


def test_s19_messages_are_fetched_by_offset_and_count(curl, topic):
    curl.create(topic)
    for number in range(5):
        curl.produce(topic, f"key:value {number}")
    status, found = curl.fetch(topic, "offset=1&count=2")
    assert status == 200
    assert [each["offset"] for each in found["messages"]] == [1, 2]
    assert [found[name] for name in ("next_offset", "log_start", "end_offset")] == [3, 0, 5]


def test_s19_what_is_not_there_is_told(curl, topic):
    curl.create(topic, partitions=1)
    curl.produce(topic, "key:value")
    for query, partition, expected in (
        ("offset=0", 1, (404, "UnknownPartition")),
        ("offset=5", 0, (416, "OffsetOutOfRange")),
        ("offset=x", 0, (400, "InvalidRequest")),
    ):
        status, refused = curl.fetch(topic, query, partition)
        assert (status, refused["code"]) == expected
    status, refused = curl.fetch("nobody-made-this")
    assert (status, refused["code"]) == (404, "UnknownTopic")


# -- S20 to S23 are the engine's: test_log_service.py. Here what of them shows outside. -----------------------------


def test_s20_a_kafka_client_that_repeats_itself_is_stored_once(server, topic):
    producer = confluent_kafka.Producer({"bootstrap.servers": server.kafka, "enable.idempotence": True})
    for number in range(50):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(PATIENCE_SECONDS) == 0
    with Admin(address=server.grpc) as admin:
        assert admin.describe_topic(topic).partitions[0].next == 51


def test_s21_small_flushes_are_merged_and_nothing_changes_for_readers(tmp_path, kinds):
    with Server(tmp_path, garbage_grace="0ms") as server, MiniKafka(server.grpc, kinds) as mini:
        values = [b"%d" % number + bytes(20_000) for number in range(40)]
        for value in values:
            mini.produce("topic", value)
        segments = tmp_path / "data" / "objects" / "segments"
        eventually(lambda: any(path.is_file() for path in segments.rglob("*")), "a merged segment is there")
        assert mini.poll_all("topic") == values
        server.kill()
        server.start()
        assert mini.poll_all("topic") == values


def test_s21_of_each_key_the_last_message_stays_under_its_number(tmp_path):
    """By the broker itself; `millpond pipeline compact` does the same on Spark."""
    with Server(tmp_path, compaction_every="200ms", garbage_grace="0ms") as server:
        with Admin(address=server.grpc) as admin:
            configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
            admin.create_topic("prices", configs=configs)
        with Producer("prices", address=server.grpc) as producer:
            for number in range(60):
                producer.send(b"%d" % number, key=b"sku %d" % (number % 3))

        def kept():
            with Consumer("prices", address=server.grpc) as consumer:
                return [(each.number, each.value) for each in consumer.poll().messages]

        last = [(58, b"57"), (59, b"58"), (60, b"59")]
        eventually(lambda: kept() == last, "only the last message of each key is there")
        with Producer("prices", address=server.grpc) as producer:
            assert producer.send(b"60", key=b"sku 9").number == 61
        server.kill()
        server.start()
        assert kept() == [*last, (61, b"60")]
