"""The programs under test as processes of their own: started, listened to, and ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.ports import free_address

from millpond.model.addresses import INTERFACES

PROGRAMS = Path(sys.executable).parent
PATIENCE_SECONDS = 60.0
"""No answer after so long is no answer. Nothing is measured by it."""
LOOK_SECONDS = 0.02


def eventually(check, what):
    """The first answer of `check` that is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (answer := check()):
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(LOOK_SECONDS)
    return answer


def environment(**variables):
    """This machine's, without what would configure a broker, and with our programs on the path."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("MILLPOND_", "MINIKAFKA_"))
    }
    return {**kept, "PATH": f"{PROGRAMS}{os.pathsep}{kept.get('PATH', '')}", **variables}


class Talker:
    """A process whose lines are kept as they come."""

    def __init__(self, *command, stdin=subprocess.DEVNULL, **variables):
        self.lines = []
        self._process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(**variables),
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self):
        self.lines.extend(line.rstrip("\n") for line in iter(self._process.stdout.readline, ""))

    def _hear_the_end(self):
        self._listener.join(PATIENCE_SECONDS)
        assert not self._listener.is_alive(), "it has left something behind that still runs"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._hear_the_end()
        self._process.stdout.close()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def enter(self, text):
        """Type something."""
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def end_of_input(self):
        self._process.stdin.close()

    def hear(self, text):
        """Wait for a line that contains this."""
        return eventually(lambda: self._heard(text), f"{text!r} in what {self._process.args[0]} says")

    def _heard(self, text):
        has_ended = not self._listener.is_alive()
        found = next((each for each in self.lines if text in each), None)
        assert found or not has_ended, f"it ended without {text!r}: {self.lines}"
        return found

    @property
    def is_running(self):
        return self._process.poll() is None

    def signal(self, number):
        self._process.send_signal(number)

    def wait(self):
        """Its exit code."""
        code = self._process.wait(PATIENCE_SECONDS)
        self._hear_the_end()
        return code


class Server:
    """`millpond serve`, on free ports; `start` again after `stop` or `kill` keeps them."""

    def __init__(self, folder, *, variables=None, **settings):
        self._folder = Path(folder)
        self._variables = variables or {}
        self._settings = {f"{interface}_listen": free_address() for interface in INTERFACES} | settings
        self._process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if self._process is not None:
            self.stop()

    def start(self):
        command = [str(PROGRAMS / "millpond"), "serve", "--json", "--data-dir", str(self._folder / "data")]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with (self._folder / "broker.log").open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment(**self._variables)
            )
        line = self._process.stdout.readline()
        assert line, f"the broker did not start:\n{self.log()}"
        self.listeners = json.loads(line)["listeners"]
        for interface, address in self.listeners.items():
            self._settings[f"{interface}_listen"] = address

    @property
    def grpc(self):
        return self.listeners["grpc"]

    @property
    def kafka(self):
        return self.listeners["kafka"]

    @property
    def url(self):
        return f"http://{self.listeners['http']}"

    @property
    def is_running(self):
        return self._process is not None

    @property
    def pid(self):
        return self._process.pid

    def log(self):
        return (self._folder / "broker.log").read_text()

    def stop(self):
        assert self._end(signal.SIGTERM) == 0, self.log()
        assert "unexpected error" not in self.log()
        assert "Traceback" not in self.log()

    def kill(self):
        self._end(signal.SIGKILL)

    def _end(self, how):
        process, self._process = self._process, None
        process.send_signal(how)
        code = process.wait(PATIENCE_SECONDS)
        process.stdout.close()
        return code
