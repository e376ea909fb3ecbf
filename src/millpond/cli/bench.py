"""`millpond bench`: a short load through the client library, which shows what to expect on this machine.

Without --address it starts a temporary broker, so that it does not load a busy one by mistake. For
side-by-side comparisons with other systems, use `make bench`.
"""

import secrets
import tempfile
import threading
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from millpond.cli.connection import ClientOptions, check_reachable, client_options
from millpond.cli.options import DEFAULT_TIMEOUT_S, as_bytes, check_address, json_option, security_options
from millpond.cli.output import Stopwatch, print_json, print_note, stderr_is_terminal
from millpond.cli.temporary_broker import ANY_PORT, TemporaryBroker
from millpond.client import Admin, Consumer, Producer, Sent
from millpond.model.errors import MillpondError

TOPIC_PREFIX: Final = "millpond-bench-"
SINGLE_MESSAGES: Final = 500
SINGLE_S: Final = 5.0
PROGRESS_EVERY: Final = 1_000
READ_BYTES: Final = 1024 * 1024
MEGABYTE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Load:
    messages: int
    size_bytes: int
    producers: int
    compression: str


class MeasuredBroker(ClientOptions):
    """How to connect to the broker."""

    address: str
    timeout: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates per second, times in milliseconds. Acknowledgement times are those of messages sent one at a
    time."""

    messages: int
    size_bytes: int
    producers: int
    compression: str
    produced_per_s: float
    produced_mb_per_s: float
    acknowledged_p50_ms: float
    acknowledged_p99_ms: float
    read: int
    read_per_s: float
    read_mb_per_s: float


@click.command(
    epilog="\b\nExamples:\n  millpond bench\n  millpond bench --messages 1000000 --size 100 --producers 4\n"
    "  millpond bench --address 127.0.0.1:9999 --json"
)
@click.option(
    "--messages", type=click.IntRange(min=1), default=100_000, show_default=True, help="Number of messages."
)
@click.option(
    "--size",
    callback=as_bytes,
    default="1000",
    show_default=True,
    help="Size of each message, e.g. 100 or 16KiB.",
)
@click.option(
    "--producers",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Number of concurrent producers.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    envvar="MILLPOND_ADDRESS",
    show_envvar=True,
    callback=check_address,
    help="Address of the broker to measure; a temporary broker is started unless set.",
)
@click.option("--embedded", is_flag=True, help="Always start a temporary broker.")
@click.option("--timeout", type=click.FloatRange(min=0.001), default=DEFAULT_TIMEOUT_S, show_default=True)
@security_options
@json_option
def bench(
    messages: int,
    size: int,
    producers: int,
    compression: str,
    address: str | None,
    embedded: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Measure produce and consume throughput and latency, in a topic that is deleted afterwards."""
    load = Load(messages, size, producers, compression)
    with ExitStack() as undo:
        if address is None or embedded:
            folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="millpond-bench-")))
            print_note(f"starting a temporary broker in {folder} (--address loads a running one)")
            address = undo.enter_context(TemporaryBroker(folder, {"grpc": ANY_PORT})).listeners["grpc"]
            options = ClientOptions(tls=False)
        else:
            options = client_options()
        check_reachable(address)
        figures = _measure(load, MeasuredBroker(address=address, timeout=timeout, **options))
    if as_json:
        print_json(asdict(figures))
    else:
        _print(figures)


def _measure(load: Load, broker: MeasuredBroker) -> Figures:
    topic = TOPIC_PREFIX + secrets.token_hex(4)
    with Admin(**broker) as admin:
        admin.create_topic(topic, partitions=load.producers)
        try:
            produced_s = _produce(load, topic, broker)
            waits_ms = _one_at_a_time(load, topic, broker)
            read, read_s = _read(load, topic, broker)
        finally:
            with suppress(MillpondError):
                admin.delete_topic(topic)
    megabytes = load.size_bytes / MEGABYTE
    return Figures(
        *(load.messages, load.size_bytes, load.producers, load.compression),
        produced_per_s=load.messages / produced_s,
        produced_mb_per_s=load.messages * megabytes / produced_s,
        acknowledged_p50_ms=_quantile(waits_ms, 0.5),
        acknowledged_p99_ms=_quantile(waits_ms, 0.99),
        read=read,
        read_per_s=read / read_s,
        read_mb_per_s=read * megabytes / read_s,
    )


def _produce(load: Load, topic: str, broker: MeasuredBroker) -> float:
    """Run all producers concurrently, one per partition. Returns when every message is durable."""
    failures: list[MillpondError] = []
    shares = [
        load.messages // load.producers + (n < load.messages % load.producers) for n in range(load.producers)
    ]
    producers = [Producer(topic, compression=load.compression, **broker) for _ in shares]
    threads = [
        threading.Thread(target=_send_share, args=(producer, partition, count, load, failures))
        for partition, (producer, count) in enumerate(zip(producers, shares, strict=True))
    ]
    watch = Stopwatch()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = watch.seconds
    finally:
        for producer in producers:
            producer.close()
    if failures:
        raise failures[0]
    return seconds


def _send_share(
    producer: Producer, partition: int, count: int, load: Load, failures: list[MillpondError]
) -> None:
    value = secrets.token_bytes(load.size_bytes)
    last: list[Sent] = []
    try:
        for number in range(count):
            sent = producer.submit(value, partition=partition)
            if number % PROGRESS_EVERY == 0 or number == count - 1:
                last.append(sent)
            if len(last) > 1:
                last.pop(0).result()  # bounds the number of waiting messages in memory, and detects failures
        for sent in last:
            sent.result()
        producer.flush()
    except MillpondError as error:
        failures.append(error)


def _one_at_a_time(load: Load, topic: str, broker: MeasuredBroker) -> list[float]:
    """Sorted times until a single message is durable."""
    value = secrets.token_bytes(load.size_bytes)
    waits_ms: list[float] = []
    whole = Stopwatch()
    with Producer(topic, compression=load.compression, **broker) as producer:
        producer.send(value, partition=0)  # the first send also loads the topic's metadata
        while len(waits_ms) < SINGLE_MESSAGES and whole.seconds < SINGLE_S:
            watch = Stopwatch()
            producer.send(value, partition=0)
            waits_ms.append(watch.seconds * 1000)
    return sorted(waits_ms)


def _read(load: Load, topic: str, broker: MeasuredBroker) -> tuple[int, float]:
    count = 0
    watch = Stopwatch()
    with (
        Consumer(topic, **broker) as consumer,
        click.progressbar(length=load.messages, label="reading", hidden=not stderr_is_terminal()) as bar,
    ):
        while messages := consumer.poll(bytes_max=READ_BYTES).messages:
            count += len(messages)
            bar.update(len(messages))
    return count, watch.seconds


def _quantile(waits_ms: list[float], share: float) -> float:
    return waits_ms[min(int(len(waits_ms) * share), len(waits_ms) - 1)]


def _print(figures: Figures) -> None:
    what = f"{figures.messages:,} of {figures.size_bytes} B, compression {figures.compression}"
    click.echo(f"  messages      {what}, {figures.producers} at a time")
    click.echo(f"  produced      {figures.produced_per_s:,.0f} msg/s, {figures.produced_mb_per_s:,.1f} MB/s")
    click.echo(
        f"  acknowledged  p50 {figures.acknowledged_p50_ms:.2f} ms, p99 {figures.acknowledged_p99_ms:.2f} ms"
        " (one at a time, durable)"
    )
    click.echo(f"  read          {figures.read_per_s:,.0f} msg/s, {figures.read_mb_per_s:,.1f} MB/s")
