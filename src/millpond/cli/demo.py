"""`millpond demo`: shows the product in a temporary directory: a real broker, real clients, a real kill -9.

Each step is a function that prints what it does, does it, and returns its line of the summary.
"""

import json
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from millpond.cli.demo_on_spark import show_on_spark
from millpond.cli.demo_queue import show_queue
from millpond.cli.kafka_clients import read_with_any
from millpond.cli.output import Stopwatch
from millpond.cli.temporary_broker import TemporaryBroker
from millpond.client import Admin, Consumer, Producer
from millpond.model.errors import MillpondError

MESSAGES: Final = 100_000
CUSTOMERS: Final = 20
PARTITIONS: Final = 4
CRASH_MESSAGES: Final = 20_000
CRASH_AFTER: Final = 8_000
RETENTION_MS: Final = 1_500
TIMEOUT_S: Final = 30.0
STEP: Final = 500

NEXT: Final = """
Where to go next
  millpond serve                            run a broker here, on ./millpond-data
  echo hello | millpond produce greetings   fill it (in another terminal)
  millpond consume greetings --follow       read it
  millpond pipeline --help                  tables, SQL and maintenance on Spark
  millpond --help                           all commands
  README.md                                 what it is for, figures, twelve lines of Python"""


@click.command(epilog="\b\nExample:\n  millpond demo")
def demo() -> None:
    """Show the features in about a minute, in a temporary directory: produce, read, Kafka, HTTP, kill -9, expiry,
    a queue, a Delta table and SQL on Spark (if Spark is installed)."""
    folder = Path(tempfile.mkdtemp(prefix="millpond-demo-"))
    watch = Stopwatch()
    try:
        rows = _run_all(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    click.echo(f"\nSummary, after {watch.seconds:.0f} s")
    for name, line in rows:
        click.echo(f"  {name:<9} {line}")
    click.echo(NEXT)


def _run_all(folder: Path) -> list[tuple[str, str]]:
    steps: dict[str, Callable[[TemporaryBroker], str]] = {
        "hello": _hello,
        "produce": _produce,
        "read": _read,
        "kafka": _kafka,
        "http": _http,
        "kill -9": _crash,
        "expiry": _expire,
        "queue": show_queue,
        "spark": show_on_spark,
    }
    click.echo("1. A broker: a process of its own on an empty directory, with files and SQLite")
    watch = Stopwatch()
    with TemporaryBroker(folder) as broker:
        interfaces = ", ".join(
            f"{interface} {address}" for interface, address in sorted(broker.listeners.items())
        )
        rows = [("start", f"ready after {watch.seconds:.1f} s")]
        click.echo(f"   {interfaces}")
        rows += [(name, step(broker)) for name, step in steps.items()]
    return rows


def _hello(broker: TemporaryBroker) -> str:
    click.echo("2. Three messages to a topic that does not exist yet")
    with Producer("hello", address=broker.listeners["grpc"], tls=False) as producer:
        numbers = [producer.send(text).number for text in (b"one", b"two", b"three")]
    with Consumer("hello", address=broker.listeners["grpc"], tls=False) as consumer:
        for message in consumer.poll().messages:
            click.echo(f"   message {message.number}: {(message.value or b'').decode()}")
    return f"3 messages, numbers {numbers[0]} to {numbers[-1]}; the topic was created for them"


def _produce(broker: TemporaryBroker) -> str:
    click.echo(f"3. {MESSAGES:,} orders to {PARTITIONS} partitions, each with a key: {_order(0).decode()}")
    address = broker.listeners["grpc"]
    with Admin(address=address, tls=False) as admin:
        admin.create_topic("orders", partitions=PARTITIONS)
    watch = Stopwatch()
    with (
        Producer("orders", address=address, tls=False, timeout=TIMEOUT_S) as producer,
        click.progressbar(range(0, MESSAGES, STEP), label="   sending") as starts,
    ):
        for start in starts:
            sent = [
                producer.submit(_order(number), key=b"order %d" % number)
                for number in range(start, start + STEP)
            ]
        for each in sent:
            each.result()
        producer.flush()
    return f"{MESSAGES:,} messages, all durable after {watch.seconds:.1f} s ({watch.rate(MESSAGES)})"


def _order(number: int) -> bytes:
    """An order of a customer; a customer with a higher number places larger orders."""
    customer = number % CUSTOMERS
    return b'{"order": %d, "customer": "customer %d", "total": %d.5}' % (number, customer, customer * 10)


def _read(broker: TemporaryBroker) -> str:
    click.echo("4. All of them back")
    watch = Stopwatch()
    count = _count("orders", broker)
    _check(count == MESSAGES, f"{count} of {MESSAGES} messages were read")
    click.echo(f"   {count:,} messages")
    return f"{count:,} messages in {watch.seconds:.1f} s ({watch.rate(count)})"


def _kafka(broker: TemporaryBroker) -> str:
    click.echo("5. The same topic, read by a Kafka client")
    watch = Stopwatch()
    found = read_with_any(broker.listeners["kafka"], "orders", MESSAGES, TIMEOUT_S)
    if found is None:
        click.echo("   skipped: no Kafka client is installed (try: pip install confluent-kafka)")
        return "skipped: no Kafka client is installed"
    client, count = found
    _check(count == MESSAGES, f"{client} read {count} of {MESSAGES} messages")
    click.echo(f"   {client}: {count:,} messages")
    return f"{client} read the same {count:,} messages in {watch.seconds:.1f} s"


def _http(broker: TemporaryBroker) -> str:
    root = f"http://{broker.listeners['http']}/topics/web"
    click.echo(
        "6. With HTTP: curl -d 'greeting:hello' .../topics/web/produce/0; curl .../topics/web/fetch/0?offset=0"
    )
    try:
        _ask(f"{root}/produce/0", b"greeting:hello")
        message = _ask(f"{root}/fetch/0?offset=0")["messages"][0]
        line = f"{message['key']}:{message['value']}"
    except (OSError, ValueError, LookupError) as error:
        click.echo(f"   skipped: unexpected HTTP response ({error})")
        return f"skipped: {error}"
    click.echo(f"   fetched {line}")
    return f"produced and fetched {line}"


def _crash(broker: TemporaryBroker) -> str:
    click.echo(
        f"7. kill -9 while {CRASH_MESSAGES:,} messages are in flight, and a restart; the producer continues"
    )
    watch = Stopwatch()
    with Producer("precious", address=broker.listeners["grpc"], tls=False, timeout=TIMEOUT_S) as producer:
        sent = [producer.submit(b"%d" % number) for number in range(CRASH_AFTER)]
        sent[0].result()
        broker.kill()
        click.echo("   killed")
        sent += [producer.submit(b"%d" % number) for number in range(CRASH_AFTER, CRASH_MESSAGES)]
        broker.start()
        click.echo("   started again, on the same directory")
        numbers = [each.result().number for each in sent]
    _check(numbers == list(range(1, CRASH_MESSAGES + 1)), "messages were lost, doubled or out of order")
    kept = _count("orders", broker)
    _check(kept == MESSAGES, f"{MESSAGES - kept} earlier messages were lost")
    click.echo(
        f"   {CRASH_MESSAGES:,} of {CRASH_MESSAGES:,} stored once and in order; {kept:,} earlier ones still there"
    )
    return f"nothing lost: {CRASH_MESSAGES:,} in flight and {kept:,} earlier ones, each once ({watch.seconds:.1f} s)"


def _expire(broker: TemporaryBroker) -> str:
    click.echo(f"8. A topic that keeps messages for {RETENTION_MS} ms")
    address = broker.listeners["grpc"]
    with (
        Admin(address=address, tls=False) as admin,
        Producer("short-lived", address=address, tls=False) as producer,
    ):
        admin.create_topic("short-lived", configs={"retention.ms": str(RETENTION_MS)})
        producer.send_many([b"soon gone", b"this too"])
        watch = Stopwatch()
        while (left := admin.describe_topic("short-lived").partitions[0].messages) > 0:
            _check(watch.seconds < TIMEOUT_S, f"{left} messages did not expire")
            time.sleep(0.1)
        number = producer.send(b"the next one").number
    click.echo(f"   gone after {watch.seconds:.1f} s; the next message got number {number}")
    return f"2 messages expired after {watch.seconds:.1f} s; the next one got number {number}"


def _count(topic: str, broker: TemporaryBroker) -> int:
    count = 0
    with Consumer(topic, address=broker.listeners["grpc"], tls=False, timeout=TIMEOUT_S) as consumer:
        while messages := consumer.poll().messages:
            count += len(messages)
    return count


def _ask(url: str, body: bytes | None = None) -> Any:
    with urllib.request.urlopen(url, body, timeout=TIMEOUT_S) as response:  # noqa: S310  # our own broker
        return json.load(response)


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise MillpondError(f"The demo failed: {otherwise}. Please report it.")
