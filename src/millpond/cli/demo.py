"""`millpond demo`: the whole life of some messages on the embedded default, in a few seconds."""

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

import click
import uvloop

from millpond.broker import Broker
from millpond.catalog import extents
from millpond.model.ids import TopicPartition
from millpond.records import Record, build_batch
from millpond.settings import Settings

BATCHES = 400
RECORDS_PER_BATCH = 100
RETENTION_MS = 1_500


@click.command()
def demo() -> None:
    """Produce, read, restart, merge and expire messages in a temporary directory, and show what happened."""
    folder = Path(tempfile.mkdtemp(prefix="millpond-demo-"))
    try:
        uvloop.run(_demo(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _demo(folder: Path) -> None:
    rows: list[tuple[str, str]] = []
    settings = Settings(data_dir=folder)
    async with Broker(settings, maintain=False) as broker:
        click.echo("1. a broker on an empty directory: files and SQLite, nothing to install")
        await _hello(broker)
        rows.append(("produce", await _produce_many(broker)))
        rows.append(("read", await _read_all(broker)))
    async with Broker(settings, maintain=False) as broker:
        click.echo("4. restarted on the same directory: everything is there, numbers go on")
        result = await broker.produce("hello", b"after the restart")
        rows.append(("restart", f"next offset {result.base_offset}, nothing lost"))
        rows.append(("merge", await _merge(broker)))
        rows.append(("expiry", await _expire(broker)))
    click.echo()
    for name, value in rows:
        click.echo(f"  {name:<8} {value}")
    click.echo(
        "\nNext: the twelve lines in README.md, `millpond serve`, `millpond settings`, ARCHITECTURE.md."
    )


async def _hello(broker: Broker) -> None:
    click.echo("2. three messages to a topic that does not exist yet")
    for text in (b"one", b"two", b"three"):
        await broker.produce("hello", text)
    for record in await broker.read("hello"):
        click.echo(f"     offset {record.offset}: {(record.value or b'').decode()}")


async def _produce_many(broker: Broker) -> str:
    topic = await broker.log.create_topic("orders", 4)
    total = BATCHES * RECORDS_PER_BATCH
    click.echo(f"3. {total} durable messages to 4 partitions, then all of them back")
    answers: list[asyncio.Future[object]] = []
    started = time.perf_counter()
    with click.progressbar(range(BATCHES), label="     producing") as numbers:
        for number in numbers:
            records = [Record(value=b"x" * 1000, key=b"%d" % i) for i in range(RECORDS_PER_BATCH)]
            data = build_batch(records, now_ms=broker.clock.now_ms())
            answers.append(await broker.log.submit(TopicPartition(topic.id, number % 4), data))  # type: ignore[arg-type]
    await asyncio.gather(*answers)
    seconds = time.perf_counter() - started
    return f"{total} messages in {seconds:.2f} s ({total / seconds:,.0f}/s, encoding included)"


async def _read_all(broker: Broker) -> str:
    started = time.perf_counter()
    count = 0
    for partition in range(4):
        offset = 0
        while records := await broker.read("orders", offset, partition=partition):
            count += len(records)
            offset = records[-1].offset + 1
    return f"{count} messages in {time.perf_counter() - started:.2f} s (decoded one by one)"


async def _merge(broker: Broker) -> str:
    click.echo("5. two hundred single messages, then merged: rows follow bytes, not flushes")
    for number in range(200):
        await broker.produce("hello", b"message %d" % number)
    before = await broker.log.read(extents.totals)
    await broker.maintenance.merging.run_once()
    after = await broker.log.read(extents.totals)
    in_catalog = f"bytes in the catalog {before.inline_bytes} -> {after.inline_bytes}"
    return f"{before.extents} extents became {after.extents}; {in_catalog}"


async def _expire(broker: Broker) -> str:
    click.echo(f"6. a topic that keeps messages for {RETENTION_MS} ms")
    await broker.log.create_topic("short-lived", 1, {"retention.ms": str(RETENTION_MS)})
    await broker.produce("short-lived", b"soon gone", b"this too")
    await asyncio.sleep(RETENTION_MS / 1000 + 0.1)
    await broker.maintenance.retention.run_once()
    result = await broker.produce("short-lived", b"the next one")
    [partition] = [
        p for p in broker.log.partitions() if p.where == broker.log.topics.partition("short-lived", 0)
    ]
    return f"the log now starts at {partition.log_start}; the next message got offset {result.base_offset}"
