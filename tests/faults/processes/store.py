"""The S3 server of `tests.s3` as a process of its own, so that it does not compete with a test's clients for one
interpreter. It prints its address and ends when its input does."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.s3 import running_s3

ROOT = Path(__file__).parents[3]
STOP_SECONDS_MAX = 10.0


@contextmanager
def running_store() -> Iterator[str]:
    """As `running_s3`: an address with a `{prefix}` to fill in."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.faults.processes.store"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        try:
            address = process.stdout.readline().strip()
            assert address, "the S3 server did not start"
            yield address
        finally:
            process.stdin.close()
            process.wait(STOP_SECONDS_MAX)


if __name__ == "__main__":
    with running_s3() as url:
        print(url, flush=True)
        sys.stdin.read()
