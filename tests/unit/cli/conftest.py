"""Commands as real processes, and one real broker process for each module."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from millpond.cli.main import cli

COMMAND = [sys.executable, "-m", "millpond"]
LONGEST_S = 600
"""Only what hangs takes so long, also on a busy machine."""


def environment(**extra):
    """Without what would make these processes unlike those of users."""
    unlike = ("MILLPOND_", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unlike)}
    return {**kept, **extra}


@dataclass
class Done:
    code: int
    out: bytes
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return self.out.decode().removesuffix("\n").split("\n") if self.out else []


@contextmanager
def watched(process):
    """Ends a process that is left running or hangs: whoever waits for its output then gets its end."""
    watchdog = threading.Timer(LONGEST_S, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def at_a_terminal(*arguments):
    """A command that believes that somebody sits there."""
    code = "import pty, sys; sys.exit(pty.spawn([sys.executable, '-m', 'millpond', *sys.argv[1:]]) >> 8)"
    command = [sys.executable, "-c", code, *arguments]
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with watched(subprocess.Popen(command, **pipes, env=environment(), bufsize=0)) as process:
        yield process


@dataclass
class Millpond:
    """Runs commands against one broker."""

    address: str

    def __call__(self, *arguments, given=b"", **extra):
        done = subprocess.run(
            [*COMMAND, *arguments],
            input=given,
            capture_output=True,
            timeout=LONGEST_S,
            env=environment(MILLPOND_ADDRESS=self.address, **extra),
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr.decode())

    def inside(self, *arguments, given=b""):
        """The same in this process, where a process of its own would add nothing."""
        environment = {"MILLPOND_ADDRESS": self.address}
        done = CliRunner().invoke(cli, arguments, input=given, env=environment, prog_name="millpond")
        return Done(done.exit_code, done.stdout_bytes, done.stderr)

    @contextmanager
    def started(self, *arguments, **streams):
        """A command that goes on."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        kept = environment(MILLPOND_ADDRESS=self.address)
        command = [*COMMAND, *arguments]
        with watched(subprocess.Popen(command, **{**pipes, **streams}, env=kept, bufsize=0)) as process:
            yield process


@pytest.fixture(scope="module")
def millpond(tmp_path_factory) -> Iterator[Millpond]:
    folder = tmp_path_factory.mktemp("broker")
    arguments = ["serve", "--json", "--kafka=", "--http=", "--grpc=127.0.0.1:0", f"--data-dir={folder}"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, env=environment()) as process:
        try:
            yield Millpond(json.loads(process.stdout.readline())["listeners"]["grpc"])
        finally:
            process.terminate()
            process.wait(LONGEST_S)


@pytest.fixture(autouse=True)
def logging_as_before():
    """`serve` sets logging up for its whole process, and here that is the process of other tests."""
    loggers = [logging.getLogger(), logging.getLogger("millpond")]
    before = [(each.handlers[:], each.level) for each in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        for handler in set(logger.handlers) - set(handlers):
            logger.removeHandler(handler)
        logger.setLevel(level)
    logging.captureWarnings(False)


@pytest.fixture
def topic(request):
    """A name of one's own."""
    return request.node.name.translate(str.maketrans("[]", "--"))[:100]
