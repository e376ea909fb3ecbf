"""S1 in full: payloads of every kind and size, in by each way and out by each other, unchanged.

Ways in: MiniKafka's service, ours (a single call, a stream of messages, a stream of batches), the client library
with and without an event loop, a Kafka client. Ways out: the same. HTTP has a matrix of its own.
"""

import asyncio
import hashlib
import os

import confluent_kafka
import grpc
import pytest
from tests.seeds.minikafka import MiniKafka
from tests.seeds.processes import PATIENCE_SECONDS, Server

from millpond import AsyncConsumer, AsyncProducer, Consumer, Producer
from millpond.records import Record, build_batch, iter_records
from millpond.stubs import log_pb2

MIB = 1024 * 1024
MESSAGE_BYTES_MAX = 64 * MIB
UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
PAYLOADS = {
    "empty": b"",
    "one byte": b"x",
    "binary": b"line\nline\r\n\0\0\xff\xfe" + bytes(range(256)),
    "1 MiB": os.urandom(MIB),
}
HUGE = os.urandom(MIB) * 50


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    settings = {"max_message_bytes": "64MiB", "tail_bytes_max": "16MiB", "cache_bytes_max": "16MiB"}
    with Server(tmp_path_factory.mktemp("payloads"), **settings) as running:
        yield running


@pytest.fixture(scope="module")
def ways(server, kinds):
    """Everything that can be done with a payload, by name: `send_…(topic, payload)` and `read_…(topic)`."""
    with MiniKafka(server.grpc, kinds, UNLIMITED) as mini:
        yield Ways(server, mini)


class Ways:
    def __init__(self, server, mini):
        self.server, self.mini = server, mini

    # -- in -----------------------------------------------------------------------------------------------------

    def send_minikafka(self, topic, payload):
        self.mini.produce(topic, payload)

    def send_unary(self, topic, payload):
        answer = self._call("Produce", _messages(topic, payload), log_pb2.ProduceResponse)
        assert len(answer.numbers) == 1

    def send_stream(self, topic, payload):
        self._stream(_messages(topic, payload))

    def send_batch_stream(self, topic, payload):
        self._stream(log_pb2.ProduceRequest(topic=topic, partition=0, batch=build_batch([Record(payload)])))

    def send_client(self, topic, payload):
        with Producer(topic, address=self.server.grpc, timeout=PATIENCE_SECONDS) as producer:
            producer.send(payload)

    def send_async_client(self, topic, payload):
        async def send():
            options = {"address": self.server.grpc, "timeout": PATIENCE_SECONDS}
            async with AsyncProducer(topic, **options) as producer:
                await producer.send(payload)

        asyncio.run(send())

    def send_kafka(self, topic, payload):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.server.kafka, "message.max.bytes": MESSAGE_BYTES_MAX}
        )
        failures = []
        producer.produce(topic, payload, on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert failures == [None]

    # -- out ----------------------------------------------------------------------------------------------------

    def read_minikafka(self, topic):
        return self.mini.poll_all(topic)

    def read_poll(self, topic):
        return [message.value for message in self._poll(topic).messages]

    def read_poll_batches(self, topic):
        batches = self._poll(topic, as_batches=True).batches
        return [record.value for batch in batches for record in _records(batch.data)]

    def read_consume(self, topic):
        request = log_pb2.ConsumeRequest(topic=topic, until_end=True)
        with grpc.insecure_channel(self.server.grpc, options=UNLIMITED) as channel:
            call = channel.unary_stream(
                "/millpond.v1.Log/Consume",
                log_pb2.ConsumeRequest.SerializeToString,
                log_pb2.PollResponse.FromString,
            )
            return [message.value for each in call(request, timeout=60) for message in each.messages]

    def read_client(self, topic):
        with Consumer(topic, address=self.server.grpc, timeout=PATIENCE_SECONDS) as consumer:
            return [message.value for message in consumer.poll().messages]

    def read_async_client(self, topic):
        async def read():
            options = {"address": self.server.grpc, "timeout": PATIENCE_SECONDS}
            async with AsyncConsumer(topic, **options) as consumer:
                return [message.value for message in (await consumer.poll()).messages]

        return asyncio.run(read())

    def read_kafka(self, topic):
        settings = {
            "bootstrap.servers": self.server.kafka,
            "group.id": f"readers of {topic}",
            "fetch.message.max.bytes": MESSAGE_BYTES_MAX,
            "receive.message.max.bytes": 2 * MESSAGE_BYTES_MAX,
            "enable.auto.commit": False,
        }
        consumer = confluent_kafka.Consumer(settings)
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None, "nothing came"
            assert message.error() is None, message.error()
            return [message.value()]
        finally:
            consumer.close()

    # -- our service --------------------------------------------------------------------------------------------

    def _poll(self, topic, **options):
        return self._call("Poll", log_pb2.PollRequest(topic=topic, **options), log_pb2.PollResponse)

    def _call(self, name, request, response):
        with grpc.insecure_channel(self.server.grpc, options=UNLIMITED) as channel:
            call = channel.unary_unary(
                f"/millpond.v1.Log/{name}", type(request).SerializeToString, response.FromString
            )
            return call(request, timeout=PATIENCE_SECONDS)

    def _stream(self, request):
        with grpc.insecure_channel(self.server.grpc, options=UNLIMITED) as channel:
            call = channel.stream_stream(
                "/millpond.v1.Log/ProduceStream",
                log_pb2.ProduceRequest.SerializeToString,
                log_pb2.ProduceStreamResponse.FromString,
            )
            results = [one for each in call(iter([request]), timeout=60) for one in each.results]
        assert [result.WhichOneof("outcome") for result in results] == ["produced"]


def _messages(topic, payload):
    return log_pb2.ProduceRequest(topic=topic, messages=[log_pb2.NewMessage(value=payload)])


def _records(data):
    return iter_records(data, decompressed_bytes_max=MESSAGE_BYTES_MAX)


SENDERS = [name for name in vars(Ways) if name.startswith("send_")]
READERS = [name for name in vars(Ways) if name.startswith("read_")]


def digest(payloads):
    """What differs is not worth 50 MiB of a test's output."""
    return [(len(each), hashlib.sha256(each).hexdigest()) for each in payloads]


@pytest.mark.parametrize("kind", PAYLOADS)
@pytest.mark.parametrize("sender", SENDERS)
def test_s1_whatever_went_in_one_way_comes_out_of_every_other(ways, topic, sender, kind):
    getattr(ways, sender)(topic, PAYLOADS[kind])
    expected = digest([PAYLOADS[kind]])
    assert {reader: digest(getattr(ways, reader)(topic)) for reader in READERS} == dict.fromkeys(
        READERS, expected
    )


@pytest.mark.parametrize(("sender", "reader"), [*zip(SENDERS, READERS, strict=True)])
def test_s1_fifty_mebibytes_come_back_the_way_they_went(ways, topic, sender, reader):
    getattr(ways, sender)(topic, HUGE)
    assert digest(getattr(ways, reader)(topic)) == digest([HUGE])


@pytest.fixture(scope="module")
def huge_topic(ways):
    ways.send_kafka("huge", HUGE)
    return "huge"


@pytest.mark.parametrize("reader", READERS)
def test_s1_fifty_mebibytes_of_a_kafka_client_are_read_by_all(ways, huge_topic, reader):
    assert digest(getattr(ways, reader)(huge_topic)) == digest([HUGE])
