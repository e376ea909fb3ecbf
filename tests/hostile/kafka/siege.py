"""A broker under attack: where it runs, a client that behaves itself, and what must be true when all is over.

The broker runs on uvloop, in a thread of this process when a test wants to look inside it and in a process of its
own when its memory is measured. Everybody else uses blocking sockets, so nothing here shares the broker's loop.
"""

import asyncio
import contextlib
import json
import logging
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import uvloop

from millpond.frontends.kafka import KafkaLimits
from millpond.observability.logs import TextFormatter
from millpond.protocol import LENGTH_BYTES, ErrorCode, decode, encode_request, read_response_header
from millpond.protocol.messages import fetch, produce, topics
from millpond.records import Record, build_batch, iter_records
from millpond.settings import Settings
from millpond.testing import running_broker

HANG_SECONDS = 30.0
"""No answer after so long is no answer. Nothing is measured by it."""
GOOD_TOPIC = "well-behaved"
LOOK_SECONDS = 0.02
BY_HAND = {"sweep_ms": 10**9, "idle_ms": 10**12}
"""Limits of a broker that looks for stalled connections only when a test tells it to, at the time it is told."""
STEP_SECONDS = 40
"""Less than a connection may stall; two of them are more."""


class Hung(AssertionError):
    """The broker neither answered nor closed the connection."""


def eventually(is_true, what, seconds=HANG_SECONDS):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(LOOK_SECONDS)


# -- clients -------------------------------------------------------------------------------------------------------


def framed(body):
    return struct.pack(">i", len(body)) + body


def written(request, version, correlation_id=1, client_id="siege"):
    return b"".join(encode_request(request, version, correlation_id, client_id).buffers)


class Wire:
    """One connection. `ask` is for those who behave; the rest is for those who do not."""

    def __init__(self, port, receive_bytes=None):
        self.socket = socket.socket()
        if receive_bytes is not None:  # before connecting, or the window is already larger
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(HANG_SECONDS)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Whether it was taken: the broker may close the connection while we still write."""
        try:
            self.socket.sendall(data)
        except TimeoutError as error:
            raise Hung from error
        except OSError:
            return False
        return True

    def ask(self, request, version):
        self._last_id += 1
        assert self.send(written(request, version, self._last_id)), "the connection was closed"
        body = self.receive()
        assert body is not None, "the connection was closed instead of an answer"
        correlation_id, position = read_response_header(body, request.api_key, version)
        assert correlation_id == self._last_id
        return decode(type(request).response, version, body, position)

    def receive(self):
        """The next frame, or None when the broker closes the connection instead."""
        head = self._exactly(LENGTH_BYTES)
        return None if head is None else self._exactly(struct.unpack(">i", head)[0])

    def _exactly(self, count):
        data = bytearray(count)
        view, position = memoryview(data), 0
        while position < count:
            try:
                got = self.socket.recv_into(view[position:])
            except TimeoutError as error:
                raise Hung from error
            except OSError:
                return None
            if not got:
                return None
            position += got
        return bytes(data)

    def is_closed(self):
        """Wait until the broker closes the connection, passing over what it still says."""
        while self.receive() is not None:
            pass
        return True

    def finish(self):
        """Say that no more will come, as a half-close."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self):
        """Break off with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def produce_request(topic, data, *, partition=0, acks=-1, timeout_ms=10_000):
    part = produce.PartitionProduceData(index=partition, records=data)
    return produce.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=[part])],
    )


def fetch_request(topic, offset, *, partition=0, wait_ms=0, bytes_min=1, bytes_max=1 << 20):
    part = fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    return fetch.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        topics=[fetch.FetchTopic(topic=topic, partitions=[part])],
    )


PRODUCE_VERSION, FETCH_VERSION = 9, 12


def create_topic(port, name, partitions=1, **configs):
    named = [
        topics.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    wanted = topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=named
    )
    with Wire(port) as wire:
        request = topics.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000, validate_only=False)
        [made] = wire.ask(request, 5).topics
    assert made.error_code == ErrorCode.NONE, made


def send_batch(wire, topic, data, **options):
    """The partition's answer to one produced batch."""
    answer = wire.ask(produce_request(topic, data, **options), PRODUCE_VERSION)
    return answer.responses[0].partition_responses[0]


def values_at(wire, topic, offset):
    """The partition's answer to a fetch, and the values in it."""
    answer = wire.ask(fetch_request(topic, offset), FETCH_VERSION)
    part = answer.responses[0].partitions[0]
    assert part.error_code == ErrorCode.NONE, part
    records = [
        record for batch in part.records for record in iter_records(batch, decompressed_bytes_max=1 << 20)
    ]
    return [record.value for record in records if record.offset >= offset]


class WellBehaved:
    """Produces a value, reads it back, and again, for as long as the attack lasts; any wrong answer is an error."""

    def __init__(self, port):
        self._port = port
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="well-behaved client", daemon=True)
        self._error = None
        self.rounds = 0
        self.worst_ms = 0.0

    def start(self):
        create_topic(self._port, GOOD_TOPIC)
        self._thread.start()

    def prove(self):
        """It is being served now: two whole rounds from here on."""
        wanted = self.rounds + 2
        eventually(lambda: self._error or self.rounds >= wanted, "the well-behaved client is answered")
        if self._error is not None:
            raise self._error

    def stop(self):
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self):
        try:
            with Wire(self._port) as wire:
                while not self._stopping.is_set():
                    self._round(wire)
        except BaseException as error:  # noqa: BLE001  # raised again where the test sees it
            self._error = error

    def _round(self, wire):
        started = time.perf_counter()
        value = b"round %d" % self.rounds
        answer = send_batch(wire, GOOD_TOPIC, build_batch([Record(value)]))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, self.rounds)
        assert values_at(wire, GOOD_TOPIC, self.rounds) == [value]
        self.worst_ms = max(self.worst_ms, (time.perf_counter() - started) * 1000)
        self.rounds += 1
        time.sleep(0.001)  # it leaves the processor to others, as it waits for nothing else


# -- brokers -------------------------------------------------------------------------------------------------------


class Records(logging.Handler):
    """What the broker logs."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.seen = []

    def emit(self, record):
        self.seen.append(record)

    def reasons(self):
        """Why connections were closed."""
        return [record.reason for record in self.seen if hasattr(record, "reason")]

    def alarming(self):
        return [TextFormatter().format(each) for each in self.seen if each.levelno >= logging.WARNING]


class ThreadBroker:
    """A broker in this process, on a loop of its own."""

    def __init__(self, limits, settings):
        self._limits, self._settings = limits, settings
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._main()), name="broker", daemon=True)
        self.records = Records()

    def start(self):
        self._logger = logging.getLogger("millpond")
        self._level = self._logger.level
        self._logger.setLevel(logging.INFO)
        for logger in (self._logger, logging.getLogger("asyncio")):
            logger.addHandler(self.records)
        self._thread.start()
        assert self._started.wait(HANG_SECONDS)

    def stop(self):
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(HANG_SECONDS)
        for logger in (self._logger, logging.getLogger("asyncio")):
            logger.removeHandler(self.records)
        self._logger.setLevel(self._level)
        assert not self._thread.is_alive(), "the broker does not stop"

    def call(self, function, *arguments):
        """Run a function on the broker's loop. That it returns at all shows that the loop is alive."""

        async def run():
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(HANG_SECONDS)

    def tasks(self):
        """The names of what the broker's loop is doing, without this very question."""
        return self.call(
            lambda: {
                task: task.get_coro().__qualname__
                for task in asyncio.all_tasks()
                if task is not asyncio.current_task()
            }
        )

    @property
    def server(self):
        return self.broker.kafka

    async def _main(self):
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        with limited(self._limits):
            async with running_broker(kafka=True, **self._settings) as self.broker:
                self.port = self.broker.kafka_node.port
                self._started.set()
                await self._stopping.wait()


@contextlib.contextmanager
def limited(limits):
    """Brokers that are started in here have these limits of the Kafka interface, which are no settings."""
    original = Settings.kafka_limits
    Settings.kafka_limits = lambda _: KafkaLimits(**limits)
    try:
        yield
    finally:
        Settings.kafka_limits = original


class Siege:
    """A broker in a thread, attacked, with a well-behaved client beside. Leaving it checks what it came through."""

    def __init__(self, limits, settings):
        self._broker = ThreadBroker(limits, settings)
        self._attackers = []
        self.expected_alarms = ()

    def __enter__(self):
        self._broker.start()
        self.port, self.records, self.server = self._broker.port, self._broker.records, self._broker.server
        self.call = self._broker.call
        self._quiet = set(self._broker.tasks())
        self.good = WellBehaved(self.port)
        try:
            self.good.start()
            self.good.prove()
        except BaseException:
            self._broker.stop()
            raise
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self.good.prove()
        finally:
            for attacker in self._attackers:
                attacker.socket.close()
            try:
                self.good.stop()
                if kind is None:
                    self._check_nothing_is_left()
            finally:
                self._broker.stop()
        if kind is None:
            alarms = [
                each for each in self.records.alarming() if not each.startswith(self.expected_alarms or "\0")
            ]
            assert not alarms, alarms[:5]

    def attacker(self, **options):
        wire = Wire(self.port, **options)
        self._attackers.append(wire)
        return wire

    def create_topic(self, name, partitions=1, **configs):
        create_topic(self.port, name, partitions, **configs)

    def now(self):
        """The time of the broker's loop, to be asked on that loop."""
        return asyncio.get_running_loop().time()

    def held_bytes(self):
        return self.call(lambda: self.server._held_bytes)

    def connections(self):
        """Those of the attackers."""
        return self.call(lambda: len(self.server._connections)) - 1

    def served(self, wire):
        """The broker's side of a connection."""
        port = wire.socket.getsockname()[1]

        def find():
            ports = {each._transport.get_extra_info("peername")[1]: each for each in self.server._connections}
            return ports.get(port)

        eventually(lambda: self.call(find), "it is taken in")
        return self.call(find)

    def _check_nothing_is_left(self):
        eventually(lambda: self.connections() == -1, "every connection is gone")
        left = {}

        def is_quiet():
            nonlocal left
            left = {task: name for task, name in self._broker.tasks().items() if task not in self._quiet}
            return not any("Connection" in name for name in left.values())

        with contextlib.suppress(AssertionError):
            eventually(is_quiet, "tasks end", 5)
        assert is_quiet(), sorted(left.values())
        assert self.held_bytes() == 0
        assert not self.call(lambda: self.server._waiting)


# -- a broker whose memory can be measured -----------------------------------------------------------------------------


class ProcessBroker:
    """`millpond serve` in a process of its own."""

    def __init__(self, data_dir, **settings):
        command = [sys.executable, "-m", "millpond", "serve", "--json", "--data-dir", str(data_dir)]
        for name, value in {
            "kafka_listen": "127.0.0.1:0",
            "grpc_listen": "",
            "http_listen": "",
            **settings,
        }.items():
            command += ["--set", f"{name}={value}"]
        self._errors = (Path(data_dir).parent / "stderr").open("w+")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        facts = json.loads(self._process.stdout.readline())
        self.port = int(facts["listeners"]["kafka"].rpartition(":")[2])

    def rss_bytes(self):
        return self._status("VmRSS")

    def peak_rss_bytes(self):
        return self._status("VmHWM")

    def stop(self):
        self._process.terminate()
        code = self._process.wait(HANG_SECONDS)
        self._process.stdout.close()
        self._errors.seek(0)
        log = self._errors.read()
        self._errors.close()
        assert code == 0, log[-2000:]
        return log

    def _status(self, name):
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+) kB", text)[1]) * 1024
