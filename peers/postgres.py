"""The PostgreSQL of the machine on loopback: a server with a folder of its own, which root starts as `postgres`."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from peers.home import Unavailable
from peers.server import POLL_SECONDS, free_port

USER = "millpond"
PROGRAMS = "usr/lib/postgresql/*/bin"
"""Where Debian keeps them."""
LOGICAL = {"wal_level": "logical"}
"""Change data capture needs it."""
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30


@contextmanager
def running(settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of an empty database on a server that lives as long as the `with` block."""
    initdb, postgres = programs()
    owner = _owner()
    with tempfile.TemporaryDirectory(prefix="millpond-pg-", ignore_cleanup_errors=True) as root:
        folder, port = Path(root), free_port()
        if owner:
            shutil.chown(folder, owner, pwd.getpwnam(owner).pw_gid)
        data = folder / "data"
        as_owner: dict[str, Any] = {"user": owner, "cwd": folder} if owner else {"cwd": folder}
        _initialize([initdb, "--pgdata", str(data), "--auth=trust", f"--username={USER}"], as_owner)
        command = [postgres, "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(folder)]
        command += [part for key, value in (settings or {}).items() for part in ("-c", f"{key}={value}")]
        nowhere = subprocess.DEVNULL
        with subprocess.Popen(
            command, stdout=nowhere, stderr=nowhere, start_new_session=True, **as_owner
        ) as server:
            try:
                address = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
                _wait(address)
                yield address
            finally:
                server.send_signal(signal.SIGINT)  # it does not wait for clients to leave
                server.wait(STOP_SECONDS_MAX)


def parts(address: str) -> tuple[str, int, str, str]:
    """Host, port, user and database."""
    split = urlsplit(address)
    assert split.hostname is not None
    assert split.port is not None
    assert split.username is not None
    return split.hostname, split.port, split.username, split.path.lstrip("/")


def programs() -> tuple[str, str]:
    """initdb and postgres."""
    return _program("initdb"), _program("postgres")


def _initialize(command: list[str], as_owner: Mapping[str, Any]) -> None:
    command = [*command, "--encoding=UTF8"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, **as_owner)
    if made.returncode != 0:
        raise Unavailable(f"initdb failed: {made.stderr.strip()[-300:]}")


def _program(name: str) -> str:
    """On the PATH, or where Debian keeps it."""
    found = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/").glob(f"{PROGRAMS}/{name}"), reverse=True)), None
    )
    if found is None:
        raise Unavailable(
            f"A PostgreSQL server needs `{name}`, which is neither on the PATH nor in /{PROGRAMS}."
        )
    return found


def _owner() -> str | None:
    """PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        raise Unavailable("Root cannot run PostgreSQL, and there is no user `postgres`.") from None


def _wait(address: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            with psycopg.connect(address, connect_timeout=2):
                return
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                raise Unavailable(f"PostgreSQL did not start: {error}") from None
        time.sleep(POLL_SECONDS)
