"""Real clients that authenticate, with every proof that they support, and brokers whose catalog has users and ACLs."""

import asyncio
import json
import logging
import secrets
import selectors
import ssl
import subprocess
import sys
import threading
import time
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import KafkaError
from tests.clients.adapters import kafka_python
from tests.clients.process import BrokerProcess

from millpond.catalog import security
from millpond.model import acls
from millpond.model.acls import Acl, PatternType, Permission
from millpond.security import audit, listener
from millpond.security.scram import HASHES, new_credential
from millpond.security.tokens import new_token
from millpond.testing import running_broker
from millpond.testing.background import run_in_background

PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTH = "OAUTHBEARER"
MTLS = "mTLS"
MECHANISMS = (*PASSWORDS, OAUTH, MTLS)
TOPIC = "orders"
FORBIDDEN = "forbidden"
PASSWORD = "pencil"
ITERATIONS = 4096
SECONDS_MAX = 60.0
"""Only a hang takes as long as this."""
LOOK_SECONDS = 0.02
TOKEN_SECONDS = 3600
DISCONNECTED = "socket disconnected"
"""What kafka-python logs when its certificate is refused. Brokers close such a connection without an alert, because
neither asyncio nor uvloop sends the one that OpenSSL has prepared."""
REFUSED_PROGRAM = "tests.clients.refused_kafka_python"


def allow(resource, operation, name=TOPIC):
    return Acl(resource, PatternType.LITERAL, name, "User:alice", "*", operation, Permission.ALLOW)


ACLS = [
    allow(acls.ResourceType.TOPIC, acls.AclOperation.WRITE),
    allow(acls.ResourceType.TOPIC, acls.AclOperation.READ),
    allow(acls.ResourceType.GROUP, acls.AclOperation.READ, "*"),
]


# -- brokers -----------------------------------------------------------------------------------------------------------


async def add_users(broker):
    """Users, ACLs and topics in the catalog."""
    made = [
        new_credential(user, PASSWORD, mechanism, ITERATIONS, bytes)
        for user in ("alice", "admin")
        for mechanism in HASHES
    ]
    await broker.log.create_topic(TOPIC, 1, {})
    await broker.log.create_topic(FORBIDDEN, 1, {})
    await broker.log.write(lambda tx: security.put_credentials(tx, made))
    await broker.log.write(lambda tx: security.put_acls(tx, ACLS))


async def prepare(folder):
    """Before the broker is started as a process."""
    async with running_broker(folder) as broker:
        await add_users(broker)


def start(folder, **settings):
    asyncio.run(prepare(folder / "data"))
    broker = BrokerProcess(folder, security="on", super_users="User:admin", **settings)
    broker.start()
    return broker


class Logins(logging.Handler):
    """What the brokers of this process log about logins, as (event, method)."""

    def __init__(self):
        super().__init__()
        self.events = []
        self._loggers = [logging.getLogger(name) for name in (audit.__name__, listener.__name__)]

    def emit(self, record):
        self.events.append((record.msg, getattr(record, "method", "")))

    def accepted(self, mechanism):
        return self.events.count(("client authenticated", mechanism))

    def refused(self, mechanism):
        refusal = ("handshake failed", "") if mechanism == MTLS else ("authentication failed", mechanism)
        return self.events.count(refusal)

    def __enter__(self):
        self._levels = [each.level for each in self._loggers]
        for each in self._loggers:
            each.setLevel(logging.INFO)
            each.addHandler(self)
        return self

    def __exit__(self, *_):
        for each, level in zip(self._loggers, self._levels, strict=True):
            each.removeHandler(self)
            each.setLevel(level)


class SecuredBroker:
    """A broker on the loop of `millpond.testing`, so that tests and clients may block."""

    def __init__(self, clock=None, **settings):
        self._stack = AsyncExitStack()
        self.broker = self.call(self._stack.enter_async_context(running_broker(clock=clock, **settings)))
        self.call(add_users(self.broker))
        self.call(self.broker.security.refresh())
        self.clock = clock

    def call(self, work):
        return run_in_background(work)

    def address(self, interface="kafka"):
        return self.broker.listeners[interface]

    def change(self, write):
        """Change users, tokens or ACLs, and let the broker know."""
        self.call(self.broker.log.write(write))
        self.call(self.broker.security.refresh())

    def add_token(self, expires_at_ms=None):
        """For alice."""
        made = new_token(
            "User:alice",
            now_ms=self.broker.clock.now_ms(),
            expires_at_ms=expires_at_ms,
            created_by="User:admin",
            random=secrets.token_bytes,
        )
        self.change(lambda tx: security.add_token(tx, made.stored))
        return made

    def close(self):
        self.call(self._stack.aclose())


# -- clients -----------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The client could not authenticate."""


@dataclass(frozen=True)
class Login:
    """How a client authenticates. With `ca` it connects with TLS."""

    mechanism: str
    user: str = "alice"
    password: str = PASSWORD
    token: str = ""
    ca: str = ""
    certificate: tuple[Path, Path] | None = None
    """Its file and that of its key."""

    @property
    def protocol(self):
        if self.mechanism == MTLS:
            return "SSL"
        return "SASL_SSL" if self.ca else "SASL_PLAINTEXT"

    def ssl_context(self):
        if not self.ca:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(*self.certificate)
        return context


class Confluent:
    name = "librdkafka"

    def __init__(self, address, login):
        self.errors = []
        self.config = {
            "bootstrap.servers": address,
            "log_level": 0,
            "error_cb": self.errors.append,
            "security.protocol": login.protocol,
            **self._proof(login),
        }
        is_certificate = login.mechanism == MTLS
        self._refusal = KafkaError._ALL_BROKERS_DOWN if is_certificate else KafkaError._AUTHENTICATION
        self._producer = confluent_kafka.Producer(self.config)

    def _proof(self, login):
        tls = {"ssl.ca.location": login.ca} if login.ca else {}
        if login.certificate is not None:
            tls |= {
                "ssl.certificate.location": str(login.certificate[0]),
                "ssl.key.location": str(login.certificate[1]),
            }
        if login.mechanism == MTLS:
            return tls
        tls["sasl.mechanism"] = login.mechanism
        if login.mechanism == OAUTH:
            return tls | {"oauth_cb": lambda _: (login.token, time.time() + TOKEN_SECONDS)}
        return tls | {"sasl.username": login.user, "sasl.password": login.password}

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
            if any(each.code() == self._refusal for each in self.errors):
                self._producer.purge()
                raise Refused
        assert results, f"no response: {self.errors}"
        return results[0].code() if results[0] is not None else 0

    def read(self, topic, count):
        """Without a group: its timers do not follow a clock that a test moves."""
        with closing(confluent_kafka.Consumer(self.config | {"group.id": "none"})) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            return [each.value() for each in consumer.consume(count, SECONDS_MAX)]

    def close(self):
        self._producer.flush(1)


class KafkaPython:
    name = "kafka-python"

    def __init__(self, address, login):
        self.config = {"bootstrap_servers": address, "security_protocol": login.protocol}
        if login.ca:
            self.config["ssl_cafile"] = login.ca
        if login.certificate is not None:
            chain, key = login.certificate
            self.config |= {"ssl_certfile": str(chain), "ssl_keyfile": str(key)}
        if login.mechanism != MTLS:
            self.config["sasl_mechanism"] = login.mechanism
        if login.mechanism in PASSWORDS:
            self.config |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
        self._refusal = DISCONNECTED if login.mechanism == MTLS else "SaslAuthenticationFailedError"
        self._token = login.token
        self._producer = None

    def _with_token(self):
        if not self._token:
            return self.config
        return self.config | {"sasl_oauth_token_provider": kafka_python.FixedToken(self._token)}

    def check_refused(self):
        """In a process of its own, because kafka-python tries again and again, and does not close the sockets of a
        producer that it cannot create. It is ended as soon as it has logged the refusal."""
        command = [sys.executable, "-m", REFUSED_PROGRAM]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            watchdog = threading.Timer(SECONDS_MAX, process.kill)
            watchdog.start()
            try:
                process.stdin.write(json.dumps({"config": self.config, "token": self._token}))
                process.stdin.close()
                said = []
                for line in process.stdout:
                    said.append(line)
                    if self._refusal in line:
                        raise Refused
            finally:
                watchdog.cancel()
                process.kill()
        raise AssertionError("kafka-python was not refused:\n" + "".join(said))

    def send(self, topic, value):
        if self._producer is None:
            self._producer = kafka_python.kafka.KafkaProducer(**self._with_token())
        try:
            self._producer.send(topic, value).get(SECONDS_MAX)
        except kafka_python.KafkaError as error:
            return getattr(error, "errno", None) or -1
        return 0

    def read(self, topic, count):
        with closing(kafka_python.kafka.KafkaConsumer(**self._with_token())) as consumer:
            place = kafka_python.kafka.TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 0)
            found, give_up = [], time.monotonic() + SECONDS_MAX
            while len(found) < count:
                assert time.monotonic() < give_up, found
                found += consumer.poll(timeout_ms=5_000, max_records=count).get(place, [])
            return [each.value for each in found]

    def close(self):
        if self._producer is not None:
            with suppress(kafka_python.KafkaError):
                self._producer.close(timeout=1)


class AioToken(AbstractTokenProvider):
    def __init__(self, token):
        self._token = token

    async def token(self):
        return self._token


class AioKafka:
    name = "aiokafka"

    def __init__(self, address, login):
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self.config = {
            "bootstrap_servers": address,
            "security_protocol": login.protocol,
            "ssl_context": login.ssl_context(),
        }
        if login.mechanism != MTLS:
            self.config["sasl_mechanism"] = login.mechanism
        if login.mechanism in PASSWORDS:
            self.config |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
        self._token = login.token
        try:
            self._producer = self._run(self._start(aiokafka.AIOKafkaProducer))
        except AioError as error:
            self._close_loop()
            raise Refused from error

    async def _start(self, kind, *args, **named):
        token = {"sasl_oauth_token_provider": AioToken(self._token)} if self._token else {}
        made = kind(*args, **self.config, **token, **named)
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
        consumer = await self._start(aiokafka.AIOKafkaConsumer)
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()

    def close(self):
        self._run(self._producer.stop())
        self._close_loop()

    def _close_loop(self):
        """When the transports have closed: with TLS, aiokafka does not wait for it. The loop has one socket itself."""
        give_up = time.monotonic() + SECONDS_MAX
        while len(self._selector.get_map()) > 1 and time.monotonic() < give_up:
            self._loop.run_until_complete(asyncio.sleep(LOOK_SECONDS))
        self._loop.close()


def check_refused(kind, address, login):
    """Raises `Refused`, unless the client is served."""
    if kind is KafkaPython:
        kind(address, login).check_refused()
    with closing(kind(address, login)) as connected:
        assert connected.send(TOPIC, b"refused") != 0
    raise AssertionError(f"{kind.name} was not refused")


CLIENTS = (Confluent, KafkaPython, AioKafka)
every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda kind: kind.name)
