"""Runs a peer: starts it on a free loopback port, waits for it, and stops it by its process id."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from peers.home import Unavailable

START_SECONDS_MAX = 180
STOP_SECONDS_MAX = 20
POLL_SECONDS = 0.05
STATE = "peer.json"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. `facts` holds what only this kind of server has, such as an access key."""

    name: str
    pid: int
    address: str
    log: Path
    facts: Mapping[str, str] = field(default_factory=dict)

    def shown(self) -> str:
        return json.dumps({**asdict(self), "log": str(self.log)})


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start a server: the command, and the port to wait for. The command must contain the folder's
    path, by which `stop` recognizes that a process id still belongs to the server."""

    name: str
    folder: Path
    port: int
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def launch(plan: Plan) -> tuple[Server, subprocess.Popen[bytes]]:
    """Start it and wait until it listens; its log is in its folder."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    log = plan.folder / f"{plan.name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            plan.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=plan.folder,
            env={**os.environ, **plan.environment},
            start_new_session=True,
        )
    try:
        _wait_for_port(plan.port, process, log)
    except BaseException:
        _end(process)
        raise
    return Server(plan.name, process.pid, f"127.0.0.1:{plan.port}", log, plan.facts), process


@contextmanager
def running(plan: Plan) -> Iterator[Server]:
    """The server for the duration of a `with` block."""
    server, process = launch(plan)
    try:
        yield server
    finally:
        _end(process)


def start(plan: Plan) -> Server:
    """Start a server that keeps running after this process ends; `stop` with the same folder stops it."""
    if (plan.folder / STATE).exists():
        raise Unavailable(f"A server was already started in {plan.folder}: stop it first.")
    server, _ = launch(plan)
    (plan.folder / STATE).write_text(server.shown())
    return server


def stop(folder: Path) -> None:
    """Stop only the server that `start` started in that folder: if its process id now belongs to another
    process, that one is left alone."""
    state = folder / STATE
    if not state.exists():
        raise Unavailable(f"No server was started in {folder}.")
    pid = json.loads(state.read_text())["pid"]
    with contextlib.suppress(ProcessLookupError):
        if _belongs_to(pid, folder):
            _end_other(pid)
    state.unlink()


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Unavailable(f"The server ended with {process.returncode}: {_last_line(log)}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(POLL_SECONDS)
    raise Unavailable(f"The server did not listen after {START_SECONDS_MAX} s: {_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "its log is empty."


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _belongs_to(pid: int, folder: Path) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return str(folder).encode() in command


def _end_other(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while time.monotonic() < deadline:
        os.kill(pid, 0)
        time.sleep(POLL_SECONDS)
    os.kill(pid, signal.SIGKILL)
