"""What the tests of real clients share: naming what a test shows, and waiting."""

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from peers import Unavailable

WAIT_SECONDS_MAX = 60.0


def shows(client: str, capability: str) -> Callable[[Any], Any]:
    """Marks a test as the one that shows whether `client` can do that, for docs/reference/clients.md."""

    def mark(test: Any) -> Any:
        return pytest.mark.peers(pytest.mark.client(client, capability)(test))

    return mark


def available(make: Callable[[], Any]) -> Any:
    """What `make` gives, or a skip that says why there is none."""
    try:
        return make()
    except Unavailable as reason:
        pytest.skip(str(reason))


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What a program printed, once it ended well."""
    assert done.returncode == 0, f"{done.args} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"[
        -4000:
    ]
    return done.stdout


def json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def eventually(check: Callable[[], Any]) -> Any:
    """The first answer that is true; a failure with the last one when none ever is."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not (answer := check()):
        assert time.monotonic() < deadline, f"still {answer!r} after {WAIT_SECONDS_MAX:.0f} s"
        time.sleep(0.2)
    return answer
