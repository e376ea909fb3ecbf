"""`millpond serve`: run a broker until it is told to stop."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import click
import uvloop

from millpond.broker import Broker
from millpond.cli.options import json_option, load_settings, settings_options
from millpond.model.addresses import FACES
from millpond.model.errors import InvalidSettings, MillpondError
from millpond.observability.logs import set_up_logging
from millpond.settings import Settings
from millpond.version import __version__

EXIT_AT_ONCE = 130


@click.command(
    epilog="\b\nExamples:\n  millpond serve\n  millpond serve --data-dir /var/lib/millpond --set retention=1d\n"
    "  millpond serve --kafka 127.0.0.1:0 --grpc 127.0.0.1:0 --http '' --json"
)
@settings_options
@click.option("--kafka", metavar="HOST:PORT", help="Where Kafka clients connect; '' for nowhere.")
@click.option("--grpc", metavar="HOST:PORT", help="Where gRPC clients connect; '' for nowhere.")
@click.option("--http", metavar="HOST:PORT", help="Where HTTP is served; '' for nowhere.")
@json_option
def serve(
    data_dir: Path | None,
    config: Path | None,
    assignments: tuple[str, ...],
    kafka: str | None,
    grpc: str | None,
    http: str | None,
    as_json: bool,
) -> None:
    """Run a broker.

    Ctrl-C or SIGTERM drains it: what was accepted is made durable and answered first. A second one ends it at once.
    """
    listening = {"kafka_listen": kafka, "grpc_listen": grpc, "http_listen": http}
    run(load_settings(data_dir, config, assignments, **listening), as_json=as_json)


def run(settings: Settings, *, as_json: bool) -> None:
    """Until SIGTERM or SIGINT, and the drain after it. `mkfk-server` is this, too."""
    _start_logging(settings.log_level)
    uvloop.run(_serve(settings, as_json))


def _start_logging(level: str) -> None:
    try:
        set_up_logging(level)
    except ValueError as error:
        reason = "write DEBUG, INFO, WARNING or ERROR"
        raise InvalidSettings(name="log_level", value=level, reason=reason) from error


async def _serve(settings: Settings, as_json: bool) -> None:
    started = time.perf_counter()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: _on_signal(stop))
    async with Broker(settings, listen=True) as broker:
        _announce(broker, time.perf_counter() - started, as_json)
        error = await _until_stopped(broker, stop)
        if not as_json:
            click.echo("stopping: flushing what was accepted")
    if error is not None:
        raise error
    if not as_json:
        click.echo("stopped")


def _on_signal(stop: asyncio.Event) -> None:
    """The first one drains. The second is for when that takes too long, say because a disk hangs: as after a crash,
    what was answered is there, and nothing else is promised."""
    if stop.is_set():
        click.echo("stopping at once: what was not answered may be lost", err=True)
        os._exit(EXIT_AT_ONCE)
    stop.set()


async def _until_stopped(broker: Broker, stop: asyncio.Event) -> MillpondError | None:
    stopped = asyncio.create_task(stop.wait())
    failed = asyncio.create_task(broker.failed())
    done, waiting = await asyncio.wait([stopped, failed], return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    return failed.result() if failed in done else None


def _announce(broker: Broker, seconds: float, as_json: bool) -> None:
    settings = broker.settings
    facts: dict[str, object] = {
        "version": __version__,
        "data": str(settings.data_dir.absolute()) if settings.uses_data_dir() else None,
        "catalog": _without_secrets(settings.catalog) or "SQLite in the data directory",
        "store": settings.store_url(),
        "topics": len(broker.log.topics.all()),
        "listeners": broker.listeners,
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(f"millpond {__version__} is ready after {seconds * 1000:.0f} ms")
    click.echo(f"  data       {facts['data'] or '(in memory or elsewhere)'}")
    click.echo(f"  catalog    {facts['catalog']}")
    click.echo(f"  store      {facts['store']}")
    click.echo(f"  topics     {facts['topics']}")
    for face in FACES:
        click.echo(f"  {face:<10} {broker.listeners.get(face, 'off')}")


def _without_secrets(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
