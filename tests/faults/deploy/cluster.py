"""The brokers of compose.yaml as plain processes: the file's environment, with other hosts and ports."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.deploy.composition import BROKERS, environment
from tests.ports import free_address

INTERFACES = ("kafka", "grpc", "http")
STOP_SECONDS_MAX = 30.0


class BrokerProcess:
    """Keeps its ports when it is started again."""

    def __init__(self, name: str, folder: Path, *, catalog: str, s3: str) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        self.environment = environment(name)
        self._place(catalog, s3)
        self._listen({interface: free_address() for interface in INTERFACES})
        self._process: subprocess.Popen[str] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self) -> None:
        """Start; `wait_ready` comes next."""
        command = [str(Path(sys.executable).with_name("millpond")), "serve", "--json"]
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command,
                env={**kept, **self.environment},
                cwd=self._log.parent,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait_ready(self) -> None:
        line = self._process.stdout.readline()
        assert line, f"{self.name} did not start:\n{self._log.read_text()}"
        listeners = json.loads(line)["listeners"]
        self.kafka, self.grpc, self.http = (listeners[interface] for interface in INTERFACES)
        self._listen(listeners)

    def start(self) -> None:
        self.begin()
        self.wait_ready()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Returns the exit code."""
        process, self._process = self._process, None
        process.send_signal(how)
        try:
            return process.wait(STOP_SECONDS_MAX)
        finally:
            process.kill()
            process.stdout.close()

    def _place(self, catalog: str, s3: str) -> None:
        given = self.environment
        assert "@postgres:5432/" in given["MILLPOND_CATALOG"]
        assert "endpoint=http://minio:9000&" in given["MILLPOND_STORAGE"]
        given["MILLPOND_CATALOG"] = catalog
        given["MILLPOND_STORAGE"] = given["MILLPOND_STORAGE"].replace("http://minio:9000", s3)

    def _listen(self, addresses: dict[str, str]) -> None:
        for interface, address in addresses.items():
            for verb in ("LISTEN", "ADVERTISE"):
                name = f"MILLPOND_{interface.upper()}_{verb}"
                assert name in self.environment, f"compose.yaml does not say {name} of {self.name}"
                self.environment[name] = address


class Cluster:
    def __init__(self, folder: Path, *, catalog: str, s3: str) -> None:
        self.brokers = [BrokerProcess(name, folder, catalog=catalog, s3=s3) for name in BROKERS]

    def __enter__(self) -> Self:
        """All at once, as Compose starts them."""
        for broker in self.brokers:
            broker.begin()
        try:
            for broker in self.brokers:
                broker.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            if broker.is_running:
                broker.end()
