"""The store contract over a real S3 server that is not a Python package."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.peers.support import available

from peers import minio

ROOT = Path(__file__).parents[2]


@pytest.mark.peers
def test_the_store_contract_holds_on_minio(tmp_path: Path, figures: list[str]) -> None:
    with ExitStack() as stack:
        server = available(lambda: stack.enter_context(minio.running(tmp_path)))
        environment = {
            **os.environ,
            "MILLPOND_TEST_S3_ENDPOINT": server.facts["endpoint"],
            "AWS_ACCESS_KEY_ID": server.facts["user"],
            "AWS_SECRET_ACCESS_KEY": server.facts["password"],
        }
        command = [sys.executable, "-m", "pytest", "-q", "tests/contract/objects", "-k", "s3"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    figures.append(f"MinIO: {done.stdout.strip().splitlines()[-1]}")
