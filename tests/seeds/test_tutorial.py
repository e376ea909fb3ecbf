"""Every command and program of `docs/tutorial.md` runs as it stands, in the order of the page, and prints what it says.

As it stands apart from the ports and the directory, so that tests can run side by side. The last section needs Spark:
`tests/spark/test_tutorial.py` runs it in the session that all Spark tests share.
"""

import contextlib
import signal
import subprocess
import sys

import pytest
from tests.ports import free_address
from tests.seeds.processes import Talker, environment, eventually
from tests.tutorial import sections

STEP_SECONDS_MAX = 180.0
"""No output after this long is a hang. Nothing is measured by it."""
SERVE, STOP, SPARK = (
    "1. Start a broker",
    "9. Stop the broker, start it again",
    "10. Query the topic as a table (optional)",
)


class Reader:
    """Two terminals in one directory: a broker in the first, commands in the second."""

    def __init__(self, folder):
        self._folder = folder
        self._addresses = {name: free_address() for name in ("kafka", "grpc", "http")}
        listeners = {f"MILLPOND_{name.upper()}_LISTEN": each for name, each in self._addresses.items()}
        self._variables = {
            **listeners,
            "MILLPOND_ADDRESS": self._addresses["grpc"],
            "MILLPOND_DISK_RESERVE": "1MiB",
            "MILLPOND_GROUP_INITIAL_REBALANCE_DELAY": "0ms",
        }

    @contextlib.contextmanager
    def serving(self, command):
        with Talker("sh", "-c", f"cd '{self._folder}' && exec {command}", **self._variables) as server:
            server.hear("is ready")
            yield
            server.signal(signal.SIGINT)
            assert server.wait() == 0, server.lines

    def run(self, step):
        """What it prints. Commands that only look are repeated until they show what the page shows."""
        if "describe" not in step.code:
            return self._run_once(step)
        return eventually(
            lambda: step.matches(output := self._run_once(step)) and output, f"{step.code}{step.printed}"
        )

    def _run_once(self, step):
        code = step.code.replace("127.0.0.1:9092", self._addresses["kafka"])
        command = [sys.executable, "-c", code] if step.language == "python" else ["sh", "-e", "-c", code]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=environment(**self._variables),
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{step.code}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def test_the_tutorial_works_from_beginning_to_end(tmp_path):
    parts = dict(sections())
    assert [next(iter(parts)), *list(parts)[-2:]] == [SERVE, STOP, SPARK]
    reader = Reader(tmp_path)
    [serve] = (step.code.strip() for step in parts.pop(SERVE))
    after_restart = parts.pop(STOP)
    del parts[SPARK]
    with reader.serving(serve):
        for steps in parts.values():
            follow(reader, steps)
    with reader.serving(serve):
        follow(reader, after_restart)


def follow(reader, steps):
    for step in steps:
        output = reader.run(step)
        assert step.matches(output), f"{step.code}\nprinted\n{output}\nand not\n{step.printed}"


@pytest.mark.parametrize(("title", "steps"), sections()[1:])
def test_every_section_shows_what_its_commands_print(title, steps):
    assert all(step.printed for step in steps), title
