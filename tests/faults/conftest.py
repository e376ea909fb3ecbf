"""Children that tests can trace and kill, and small disks."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.disks import small_disk_of

__all__ = ["fork_server", "small_disk_of", "start", "strace"]

DRIVER = Path(__file__).with_name("driver.py")
ANSWER_SECONDS_MAX = 30.0
ATTACH_SECONDS_MAX = 10.0


class Nursery:
    """One process that has imported everything and forks a child whenever asked."""

    def __init__(self):
        command = [sys.executable, str(DRIVER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def fork(self, order):
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return json.loads(self._process.stdout.readline())[0]

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class Child:
    """The driver in `steps` mode: tell it a step, hear what came of it; None when it has died."""

    def __init__(self, fork_server, pipes, data_dir, **settings):
        names = [str(pipes / f"{os.urandom(4).hex()}-{end}") for end in ("stdin", "stdout")]
        for name in names:
            os.mkfifo(name)
        lasting = {"lease": 600_000, **settings}  # to renew one would add to the calls that are counted
        plan = {"mode": "steps", "data_dir": str(data_dir), "settings": lasting}
        self.pid = fork_server.fork({"plan": plan, "stdin": names[0], "stdout": names[1]})
        self._stdin = open(names[0], "wb", buffering=0)  # noqa: SIM115  # close() does
        self._stdout = open(names[1], "rb", buffering=0)  # noqa: SIM115  # close() does
        self._tracer = None
        self.facts = self.hear()[1]

    def tell(self, *words):
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(words).encode() + b"\n")
        return self.hear()

    def hear(self):
        ready, _, _ = select.select([self._stdout], [], [], ANSWER_SECONDS_MAX)
        assert ready, "the child neither answers nor dies"
        line = self._stdout.readline()
        return json.loads(line) if line else None

    def trace(self, *options, threads):
        """Attach strace to some threads, from here on. Counts of `when=` begin now."""
        command = ["strace", *(() if "-o" in options else ("-o", "/dev/null")), *options]
        for native_id in threads:
            command += ["-p", str(native_id)]
        self._tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
        deadline = time.monotonic() + ATTACH_SECONDS_MAX
        while not all(_is_traced(self.pid, native_id) for native_id in threads):
            if self._tracer.poll() is not None:
                pytest.skip(f"cannot trace here: {self._tracer.stderr.read().decode().strip()}")
            assert time.monotonic() < deadline, "strace does not attach"
            time.sleep(0.002)

    def thread(self, prefix):
        return [native_id for name, native_id in self.facts["threads"].items() if name.startswith(prefix)]

    def close(self):
        """Kill it, if it still lives: its end of the pipe is open as long as it does."""
        if self._stdout.closed:
            return
        ready, _, _ = select.select([self._stdout], [], [], 0)
        if not ready or self._stdout.readline():
            os.kill(self.pid, signal.SIGKILL)
        while self._stdout.read(65_536):
            pass
        self._stdin.close()
        self._stdout.close()
        if self._tracer is not None:
            self._tracer.communicate()


def _is_traced(pid, native_id):
    status = Path(f"/proc/{pid}/task/{native_id}/status").read_text()
    return "TracerPid:\t0\n" not in status


@pytest.fixture(scope="session")
def fork_server():
    fork_server = Nursery()
    yield fork_server
    fork_server.close()


@pytest.fixture
def start(fork_server, tmp_path_factory):
    """Starts children; ends them all with the test."""
    pipes = tmp_path_factory.mktemp("pipes")
    with contextlib.ExitStack() as children:

        def start_one(data_dir, **settings):
            child = Child(fork_server, pipes, data_dir, **settings)
            children.callback(child.close)
            return child

        yield start_one


@pytest.fixture
def strace():
    if shutil.which("strace") is None:
        pytest.skip("injecting faults into system calls needs strace")
