"""A broker under attack through its gRPC port: a client that behaves itself beside it, and what must be true after.

The broker is a process of its own, so that its memory and all it says can be looked at.
"""

import contextlib
import re
import threading
import time
from pathlib import Path

import grpc
from google.protobuf import message_factory
from tests.seeds.processes import Server

from millpond.frontends.rpc.server import SERVICES
from millpond.stubs import admin_pb2, log_pb2, minikafka_pb2

HANG_SECONDS = 30.0
"""No answer after so long is no answer. Nothing is measured by it."""
LOOK_SECONDS = 0.02
GOOD_TOPIC = "well-behaved"
ALARMS = ("Traceback", "unexpected error", "never retrieved", "never awaited", "Unexpected")
UNFORESEEN = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
METHODS = {f"{service.name}.{method.name}": method for service in SERVICES for method in service.methods}


def eventually(is_true, what, seconds=HANG_SECONDS):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(LOOK_SECONDS)


def request_of(name):
    return message_factory.GetMessageClass(METHODS[name].input_type)


def path_of(name):
    method = METHODS[name]
    return f"/{method.containing_service.full_name}/{method.name}"


class Attacker:
    """Calls of any method with any bytes; what comes back is a status, and the answers' bytes."""

    def __init__(self, address, options=()):
        self.channel = grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1), *options]
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def ask(self, name, data, *, seconds=HANG_SECONDS):
        """(status, answers). One that may rightly not end is given fewer seconds."""
        method = METHODS[name]
        try:
            if method.client_streaming and not method.server_streaming:
                return grpc.StatusCode.OK, [self.call("stream_unary", name)(iter([data]), timeout=seconds)]
            if not method.server_streaming:
                return grpc.StatusCode.OK, [self.call("unary_unary", name)(data, timeout=seconds)]
            if method.client_streaming:
                answers = self.call("stream_stream", name)(iter([data]), timeout=seconds)
            else:
                answers = self.call("unary_stream", name)(data, timeout=seconds)
            return grpc.StatusCode.OK, list(answers)
        except grpc.RpcError as error:
            if error.code() in UNFORESEEN:
                raise AssertionError(f"{name}: {error.code()} {error.details()}") from error
            return error.code(), []

    def call(self, kind, name):
        return getattr(self.channel, kind)(path_of(name), None, None)


class WellBehaved:
    """Produces a value through one service or the other, polls it back, and again, for as long as the attack lasts."""

    def __init__(self, address):
        self._attacker = Attacker(address)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="well-behaved client", daemon=True)
        self._error = None
        self.acknowledged = []
        self.worst_ms = 0.0

    def start(self):
        self._thread.start()

    def prove(self):
        """It is being served now: two whole rounds from here on."""
        wanted = len(self.acknowledged) + 2
        eventually(
            lambda: self._error or len(self.acknowledged) >= wanted, "the well-behaved client is answered"
        )
        if self._error is not None:
            raise self._error

    def stop(self):
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def check_all_is_there(self):
        position, found = 1, []
        while values := self._poll(position):
            found += values
            position += len(values)
        assert found == self.acknowledged
        self._attacker.channel.close()

    def _run(self):
        try:
            while not self._stopping.is_set():
                self._round()
        except BaseException as error:  # noqa: BLE001  # raised again where the test sees it
            self._error = error

    def _round(self):
        started, number = time.perf_counter(), len(self.acknowledged) + 1
        value = b"round %d" % number
        assert (self._produce_mini if number % 2 else self._produce)(value) == number
        assert self._poll(number) == [value]
        self.worst_ms = max(self.worst_ms, (time.perf_counter() - started) * 1000)
        self.acknowledged.append(value)
        time.sleep(0.001)  # it leaves the processor to others, as it waits for nothing else

    def _produce(self, value):
        request = log_pb2.ProduceRequest(topic=GOOD_TOPIC, messages=[log_pb2.NewMessage(value=value)])
        return log_pb2.ProduceResponse.FromString(self._answer("Log.Produce", request)).numbers[0]

    def _produce_mini(self, value):
        request = minikafka_pb2.ProduceRequest(topic={"topic": GOOD_TOPIC}, payload={"payload": value})
        return minikafka_pb2.MsgNumber.FromString(self._answer("MiniKafka.Produce", request)).msg_number

    def _poll(self, position):
        request = log_pb2.PollRequest(topic=GOOD_TOPIC, positions=[log_pb2.Position(read_from=position)])
        answer = log_pb2.PollResponse.FromString(self._answer("Log.Poll", request))
        return [message.value for message in answer.messages]

    def _answer(self, name, request):
        status, answers = self._attacker.ask(name, request.SerializeToString())
        assert status is grpc.StatusCode.OK, (name, status)
        return answers[0]


class Siege:
    """A broker with a well-behaved client beside. Leaving it checks what they came through."""

    def __init__(self, folder, **settings):
        self._server = Server(folder, kafka_listen="", http_listen="", **settings)

    def __enter__(self):
        self._server.start()
        self.address = self._server.grpc
        self.host, _, port = self.address.rpartition(":")
        self.port = int(port)
        self.good = WellBehaved(self.address)
        self._attackers = []
        try:
            self.good.start()
            self.good.prove()
        except BaseException:
            self._server.kill()
            raise
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self.good.prove()
            with contextlib.suppress(BaseException if kind is not None else ()):
                self.good.stop()
            for attacker in self._attackers:
                attacker.channel.close()
            if kind is None:
                self.good.check_all_is_there()
                assert not self.alarms(), self.alarms()
        finally:
            if kind is None:
                self._server.stop()
            else:
                self._server.kill()
        if kind is None:
            assert not self.alarms(), self.alarms()

    def attacker(self, *options):
        self._attackers.append(attacker := Attacker(self.address, options))
        return attacker

    def alarms(self):
        return [line for line in self._server.log().splitlines() if any(word in line for word in ALARMS)]

    def rss_bytes(self):
        return self._status("VmRSS")

    def peak_rss_bytes(self):
        return self._status("VmHWM")

    def _status(self, name):
        text = Path(f"/proc/{self._server.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+) kB", text)[1]) * 1024

    def create_topic(self, name, partitions=1, **configs):
        named = {key.replace("_", "."): value for key, value in configs.items()}
        request = admin_pb2.CreateTopicRequest(name=name, partitions=partitions, configs=named)
        with Attacker(self.address) as client:
            assert client.ask("Admin.CreateTopic", request.SerializeToString())[0] is grpc.StatusCode.OK
