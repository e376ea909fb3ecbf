"""`mkfk-server`, `mkfk-producer`, `mkfk-consumer`: S10 and S11, as processes and as somebody would type them."""

import signal
import socket
import subprocess
from concurrent import futures

import grpc
import pytest
from tests.ports import free_port
from tests.seeds.minikafka import MiniKafka, refusal
from tests.seeds.processes import PATIENCE_SECONDS, PROGRAMS, Talker, environment, eventually

from millpond.cli.minikafka import parse_go_duration_ms

SERVER, PRODUCER, CONSUMER = (str(PROGRAMS / f"mkfk-{name}") for name in ("server", "producer", "consumer"))


def done(*command, text="", **variables):
    return subprocess.run(
        command,
        input=text,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def mkfk_server(port, tmp_path):
    """Starts mkfk-server with the seeds' three variables, of which a test may change some; waits until it is ready."""
    started = []

    def start(**variables):
        given = {
            "MINIKAFKA_HOST": f":{port}",
            "MINIKAFKA_RETENTIONTIME": "10s",
            "MINIKAFKA_ROOT_DIR": str(tmp_path / "minikafka"),
            **variables,
        }
        server = Talker(SERVER, **{name: value for name, value in given.items() if value is not None})
        started.append(server)
        server.hear("is ready")
        server.hear("http  ")
        return server

    yield start
    for server in started:
        server.__exit__()


def on(port, topic="topic_foo"):
    return ("-host", f"localhost:{port}", "-topic", topic)


# -- S10: the three commands ---------------------------------------------------------------------------------------


def test_s10_each_line_of_the_producers_input_is_a_message(mkfk_server, port, kinds):
    mkfk_server()
    sent = done(PRODUCER, *on(port), text="one\ntwo\n\nlast without a newline")
    assert (sent.returncode, sent.stderr) == (0, "")
    assert sent.stdout.splitlines() == [f"sent message {number}" for number in (1, 2, 3, 4)]
    with MiniKafka(f"localhost:{port}", kinds) as mini:
        assert mini.poll("topic_foo", 1) == ([b"one", b"two", b"", b"last without a newline"], 5)


def test_s10_the_producer_answers_line_by_line_and_ends_with_its_input(mkfk_server, port):
    mkfk_server()
    with Talker(PRODUCER, *on(port), stdin=subprocess.PIPE) as producer:
        for number in (1, 2):
            producer.enter("a line\n")
            producer.hear(f"sent message {number}")
        producer.end_of_input()
        assert producer.wait() == 0


def test_s10_a_producer_started_before_its_server_waits_a_while(mkfk_server, port):
    with Talker(PRODUCER, *on(port), stdin=subprocess.PIPE) as producer:
        producer.enter("early\n")
        eventually(lambda: is_connecting(port), "it tries to connect")
        mkfk_server()
        producer.hear("sent message 1")


def is_connecting(port):
    """Stand in for the server for one connection, which is then lost."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(PATIENCE_SECONDS)
        listener.accept()[0].close()
        return True


def test_s10_a_producer_without_a_server_says_so(port):
    alone = done(PRODUCER, *on(port), text="x\n")
    assert (alone.returncode, alone.stdout) == (1, "")
    assert alone.stderr == (
        f"mkfk-producer: no server answers at localhost:{port} (is mkfk-server running there?)\n"
    )


def test_s10_the_consumer_tells_what_it_got_and_goes_on(mkfk_server, port):
    mkfk_server()
    done(PRODUCER, *on(port), text="one\ntwo\n")
    with Talker(CONSUMER, *on(port)) as consumer:
        consumer.hear("got 2 messages, reading on from 3")
        consumer.hear("two")
        consumer.hear("got nothing, reading on from 3")
        done(PRODUCER, *on(port), text="three\n")
        consumer.hear("got 1 message, reading on from 4")
        consumer.hear("three")
        assert [each.strip() for each in consumer.lines if not each.startswith("got")] == [
            "one",
            "two",
            "three",
        ]
        consumer.signal(signal.SIGINT)
        assert consumer.wait() == 128 + signal.SIGINT
    assert not any("Traceback" in line for line in consumer.lines)


def test_s10_a_consumer_started_before_server_and_producer_waits(mkfk_server, port):
    with Talker(CONSUMER, *on(port)) as consumer:
        consumer.hear(f"got nothing: no server answers at localhost:{port}")
        server = mkfk_server()
        consumer.hear("got nothing: There is no topic 'topic_foo'")
        done(PRODUCER, *on(port), text="at last\n")
        consumer.hear("at last")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        seen = len(consumer.lines)
        eventually(
            lambda: any("no server answers" in line for line in consumer.lines[seen:]), "it waits again"
        )
        mkfk_server()
        done(PRODUCER, *on(port), text="and again\n")
        consumer.hear("and again")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_s10_the_server_drains_when_it_is_told_to_stop(mkfk_server, port, number):
    server = mkfk_server()
    done(PRODUCER, *on(port), text="kept\n")
    server.signal(number)
    assert server.wait() == 0
    assert server.lines[-1] == "stopped"
    mkfk_server(MINIKAFKA_RETENTIONTIME="7d")
    assert done(PRODUCER, *on(port), text="next\n").stdout == "sent message 2\n"


class OtherServer(grpc.GenericRpcHandler):
    """A MiniKafka server that is not ours: the smallest there can be, on the schema's messages alone."""

    def __init__(self, kinds):
        self._kinds, self._kept = kinds, []

    def service(self, call):
        handlers = {
            "/protocol.MiniKafka/Produce": (self._produce, "protocol.ProduceRequest"),
            "/protocol.MiniKafka/Poll": (self._poll, "protocol.PollRequest"),
        }
        answer, request = handlers[call.method]
        return grpc.unary_unary_rpc_method_handler(
            answer, self._kinds[request].FromString, lambda response: response.SerializeToString()
        )

    def _produce(self, request, _):
        self._kept.append(request.payload.payload)
        return self._kinds["protocol.MsgNumber"](msg_number=len(self._kept))

    def _poll(self, request, _):
        response = self._kinds["protocol.PollResponse"]()
        for payload in self._kept[request.read_from.msg_number - 1 :]:
            response.payloads.add(payload=payload)
        response.new_read_from.msg_number = len(self._kept) + 1
        return response


def test_s10_the_clients_work_with_any_minikafka_server(kinds):
    other = grpc.server(futures.ThreadPoolExecutor(2), handlers=[OtherServer(kinds)])
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    try:
        assert done(PRODUCER, *on(port), text="a\nb\n").stdout == "sent message 1\nsent message 2\n"
        with Talker(CONSUMER, *on(port)) as consumer:
            consumer.hear("got 2 messages, reading on from 3")
    finally:
        other.stop(None).wait()


def test_s10_a_message_that_is_refused_is_told(mkfk_server, port):
    mkfk_server()
    refused = done(PRODUCER, *on(port, topic="no/good"), text="x\n")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "mkfk-producer: Topic name 'no/good' is not valid" in refused.stderr


def test_s10_what_is_too_large_to_be_polled_is_not_taken(mkfk_server, port, kinds):
    """With the limits that gRPC has by itself: what is stored can be polled."""
    mkfk_server()
    with MiniKafka(f"localhost:{port}", kinds) as mini:
        largest = bytes(4 * 1024 * 1024 - 100)
        assert mini.produce("topic", largest) == 1
        assert mini.poll("topic", 1) == ([largest], 2)
        refused = refusal(lambda: mini.produce("topic", bytes(4 * 1024 * 1024)))
        assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "larger than the limit" in refused.details()


# -- flags as Go's programs take them -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        ("-host", "localhost:{}", "-topic", "t"),
        ("-host=localhost:{}", "-topic=t"),
        ("--topic", "t", "--host", "localhost:{}"),
        ("-topic=t", "--host=:{}"),
    ],
    ids=["one dash", "with =", "two dashes", "mixed, without a host name"],
)
def test_s10_flags_may_be_written_in_every_way_of_go(mkfk_server, port, flags):
    mkfk_server()
    given = [flag.format(port) for flag in flags]
    assert done(PRODUCER, *given, text="x\n").stdout == "sent message 1\n"


@pytest.mark.parametrize("flag", ["-h", "-help", "--help"])
@pytest.mark.parametrize("program", [SERVER, PRODUCER, CONSUMER])
def test_s10_help_is_the_usage(program, flag):
    asked = done(program, flag)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.startswith("Usage of mkfk-")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("-wrong", "x"), "flag provided but not defined: -wrong"),
        (("-host",), "flag needs an argument: -host"),
        (("-host", "localhost:1"), "flag must be given: -topic"),
        (("topic_foo",), "unexpected argument: topic_foo"),
        (("---host", "x"), "unexpected argument: ---host"),
    ],
)
@pytest.mark.parametrize("program", [PRODUCER, CONSUMER])
def test_s10_a_wrong_flag_is_told_with_the_usage(program, flags, told):
    refused = done(program, *flags)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.splitlines()[0] == told
    assert "Usage of mkfk-" in refused.stderr


# -- S11: the environment ---------------------------------------------------------------------------------------------


def test_s11_without_a_directory_nothing_is_kept(mkfk_server, port):
    for _ in range(2):
        server = mkfk_server(MINIKAFKA_ROOT_DIR=None)
        assert done(PRODUCER, *on(port), text="x\n").stdout == "sent message 1\n"
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_s11_with_a_directory_everything_is(mkfk_server, port, tmp_path):
    for number in (1, 2):
        server = mkfk_server()
        assert done(PRODUCER, *on(port), text="x\n").stdout == f"sent message {number}\n"
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    assert (tmp_path / "minikafka" / "catalog.db").exists()


def test_s11_messages_live_as_long_as_the_variable_says(mkfk_server, port, kinds):
    mkfk_server(MINIKAFKA_RETENTIONTIME="300ms")
    done(PRODUCER, *on(port), text="short-lived\n")
    with MiniKafka(f"localhost:{port}", kinds) as mini:
        eventually(lambda: mini.poll("topic_foo", 1) == ([], 1), "it has expired")


def test_s11_only_grpc_is_opened_unless_more_is_asked_for(mkfk_server, port):
    server = mkfk_server()
    interfaces = dict(line.split() for line in server.lines if line.split()[0] in ("kafka", "grpc", "http"))
    assert interfaces == {"kafka": "off", "grpc": f"127.0.0.1:{port}", "http": "off"}
    server.signal(signal.SIGTERM)
    server.wait()
    other = free_port()
    server = mkfk_server(MILLPOND_KAFKA_LISTEN=f"127.0.0.1:{other}")
    assert server.hear("kafka  ").split() == ["kafka", f"127.0.0.1:{other}"]


@pytest.mark.parametrize(("variable", "warnings"), [("MILLPOND_STORAGE", 0), ("MILLPOND_STORE", 1)])
def test_s11_without_a_directory_another_store_may_be_named(mkfk_server, port, tmp_path, variable, warnings):
    url = (tmp_path / "objects").as_uri()
    server = mkfk_server(MINIKAFKA_ROOT_DIR=None, **{variable: url})
    assert server.hear("storage  ").split() == ["storage", url]
    assert done(PRODUCER, *on(port), text="x\n").stdout == "sent message 1\n"
    deprecated = [line for line in server.lines if "deprecated setting used" in line]
    assert len(deprecated) == warnings
    assert not any("is unknown" in line for line in server.lines)


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"MINIKAFKA_HOST": None}, ["MINIKAFKA_HOST is not set", 'MINIKAFKA_HOST=":9999"']),
        ({"MINIKAFKA_HOST": ""}, ["MINIKAFKA_HOST is not set"]),
        ({"MINIKAFKA_HOST": "9999"}, ["MINIKAFKA_HOST", "'9999'", "host:port or :port"]),
        ({"MINIKAFKA_HOST": ":port"}, ["MINIKAFKA_HOST", "':port'", "host:port or :port"]),
        ({"MINIKAFKA_HOST": ":99999"}, ["MINIKAFKA_HOST", "host:port or :port"]),
        ({"MINIKAFKA_HOST": "0.0.0.0:9999"}, ["MINIKAFKA_HOST", "MILLPOND_INSECURE=true"]),
        ({"MINIKAFKA_RETENTIONTIME": None}, ["MINIKAFKA_RETENTIONTIME is not set", '"10s"']),
        ({"MINIKAFKA_RETENTIONTIME": "10"}, ["MINIKAFKA_RETENTIONTIME", "'10'", "10s, 1h30m"]),
        ({"MINIKAFKA_RETENTIONTIME": "-10s"}, ["MINIKAFKA_RETENTIONTIME", "'-10s'", "10s, 1h30m"]),
        ({"MINIKAFKA_RETENTIONTIME": "soon"}, ["MINIKAFKA_RETENTIONTIME", "'soon'"]),
    ],
    ids=str,
)
def test_s11_what_is_missing_or_wrong_is_told_at_start(variables, told):
    given = {"MINIKAFKA_HOST": ":9999", "MINIKAFKA_RETENTIONTIME": "10s", **variables}
    refused = done(SERVER, **{name: value for name, value in given.items() if value is not None})
    assert (refused.returncode, refused.stdout) == (1, "")
    [line] = refused.stderr.splitlines()
    assert line.startswith("mkfk-server: ")
    assert [words for words in told if words not in line] == []


def test_s11_beyond_this_machine_only_if_that_is_said(mkfk_server, port):
    server = mkfk_server(MINIKAFKA_HOST=f"0.0.0.0:{port}", MILLPOND_INSECURE="true")
    assert server.hear("grpc  ").split() == ["grpc", f"0.0.0.0:{port}"]
    assert done(PRODUCER, *on(port), text="x\n").stdout == "sent message 1\n"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("10s", 10_000),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("300ms", 300),
        ("500us", 1),
        ("1500µs", 2),
        ("1ns", 1),
        (".5s", 500),
        ("1.s", 1_000),
        ("+2m0.5s", 120_500),
        ("7d", 604_800_000),
        ("1.1s", 1_100),
        ("0", 0),
        ("0s", 0),
    ],
)
def test_s11_durations_are_read_as_go_reads_them(text, milliseconds):
    assert parse_go_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "10", "s", "10 s", "-1s", "1e3s", "10S", "1s,5m", "\u0661s", ".s", "10sec"]
)
def test_s11_other_durations_are_refused(text):
    with pytest.raises(ValueError, match="write a duration such as"):
        parse_go_duration_ms(text)
