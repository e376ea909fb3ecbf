"""Brokers as processes of their own on one catalog and one store: started, killed, paused, drained and added.

Whatever is done to one is done to its process id. Each keeps its ports for as long as its `Node` lives, as a broker in
production does, so a restarted one is found where it was.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from tests.ports import free_address

READY_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 40.0
LOOK_SECONDS = 0.02
INTERFACES = ("kafka", "grpc", "http")
LEASE_SECONDS = 2.0
SETTINGS = {
    "lease": f"{int(LEASE_SECONDS)}s",
    "group_initial_rebalance_delay": "0ms",
    "flush_delay": "50ms",
    "log_level": "INFO",
}
OWNED = """
    SELECT topics.name, partitions.partition, writers.address FROM partitions
    JOIN topics ON topics.id = partitions.topic_id
    JOIN writers ON writers.session = partitions.owner AND writers.lane = 0 AND writers.dead_since IS NULL
"""
MEMBERS = "SELECT address FROM writers WHERE dead_since IS NULL AND kind = 'broker' AND lane = 0"


def eventually(check: Callable[[], Any], what: str, seconds_max: float = READY_SECONDS_MAX) -> Any:
    """The first answer that is true. Waits long: only what never comes fails."""
    deadline = time.monotonic() + seconds_max
    while not (answer := check()):
        assert time.monotonic() < deadline, f"after {seconds_max:.0f} s still not: {what} ({answer!r})"
        time.sleep(LOOK_SECONDS)
    return answer


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


class Node:
    """One broker: a process, or for the time being none."""

    def __init__(self, number: int, folder: Path, options: Iterable[str], settings: dict[str, str]) -> None:
        self.number = number
        self._folder = folder
        self._options = list(options)
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._announced = 0
        self.listeners: dict[str, str] = {}
        """Where others are told to find it."""
        self.bound = {interface: free_address() for interface in INTERFACES}
        """What it listens on."""
        self.is_paused = False

    # -- life -------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def launch(self) -> None:
        """Start it, without waiting for it."""
        assert self._process is None, "it runs"
        self._announced = len(self.announcements())
        command = [sys.executable, "-m", "millpond", "serve", "--json", *self._options]
        for interface in INTERFACES:
            command += [f"--{interface}", self.bound[interface]]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with self._output("out").open("ab") as out, self._output("log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=out, stderr=log)

    def ready(self) -> None:
        """Returns when it is serving."""
        announcements = eventually(self._has_announced, f"broker {self.number} is ready")
        self.listeners, self.bound = announcements[-1]["listeners"], announcements[-1]["bound"]

    def _has_announced(self) -> list[dict[str, Any]]:
        assert self._process is not None, "it was launched"
        assert self._process.poll() is None, f"broker {self.number} ended:\n{self.log()[-4000:]}"
        found = self.announcements()
        return found if len(found) > self._announced else []

    def start(self) -> None:
        self.launch()
        self.ready()

    def kill(self) -> float:
        """As a power cut would; returns when, by the monotonic clock."""
        at = time.monotonic()
        self._end(signal.SIGKILL)
        return at

    def drain(self) -> float:
        """In order; returns how many seconds it took."""
        began = time.monotonic()
        code = self._end(signal.SIGTERM)
        assert code == 0, f"broker {self.number} ended with {code}:\n{self.log()[-4000:]}"
        return time.monotonic() - began

    def pause(self) -> float:
        self._signal(signal.SIGSTOP)
        self.is_paused = True
        return time.monotonic()

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def reload(self) -> None:
        """As an administrator does who has replaced its certificate."""
        self._signal(signal.SIGHUP)

    def until_rejoined(self, lives: int) -> None:
        """Wait until it has announced itself more often than so many times."""
        eventually(lambda: len(self.announcements()) > lives, f"broker {self.number} has joined again")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "it runs"
        if self._process.poll() is None:  # else it has ended by itself, and its number may be another's
            os.kill(self._process.pid, number)

    def _end(self, how: signal.Signals) -> int:
        self._signal(how)
        process, self._process = self._process, None
        assert process is not None, "it runs"
        if self.is_paused and how is not signal.SIGKILL:
            os.kill(process.pid, signal.SIGCONT)
        self.is_paused = False
        try:
            return process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"broker {self.number} does not end:\n{self.log()[-4000:]}") from None

    def close(self) -> None:
        if self._process is not None:
            self._end(signal.SIGKILL)

    # -- what it says -----------------------------------------------------------------------------------------

    def announcements(self) -> list[dict[str, Any]]:
        path = self._output("out")
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def log(self) -> str:
        path = self._output("log")
        return path.read_text() if path.exists() else ""

    def count(self, metric: str) -> float:
        """The sum of a counter over its labels, in the life that answers now; 0 if nobody does."""
        try:
            with urllib.request.urlopen(f"http://{self.listeners['http']}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except (OSError, KeyError):
            return 0.0
        pattern = re.compile(rf"^{re.escape(metric)}(?:{{[^}}]*}})? (\S+)$", re.MULTILINE)
        return sum(float(value) for value in pattern.findall(text))

    def _output(self, kind: str) -> Path:
        return self._folder / f"broker-{self.number}.{kind}"


@dataclass
class Brokers:
    """All brokers of a test. `catalog` and `storage` are addresses, as `millpond serve` takes them."""

    folder: Path
    catalog: str
    storage: str
    settings: dict[str, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    gone: list[Node] = field(default_factory=list)
    """Nodes that were taken away for good."""
    direct_catalog: str = ""
    """Where the test itself asks the catalog, if brokers have another way to it."""

    def start(self, count: int) -> None:
        """So many more, and those that were made and do not run yet."""
        added = [*(node for node in self.nodes if not node.is_running), *(self.make() for _ in range(count))]
        for node in added:
            node.launch()
        for node in added:
            node.ready()
        self.until_balanced()

    def make(self, *, catalog: str = "", storage: str = "", **settings: str) -> Node:
        """One more, not yet started."""
        options = ["--catalog", catalog or self.catalog, "--storage", storage or self.storage]
        node = Node(
            len(self.nodes) + len(self.gone) + 1,
            self.folder,
            options,
            {**SETTINGS, **self.settings, **settings},
        )
        self.nodes.append(node)
        return node

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes if node.is_running]

    def addresses(self, interface: str) -> list[str]:
        return [node.listeners[interface] for node in self.running]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.direct_catalog or self.catalog, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()

    def owned(self) -> dict[tuple[str, int], str]:
        """(topic, partition) -> the gRPC address of who owns it, of those with a living owner."""
        return {
            (topic, number): json.loads(topic_partition)["grpc"]
            for topic, number, topic_partition in self.rows(OWNED)
        }

    def owned_by(self, node: Node, topic: str) -> set[int]:
        mine = node.listeners["grpc"]
        return {
            number
            for (name, number), topic_partition in self.owned().items()
            if name == topic and topic_partition == mine
        }

    def is_balanced(self) -> bool:
        """The members are those that run, every partition is owned, and shares differ by one at most."""
        members = {json.loads(row[0])["grpc"] for row in self.rows(MEMBERS)}
        if members != set(self.addresses("grpc")):
            return False
        owned = self.owned()
        total = self.rows("SELECT count(*) FROM partitions")[0][0]
        shares = Counter(dict.fromkeys(members, 0))
        shares.update(owned.values())
        return len(owned) == total and max(shares.values()) - min(shares.values()) <= 1

    def until_balanced(self) -> float:
        """How many seconds that took."""
        began = time.monotonic()
        eventually(self.is_balanced, "partitions are shared out evenly among those that run")
        return time.monotonic() - began

    def heal(self) -> None:
        """Everybody runs."""
        for node in self.nodes:
            if node.is_paused:
                node.resume()
        for node in self.nodes:
            if not node.is_running:
                node.start()
        self.until_balanced()

    def count(self, metric: str) -> float:
        return sum(node.count(metric) for node in self.running)

    def said(self, words: str) -> int:
        """How often that is in their logs."""
        return len(self.found_in_logs(f"({re.escape(words)})"))

    def found_in_logs(self, pattern: str) -> list[str]:
        """What the group of a pattern stands for, wherever it is in their logs."""
        return [each for node in [*self.nodes, *self.gone] for each in re.findall(pattern, node.log())]

    def close(self) -> None:
        for node in self.nodes:
            with contextlib.suppress(AssertionError):
                node.close()
