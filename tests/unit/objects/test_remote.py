"""The remote store against a small S3 with scripted faults: errors, silence, resets, answers that are lost."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import pytest

from millpond.model.errors import (
    CorruptObject,
    ObjectExists,
    ObjectMissing,
    StoreFull,
    StoreUnavailable,
)
from millpond.model.ids import Session
from millpond.objects.remote import KEY_TRIES_MAX, RemoteStore
from millpond.objects.retrying import Retrying, RetryPolicy

HANG_S = 60
SESSION = Session("s1")
CONFIG = {"region": "us-east-1", "access_key_id": "a", "secret_access_key": "b"}
Fault = int | str
"""A status to answer with (nothing is applied), "reset" (neither answered nor applied), "lost" (applied, then reset),
"silence" (no answer in time)."""


class FakeS3(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}
        self.faults: deque[Fault] = deque()
        self.pick: Callable[[], Fault | None] = lambda: None
        self.requests = 0
        self.silent = 0
        """Requests that get no answer until the test is over."""
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.preconditions: set[str | None] = set()

    def next_fault(self) -> Fault | None:
        with self.lock:
            self.requests += 1
            fault = self.faults.popleft() if self.faults else self.pick()
            self.silent += fault == "silence"
            return fault


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # header and body in one packet: no waiting for a delayed ACK
    server: FakeS3

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fault = self.server.next_fault()
        if fault is None or fault == "lost":
            with self.server.lock:
                self.server.preconditions.add(self.headers["If-None-Match"])
                exists = self.path in self.server.objects
                self.server.objects.setdefault(self.path, body)
            self.answer(412 if exists else 200, fault=fault)
        else:
            self.answer(200, fault=fault)

    def do_GET(self) -> None:
        fault = self.server.next_fault()
        data = self.server.objects.get(self.path)
        if data is None or fault is not None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>", fault=fault)
            return
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        part = data[int(first) : int(last) + 1]
        headers = {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"}
        self.answer(206, part, headers)

    def do_HEAD(self) -> None:
        fault = self.server.next_fault()
        data = self.server.objects.get(self.path)
        self.answer(404 if data is None else 200, length=len(data or b""), fault=fault)

    def answer(
        self,
        status: int,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        length: int | None = None,
        fault: Fault | None = None,
    ) -> None:
        if fault == "silence":
            self.server.over.wait(HANG_S)
            self.server.silent -= 1
        if isinstance(fault, str):
            self.close_connection = True
            return
        if fault is not None:
            status, body = (
                fault,
                b"<Error><Code>NoSuchBucket</Code></Error>" if self.command == "GET" else b"",
            )
        self.send_response(status)
        fields = {"ETag": '"e"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", **(headers or {})}
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[FakeS3]:
    server = FakeS3()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def store(server: FakeS3) -> RemoteStore:
    return store_on(server, request_timeout_ms=20_000)


def store_on(server: FakeS3, request_timeout_ms: int) -> RemoteStore:
    config = {**CONFIG, "endpoint": f"http://127.0.0.1:{server.server_port}"}
    return RemoteStore("s3://bucket/prefix", SESSION, config=config, request_timeout_ms=request_timeout_ms)


def test_every_write_creates_or_fails(store: RemoteStore, server: FakeS3) -> None:
    store.append([b"x"])
    store.put("a", [b"y"])
    assert server.preconditions == {"*"}
    assert sorted(server.objects) == ["/bucket/prefix/a", "/bucket/prefix/journal/s1/0000000000000000"]


@pytest.mark.parametrize("fault", [500, 503, 403, 404, 429, "reset", "lost"])
def test_faults_are_unavailability_and_not_retried_inside(
    store: RemoteStore, server: FakeS3, fault: Fault
) -> None:
    for call in (
        lambda: store.put("a", [b"x"]),
        lambda: store.append([b"x"]),
        lambda: store.read("a", 0, 1),
    ):
        server.faults.append(fault)
        requests = server.requests
        with pytest.raises(StoreUnavailable) as caught:
            call()
        assert type(caught.value) is StoreUnavailable
        assert "\n" not in str(caught.value)
        assert server.requests == requests + 1


def test_full(store: RemoteStore, server: FakeS3) -> None:
    server.faults.append(507)
    with pytest.raises(StoreFull):
        store.put("a", [b"x"])


def test_silence_ends_with_the_timeout(server: FakeS3) -> None:
    server.faults.append("silence")
    while server.faults:  # on a stalled machine the timeout may end before the request is sent
        with pytest.raises(StoreUnavailable):
            store_on(server, request_timeout_ms=300).put("a", [b"x"])
    assert server.silent == 1, "the server has not ended the request"


def test_nobody_listens() -> None:
    store = RemoteStore("s3://bucket", SESSION, config={**CONFIG, "endpoint": "http://127.0.0.1:9"})
    with pytest.raises(StoreUnavailable):
        store.append([b"x"])


def test_a_taken_journal_key_is_passed_over(store: RemoteStore, server: FakeS3) -> None:
    server.faults.append(412)
    location = store.append([b"x"])
    assert location.key == "journal/s1/0000000000000001"
    server.faults.extend([412] * KEY_TRIES_MAX)
    with pytest.raises(StoreUnavailable):
        store.append([b"x"])


def test_late_arrival_replaces_nothing(store: RemoteStore, server: FakeS3) -> None:
    """A put that seemed lost was applied; the next writer of the key is told."""
    server.faults.append("lost")
    with pytest.raises(StoreUnavailable):
        store.put("a", [b"first"])
    with pytest.raises(ObjectExists):
        store.put("a", [b"second"])
    assert store.read("a", 0, 5) == b"first"


def test_truncated_object(store: RemoteStore, server: FakeS3) -> None:
    store.put("a", [b"hello"])
    server.objects["/bucket/prefix/a"] = b"hel"
    with pytest.raises(CorruptObject):
        store.read("a", 0, 5)
    assert store.size("a") == 3


@pytest.mark.parametrize("error_rate", [0.01, 0.1, 0.5])
def test_goodput_under_errors(store: RemoteStore, server: FakeS3, error_rate: float) -> None:
    """Everything acknowledged is there once under its own location; attempts stay in proportion to the errors."""
    random = Random(3)
    kinds: list[Fault] = [500, 503, "reset", "lost"]
    server.pick = lambda: random.choice(kinds) if random.random() < error_rate else None
    retrying = Retrying(store, RetryPolicy(attempts_max=100), random=random, sleep=lambda _: None)
    contents = [b"%d" % number for number in range(100)]
    locations = [retrying.append([content]) for content in contents]
    for content in contents:
        retrying.put(f"payloads/{content.decode()}", [content])
    attempts = server.requests
    server.pick = lambda: None
    assert len({location.key for location in locations}) == 100
    for content, location in zip(contents, locations, strict=True):
        assert store.read(location.key, 0, location.length) == content
        assert store.read(f"payloads/{content.decode()}", 0, len(content)) == content
    assert attempts < 250 / (1 - error_rate) ** 3
    with pytest.raises(ObjectMissing):
        store.read("payloads/never", 0, 1)
