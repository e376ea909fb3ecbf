"""A broker for real clients. `MILLPOND_PEERS_TARGET=kafka` runs the same tests on Apache Kafka, which shows that a test
asks for what Kafka does; the default is Millpond, as a process of its own."""

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from peers.server import Server
from tests.peers.support import available

from peers import clients, connect, kafka, programs

TARGET = os.environ.get("MILLPOND_PEERS_TARGET", clients.TARGET)
STOP_SECONDS_MAX = 30
VERSIONS = {
    "kcat": programs.KCAT,
    "kafkajs": programs.KAFKAJS,
    "franz-go": programs.FRANZ_GO,
    "gRPC for Node.js": programs.NODE_GRPC,
    "Spark's Kafka connector": programs.PYSPARK,
    "Kafka Streams": kafka.VERSION,
    "Kafka Connect": connect.VERSION,
    "Debezium (PostgreSQL)": connect.DEBEZIUM,
    "FastStream": programs.FASTSTREAM,
    "Quix Streams": programs.QUIX_STREAMS,
    "Faust (faust-streaming)": programs.FAUST,
    "Flink's Kafka connector": f"{programs.FLINK_KAFKA} (Flink {programs.FLINK})",
    "MirrorMaker 2": connect.VERSION,
}
HEARTBEAT_MS = 500
"""Of members of the consumer protocol and of share groups, which learn it from the broker."""
HEARTBEATS = tuple(
    name
    for kind in ("consumer", "share")
    for name in (f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.min.heartbeat.interval.ms")
)
LOCK_MS_MIN = 1_000
"""Of members of share groups. The groups of tests say which they have."""
KAFKA_SETTINGS = {
    **dict.fromkeys(HEARTBEATS, str(HEARTBEAT_MS)),
    "group.share.min.record.lock.duration.ms": str(LOCK_MS_MIN),
}
MILLPOND_SETTINGS = (
    *(
        f"group_{kind}_heartbeat_interval{bound}={HEARTBEAT_MS}ms"
        for kind in ("consumer", "share")
        for bound in ("", "_min")
    ),
    f"group_share_record_lock_duration_min={LOCK_MS_MIN}ms",
)
COUNTS = "counts"
OUTCOMES = pytest.StashKey[list[clients.Outcome]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "client(name, capability): what a test shows a client to do")
    config.stash[OUTCOMES] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    mark = item.get_closest_marker("client")
    decided = report.when == "call" or report.outcome != "passed"
    if mark is not None and decided and report.when != "teardown":
        item.config.stash[OUTCOMES].append(_outcome(item, mark, report))
    return report


def _outcome(item: pytest.Item, mark: pytest.Mark, report: pytest.TestReport) -> clients.Outcome:
    client, capability = mark.args
    version = item.funcargs.get("version", VERSIONS.get(client, ""))
    counts = "; ".join(str(value) for name, value in report.user_properties if name == COUNTS)
    today = datetime.now(UTC).date().isoformat()
    return clients.Outcome(client, version, capability, report.outcome, _reason(report), counts, today)


def _reason(report: pytest.TestReport) -> str:
    if report.outcome != "skipped" or not isinstance(report.longrepr, tuple):
        return ""
    return report.longrepr[2].removeprefix("Skipped: ").rstrip(".")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if outcomes := session.config.stash[OUTCOMES]:
        clients.save_results(TARGET, worst(outcomes))


def worst(outcomes: list[clients.Outcome]) -> list[clients.Outcome]:
    """One per capability: of a test with several parameters, that which went worst."""
    order = ("failed", "skipped", "passed")
    return sorted(outcomes, key=lambda each: order.index(each.outcome), reverse=True)


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where clients find the broker that is tested."""
    folder = tmp_path_factory.mktemp(TARGET)
    if TARGET == "kafka":
        with kafka_server(folder, KAFKA_SETTINGS) as address:
            yield address
        return
    with millpond_server(folder, *MILLPOND_SETTINGS) as address:
        yield address


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apache Kafka, to compare with."""
    with kafka_server(tmp_path_factory.mktemp("kafka"), KAFKA_SETTINGS) as address:
        yield address


@contextmanager
def kafka_server(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        server: Server = available(lambda: stack.enter_context(kafka.running(folder, settings)))
        yield server.address


@contextmanager
def millpond_server(folder: Path, *settings: str) -> Iterator[str]:
    """A broker process with a Kafka listener on a free port; its log is in `folder`."""
    with (folder / "millpond.log").open("w") as log:
        process = subprocess.Popen(
            serve_command(folder, *settings), stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert process.stdout is not None
            yield kafka_address(process.stdout.readline(), folder)
        finally:
            process.terminate()
            process.communicate(timeout=STOP_SECONDS_MAX)


def serve_command(folder: Path, *settings: str) -> list[str]:
    program = str(Path(sys.executable).with_name("millpond"))
    only_kafka = ("kafka_listen=127.0.0.1:0", "grpc_listen=", "http_listen=")
    given = [part for each in (*only_kafka, *settings) for part in ("--set", each)]
    return [program, "serve", "--data-dir", str(folder / "data"), "--json", *given]


def kafka_address(announcement: str, folder: Path) -> str:
    """From the first line of `serve --json`."""
    try:
        listeners = json.loads(announcement)["listeners"]
    except (ValueError, KeyError):
        pytest.fail(f"the broker did not start: {(folder / 'millpond.log').read_text()[-2000:]}")
    found = listeners.get("kafka") if isinstance(listeners, dict) else next(iter(listeners), None)
    if not found:
        pytest.skip("this broker has no Kafka listener")
    return str(found["address"] if isinstance(found, dict) else found).rpartition("://")[2]


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """What the names of a test's topics and groups begin with."""
    stem = request.node.originalname.removeprefix("test_").replace("_", "-")
    return f"{stem[:60]}-{secrets.token_hex(3)}"


@pytest.fixture
def counted(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None], figures: list[str]
) -> Callable[[str], None]:
    """Records how much a test checked, for the run's figures and docs/reference/clients.md."""
    mark = request.node.get_closest_marker("client")
    name = mark.args[0] if mark is not None else request.node.name

    def record(counts: str) -> None:
        record_property(COUNTS, counts)
        figures.append(f"{name}: {counts}")

    return record
