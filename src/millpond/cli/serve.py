"""`millpond serve`: runs a broker until it is stopped."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import uvloop

from millpond.broker import Broker
from millpond.cli import workers as supervision
from millpond.cli.options import json_option, load_settings, settings_options
from millpond.model.addresses import INTERFACES
from millpond.model.errors import CatalogFailed, InvalidSettings, MillpondError, Unavailable, WriterDead
from millpond.model.urls import redacted_url
from millpond.observability.logs import FORMATS, set_up_logging
from millpond.observability.metrics import Metrics
from millpond.process import collect_rarely, end_with_parent
from millpond.settings import RenamedSetting, Settings
from millpond.version import __version__

EXIT_FORCED = 130
REJOIN_DELAY_S = 1.0
"""Delay before a broker that was declared dead tries to join again."""

logger = logging.getLogger(__name__)


@click.command(
    epilog="\b\nExamples:\n  millpond serve\n  millpond serve --data-dir /var/lib/millpond --set retention=1d\n"
    "  millpond serve --kafka 127.0.0.1:0 --grpc 127.0.0.1:0 --http '' --json\n"
    "  millpond serve --workers 4\n"
    "  millpond serve --catalog postgresql://db/millpond --storage s3://bucket/prefix --advertise broker-1"
)
@settings_options
@click.option("--kafka", metavar="HOST:PORT", help="Listen address for Kafka clients; '' disables Kafka.")
@click.option("--grpc", metavar="HOST:PORT", help="Listen address for gRPC clients; '' disables gRPC.")
@click.option("--http", metavar="HOST:PORT", help="Listen address for HTTP clients; '' disables HTTP.")
@click.option(
    "--catalog",
    metavar="URL",
    help="URL of a catalog that brokers share: postgresql://…; SQLite in the data directory unless set.",
)
@click.option(
    "--storage",
    metavar="URL",
    help="URL of the object store: s3://bucket/prefix; files in the data directory unless set.",
)
@click.option(
    "--advertise",
    metavar="ADDRESSES",
    help="Address for clients and other brokers: a host, or host:port for kafka, grpc and http, separated by commas.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, supervision.WORKERS_MAX),
    help="Number of brokers to run as processes of this machine, each on the next ports; a broker that dies is "
    "restarted.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow listening on addresses other than loopback without security and TLS: every client of the network has "
    "access. The same as the setting insecure=true.",
)
@click.option(
    "--log-format",
    type=click.Choice(list(FORMATS), case_sensitive=False),
    help="Format of the log on stderr: text, or one JSON object per line.",
)
@click.option(
    "--trust-clock",
    is_flag=True,
    help="End a pause of retention that a jump of the wall clock caused: you have checked that the clock is right.",
)
@click.option(
    "--supervised",
    is_flag=True,
    hidden=True,
    help="Share the data directory that the parent process has locked.",
)
@click.option("--supervisor", type=int, hidden=True, help="Exit when the process with this id exits.")
@json_option
def serve(
    data_dir: Path | None,
    config: Path | None,
    assignments: tuple[str, ...],
    kafka: str | None,
    grpc: str | None,
    http: str | None,
    catalog: str | None,
    storage: str | None,
    advertise: str | None,
    workers: int | None,
    insecure: bool,
    log_format: str | None,
    trust_clock: bool,
    supervised: bool,
    supervisor: int | None,
    as_json: bool,
) -> None:
    """Run a broker: a single one, one of many that share a catalog and an object store, or several on one machine.

    Ctrl-C or SIGTERM drains the broker: it makes accepted messages durable, responds to their producers, and hands
    its partitions over to other brokers. A second signal ends it immediately. SIGHUP loads the TLS certificate from its
    files again.
    """
    given = {
        "kafka_listen": kafka,
        "grpc_listen": grpc,
        "http_listen": http,
        "catalog": catalog,
        "storage": storage,
        "log_format": log_format,
        "insecure": "true" if insecure else None,
    }
    renamed: list[RenamedSetting] = []
    settings = load_settings(data_dir, config, assignments, renamed.append, **given, **advertised(advertise))
    if supervisor is not None:
        end_with_parent(supervisor)
    if workers is None:
        run(settings, as_json=as_json, supervised=supervised, trust_clock=trust_clock, renamed=renamed)
    else:
        _run_workers(settings, workers, as_json, trust_clock, renamed)


def _run_workers(
    settings: Settings, count: int, as_json: bool, trust_clock: bool, renamed: Sequence[RenamedSetting]
) -> None:
    _start_logging(settings, renamed)
    supervision.run_workers(
        settings,
        count,
        lambda found, seconds: _announce_workers(settings, found, seconds, as_json),
        trust_clock=trust_clock,
    )
    if not as_json:
        click.echo("stopped")


def advertised(text: str | None) -> dict[str, str]:
    """Convert `--advertise` to settings. A host without ports gets the ports that are listened on."""
    if not text:
        return {}
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and not parts[0].rpartition(":")[2].isdecimal():
        parts = [f"{parts[0]}:0"] * len(INTERFACES)
    if len(parts) > len(INTERFACES):
        raise InvalidSettings(name="--advertise", value=text, reason="there are only kafka, grpc and http")
    return {f"{interface}_advertise": part for interface, part in zip(INTERFACES, parts, strict=False)}


def run(
    settings: Settings,
    *,
    as_json: bool,
    supervised: bool = False,
    trust_clock: bool = False,
    renamed: Sequence[RenamedSetting] = (),
) -> None:
    """Run until SIGTERM or SIGINT and the drain that follows. `mkfk-server` uses this too."""
    _start_logging(settings, renamed)
    uvloop.run(_serve(settings, as_json, supervised, trust_clock))


def _start_logging(settings: Settings, renamed: Sequence[RenamedSetting]) -> None:
    """Set up logging, and log what was found before it existed: settings that were given under former names."""
    try:
        set_up_logging(settings.log_level, settings.log_format)
    except ValueError as error:
        reason = "write DEBUG, INFO, WARNING or ERROR"
        raise InvalidSettings(name="log_level", value=settings.log_level, reason=reason) from error
    logging.captureWarnings(True)  # they would be lines of another format
    for each in renamed:
        logger.warning(
            "deprecated setting used; use its new name",
            extra={"setting": each.old, "replacement": each.new, "source": each.source},
        )


async def _serve(settings: Settings, as_json: bool, supervised: bool, trust_clock: bool = False) -> None:
    """Run the broker. If other brokers declare it dead, because it was paused or disconnected for longer than
    its lease, it joins again as a new broker on the same ports. `trust_clock` applies to the first start
    only."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: _on_signal(stop))
    brokers: list[Broker] = []
    if settings.tls_files() is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: _reload_tls(brokers))
    error: MillpondError | None = WriterDead()
    metrics = Metrics()
    has_lived = False
    while isinstance(error, WriterDead) and not stop.is_set():
        started = time.perf_counter()
        broker = Broker(
            settings,
            listen=True,
            supervised=supervised,
            metrics=metrics,
            trust_clock=trust_clock and not has_lived,
        )
        brokers[:] = [broker]
        if not await _start(broker, stop, again=has_lived):
            break
        if not has_lived:
            collect_rarely()
        try:
            has_lived = True
            _announce(broker, time.perf_counter() - started, as_json)
            settings = _with_bound_ports(broker)
            error = await _until_stopped(broker, stop)
            if isinstance(error, WriterDead):
                logger.warning("declared dead; rejoining the cluster", extra={"broker": broker.node_id})
            elif not as_json:
                click.echo("stopping: flushing what was accepted")
        finally:
            await broker.stop()
    if error is not None and not isinstance(
        error, WriterDead
    ):  # after WriterDead it would have joined again, had it not been stopped
        raise error
    if not as_json:
        click.echo("stopped")


async def _start(broker: Broker, stop: asyncio.Event, *, again: bool) -> bool:
    """Start the broker. When it joins again, it waits for a catalog or store that is unavailable, as a
    running broker would. Returns False if it was stopped while waiting; then there is nothing left to finish."""
    while not (again and stop.is_set()):
        try:
            await broker.start()
            return True
        except Unavailable as error:
            if not again or isinstance(error, CatalogFailed):
                raise
            logger.warning("rejoining the cluster failed; will retry", extra={"error": str(error)})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REJOIN_DELAY_S):
                await stop.wait()
    return False


def _with_bound_ports(broker: Broker) -> Settings:
    bound: dict[str, Any] = {f"{interface}_listen": address for interface, address in broker.bound.items()}
    return replace(broker.settings, **bound)


def _on_signal(stop: asyncio.Event) -> None:
    """The first signal drains the broker. The second one is for a drain that takes too long, for example
    because a disk hangs: as after a crash, acknowledged messages are kept, and nothing else is guaranteed."""
    if stop.is_set():
        click.echo("stopping at once: what was not answered may be lost", err=True)
        os._exit(EXIT_FORCED)
    stop.set()


def _reload_tls(brokers: Sequence[Broker]) -> None:
    for broker in brokers:
        broker.reload_tls()


async def _until_stopped(broker: Broker, stop: asyncio.Event) -> MillpondError | None:
    stopped = asyncio.create_task(stop.wait())
    failed = asyncio.create_task(broker.failed())
    done, waiting = await asyncio.wait([stopped, failed], return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    return failed.result() if failed in done else None


def _announce(broker: Broker, seconds: float, as_json: bool) -> None:
    facts: dict[str, object] = {
        **_facts(broker.settings),
        "topics": len(broker.log.topics.all()),
        "node_id": broker.node_id,
        "session": broker.session,
        "listeners": broker.listeners,
        "bound": broker.bound,
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    _show(facts, seconds)
    click.echo(f"  topics     {facts['topics']}")
    for interface in INTERFACES:
        click.echo(f"  {interface:<10} {broker.listeners.get(interface, 'off')}")


def _announce_workers(
    settings: Settings, found: list[supervision.Worker], seconds: float, as_json: bool
) -> None:
    """Print all workers with their addresses; `listeners` are those of the first worker."""
    workers = [
        {
            "worker": each.number,
            "pid": each.process.pid if each.process is not None else None,
            "node_id": each.facts.get("node_id"),
            "listeners": each.facts.get("listeners", {}),
        }
        for each in found
    ]
    facts = {**_facts(settings), "listeners": workers[0]["listeners"], "workers": workers}
    if as_json:
        click.echo(json.dumps(facts))
        return
    _show(facts, seconds)
    click.echo(f"  workers    {len(workers)}")
    for interface in INTERFACES:
        addresses = [each.facts.get("listeners", {}).get(interface, "off") for each in found]
        click.echo(f"  {interface:<10} {', '.join(dict.fromkeys(addresses))}")


def _facts(settings: Settings) -> dict[str, object]:
    return {
        "version": __version__,
        "data": str(settings.data_dir.absolute()) if settings.uses_data_dir() else None,
        "catalog": redacted_url(settings.catalog) or "SQLite in the data directory",
        "storage": redacted_url(settings.storage_url()),
        "store": redacted_url(settings.storage_url()),  # deprecated: the former name
    }


def _show(facts: dict[str, object], seconds: float) -> None:
    click.echo(f"millpond {__version__} is ready after {seconds * 1000:.0f} ms")
    click.echo(f"  data       {facts['data'] or '(in memory or elsewhere)'}")
    click.echo(f"  catalog    {facts['catalog']}")
    click.echo(f"  storage    {facts['storage']}")
