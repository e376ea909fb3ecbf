"""An object store that fails and dawdles (reliability tests 9 and 10).

Through real HTTP: moto behind a proxy of ours that answers 500 and 503, hangs, resets the connection after the body,
and swallows answers to requests it has passed on. In process: uploads that are held back, or fail, in chosen order.
"""

import asyncio
import contextlib
import http.client
import random
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from tests.s3 import running_moto

from millpond import Broker, Record, Settings, TopicPartition
from millpond.model.errors import StoreUnavailable, Unavailable
from millpond.objects.remote import RemoteStore
from millpond.objects.retrying import Retrying, RetryPolicy
from millpond.records import build_batch
from millpond.testing import running_broker

BUCKET = "millpond-faults"
CREDENTIALS = {"region": "us-east-1", "access_key_id": "test", "secret_access_key": "test"}
REQUEST_TIMEOUT_MS = 250
POLICY = RetryPolicy(attempts_max=6, base_delay_ms=5, delay_ms_max=40)
PARTITIONS = 4
BATCHES = 20
ANSWER_SECONDS_MAX = 60


class Proxy(ThreadingHTTPServer):
    """Passes S3 requests on to moto, or does to them what goes wrong between a client and S3."""

    daemon_threads = True
    kinds = ("500", "503", "hang", "reset", "unanswered")

    def __init__(self, target):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = target
        self.error_rate = 0.0
        self.random = random.Random(5)
        self.requests = self.faults = self.puts = 0
        self._lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def fault(self, method):
        with self._lock:
            self.requests += 1
            self.puts += method == "PUT"
            if self.random.random() >= self.error_rate:
                return None
            self.faults += 1
            return self.random.choice(self.kinds)

    def handle_error(self, request, client_address):
        """A client that gave up is what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.fault(self.command)
        if fault in ("500", "503"):
            self.answer(int(fault), {}, b"<Error><Code>SlowDown</Code><Message>no</Message></Error>")
        elif fault == "hang":
            time.sleep(REQUEST_TIMEOUT_MS / 1000 * 1.3)
            self.close_connection = True
        elif fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
        else:
            status, headers, answer = self.pass_on(body)
            if fault == "unanswered":
                time.sleep(REQUEST_TIMEOUT_MS / 1000 * 1.3)
                self.close_connection = True
            else:
                self.answer(status, headers, answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815  # http.server's names

    def pass_on(self, body):
        upstream = http.client.HTTPConnection(*self.server.target, timeout=30)
        with contextlib.closing(upstream):
            upstream.request(self.command, self.path, body, dict(self.headers))
            response = upstream.getresponse()
            return response.status, dict(response.getheaders()), response.read()

    def answer(self, status, headers, body):
        self.send_response(status)
        length = headers.get("Content-Length", headers.get("content-length", str(len(body))))
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture(scope="module")
def moto():
    with running_moto(BUCKET) as endpoint:
        address = urlsplit(endpoint)
        yield address.hostname, address.port


@pytest.fixture
def proxy(moto):
    server = Proxy(moto)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def broker_over(proxy, data_dir, prefix, **settings):
    """A broker whose store is S3 behind the proxy, with short timeouts."""

    def over_s3(unused):
        unused.close()
        config = {**CREDENTIALS, "endpoint": proxy.url}
        url = f"s3://{BUCKET}/{prefix}"
        remote = RemoteStore(url, broker.session, config=config, request_timeout_ms=REQUEST_TIMEOUT_MS)
        return Retrying(remote, POLICY)

    chosen = {"inline_bytes_max": 0, "flush_delay": 5, "storage": "memory://", "garbage_grace": 0, **settings}
    broker = Broker(Settings(data_dir=data_dir, **chosen), wrap_store=over_s3, maintain=False)
    return broker


class Sender:
    """Sends numbered values to one partition, one at a time, and again until each is acknowledged."""

    def __init__(self, number):
        self.number = number
        self.partition = number % PARTITIONS
        self.producer_id = 500 + number if number % 2 else -1
        self.acknowledged = {}
        self.refusals = 0
        self._random = random.Random(number)

    async def run(self, log, topic_id):
        topic_partition = TopicPartition(topic_id, self.partition)
        for sequence in range(BATCHES):
            await asyncio.sleep(self._random.uniform(0, 0.02))
            value = b"%d:%d" % (self.number, sequence)
            idempotent = {"producer_id": self.producer_id, "producer_epoch": 0, "base_sequence": sequence}
            batch = build_batch([Record(value)], now_ms=1, **(idempotent if self.producer_id >= 0 else {}))
            self.acknowledged[sequence] = (await self._insist(log, topic_partition, batch)).base_offset

    async def _insist(self, log, topic_partition, batch):
        while True:
            try:
                return await log.append(topic_partition, batch)
            except Unavailable:
                self.refusals += 1
                await asyncio.sleep(0.02)


async def read_partition(broker, partition):
    offset, records = 0, []
    while more := await insist(lambda at=offset: broker.read("topic", at, partition=partition)):
        records += more
        offset = more[-1].offset + 1
    return records


async def insist(call):
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.02)


async def check_log(broker, senders):
    for partition in range(PARTITIONS):
        records = await read_partition(broker, partition)
        assert [record.offset for record in records] == list(range(len(records)))
        values = [record.value for record in records]
        assert len(set(values)) == len(values), "a refused append must not be there"
        for each in senders:
            if each.partition == partition:
                mine = [(v, n) for n, v in enumerate(values) if v.startswith(b"%d:" % each.number)]
                assert mine == [(b"%d:%d" % (each.number, s), at) for s, at in each.acknowledged.items()]


async def collect(broker):
    """What no row refers to goes once its session is dead; returns how many objects went."""
    collected = await broker.maintenance.garbage.run_once()
    known = {row[0] for row in await broker.log.read(lambda tx: tx.rows("SELECT key FROM objects"))}
    assert set(broker.store.list("")) == known
    return collected


@pytest.mark.parametrize("percent", [1, 10, 50])
async def test_errors_of_an_object_store_lose_nothing_and_double_nothing(tmp_path, proxy, percent, figures):
    prefix = f"errors-{percent}"
    senders = [Sender(number) for number in range(8)]
    async with broker_over(proxy, tmp_path, prefix) as broker:
        topic = await broker.log.create_topic("topic", PARTITIONS)
        proxy.error_rate = percent / 100
        started = time.perf_counter()
        runs = [each.run(broker.log, topic.id) for each in senders]
        await asyncio.wait_for(asyncio.gather(*runs), ANSWER_SECONDS_MAX)
        seconds = time.perf_counter() - started
        puts, flushes = proxy.puts, broker.log._flusher.flushes
        assert puts <= flushes * POLICY.attempts_max
        proxy.error_rate = 0.0
    async with broker_over(proxy, tmp_path, prefix) as broker:
        orphans = await collect(broker)
        proxy.error_rate = 0.1 if percent == 10 else 0.0
        await check_log(broker, senders)
        proxy.error_rate = 0.0
    acknowledged = sum(len(each.acknowledged) for each in senders)
    figures.append(
        f"S3 at {percent} % errors: acknowledged {acknowledged}, lost 0, duplicates 0, "
        f"{acknowledged / seconds:.0f} appends/s, {puts} PUTs for {flushes} flushes, "
        f"{sum(each.refusals for each in senders)} refusals, {orphans} orphans collected"
    )


async def test_a_broker_over_s3_by_its_settings_survives_errors_and_a_restart(tmp_path, proxy, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    url = f"s3://{BUCKET}/by-settings?endpoint={proxy.url}&region=us-east-1"
    proxy.kinds = ("500", "503", "reset")
    proxy.error_rate = 0.2
    settings = {"storage": url, "inline_bytes_max": 0, "flush_delay": 1}
    async with running_broker(tmp_path, **settings) as broker:
        for number in range(20):
            await broker.produce("topic", b"%d" % number)
    async with running_broker(tmp_path, **settings) as broker:
        assert [record.value for record in await broker.read("topic")] == [b"%d" % n for n in range(20)]
        assert await broker.maintenance.merging.run_once() == 20
        assert len(await broker.read("topic")) == 20


async def test_an_object_store_that_is_gone_refuses_and_recovers(tmp_path, proxy, figures):
    async with broker_over(proxy, tmp_path, "gone") as broker:
        await broker.produce("topic", b"before")
        proxy.kinds = ("503",)
        proxy.error_rate = 1.0
        started = time.perf_counter()
        with pytest.raises(StoreUnavailable) as refused:
            await broker.produce("topic", b"refused")
        refused_s = time.perf_counter() - started
        assert refused.value.retriable
        before = proxy.requests
        with pytest.raises(StoreUnavailable):
            await broker.produce("topic", b"refused before it is buffered")
        assert proxy.requests == before
        proxy.error_rate = 0.0
        started = time.perf_counter()
        while True:
            with contextlib.suppress(StoreUnavailable):
                assert (await broker.produce("topic", b"after")).base_offset == 1
                break
            await asyncio.sleep(0.01)
        recovered_s = time.perf_counter() - started
        assert [record.value for record in await broker.read("topic")] == [b"before", b"after"]
    figures.append(
        f"S3 gone: refused after {refused_s * 1000:.0f} ms and {POLICY.attempts_max} attempts, "
        f"recovered {recovered_s * 1000:.0f} ms after it was back"
    )


# -- slow and failing uploads, in chosen order ---------------------------------------------------------------------
