"""MinIO, an S3 server: found on the PATH, or built once from its Go module, which takes a few minutes."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from peers import registries, server
from peers.home import installed
from peers.server import Server, free_port

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
MODULE = f"github.com/minio/minio@{VERSION}"
USER, PASSWORD = "millponduser", "millpondpassword"  # of a server on loopback, for tests


def binary() -> Path:
    if found := shutil.which("minio"):
        return Path(found)
    folder = installed(f"minio-{VERSION}", lambda part: registries.go_install("MinIO", part, MODULE))
    return folder / "bin" / "minio"


@contextmanager
def running(folder: Path, settings: Mapping[str, str] | None = None, port: int = 0) -> Iterator[Server]:
    """A server for the duration of a `with` block; `facts` has its endpoint, user and password."""
    with server.running(plan(folder, settings or {}, port)) as started:
        yield started


def plan(folder: Path, settings: Mapping[str, str], port: int = 0) -> server.Plan:
    """`settings` are environment variables, as MinIO uses them."""
    folder = folder.resolve()
    port = port or free_port()
    address, console = f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}"
    options = ["--address", address, "--console-address", console, "--quiet"]
    return server.Plan(
        name="minio",
        folder=folder,
        port=port,
        command=[str(binary()), "server", str(folder / "data"), *options],
        environment={"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD, **settings},
        facts={"endpoint": f"http://{address}", "user": USER, "password": PASSWORD},
    )
