"""The chaos test of tests/cluster on a MinIO and a PostgreSQL of the system, each a real server over TCP."""

import contextlib
import time
from pathlib import Path

import boto3
import pytest
from tests.faults.processes.chaos import QUIET_SECONDS, Clients, Nemesis, judge, start, summary, zombies
from tests.faults.processes.harness import Brokers
from tests.peers.support import available

from peers import minio, postgres

BUCKET, REGION = "millpond-tests", "us-east-1"
FAULTS = ("kill", "pause", "drain", "add", "kill_and_restart", "pause", "kill")


@pytest.mark.peers
def test_nothing_is_lost_on_minio_and_a_system_postgresql(
    tmp_path: Path, figures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        store = available(lambda: stack.enter_context(minio.running(tmp_path / "minio")))
        catalog = available(lambda: stack.enter_context(postgres.running()))
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
