"""A broker as a process of its own, which can be killed and started again on the same directory and port."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.ports import free_address

STOP_SECONDS_MAX = 20.0


class BrokerProcess:
    def __init__(self, folder: Path, **settings: str) -> None:
        self.address = free_address()
        self._folder = folder
        only_kafka = {"kafka_listen": self.address, "grpc_listen": "", "http_listen": ""}
        self._settings = {**only_kafka, "group_initial_rebalance_delay": "0ms", **settings}
        self._process: subprocess.Popen[str] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Returns when it is ready."""
        command = [str(Path(sys.executable).with_name("millpond")), "serve", "--json"]
        command += ["--data-dir", str(self._folder / "data")]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with (self._folder / "broker.log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self._process.stdout.readline()
        assert line, f"the broker did not start:\n{self.log()}"
        assert json.loads(line)["listeners"]["kafka"] == self.address

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        if self.is_running:
            self._end(signal.SIGTERM)

    def log(self) -> str:
        return (self._folder / "broker.log").read_text()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        os.kill(process.pid, how)
        process.wait(STOP_SECONDS_MAX)
        process.stdout.close()
