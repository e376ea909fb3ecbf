"""What the tests of the client library under faults have in common."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.ports import free_address

STOP_SECONDS_MAX = 20.0


class BrokerProcess:
    """A broker as a process of its own, which can be killed and started again on the same directory and port."""

    def __init__(self, folder, **settings):
        self.address = free_address()
        self._folder = folder
        self._settings = {"kafka_listen": "", "http_listen": "", "grpc_listen": self.address, **settings}
        self._process = None

    def start(self, **settings):
        """Returns when it is ready. Settings that are given here hold from now on."""
        self._settings.update(settings)
        command = [str(Path(sys.executable).with_name("millpond")), "serve", "--json"]
        command += ["--data-dir", str(self._folder / "data")]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with (self._folder / "broker.log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self._process.stdout.readline()
        assert line, f"the broker did not start:\n{(self._folder / 'broker.log').read_text()}"
        assert "grpc" in json.loads(line)["listeners"]

    def pause(self):
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self):
        self._end(signal.SIGKILL)

    def stop(self):
        if self._process is not None:
            self._end(signal.SIGTERM)

    def _end(self, how):
        process, self._process = self._process, None
        os.kill(process.pid, how)
        process.wait(STOP_SECONDS_MAX)
        process.stdout.close()
