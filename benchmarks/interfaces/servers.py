"""The two measured processes: a broker, and the servers that store nothing."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

INTERFACES = ("kafka", "grpc", "http")


@dataclass(frozen=True, slots=True)
class Servers:
    broker: Mapping[str, str]
    empty: Mapping[str, str]


@contextmanager
def running(path: Path) -> Iterator[Servers]:
    serve = [sys.executable, "-m", "millpond", "serve", "--json", "--data-dir", str(path)]
    serve += [part for interface in INTERFACES for part in ("--set", f"{interface}_listen=127.0.0.1:0")]
    with (
        _process(serve) as broker,
        _process([sys.executable, "-m", "benchmarks.interfaces.null_servers"]) as empty,
    ):
        yield Servers(broker["listeners"], empty)


@contextmanager
def _process(command: list[str]) -> Iterator[dict[str, dict[str, str]]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(20)
