"""Record what real clients send: `python -m tests.hostile.kafka.record` renews `corpus.json`.

confluent-kafka, kafka-python and aiokafka each do what applications do (produce, consume, in groups, in
transactions, manage topics) through a proxy, which keeps the first request of each key and version. What the broker
does not speak is asked for in vain and recorded all the same.
"""

import asyncio
import contextlib
import socket
import socketserver
import struct
import threading
import time

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka.admin
from tests.hostile.kafka import corpus
from tests.hostile.kafka.siege import ThreadBroker

import kafka
from millpond.protocol import REQUESTS

PATIENCE_S = 8
CLIENT_SECONDS_MAX = 60


class Proxy(socketserver.ThreadingTCPServer):
    """Passes bytes on and keeps the requests among them."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Passing)
        self.port = self.server_address[1]
        self.target = 0
        self.frames = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Passing(socketserver.BaseRequestHandler):
    def handle(self):
        with socket.create_connection(("127.0.0.1", self.server.target)) as broker:
            threading.Thread(target=self._answers, args=(broker,), daemon=True).start()
            pending = b""
            with contextlib.suppress(OSError):
                while data := self.request.recv(65_536):
                    broker.sendall(data)
                    pending = self._keep(pending + data)

    def _answers(self, broker):
        with contextlib.suppress(OSError):
            while data := broker.recv(65_536):
                self.request.sendall(data)
        with contextlib.suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)

    def _keep(self, data):
        while len(data) >= 4 and len(data) >= 4 + (length := struct.unpack_from(">i", data)[0]):
            frame, data = data[4 : 4 + length], data[4 + length :]
            self.server.frames.setdefault(corpus.KEY_AND_VERSION.unpack_from(frame), frame)
        return data


def with_confluent(address):
    common = {"bootstrap.servers": address, "client.id": "recorder"}
    admin = confluent_kafka.admin.AdminClient(common)
    use_confluent_admin(admin)
    for codec in ("none", "gzip", "zstd"):
        producer = confluent_kafka.Producer({**common, "compression.type": codec, "enable.idempotence": True})
        for number in range(20):
            producer.produce("confluent", b"value %d" % number, key=b"key")
        producer.flush(PATIENCE_S)
    with contextlib.suppress(confluent_kafka.KafkaException):
        in_confluent_transaction(common)
    consumer = confluent_kafka.Consumer(
        {**common, "group.id": "g-confluent", "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
    )
    consumer.subscribe(["confluent"])
    consumer.consume(20, PATIENCE_S)
    with contextlib.suppress(confluent_kafka.KafkaException):
        consumer.commit(asynchronous=False)
        consumer.committed([confluent_kafka.TopicPartition("confluent", 0)], timeout=PATIENCE_S)
        consumer.offsets_for_times([confluent_kafka.TopicPartition("confluent", 0, 1)], timeout=PATIENCE_S)
    consumer.close()


def use_confluent_admin(admin):
    module = confluent_kafka.admin
    topic = module.ConfigResource(module.ConfigResource.Type.TOPIC, "confluent")
    altered = module.ConfigEntry(
        "retention.ms", "86400000", incremental_operation=module.AlterConfigOpType.SET
    )
    incremental = module.ConfigResource(
        module.ConfigResource.Type.TOPIC, "confluent", incremental_configs=[altered]
    )
    partition = confluent_kafka.TopicPartition("confluent", 0)
    groups = confluent_kafka.ConsumerGroupTopicPartitions("g-confluent", [partition])
    asked = [
        lambda: admin.create_topics([module.NewTopic("confluent", 3, 1)]),
        lambda: admin.create_topics([module.NewTopic("gone", 1, 1)]),
        lambda: admin.create_partitions([module.NewPartitions("confluent", 4)]),
        lambda: admin.describe_configs([topic]),
        lambda: admin.incremental_alter_configs([incremental]),
        lambda: admin.alter_configs(
            [module.ConfigResource(topic.restype, "confluent", {"retention.ms": "1"})]
        ),
        lambda: admin.delete_records([confluent_kafka.TopicPartition("confluent", 0, 0)]),
        lambda: admin.delete_topics(["gone"]),
        lambda: admin.list_consumer_groups(),
        lambda: admin.describe_consumer_groups(["g-confluent"]),
        lambda: admin.list_consumer_group_offsets([groups]),
        lambda: admin.delete_consumer_groups(["g-nobody"]),
        lambda: admin.describe_cluster(),
        lambda: admin.describe_topics(confluent_kafka.TopicCollection(["confluent"])),
        lambda: admin.list_offsets({partition: module.OffsetSpec.latest()}),
    ]
    for ask in asked:
        with contextlib.suppress(Exception):
            futures = ask()
            for future in futures.values() if isinstance(futures, dict) else [futures]:
                with contextlib.suppress(Exception):
                    future.result(PATIENCE_S)


def in_confluent_transaction(common):
    producer = confluent_kafka.Producer({**common, "transactional.id": "t-confluent"})
    producer.init_transactions(PATIENCE_S)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("confluent", b"in a transaction")
        offsets = [confluent_kafka.TopicPartition("confluent", 0, 1)]
        group = confluent_kafka.Consumer({**common, "group.id": "g-confluent"})
        with contextlib.suppress(confluent_kafka.KafkaException):
            producer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), PATIENCE_S)
        group.close()
        end(PATIENCE_S)


def with_kafka_python(address):
    common = {"bootstrap_servers": address, "client_id": "recorder"}
    admin = kafka.KafkaAdminClient(**common)
    with contextlib.suppress(Exception):
        admin.create_topics([kafka.admin.NewTopic("python", 2, 1)])
    use_kafka_python_admin(admin)
    producer = kafka.KafkaProducer(**common, compression_type="gzip")
    for number in range(20):
        producer.send("python", b"value %d" % number, key=b"key")
    producer.flush(PATIENCE_S)
    producer.close(timeout=PATIENCE_S)
    with contextlib.suppress(Exception):
        in_kafka_python_transaction(common)
    options = {
        "group_id": "g-python",
        "auto_offset_reset": "earliest",
        "consumer_timeout_ms": PATIENCE_S * 500,
    }
    consumer = kafka.KafkaConsumer("python", **common, **options)
    with contextlib.suppress(Exception):
        for _, _ in zip(consumer, range(20), strict=False):
            pass
        consumer.commit()
        consumer.offsets_for_times({kafka.TopicPartition("python", 0): 1})
    consumer.close(timeout_ms=PATIENCE_S * 1000)
    admin.close()


def use_kafka_python_admin(admin):
    resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, "python")
    changed = kafka.admin.ConfigResource(
        kafka.admin.ConfigResourceType.TOPIC, "python", {"retention.ms": "86400000"}
    )
    partition = kafka.TopicPartition("python", 0)
    asked = [
        lambda: admin.create_partitions({"python": kafka.admin.NewPartitions(3)}),
        lambda: admin.describe_configs([resource]),
        lambda: admin.alter_configs([changed]),
        lambda: admin.delete_records({partition: 0}),
        lambda: admin.describe_topics(["python"]),
        lambda: admin.describe_cluster(),
        lambda: admin.describe_log_dirs(),
        lambda: admin.list_groups(),
        lambda: admin.list_consumer_groups(),
        lambda: admin.describe_groups(["g-python"]),
        lambda: admin.describe_consumer_groups(["g-python"]),
        lambda: admin.list_group_offsets(["g-python"]),
        lambda: admin.list_consumer_group_offsets("g-python"),
        lambda: admin.delete_groups(["g-nobody"]),
        lambda: admin.delete_consumer_groups(["g-nobody"]),
        lambda: admin.list_partition_offsets({partition: -1}),
        lambda: admin.delete_topics(["nobody"]),
    ]
    for ask in asked:
        with contextlib.suppress(Exception):
            ask()


def in_kafka_python_transaction(common):
    producer = kafka.KafkaProducer(**common, transactional_id="t-python")
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.send("python", b"in a transaction")
        offsets = {kafka.TopicPartition("python", 0): kafka.OffsetAndMetadata(1, "", -1)}
        with contextlib.suppress(Exception):
            producer.send_offsets_to_transaction(offsets, "g-python")
        end()
    producer.close(timeout=PATIENCE_S)


def with_aiokafka(address):
    asyncio.run(asyncio.wait_for(_with_aiokafka(address), CLIENT_SECONDS_MAX))


async def _with_aiokafka(address):
    common = {"bootstrap_servers": address, "client_id": "recorder"}
    admin = aiokafka.admin.AIOKafkaAdminClient(**common)
    await admin.start()
    resource = aiokafka.admin.config_resource.ConfigResource(
        aiokafka.admin.config_resource.ConfigResourceType.TOPIC, "aio", {"retention.ms": "86400000"}
    )
    for ask in (
        lambda: admin.create_topics([aiokafka.admin.NewTopic("aio", 1, 1)]),
        lambda: admin.create_partitions({"aio": aiokafka.admin.NewPartitions(2)}),
        lambda: admin.describe_configs([resource]),
        lambda: admin.alter_configs([resource]),
        lambda: admin.list_consumer_groups(),
        lambda: admin.describe_consumer_groups(["g-aio"]),
        lambda: admin.list_consumer_group_offsets("g-aio"),
        lambda: admin.delete_records({aiokafka.TopicPartition("aio", 0): aiokafka.admin.RecordsToDelete(0)}),
        lambda: admin.delete_topics(["nobody"]),
    ):
        with contextlib.suppress(Exception):
            await asyncio.wait_for(ask(), PATIENCE_S)
    await admin.close()
    producer = aiokafka.AIOKafkaProducer(**common, compression_type="lz4")
    async with producer:
        for number in range(20):
            await producer.send_and_wait("aio", b"value %d" % number, key=b"key")
    with contextlib.suppress(Exception):
        await asyncio.wait_for(_in_aiokafka_transaction(common), 2 * PATIENCE_S)
    consumer = aiokafka.AIOKafkaConsumer("aio", **common, group_id="g-aio", auto_offset_reset="earliest")
    with contextlib.suppress(Exception):
        await asyncio.wait_for(_consume_with_aiokafka(consumer), 2 * PATIENCE_S)
    await asyncio.wait_for(consumer.stop(), PATIENCE_S)


async def _consume_with_aiokafka(consumer):
    await consumer.start()
    await consumer.getmany(timeout_ms=2000)
    await consumer.commit()
    await consumer.committed(aiokafka.TopicPartition("aio", 0))
    await consumer.offsets_for_times({aiokafka.TopicPartition("aio", 0): 1})


async def _in_aiokafka_transaction(common):
    async with aiokafka.AIOKafkaProducer(**common, transactional_id="t-aio") as producer:
        async with producer.transaction():
            await producer.send_and_wait("aio", b"in a transaction")
            await producer.send_offsets_to_transaction({aiokafka.TopicPartition("aio", 0): 1}, "g-aio")
        await producer.begin_transaction()
        await producer.abort_transaction()


def main():
    proxy = Proxy()
    address = f"127.0.0.1:{proxy.port}"
    broker = ThreadBroker({}, {"kafka_advertise": address})
    broker.start()
    proxy.target = int(broker.server.listener.rpartition(":")[2])  # its node tells the address of the proxy
    for record in (with_confluent, with_kafka_python, with_aiokafka):
        before = len(proxy.frames)
        client = threading.Thread(target=record, args=(address,), daemon=True)
        client.start()
        client.join(CLIENT_SECONDS_MAX)
        print(
            record.__name__,
            len(proxy.frames) - before,
            "new",
            "" if not client.is_alive() else "(still busy)",
        )
    time.sleep(0.2)
    corpus.save(proxy.frames)
    print(len(proxy.frames), "requests,", corpus.FILE.stat().st_size, "bytes")
    versions = {}
    for key, version in sorted(proxy.frames):
        versions.setdefault(key, []).append(version)
    for key, seen in versions.items():
        print(f"  {REQUESTS[key].__name__ if key in REQUESTS else key}: {seen}")


if __name__ == "__main__":
    main()
