"""The measured broker, as a separate process."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(path: Path) -> Iterator[str]:
    """Its gRPC address."""
    with process(path) as (_, listeners):
        yield listeners["grpc"]


@contextmanager
def process(path: Path, **settings: str) -> "Iterator[tuple[subprocess.Popen[str], dict[str, str]]]":
    """The process and its addresses by interface."""
    path.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "millpond", "serve", "--json", "--data-dir", str(path)]
    for interface in ("kafka", "grpc", "http"):
        command += ["--set", f"{interface}_listen=127.0.0.1:0"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        yield broker, json.loads(broker.stdout.readline())["listeners"]
    finally:
        broker.terminate()
        broker.wait(30)
