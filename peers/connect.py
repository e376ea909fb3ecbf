"""Kafka Connect: a distributed worker on loopback, with the file connectors and MirrorMaker 2, its REST API, and
Debezium's PostgreSQL connector as a plugin.

Workers with the same `group` are one Connect cluster, whose state is in three topics of the broker.
"""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from peers import kafka, registries, server
from peers.home import Unavailable, installed, program
from peers.server import free_port

VERSION = kafka.VERSION
DEBEZIUM = "3.7.0.Final"
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
POSTGRES_SOURCE = "io.debezium.connector.postgresql.PostgresConnector"

HEAP = "512m"
REST_SECONDS_MAX = 100
"""The worker itself gives up after 90 seconds."""
WAIT_SECONDS_MAX = 120
POLL_SECONDS = 0.1
STOP_SECONDS_MAX = 30
BUSY = (404, 409, 500, 503)
"""Statuses of a worker that starts, rebalances, or does not know a new connector yet."""


class Refused(Exception):
    """The worker refused a request; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def jars() -> Path:
    """The worker, the file connectors and MirrorMaker 2."""
    purpose = f"Kafka Connect {VERSION}"
    program("java", purpose)
    return installed(
        f"connect-{VERSION}",
        lambda folder: registries.maven(purpose, folder, "connect", kafka_version=VERSION),
    )


def debezium() -> Path:
    """A plugin path with Debezium's PostgreSQL connector."""
    purpose = f"Debezium {DEBEZIUM}"
    program("java", purpose)

    def build(folder: Path) -> None:
        plugin = folder / "debezium-connector-postgres"
        plugin.mkdir()
        registries.maven(purpose, plugin, "debezium", debezium_version=DEBEZIUM)

    return installed(f"debezium-{DEBEZIUM}", build)


class Worker:
    """A worker, which a `with` block starts and stops. After `kill` it can be started again, as itself."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        group: str,
        settings: Mapping[str, str] | None = None,
        plugins: Path | None = None,
    ) -> None:
        self.group = group
        self._folder = folder.resolve()
        self._port = free_port()
        self._settings = {**_properties(bootstrap, group, self._port), **(settings or {})}
        if plugins is not None:
            self._settings["plugin.path"] = str(plugins)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        return (self._folder / "connect.log").read_text(errors="replace")

    @property
    def worker_id(self) -> str:
        """As the status of a task has it."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Return when the worker has joined its cluster."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        command = kafka.java(jars(), main, str(file), heap=HEAP, options=kafka.QUICK_START)
        _, self._process = server.launch(server.Plan("connect", self._folder, self._port, command))
        self.wait(lambda: self.get("/connectors") is not None, "the worker did not join its cluster")

    def kill(self) -> None:
        """-9: nothing is finished, and no transaction is ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The response's JSON. Raises `Refused`."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self._port}{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=REST_SECONDS_MAX) as response:
                text = response.read()
        except urllib.error.HTTPError as refused:
            raise Refused(refused.code, refused.read().decode(errors="replace")) from None
        return json.loads(text) if text else None

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def wait(self, check: Callable[[], Any], complaint: str) -> Any:
        """The first true value of `check`; while the worker is busy, it is asked again."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        last: Any = None
        while time.monotonic() < deadline:
            try:
                last = check()
            except Refused as refused:
                if refused.status not in BUSY:
                    raise
                last = refused
            except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                last = error
            else:
                if last:
                    return last
            time.sleep(POLL_SECONDS)
        raise Unavailable(f"Kafka Connect: {complaint} ({last!r}). {self.log[-2000:]}")

    def configure(self, connector: str, config: Mapping[str, str]) -> None:
        """Create a connector with one task, or change it, and wait until both run."""
        self.wait(
            lambda: self.request("PUT", f"/connectors/{connector}/config", dict(config)),
            f"{connector} was not configured",
        )
        self.wait_for(connector, "RUNNING")

    def states(self, connector: str) -> list[str]:
        """Of the connector, and of its tasks."""
        status = self.get(f"/connectors/{connector}/status")
        failed = [each["trace"] for each in (status["connector"], *status["tasks"]) if "trace" in each]
        if failed:
            raise Unavailable(f"Kafka Connect: {connector} failed: {failed[0][:2000]}")
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]

    def wait_for(self, connector: str, state: str, tasks: int = 1) -> None:
        """Until the connector and its tasks are in that state; a stopped one has no tasks."""
        wanted = [state] * (1 + (0 if state == "STOPPED" else tasks))
        self.wait(lambda: self.states(connector) == wanted, f"{connector} is not {state}")

    def change(self, connector: str, verb: str, state: str) -> None:
        """`pause`, `resume` or `stop`."""
        self.wait(
            lambda: self.request("PUT", f"/connectors/{connector}/{verb}") is None, f"{connector}: {verb}"
        )
        self.wait_for(connector, state)

    def offsets(self, connector: str) -> list[Any]:
        found: list[Any] = self.wait(
            lambda: self.get(f"/connectors/{connector}/offsets"), f"{connector} has no offsets"
        )["offsets"]
        return found


def _properties(bootstrap: str, group: str, port: int) -> dict[str, str]:
    storage = {
        f"{kind}.storage.{key}": value
        for kind, key, value in (
            ("config", "topic", f"{group}-configs"),
            ("offset", "topic", f"{group}-offsets"),
            ("status", "topic", f"{group}-status"),
            ("offset", "partitions", "5"),
            ("status", "partitions", "5"),
            *((kind, "replication.factor", "1") for kind in ("config", "offset", "status")),
        )
    }
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "rest.advertised.port": str(port),
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "exactly.once.source.support": "enabled",
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        **storage,
    }
