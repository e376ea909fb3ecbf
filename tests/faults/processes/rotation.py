"""Clients over Kafka's protocol, gRPC and HTTP that keep working while their credentials are replaced, and probes that
use the revoked ones until a broker refuses them."""

import base64
import contextlib
import http.client
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx
from tests.faults.processes import workload
from tests.faults.processes.checker import UNKNOWN, Attempt, Seen, Value
from tests.faults.processes.harness import Node

from millpond.client.secret_files import TokenFile
from millpond.stubs import admin_pb2

ASK_SECONDS = 0.02
HANDSHAKE, METADATA, AUTHENTICATE = 17, 3, 36
SERVED, UNAUTHORIZED, REDIRECT, RETRIABLE = 200, 401, 307, (429, 503)
HTTP_SECONDS = 30.0
READ_BYTES = 65_536


def replace_secret(path: Path, secret: str) -> None:
    """As a careful administrator does: a program that reads the file sees the old secret or the new one."""
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_text(secret)
    os.replace(new, path)


# -- load over HTTP ----------------------------------------------------------------------------------------------------


class HttpCaller:
    """Sends its token to whichever broker has the partition, as clients of one cluster do, and asks again after a
    retriable error."""

    def __init__(self, address: str, ca: Path, token: TokenFile) -> None:
        self._url = f"https://{address}"
        self._token = token
        self._client = httpx.Client(verify=ssl.create_default_context(cafile=str(ca)), timeout=HTTP_SECONDS)
        self.retried = 0

    def call(self, method: str, path: str, **named: Any) -> httpx.Response:
        url = self._url + path
        while True:
            try:
                response = self._client.request(
                    method, url, headers={"Authorization": f"Bearer {self._token()}"}, **named
                )
            except httpx.TransportError:
                if method != "GET":
                    raise
                self.retried += 1
                continue
            if response.status_code == REDIRECT:
                url = response.headers["location"]
            elif response.status_code in RETRIABLE:
                self.retried += 1
                time.sleep(ASK_SECONDS)
            else:
                return response

    def close(self) -> None:
        self._client.close()


class HttpWriter(workload.Writer):
    def __init__(self, name: str, caller: HttpCaller, topic: str, partitions: int, per_second: float) -> None:
        super().__init__(name, partitions, per_second, 0)
        self._caller = caller
        self._topic = topic
        self.failures: list[str] = []

    def step(self) -> None:
        value = self.next_value()
        began = time.monotonic()
        path = f"/topics/{self._topic}/produce/{value.partition}"
        headers = {"content": value.encode()}
        response = self._caller.call("POST", path, **headers)
        is_stored = response.status_code == SERVED
        if not is_stored:
            self.failures.append(f"{response.status_code} {response.text}")
        offset = response.json()["offset"] if is_stored else UNKNOWN
        self.attempts.append(Attempt(value, began, time.monotonic(), is_stored, offset))
        time.sleep(self._pause)

    def finish(self) -> None:
        self._caller.close()


class HttpReader(workload.Reader):
    """Fetches each partition in turn."""

    def __init__(self, name: str, caller: HttpCaller, topic: str, partitions: int) -> None:
        super().__init__(name)
        self._caller = caller
        self._topic = topic
        self._positions = dict.fromkeys(range(partitions), 0)

    def step(self) -> None:
        for partition, offset in self._positions.items():
            path = f"/topics/{self._topic}/fetch/{partition}"
            response = self._caller.call("GET", path, params={"offset": offset, "wait_ms": 20})
            assert response.status_code == SERVED, response.text
            fetched = response.json()
            for each in fetched["messages"]:
                self.seen.append(Seen(partition, each["offset"], Value.decode(each["value"].encode())))
            self._positions[partition] = fetched["next_offset"]

    def finish(self) -> None:
        self._caller.close()


# -- probes ------------------------------------------------------------------------------------------------------------


class Probe(threading.Thread):
    """Uses a credential at one broker again and again, until it is refused."""

    def __init__(self, kind: str, node: Node, asking: "Asking") -> None:
        super().__init__(name=f"{kind} at broker {node.number}", daemon=True)
        self.kind, self.node = kind, node
        self._ask, self.close = asking.ask, asking.close
        self._is_idle = asking.is_idle
        self.served = 0
        self.stopped_at: float | None = None
        """When the last response arrived that was none of a refusal, or the idle connection was closed."""

    def run(self) -> None:
        served_at = time.monotonic()
        while self._ask():
            served_at = time.monotonic()
            self.served += 1
            time.sleep(ASK_SECONDS)
        self.stopped_at = time.monotonic() if self._is_idle else served_at


class Asking(NamedTuple):
    """A client with a credential."""

    ask: Callable[[], bool]
    """Whether the credential is accepted."""
    close: Callable[[], None]
    is_idle: bool = False
    """Whether it only waits for the end of its connection."""


class KafkaSession:
    """A connection that has authenticated with PLAIN over TLS. A broker that ends the session closes it."""

    def __init__(self, address: str, ca: Path, user: str, password: str) -> None:
        host, port = address.split(":")
        plain = socket.create_connection((host, int(port)), HTTP_SECONDS)
        self._socket = ssl.create_default_context(cafile=str(ca)).wrap_socket(plain, server_hostname=host)
        assert self._call(HANDSHAKE, 1, _text("PLAIN"))[:2] == b"\0\0"
        proof = f"\0{user}\0{password}".encode()
        assert self._call(AUTHENTICATE, 0, struct.pack(">i", len(proof)) + proof)[:2] == b"\0\0"

    @property
    def asking(self) -> Asking:
        return Asking(self._is_served, self._socket.close)

    @property
    def waiting(self) -> Asking:
        """Sends nothing. Is refused when the broker has closed the connection."""
        return Asking(self._waits, self._socket.close, is_idle=True)

    def _is_served(self) -> bool:
        try:
            return bool(self._call(METADATA, 1, struct.pack(">i", 0)))
        except OSError:
            return False

    def _waits(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self._socket.recv(1))
        return False

    def _call(self, key: int, version: int, body: bytes) -> bytes:
        frame = struct.pack(">hhih", key, version, 1, -1) + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", self._receive(4))[0]
        return self._receive(size)[4:]

    def _receive(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            data = self._socket.recv(size - len(found))
            if not data:
                raise ConnectionResetError
            found += data
        return found


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def http_asks(address: str, ca: Path, authorization: str) -> Asking:
    """On one connection, as long as the broker keeps it."""
    host, port = address.split(":")
    connection = http.client.HTTPSConnection(
        host, int(port), context=ssl.create_default_context(cafile=str(ca)), timeout=HTTP_SECONDS
    )

    def ask() -> bool:
        connection.request("GET", "/topics", headers={"Authorization": authorization})
        response = connection.getresponse()
        response.read()
        assert response.status in (SERVED, UNAUTHORIZED), response.status
        return response.status == SERVED

    return Asking(ask, connection.close)


def http_stream(address: str, ca: Path, authorization: str, topic: str) -> Asking:
    """A stream of a topic without messages: returns when the broker has ended it."""
    host, port = address.split(":")
    connection = http.client.HTTPSConnection(
        host, int(port), context=ssl.create_default_context(cafile=str(ca)), timeout=HTTP_SECONDS
    )
    connection.request("GET", f"/topics/{topic}/stream", headers={"Authorization": authorization})
    response = connection.getresponse()
    assert response.status == SERVED, response.status

    def ask() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return bool(response.read1(READ_BYTES))
        return False

    def close() -> None:
        response.close()
        connection.close()

    return Asking(ask, close, is_idle=True)


def grpc_asks(address: str, ca: Path, authorization: str) -> Asking:
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca.read_bytes()))
    call = channel.unary_unary(
        "/millpond.v1.Admin/ListTopics",
        request_serializer=admin_pb2.ListTopicsRequest.SerializeToString,
        response_deserializer=admin_pb2.ListTopicsResponse.FromString,
    )

    def ask() -> bool:
        try:
            call(admin_pb2.ListTopicsRequest(), metadata=[("authorization", authorization)])
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
                raise
            return False
        return True

    return Asking(ask, channel.close)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@contextlib.contextmanager
def probing(probes: Sequence[Probe], seconds_max: float) -> Iterator[None]:
    """Start the probes, let the caller revoke what they use, and wait until all of them are refused."""
    for each in probes:
        each.start()
    yield
    for each in probes:
        each.join(seconds_max)


def seconds_served(probes: Sequence[Probe], revoked_at: float) -> Mapping[str, list[float]]:
    """By kind of probe, for each broker in order."""
    found: dict[str, list[float]] = {}
    for each in probes:
        assert each.stopped_at is not None, f"{each.name} is still served"
        found.setdefault(each.kind, []).append(max(0.0, each.stopped_at - revoked_at))
    return found


def serial_number(address: str) -> int:
    """Of the certificate that a new connection gets."""
    from cryptography import x509

    host, port = address.split(":")
    pem = ssl.get_server_certificate((host, int(port)), timeout=HTTP_SECONDS)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def shown(seconds: Sequence[float]) -> str:
    return json.dumps([round(each, 2) for each in seconds])
