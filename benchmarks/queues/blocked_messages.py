"""The cost of stuck messages for the others: one blocked key under a long backlog (reliability test 16), and
one unacknowledged message under very many acknowledged ones (reliability test 18)."""

import asyncio
import contextlib
import statistics
import time
from pathlib import Path

import confluent_kafka

from benchmarks.engine.setup import folder
from benchmarks.queues.broker import process
from benchmarks.report import Report, quantiles_ms
from millpond import AsyncAdmin, AsyncDelivery, AsyncPublisher, AsyncSubscriber
from millpond.catalog.open import CATALOG_FILE, open_database, sqlite_url
from millpond.model.subscriptions import SubscriptionConfig
from millpond.queues.dispatcher import Dispatcher
from millpond.queues.dispatcher_state import LogEntry
from millpond.queues.settled_offsets import FULL

BACKLOG, QUICK_BACKLOG = 1_000_000, 20_000
OTHERS, QUICK_OTHERS = 10_000_000, 20_000
MACHINE, QUICK_MACHINE = 10_000_000, 200_000
PROBES = 2_000
ROUNDS = 3
HOUR_S = 3600.0
LONG = {"ack_timeout_ms": str(12 * 3_600_000), "leases_max": "5000"}


def run(report: Report, *, quick: bool) -> None:
    with folder("disk") as path:
        _blocked_key(report, path, QUICK_BACKLOG if quick else BACKLOG, 1 if quick else ROUNDS)
        _one_unacknowledged(report, path / "unacknowledged", QUICK_OTHERS if quick else OTHERS)
    _machine(report, QUICK_MACHINE if quick else MACHINE)


def _blocked_key(report: Report, path: Path, backlog: int, rounds: int) -> None:
    report.section(
        f"One blocked key with {backlog:,} messages behind it",
        f"key_shared, strict; {PROBES} messages of other keys, each 4 ms; from publish to delivery. The backlog was "
        "published just before: in the topic itself, behind a message that is blocked, or in another topic. Median of "
        f"{rounds} rounds in turns.",
    )
    loads = {
        "no backlog": ("elsewhere", 1),
        "backlog in another topic": ("elsewhere", backlog),
        "backlog behind a blocked key": ("orders", backlog),
    }
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in loads}
    for number in range(rounds):
        for name, (topic, count) in loads.items():
            with process(path / f"{number}-{name.replace(' ', '-')}") as (_, listeners):
                samples[name].append(quantiles_ms(asyncio.run(_probe(listeners, topic, count))))
            print(f"   {name}: {samples[name][-1]}", flush=True)
    rows = []
    plain = statistics.median(p99 for _, p99 in samples["no backlog"])
    for name, found in samples.items():
        p50, p99 = (statistics.median(each[index] for each in found) for index in (0, 1))
        rows.append((name, f"{p50:.2f}", f"{p99:.2f}", f"{p99 / plain:.2f}"))
    report.table(("", "p50 ms", "p99 ms", "p99 against no backlog"), rows)


class Arrivals:
    """When the message of each key was delivered."""

    def __init__(self) -> None:
        self._times: dict[bytes, asyncio.Future[float]] = {}

    def note(self, key: bytes) -> None:
        self._future(key).set_result(time.perf_counter())

    async def of(self, key: bytes) -> float:
        return await self._future(key)

    def _future(self, key: bytes) -> "asyncio.Future[float]":
        return self._times.setdefault(key, asyncio.get_running_loop().create_future())


async def _probe(listeners: dict[str, str], backlog_topic: str, backlog: int) -> list[float]:
    """The backlog is behind a blocked message only if it is in the subscription's own topic."""
    address = listeners["grpc"]
    async with AsyncAdmin(address=address) as admin:
        await admin.create_topic("orders", partitions=1)
        await admin.create_subscription("orders", "billing", {"mode": "key_shared", **LONG})
    arrivals = Arrivals()
    async with (
        AsyncSubscriber("orders", "billing", address=address, prefetch=1000) as subscriber,
        AsyncPublisher(address=address, timeout=60) as publisher,
    ):

        async def work() -> None:
            async for delivery in subscriber:
                if delivery.key == b"hot":
                    delivery.nack(HOUR_S)
                else:
                    arrivals.note(delivery.key or b"")
                    delivery.ack()

        working = asyncio.create_task(work())
        await asyncio.to_thread(_publish_many, listeners["kafka"], backlog_topic, backlog, b"hot")
        await _until_delivered(publisher, arrivals, b"caught up")
        latencies = []
        for number in range(PROBES):
            began, key = time.perf_counter(), b"key-%d" % number
            await publisher.send(b"probe", topic="orders", key=key)
            latencies.append(await arrivals.of(key) - began)
            await asyncio.sleep(0.004)
        working.cancel()
    return latencies


def _publish_many(bootstrap: str, topic: str, count: int, key: bytes | None) -> None:
    """Through a Kafka client, which is faster than ours."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 100_000}
    producer = confluent_kafka.Producer(settings)
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, bytes(100), key=key)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0, "not everything was taken"


async def _until_delivered(publisher: AsyncPublisher, arrivals: Arrivals, key: bytes) -> None:
    await publisher.send(b"", topic="orders", key=key)
    await arrivals.of(key)


def _one_unacknowledged(report: Report, path: Path, others: int) -> None:
    report.section(
        f"One message that no consumer acknowledges, under {others:,} that are",
        "shared, a whole broker. Its memory on the way; then kill -9, and a start on the same data: how long until it "
        "serves, and from attaching until the one message is delivered again; and what else is (nothing should be). "
        "State: what the catalog keeps of the subscription.",
    )
    with process(path) as (broker, listeners):
        memory = {"at rest": _rss_mib(broker.pid)}
        asyncio.run(_prepare(listeners["grpc"]))
        _publish_many(listeners["kafka"], "orders", others + 1, None)
        memory["published"] = _rss_mib(broker.pid)
        for part, seconds in asyncio.run(_work_off(listeners["grpc"], others, broker.pid)):
            memory[f"{part:,} settled"] = seconds
        broker.kill()
        broker.wait()
    state = _state_of(path)
    began = time.perf_counter()
    with process(path) as (_, listeners):
        started = time.perf_counter() - began
        attached, again = asyncio.run(_after_restart(listeners["grpc"]))
    report.table(
        (
            *(f"RSS MiB, {name}" for name in memory),
            "state",
            "start s",
            "attach to delivery s",
            "delivered again",
        ),
        [
            (
                *(f"{mib:.0f}" for mib in memory.values()),
                state,
                f"{started:.2f}",
                f"{attached:.2f}",
                again,
            )
        ],
    )


async def _prepare(address: str) -> None:
    async with AsyncAdmin(address=address) as admin:
        await admin.create_topic("orders", partitions=1)
        await admin.create_subscription("orders", "billing", LONG)


async def _work_off(address: str, others: int, pid: int) -> list[tuple[int, float]]:
    """The broker's memory after a tenth of the messages, and after all but the first are acknowledged."""
    memory = []
    async with AsyncSubscriber("orders", "billing", address=address, prefetch=4000) as subscriber:
        for taken in range(others + 1):
            delivery = await anext(subscriber)
            if taken:
                delivery.ack()
            if taken in (others // 10, others):
                await subscriber.flush()
                memory.append((taken, _rss_mib(pid)))
    return memory


def _state_of(path: Path) -> str:
    """Rows and bytes of the subscription in the catalog."""
    with contextlib.closing(open_database(sqlite_url(path / CATALOG_FILE))) as catalog, catalog.read() as tx:
        [(rows, size)] = tx.rows("SELECT count(*), coalesce(sum(length(bits)), 0) FROM subscription_chunks")
    return f"{rows} rows, {size} bytes"


async def _after_restart(address: str) -> tuple[float, int]:
    began = time.perf_counter()
    async with AsyncSubscriber("orders", "billing", address=address, prefetch=4000) as subscriber:
        first: AsyncDelivery = await anext(subscriber)
        seconds, again = time.perf_counter() - began, 1
        while await subscriber.receive(2.0) is not None:
            again += 1
        await first.ack()
    return seconds, again


def _machine(report: Report, count: int) -> None:
    report.section(
        f"The dispatcher alone: one message unsettled under {count:,}",
        "The pure machine, without log, catalog and network: what it keeps, and what it would cost to load.",
    )
    dispatcher = Dispatcher(SubscriptionConfig(leases_max=5_000, ack_timeout_ms=12 * 3_600_000))
    dispatcher.consumers.attach("worker")
    dispatcher.consumers.grant("worker", 1)
    dispatcher.index([LogEntry(0, None)], 1)
    dispatcher.dispatch(0)
    began, step = time.perf_counter(), 2_000
    for start in range(1, count, step):
        dispatcher.consumers.grant("worker", step)
        dispatcher.index([LogEntry(offset, None) for offset in range(start, start + step)], start + step)
        for delivery in dispatcher.dispatch(0):
            dispatcher.ack(delivery.offset, 1, delivery.token)
        dispatcher.begin_commit()
        dispatcher.committed()
    seconds = time.perf_counter() - began
    chunks = dispatcher.settled.chunks
    partial = sum(bits is not FULL for bits in chunks.values())
    began = time.perf_counter()
    Dispatcher(dispatcher.config, chunks=dict(chunks))
    loaded = time.perf_counter() - began
    report.table(
        ("us a message", "rows in the catalog", "of them 1 KiB", "tracked in memory", "rebuilt ms"),
        [(f"{seconds / count * 1e6:.1f}", len(chunks), partial, dispatcher.tracked, f"{loaded * 1000:.1f}")],
    )


def _rss_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20
