"""`mkfk-server`, `mkfk-producer` and `mkfk-consumer`: the three commands of the MiniKafka project.

Flags have Go's syntax, and settings come from the project's three environment variables. The clients use only
the project's own gRPC service, so they work with any server that implements it.
"""

import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc

from millpond.model.errors import InvalidSettings, MillpondError
from millpond.stubs import minikafka_pb2 as pb

if TYPE_CHECKING:
    from millpond.settings import RenamedSetting, Settings

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
HOST, RETENTION, ROOT_DIR = "MINIKAFKA_HOST", "MINIKAFKA_RETENTIONTIME", "MINIKAFKA_ROOT_DIR"
THIS_MACHINE: Final = "127.0.0.1"
FIRST_NUMBER: Final = 1
POLL_EVERY_S: Final = 3.0
CALL_TIMEOUT_S: Final = 10.0
CHANNEL_OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
MESSAGE_BYTES_MAX: Final = "4MiB"
"""The default limit of a response in gRPC clients: larger messages are not stored, because these clients
could not poll them."""

SERVER_USAGE: Final = f"""\
Usage of mkfk-server: it takes no flags, only the environment.
  {HOST}
        where to listen, for example ":9999" (this machine only)
  {RETENTION}
        how long messages are kept, for example "10s"
  {ROOT_DIR}
        the directory they are kept in; without it they are kept in memory
"""
CLIENT_USAGE: Final = """\
Usage of {name}:
  -host string
        the server, for example localhost:9999
  -topic string
        the topic, for example topic_foo
"""

# -- durations ----------------------------------------------------------------------------------------------------

_SECOND: Final = 10**9
NANOSECONDS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6,
                      "s": _SECOND, "m": 60 * _SECOND, "h": 3_600 * _SECOND, "d": 86_400 * _SECOND}  # fmt: skip
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h|d)")
_DURATION: Final = re.compile(f"\\+?(?:{_PART.pattern})+|\\+?0", re.ASCII)


def parse_go_duration_ms(text: str) -> int:
    """Like Go's time.ParseDuration, plus days. A duration is rounded up to whole milliseconds."""
    if not _DURATION.fullmatch(text):
        raise ValueError("write a duration such as 300ms, 10s, 1h30m or 7d")
    nanoseconds = sum(Decimal(number) * NANOSECONDS[unit] for number, unit in _PART.findall(text))
    return math.ceil(nanoseconds / 10**6)


# -- flags --------------------------------------------------------------------------------------------------------


class UsageError(Exception):
    """The flags are wrong."""


class HelpAsked(Exception):
    """The user asked for help."""


def parse_flags(arguments: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """`-name value`, `-name=value`, and the same with two dashes."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = _flag(rest.pop(0))
        if name in ("h", "help"):
            raise HelpAsked
        if name not in names:
            raise UsageError(f"flag provided but not defined: -{name}")
        if not equals:
            if not rest:
                raise UsageError(f"flag needs an argument: -{name}")
            value = rest.pop(0)
        found[name] = value
    return found


def _flag(word: str) -> tuple[str, str, str]:
    given = word.removeprefix("--") if word.startswith("--") else word.removeprefix("-")
    if given == word or not given or given[0] in "-=":
        raise UsageError(f"unexpected argument: {word}")
    return given.partition("=")


def required(flags: Mapping[str, str], *names: str) -> list[str]:
    for name in names:
        if not flags.get(name):
            raise UsageError(f"flag must be given: -{name}")
    return [flags[name] for name in names]


# -- the server -----------------------------------------------------------------------------------------------------


def server() -> None:
    run_command("mkfk-server", SERVER_USAGE, _server)


def _server(arguments: Sequence[str]) -> None:
    from millpond.cli.serve import run  # imported here, so that the clients do not load the broker's code
    from millpond.cli.variables import warn_of_unknown_variables

    parse_flags(arguments, ())
    warn_of_unknown_variables(os.environ)
    renamed: list[RenamedSetting] = []
    run(settings_from(os.environ, renamed.append), as_json=False, renamed=renamed)


def settings_from(
    environment: Mapping[str, str], on_renamed: "Callable[[RenamedSetting], None]"
) -> "Settings":
    """`MILLPOND_…` variables are used too. Only gRPC is open, unless they open other interfaces."""
    from millpond.settings import load

    listen, retention = _listen(environment), _retention(environment)
    quiet = {
        "MILLPOND_KAFKA_LISTEN": "",
        "MILLPOND_HTTP_LISTEN": "",
        "MILLPOND_MAX_MESSAGE_BYTES": MESSAGE_BYTES_MAX,
    }
    flags = {"grpc_listen": listen, "retention": f"{retention}ms"}
    if environment.get(ROOT_DIR):
        flags["data_dir"] = environment[ROOT_DIR]
    else:
        quiet["MILLPOND_CATALOG"] = "memory://"
        if "MILLPOND_STORE" not in environment:  # the former name, with which this one would be in conflict
            quiet["MILLPOND_STORAGE"] = "memory://"
    settings = load(flags, {**quiet, **environment}, on_renamed=on_renamed)
    try:
        settings.address("grpc")
    except InvalidSettings as error:
        raise _wrong(
            HOST,
            environment[HOST],
            "other machines could reach it and clients do not authenticate. Write :PORT to serve this machine only,"
            " or set MILLPOND_INSECURE=true to allow it",
        ) from error
    return settings


def _listen(environment: Mapping[str, str]) -> str:
    given = _must_be_set(environment, HOST, "where to listen", ":9999")
    host, colon, port = given.rpartition(":")
    if not (colon and port.isdecimal() and int(port) < 2**16):
        raise _wrong(HOST, given, "write where to listen as host:port or :port, for example :9999")
    return f"{host or THIS_MACHINE}:{port}"


def _retention(environment: Mapping[str, str]) -> int:
    given = _must_be_set(environment, RETENTION, "how long messages are kept", "10s")
    try:
        return parse_go_duration_ms(given)
    except ValueError as error:
        raise _wrong(RETENTION, given, str(error)) from error


def _must_be_set(environment: Mapping[str, str], name: str, meaning: str, example: str) -> str:
    given = environment.get(name, "")
    if not given:
        raise InvalidSettings(f'{name} is not set. Say {meaning}, for example: export {name}="{example}"')
    return given


def _wrong(name: str, value: str, reason: str) -> InvalidSettings:
    return InvalidSettings(f"{name} cannot be {value!r}: {reason}.")


# -- the clients ----------------------------------------------------------------------------------------------------


class MiniKafkaTopic:
    """One topic of a MiniKafka server."""

    def __init__(self, channel: grpc.Channel, topic: str) -> None:
        self._topic = topic
        self._produce = channel.unary_unary(
            "/protocol.MiniKafka/Produce", pb.ProduceRequest.SerializeToString, pb.MsgNumber.FromString
        )
        self._poll = channel.unary_unary(
            "/protocol.MiniKafka/Poll", pb.PollRequest.SerializeToString, pb.PollResponse.FromString
        )

    def produce(self, payload: bytes) -> int:
        """Send the message and return its number."""
        request = pb.ProduceRequest(topic=pb.Topic(topic=self._topic), payload=pb.Payload(payload=payload))
        answer: pb.MsgNumber = self._produce(request, timeout=CALL_TIMEOUT_S, wait_for_ready=True)
        return answer.msg_number

    def poll(self, read_from: int) -> tuple[list[bytes], int]:
        """The messages from this number on, and the number to continue from."""
        request = pb.PollRequest(topic=self._topic, read_from=pb.MsgNumber(msg_number=read_from))
        answer: pb.PollResponse = self._poll(request, timeout=CALL_TIMEOUT_S)
        return [each.payload for each in answer.payloads], answer.new_read_from.msg_number


@contextmanager
def connected(host: str, topic: str) -> Iterator[MiniKafkaTopic]:
    address = f"localhost{host}" if host.startswith(":") else host
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        yield MiniKafkaTopic(channel, topic)


def producer() -> None:
    run_command("mkfk-producer", CLIENT_USAGE.format(name="mkfk-producer"), _producer)


def _producer(arguments: Sequence[str]) -> None:
    """Send each line of stdin as a message."""
    signal.signal(signal.SIGINT, _leave)
    host, topic = required(parse_flags(arguments, ("host", "topic")), "host", "topic")
    with connected(host, topic) as client:
        for line in sys.stdin.buffer:
            try:
                number = client.produce(line.removesuffix(b"\n"))
            except grpc.RpcError as error:
                _end(f"mkfk-producer: {explained(error, host)}", EXIT_FAILED)
            print_line(f"sent message {number}")


def consumer() -> None:
    run_command("mkfk-consumer", CLIENT_USAGE.format(name="mkfk-consumer"), _consumer)


def _consumer(arguments: Sequence[str]) -> None:
    """Runs forever: a missing server or topic may still appear."""
    signal.signal(signal.SIGINT, _leave)
    host, topic = required(parse_flags(arguments, ("host", "topic")), "host", "topic")
    read_from = FIRST_NUMBER
    with connected(host, topic) as client:
        while True:
            try:
                payloads, read_from = client.poll(read_from)
                print_polled(payloads, read_from)
            except grpc.RpcError as error:
                print_line(f"got nothing: {explained(error, host)}")
            time.sleep(POLL_EVERY_S)


def print_polled(payloads: Sequence[bytes], read_from: int) -> None:
    what = f"{len(payloads)} message{'s' * (len(payloads) != 1)}" if payloads else "nothing"
    print_line(f"got {what}, reading on from {read_from}")
    for payload in payloads:
        print_line(f"  {payload.decode(errors='backslashreplace')}")


def explained(error: Any, host: str) -> str:
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return f"no server answers at {host} (is mkfk-server running there?)"
    return f"{error.details() or error.code().name}"


# -- all three ------------------------------------------------------------------------------------------------------


def run_command(name: str, usage: str, command: Callable[[Sequence[str]], None]) -> None:
    try:
        command(sys.argv[1:])
    except HelpAsked:
        print_line(usage.rstrip())
    except UsageError as error:
        _end(f"{error}\n{usage.rstrip()}", EXIT_USAGE)
    except MillpondError as error:
        _end(f"{name}: {error}", EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_line(text: str) -> None:
    print(text, flush=True)


def _leave(number: int, frame: object) -> NoReturn:
    """Exit immediately: a client has nothing to clean up, and an interrupted gRPC call may keep its channel
    from closing."""
    os._exit(128 + number)


def _end(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(code)
