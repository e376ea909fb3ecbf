"""Clients that misuse TLS: silent, garbled, or deaf. The broker runs on uvloop, in a thread."""

import contextlib
import random
import socket
import ssl

import pytest
from tests.hostile.kafka.siege import (
    BY_HAND,
    FETCH_VERSION,
    STEP_SECONDS,
    ThreadBroker,
    Wire,
    eventually,
    fetch_request,
    send_batch,
    written,
)
from tests.tls import Pki

from millpond.protocol import ErrorCode
from millpond.protocol.messages import topics
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.records import Record, build_batch
from millpond.security.listener import HandshakeLimits

KIB, MIB = 1 << 10, 1 << 20
PER_ADDRESS = HandshakeLimits().per_address_max


class TlsWire(Wire):
    def __init__(self, port, context, receive_bytes=None):
        super().__init__(port, receive_bytes)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


class Target:
    """A broker with TLS, and clients of it."""

    def __init__(self, pki, broker):
        self.context, self.broker = pki.client_context(), broker

    def connect(self, **options):
        return TlsWire(self.broker.port, self.context, **options)

    def plain(self):
        return socket.create_connection(("127.0.0.1", self.broker.port))

    @property
    def listener(self):
        return self.broker.server._listener

    def check_served(self):
        with self.connect() as wire:
            assert wire.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE

    def unsent(self):
        return self.broker.call(lambda: sum(each.unsent_bytes for each in self.broker.server._connections))

    def is_idle(self):
        return self.broker.call(lambda: not (self.broker.server._connections or self.listener.handshakes))


@pytest.fixture
def target(tmp_path):
    """`with target(limit=value) as broker:`; at the end nothing alarming was logged."""
    pki = Pki(tmp_path)

    @contextlib.contextmanager
    def begin(**limits):
        broker = ThreadBroker(limits, pki.settings())
        broker.start()
        try:
            yield Target(pki, broker)
        finally:
            broker.stop()
        assert broker.records.alarming() == []

    return begin


def test_silent_clients_are_limited_and_others_served(target):
    """They hold as many handshakes as one address may have. When one of them ends, another client is served."""
    with target() as broker, contextlib.ExitStack() as clients:
        silent = [clients.enter_context(broker.plain()) for _ in range(3 * PER_ADDRESS)]
        eventually(lambda: broker.listener.refused == 2 * PER_ADDRESS, "the others are refused")
        assert broker.broker.call(lambda: broker.listener.handshakes) == PER_ADDRESS
        silent[0].close()
        eventually(lambda: broker.listener.handshakes == PER_ADDRESS - 1, "one handshake ends")
        broker.check_served()


def test_garbled_handshakes_end_quietly(target):
    chance = random.Random(19)
    hello = first_flight()
    with target() as broker:
        for number in range(60):
            damaged = bytearray(hello[: chance.randrange(1, len(hello) + 1)])
            for _ in range(number % 5):
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            with broker.plain() as wire, contextlib.suppress(OSError):
                wire.sendall(damaged)
                wire.shutdown(socket.SHUT_WR)
                while wire.recv(4096):
                    pass
        eventually(broker.is_idle, "all of them are gone")
        assert broker.listener.failed == 60
        broker.check_served()


def first_flight():
    """What a client sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_garbage_after_the_handshake_closes_only_its_connection(target):
    with target() as broker, broker.connect() as good:
        wire = broker.connect()
        raw = socket.socket(fileno=wire.socket.detach())
        raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        with contextlib.suppress(OSError):
            while raw.recv(4096):
                pass
        raw.close()
        eventually(lambda: len(broker.broker.server._connections) == 1, "it is closed")
        assert good.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


def test_responses_that_a_client_does_not_read_are_counted_and_given_up(target):
    """The transport of TLS would hold all of it in buffers that it does not report."""
    with target(**BY_HAND) as broker:
        fill(broker, 16)
        attacker = broker.connect(receive_bytes=4096)
        attacker.send(written(fetch_request("large", 0, bytes_max=20 * MIB), FETCH_VERSION))
        eventually(lambda: broker.unsent() > 8 * MIB, "the response is counted")
        now = broker.broker.call(lambda: broker.broker._loop.time())
        for step in (0, 1, 2):
            broker.broker.call(broker.broker.server.sweep, now + step * STEP_SECONDS)
        eventually(broker.is_idle, "the connection is closed")
        attacker.socket.close()
        broker.check_served()


def test_a_slow_reader_receives_everything(target):
    with target(**BY_HAND) as broker:
        fill(broker, 16)
        with broker.connect(receive_bytes=64 * KIB) as wire:
            found = wire.ask(fetch_request("large", 0, bytes_max=20 * MIB), FETCH_VERSION)
            [partition] = found.responses[0].partitions
            assert sum(len(each) for each in partition.records) > 14 * MIB
            assert wire.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


def fill(broker, mebibytes):
    wanted = topics.CreatableTopic(
        name="large", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    with broker.connect() as wire:
        wire.ask(topics.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000, validate_only=False), 5)
        for _ in range(mebibytes):
            answer = send_batch(wire, "large", build_batch([Record(bytes(900 * KIB))]))
            assert answer.error_code == ErrorCode.NONE
