"""The chaos test of tests/cluster on a MinIO and a PostgreSQL of the system, each a real server over TCP."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import psycopg
import pytest
from peers.server import free_port
from tests.faults.processes.chaos import QUIET_SECONDS, Clients, Nemesis, judge, start, summary, zombies
from tests.faults.processes.harness import Brokers
from tests.peers.support import available, eventually

from peers import Unavailable, minio

BUCKET, REGION = "millpond-tests", "us-east-1"
FAULTS = ("kill", "pause", "drain", "add", "kill_and_restart", "pause", "kill")
STOP_SECONDS_MAX = 30
PROGRAMS = "/usr/lib/postgresql/*/bin"


@pytest.mark.peers
def test_nothing_is_lost_on_minio_and_a_system_postgresql(
    tmp_path: Path, figures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        store = available(lambda: stack.enter_context(minio.running(tmp_path / "minio")))
        catalog = available(lambda: stack.enter_context(system_postgres()))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.facts["user"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store.facts["password"])
        make_bucket(store.facts["endpoint"])
        storage = f"s3://{BUCKET}/cluster?endpoint={store.facts['endpoint']}&region={REGION}"
        brokers = stack.enter_context(contextlib.closing(Brokers(tmp_path, catalog, storage)))
        start(brokers)
        clients, nemesis = Clients(brokers), Nemesis(brokers)
        began = time.monotonic()
        with clients.running():
            time.sleep(QUIET_SECONDS)
            for turn, fault in enumerate(FAULTS):
                nemesis.strike(fault, brokers.nodes[turn % 3])
                clients.check()
            seconds = time.monotonic() - began
            log = clients.drained()
        judge(clients, nemesis, log)
        name = "cluster chaos on MinIO and a system PostgreSQL"
        figures += [*summary(clients, nemesis, seconds, name), f"{name}: {zombies(brokers)}"]


def make_bucket(endpoint: str) -> None:
    with contextlib.closing(boto3.client("s3", endpoint_url=endpoint, region_name=REGION)) as client:
        client.create_bucket(Bucket=BUCKET)


@contextmanager
def system_postgres() -> Iterator[str]:
    """The address of an empty database on a server of its own, which root starts as `postgres`."""
    initdb, postgres = program("initdb"), program("postgres")
    owner = _owner()
    with tempfile.TemporaryDirectory(prefix="millpond-pg-", ignore_cleanup_errors=True) as root:
        folder, port = Path(root), free_port()
        if owner:
            shutil.chown(folder, owner, pwd.getpwnam(owner).pw_gid)
        data = folder / "data"
        as_owner = {"user": owner, "cwd": folder} if owner else {"cwd": folder}
        made = subprocess.run(
            [initdb, "--pgdata", str(data), "--auth=trust", "--username=millpond", "--encoding=UTF8"],
            capture_output=True,
            text=True,
            check=False,
            **as_owner,
        )
        if made.returncode != 0:
            raise Unavailable(f"initdb failed: {made.stderr.strip()[-300:]}")
        command = [postgres, "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(folder)]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_owner
        ) as server:
            try:
                address = f"postgresql://millpond@127.0.0.1:{port}/postgres"
                eventually(lambda: _answers(address))
                yield address
            finally:
                server.terminate()
                server.wait(STOP_SECONDS_MAX)


def program(name: str) -> str:
    """On the PATH, or where Debian keeps it."""
    found = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/").glob(f"{PROGRAMS.lstrip('/')}/{name}"), reverse=True)), None
    )
    if found is None:
        raise Unavailable(
            f"a system PostgreSQL needs `{name}`, which is neither on the PATH nor in {PROGRAMS}"
        )
    return found


def _owner() -> str | None:
    """PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        raise Unavailable("root cannot run PostgreSQL, and there is no user `postgres`") from None


def _answers(address: str) -> bool:
    try:
        with psycopg.connect(address, connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False
