"""The compared brokers, each a separate process with its own folder: Millpond, and Apache Kafka twice."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.sources import environment
from peers import kafka

TICKS_PER_SECOND = 100
DELETED_SOON = {"log.segment.delete.delay.ms": "1000", "log.retention.check.interval.ms": "1000"}
FSYNC = {"log.flush.interval.messages": "1"}


@dataclass(frozen=True, slots=True)
class Subject:
    """A running broker. `started_s` is the time from the start of the process to its first response; `credentials` is
    what librdkafka needs to connect, beside the address."""

    name: str
    address: str
    pid: int
    started_s: float
    credentials: Mapping[str, str] = field(default_factory=dict)

    @property
    def client(self) -> dict[str, object]:
        """The settings of librdkafka for a connection."""
        return {"bootstrap.servers": self.address, **self.credentials}

    def cpu_s(self) -> float:
        """CPU time of its process, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def resident_bytes(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        [line] = [line for line in lines if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024


@contextmanager
def millpond(
    folder: Path, source: Path | None = None, interface: str = "kafka", settings: Sequence[str] = ()
) -> Iterator[Subject]:
    """The installed version, or that of a checkout. The subject has the address of one interface."""
    command = [sys.executable, "-m", "millpond", "serve", "--json", "--data-dir", str(folder)]
    interfaces = [f"{each}_listen=127.0.0.1:0" for each in ("kafka", "grpc", "http")]
    options = [*interfaces, "garbage_grace=1s", "group_initial_rebalance_delay=0ms", *settings]
    command += [part for option in options for part in ("--set", option)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(source))
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["listeners"][interface]
        yield Subject("millpond", address, process.pid, time.perf_counter() - begun)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()


@contextmanager
def apache(folder: Path, name: str, settings: dict[str, str]) -> Iterator[Subject]:
    prepared = kafka.plan(folder, {**DELETED_SOON, **settings})  # formatting is not part of the start
    port = int(prepared.command and prepared.port)
    begun = time.perf_counter()
    with kafka.running(folder, {**DELETED_SOON, **settings}, port) as server:
        yield Subject(name, server.address, server.pid, time.perf_counter() - begun)


Launcher = Callable[[Path], AbstractContextManager[Subject]]

SUBJECTS: dict[str, Launcher] = {
    "millpond": millpond,
    "kafka": lambda folder: apache(folder, "kafka", {}),
    "kafka, fsync": lambda folder: apache(folder, "kafka, fsync", FSYNC),
}
