"""S32 to S34, the part with the data: it is stored apart from the broker, and fetched only on request.

A real broker each time: `millpond serve` as a process, on files and on an S3 (moto), or the `millpond` fixture where
time has to pass. (`test_payloads.py` is about S1: payloads inside messages.)
"""

import os
import re
import urllib.request

import boto3
import confluent_kafka
import pytest
from tests.s3 import BUCKET, CREDENTIALS, REGION, running_s3
from tests.seeds.processes import PATIENCE_SECONDS, Server

from millpond import Admin, Consumer, PayloadReference, Payloads, Producer
from millpond.model.errors import CorruptPayload, InvalidPayload, PayloadsNotTaken, UnknownPayload
from millpond.model.partitioning import partition_of

BODY = os.urandom(3 * 1024 * 1024)
PARTITIONS = 4


@pytest.fixture(scope="module")
def s3():
    with running_s3() as url:
        yield url


@pytest.fixture(scope="module", params=["file", "s3"])
def store(request, s3):
    return {"storage": s3.format(prefix="seeds")} if request.param == "s3" else {}


@pytest.fixture(scope="module")
def server(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("references")
    with Server(folder, variables=CREDENTIALS, flush_delay="5ms", **store) as running:
        running.folder = folder
        yield running


@pytest.fixture
def films(server, topic):
    with Admin(address=server.grpc) as admin:
        admin.create_topic(topic, partitions=PARTITIONS, configs={"payload": "reference"})
    return topic


@pytest.fixture
def payloads(server):
    with Payloads(address=server.grpc) as client:
        yield client


def publish(server, payloads, topic, key, body):
    reference = payloads.upload(body, topic=topic)
    with Producer(topic, address=server.grpc) as producer:
        sent = producer.submit(b"", key=key, headers=[("genre", b"noir"), reference.header()])
        return reference, sent.result(PATIENCE_SECONDS)


def bytes_put_by(server):
    """What the broker itself has given to the store."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=PATIENCE_SECONDS) as answer:
        page = answer.read().decode()
    found = re.findall(
        r'^millpond_store_bytes_total\{operation="(?:append|put)"\} (\S+)$', page, re.MULTILINE
    )
    assert found, page
    return sum(map(float, found))


def objects_of(s3):
    endpoint = re.search(r"endpoint=([^&]+)", s3)[1]
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    found = client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    bodies = {each["Key"]: client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read() for each in found}
    client.close()
    return bodies


def test_s32_the_broker_keeps_ids_and_keys_and_the_store_keeps_the_data(server, store, s3, payloads, films):
    before = bytes_put_by(server)
    reference, _ = publish(server, payloads, films, b"key", BODY)
    if store:
        stored = objects_of(s3)
        assert bytes_put_by(server) - before < len(BODY) // 10, "the body went through the broker"
    else:
        folder = server.folder / "data"
        stored = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    holding = [name for name, content in stored.items() if BODY[:1000] in content]
    assert [name.rpartition("/")[2] for name in holding] == [reference.id]
    assert stored[holding[0]] == BODY
    assert any("/payloads/" in name for name in holding)


def test_s33_a_client_hashes_the_key_makes_the_id_uploads_and_publishes(server, payloads, films):
    for key in (b"alpha", b"beta", b"gamma"):
        reference, placed = publish(server, payloads, films, key, BODY)
        assert placed.partition == partition_of(key, PARTITIONS)
        with Consumer(films, partition=placed.partition, address=server.grpc) as consumer:
            message = consumer.poll(PATIENCE_SECONDS).messages[-1]
        assert (message.key, message.value) == (key, b"")
        expected = f"{reference.id};bytes={len(BODY)};crc32c={reference.crc32c:08x}".encode()
        assert message.headers == (("genre", b"noir"), ("millpond-payload", expected))


def test_s33_the_broker_refuses_an_identifier_that_cannot_be(server, payloads, films, topic):
    with Producer(films, address=server.grpc) as producer:
        for value in (b"", b"x", b"018bcfe5-6800-7123-8abc-0123456789ab;bytes=5;crc32c=00000000"):
            with pytest.raises(InvalidPayload):
                producer.send(b"", headers=[("millpond-payload", value)])
    with Producer(f"{topic}-plain", address=server.grpc) as producer:
        producer.send(b"made by this")
    with pytest.raises(PayloadsNotTaken):
        payloads.upload(BODY, topic=f"{topic}-plain")


def test_s33_a_kafka_client_may_publish_the_identifier_too(server, payloads, films):
    reference = payloads.upload(BODY, topic=films)
    producer = confluent_kafka.Producer({"bootstrap.servers": server.kafka})
    producer.produce(films, b"", key=b"k", headers=[reference.header()])
    assert producer.flush(PATIENCE_SECONDS) == 0
    with Consumer(films, address=server.grpc) as consumer:
        [message] = consumer.poll(PATIENCE_SECONDS).messages
    assert payloads.download(PayloadReference.from_headers(films, message.headers)) == BODY


def test_s34_metadata_comes_first_and_data_only_on_request(server, payloads, films):
    publish(server, payloads, films, b"key", BODY)
    with Consumer(films, address=server.grpc) as consumer:
        [message] = consumer.poll(PATIENCE_SECONDS, bytes_max=2000).messages
    reference = PayloadReference.from_headers(films, message.headers)
    assert (message.number, message.key, reference.bytes) == (1, b"key", len(BODY))
    assert payloads.download(reference) == BODY


def test_s34_data_is_that_of_its_topic_and_whole(server, payloads, films):
    reference, _ = publish(server, payloads, films, b"key", BODY)
    with Admin(address=server.grpc) as admin:
        admin.create_topic(f"{films}-other", configs={"payload": "reference"})
    with pytest.raises(UnknownPayload):
        payloads.download(PayloadReference(f"{films}-other", reference.id, reference.bytes, reference.crc32c))
    with pytest.raises(CorruptPayload):
        payloads.download(PayloadReference(films, reference.id, reference.bytes, reference.crc32c ^ 1))
    with pytest.raises(CorruptPayload):
        payloads.download(PayloadReference(films, reference.id, reference.bytes - 1, reference.crc32c))


def test_s34_data_outlives_the_broker(tmp_path, store, topic):
    with Server(tmp_path, variables=CREDENTIALS, flush_delay="5ms", **store) as server:
        with Admin(address=server.grpc) as admin:
            admin.create_topic(topic, configs={"payload": "reference"})
        with Payloads(address=server.grpc) as payloads:
            publish(server, payloads, topic, b"key", BODY)
        server.kill()
        server.start()
        with Consumer(topic, address=server.grpc) as consumer, Payloads(address=server.grpc) as payloads:
            [message] = consumer.poll(PATIENCE_SECONDS).messages
            assert payloads.download(PayloadReference.from_headers(topic, message.headers)) == BODY


# -- in time ----------------------------------------------------------------------------------------------------


def stored_in(millpond):
    return sorted(path.name for path in millpond.data_dir.glob("objects/payloads/*/*"))


def test_s33_an_upload_whose_publish_never_came_is_collected(millpond):
    millpond.admin().create_topic("films", configs={"payload": "reference", "retention.ms": "-1"})
    with Payloads(address=millpond.grpc) as payloads:
        published = payloads.upload(b"published", topic="films")
        millpond.producer("films").send(b"", headers=[published.header()])
        orphan = payloads.upload(b"and then the power failed", topic="films")
        millpond.kill()
        millpond.start()
        millpond.advance("23h")
        assert stored_in(millpond) == sorted([published.id, orphan.id])
        with pytest.raises(InvalidPayload):
            millpond.producer("films").send(b"", headers=[orphan.header()])
        millpond.advance("2h")
        assert stored_in(millpond) == [published.id]
        millpond.advance("300d")
        assert payloads.download(published) == b"published"


def test_s34_data_is_kept_as_long_as_its_message(millpond):
    millpond.admin().create_topic("films", configs={"payload": "reference", "retention.ms": "259200000"})
    with Payloads(address=millpond.grpc) as payloads:
        reference = payloads.upload(BODY, topic="films")
        millpond.producer("films").send(b"", headers=[reference.header()])
        millpond.advance("71h")
        assert payloads.download(reference) == BODY
        millpond.advance("2h")
        with pytest.raises(UnknownPayload):
            payloads.download(reference)
        assert stored_in(millpond) == []


def test_s34_data_goes_with_its_topic(millpond):
    millpond.admin().create_topic("films", configs={"payload": "reference"})
    with Payloads(address=millpond.grpc) as payloads:
        payloads.upload(BODY, topic="films")
    millpond.admin().delete_topic("films")
    millpond.advance("1s")
    assert stored_in(millpond) == []
