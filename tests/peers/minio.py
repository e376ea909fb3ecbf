"""MinIO on loopback, from the Go module registry: found on the PATH, or built once into `.peers/`."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MODULE = "github.com/minio/minio@latest"
PEERS = Path(__file__).parents[2] / ".peers"
USER, PASSWORD = "millponduser", "millpondpassword"
BUILD_SECONDS_MAX = 1_200
START_SECONDS_MAX = 20


def minio_binary() -> Path:
    """Skips the test, saying what is missing, where there is none and none can be built."""
    built = PEERS / "bin" / "minio"
    found = shutil.which("minio")
    if found or built.exists():
        return Path(found or built)
    go = shutil.which("go")
    if go is None:
        pytest.skip("MinIO: neither a minio on the PATH nor a Go toolchain to build one")
    print("building MinIO once, which takes some minutes", flush=True)
    environment = {**os.environ, "GOBIN": str(PEERS / "bin")}
    built.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [go, "install", MODULE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"MinIO: the build failed: {done.stderr.strip().splitlines()[-1:]}")
    return built


@contextmanager
def running_minio(folder: Path) -> Iterator[str]:
    """A server on a free port; yields its endpoint."""
    port = _free_port()
    environment = {**os.environ, "MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD}
    command = [minio_binary(), "server", folder, "--address", f"127.0.0.1:{port}", "--quiet"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            _wait_for(port, server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.skip("MinIO: it did not start")
