"""Real clients that authenticate, and a broker process whose catalog has users and ACLs."""

import asyncio
import subprocess
import sys
import time
import uuid
from contextlib import closing, suppress

import aiokafka
import confluent_kafka
import pytest
from aiokafka.errors import KafkaError as AioError
from tests.clients.adapters import kafka_python
from tests.clients.process import BrokerProcess

from millpond.catalog import security
from millpond.model import acls
from millpond.model.acls import Acl, PatternType, Permission
from millpond.security.scram import HASHES, new_credential
from millpond.testing import running_broker

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOPIC = "orders"
PASSWORD = "pencil"
ITERATIONS = 4096
SECONDS_MAX = 30.0
GIVE_UP_MS = 60_000
"""kafka-python tries the wrong password again and again; only a hang takes as long as this."""


def allow(resource, operation, name=TOPIC):
    return Acl(resource, PatternType.LITERAL, name, "User:alice", "*", operation, Permission.ALLOW)


ACLS = [
    allow(acls.ResourceType.TOPIC, acls.AclOperation.WRITE),
    allow(acls.ResourceType.TOPIC, acls.AclOperation.READ),
    allow(acls.ResourceType.GROUP, acls.AclOperation.READ, "*"),
]


async def prepare(folder):
    """Users, ACLs and topics in the catalog, before the broker is started."""
    made = [
        new_credential(user, PASSWORD, mechanism, ITERATIONS, bytes)
        for user in ("alice", "admin")
        for mechanism in HASHES
    ]
    async with running_broker(folder) as broker:
        await broker.log.create_topic(TOPIC, 1, {})
        await broker.log.create_topic("forbidden", 1, {})
        await broker.log.write(lambda tx: security.put_credentials(tx, made))
        await broker.log.write(lambda tx: security.put_acls(tx, ACLS))


def start(folder, **settings):
    asyncio.run(prepare(folder / "data"))
    broker = BrokerProcess(folder, security="on", super_users="User:admin", **settings)
    broker.start()
    return broker


class Refused(Exception):
    """The client could not authenticate."""


def refuse_in_process(config):
    """In a process of its own, because kafka-python does not close the sockets of a producer that it cannot create. It
    is ended as soon as it has logged the refusal."""
    create = f"kafka.KafkaProducer(**{config!r}, bootstrap_timeout_ms={GIVE_UP_MS})"
    program = f"import kafka, logging; logging.basicConfig(); {create}"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
        try:
            if any("SaslAuthenticationFailedError" in line for line in process.stderr):
                raise Refused
        finally:
            process.kill()
    raise AssertionError("kafka-python was not refused")


class Confluent:
    def __init__(self, address, mechanism, password=PASSWORD, user="alice"):
        self.errors = []
        self.config = {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
            "error_cb": self.errors.append,
        }
        self._producer = confluent_kafka.Producer(self.config)

    def send(self, topic, value):
        """The number of the error; 0 for none."""
        results = []
        try:
            self._producer.produce(topic, value, on_delivery=lambda error, _: results.append(error))
        except confluent_kafka.KafkaException as error:  # what the metadata of the topic said already
            return error.args[0].code()
        give_up = time.monotonic() + SECONDS_MAX
        while not results and time.monotonic() < give_up:
            self._producer.poll(0.05)
            if any(each.code() == confluent_kafka.KafkaError._AUTHENTICATION for each in self.errors):
                self._producer.purge()
                raise Refused
        return results[0].code() if results[0] is not None else 0

    def read(self, topic, count):
        settings = {"group.id": f"g-{uuid.uuid4().hex}", "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(self.config | settings)
        with closing(consumer):
            consumer.subscribe([topic])
            return [each.value() for each in consumer.consume(count, SECONDS_MAX)]

    def close(self):
        self._producer.flush(1)


class KafkaPython:
    def __init__(self, address, mechanism, password=PASSWORD, user="alice"):
        self.config = {
            "bootstrap_servers": address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }
        if password != PASSWORD:
            refuse_in_process(self.config)
        self._producer = kafka_python.kafka.KafkaProducer(**self.config)

    def send(self, topic, value):
        try:
            self._producer.send(topic, value).get(SECONDS_MAX)
        except kafka_python.KafkaError as error:
            return getattr(error, "errno", None) or -1
        return 0

    def read(self, topic, count):
        """Without a group: kafka-python 3.0 may wait for ever while it joins one (see its adapter)."""
        with closing(kafka_python.kafka.KafkaConsumer(**self.config)) as consumer:
            place = kafka_python.kafka.TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 0)
            found = []
            while len(found) < count:
                found += consumer.poll(timeout_ms=5_000, max_records=count).get(place, [])
            return [each.value for each in found]

    def close(self):
        with suppress(kafka_python.KafkaError):
            self._producer.close(timeout=1)


class AioKafka:
    def __init__(self, address, mechanism, password=PASSWORD, user="alice"):
        self._loop = asyncio.new_event_loop()
        self.config = {
            "bootstrap_servers": address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }
        try:
            self._producer = self._run(self._start(aiokafka.AIOKafkaProducer))
        except AioError as error:
            self._close_loop()
            raise Refused from error

    async def _start(self, kind, *args, **named):
        made = kind(*args, **self.config, **named)
        try:
            await made.start()
        except AioError:
            await made.stop()
            raise
        return made

    def _run(self, work):
        return self._loop.run_until_complete(asyncio.wait_for(work, SECONDS_MAX))

    def send(self, topic, value):
        try:
            self._run(self._producer.send_and_wait(topic, value))
        except AioError as error:
            return error.errno
        return 0

    def read(self, topic, count):
        return self._run(self._read(topic, count))

    async def _read(self, topic, count):
        settings = {"group_id": f"g-{uuid.uuid4().hex}", "auto_offset_reset": "earliest"}
        consumer = await self._start(aiokafka.AIOKafkaConsumer, topic, **settings)
        try:
            return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()

    def close(self):
        self._run(self._producer.stop())
        self._close_loop()

    def _close_loop(self):
        """Transports that the broker has closed need some turns of the loop to close."""
        for _ in range(20):
            self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()


every_client = pytest.mark.parametrize(
    "client", [Confluent, KafkaPython, AioKafka], ids=lambda kind: kind.__name__
)
