"""The lines of the seeds' documents that other people's programs run: Go's and pnpm's, as typed (`docs/seeds.md`)."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from peers.home import program, run
from tests.peers.support import available
from tests.ports import free_port
from tests.seeds.processes import PATIENCE_SECONDS, PROGRAMS, environment, eventually
from tests.seeds.test_documents import LOCAL_KAFKA, MINIKAFKA

from peers import programs

pytestmark = pytest.mark.peers

ROOT = Path(__file__).parents[2]
GET_GRPC, GET_MINIKAFKA = MINIKAFKA[:2]
CREATE = LOCAL_KAFKA[0]


# -- Go -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path):
    """A folder of Go's, where somebody may type."""

    def type_line(line: str) -> str:
        run(f"`{line}`", line.split(), folder=tmp_path)
        return (tmp_path / "go.mod").read_text()

    available(lambda: program("go", "The document's first line"))
    type_line("go mod init example.com/seeds")
    return type_line


def test_s10_go_gets_grpc(module):
    assert re.search(r"google\.golang\.org/grpc v\d", available(lambda: module(GET_GRPC)))


def test_s10_go_gets_minikafka(module):
    """Only what Go's registry gives is got; when it gives nothing, its own words say so."""
    available(lambda: module(GET_GRPC))
    assert re.search(r"github\.com/peterhoward42/minikafka v\d", available(lambda: module(GET_MINIKAFKA)))


# -- pnpm -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """What a clone would have, with an environment that counts as installed: it runs the programs of this one."""
    folder = tmp_path_factory.mktemp("clone")
    for name in project_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(PROGRAMS)
    (folder / ".venv" / ".ready").touch()
    return folder


def project_files() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("this is not a git checkout")
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


class Shell:
    """Where somebody types pnpm's lines: in the clone, with ports of their own."""

    def __init__(self, folder: Path, pnpm: Path) -> None:
        self._folder = folder
        self.port = free_port()
        listening = {
            f"MILLPOND_{interface}_LISTEN": f"127.0.0.1:{free_port()}" for interface in ("KAFKA", "GRPC")
        }
        self._environment = environment(**listening, MILLPOND_HTTP_LISTEN=f"127.0.0.1:{self.port}", CI="1")
        self._environment["PATH"] = f"{pnpm}{os.pathsep}{self._environment['PATH']}"

    def type_line(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    @contextlib.contextmanager
    def running(self, line: str):
        """The line is at work; Ctrl-C, which reaches everything that it started, ends it."""
        log = self._folder / "output"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["sh", "-c", f"exec {line}"],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield log
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(PATIENCE_SECONDS)
            eventually(lambda: group_is_empty(process.pid), "everything has ended")


def group_is_empty(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def shell(checkout):
    shutil.rmtree(checkout / "millpond-data", ignore_errors=True)
    return Shell(checkout, available(programs.pnpm))


def test_s25_pnpm_installs(shell, checkout):
    done = shell.type_line("pnpm install")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "make install" in done.stdout
    ignored = ["git", "check-ignore", "node_modules", "pnpm-lock.yaml"]
    assert subprocess.run(ignored, cwd=ROOT, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("line", ["pnpm run start", "pnpm run start:dev", "pnpm run start:prod"])
def test_s16_pnpm_starts_a_broker_that_takes_the_documents_line(shell, line):
    assert line in LOCAL_KAFKA
    with shell.running(line) as log:
        eventually(lambda: "is ready" in log.read_text(), "the broker is ready")
        typed = CREATE.replace(":8000/", f":{shell.port}/").replace("curl ", "curl -sS --noproxy '*' ")
        done = shell.type_line(typed)
    assert done.returncode == 0, done.stderr
    assert '"partitions":100' in done.stdout.replace(" ", "")


def test_s25_watch_mode_starts_the_broker_again(shell, checkout):
    with shell.running("pnpm run start:dev") as log:
        eventually(lambda: "is ready" in log.read_text(), "the broker is ready")
        (checkout / "src" / "millpond" / "version.py").touch()
        eventually(lambda: log.read_text().count("is ready") == 2, "it was started again")


@pytest.mark.parametrize(
    ("line", "target"),
    [("pnpm run test", "test"), ("pnpm run test:e2e", "test-peers"), ("pnpm run test:cov", "coverage")],
)
def test_s25_pnpm_tests_with_make(shell, line, target):
    """Make says what it would do: these tests are among what it would run."""
    assert line in LOCAL_KAFKA
    done = shell.type_line(f"MAKEFLAGS=n {line}")
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True)
    assert wanted.stdout.splitlines()[-1] in done.stdout
