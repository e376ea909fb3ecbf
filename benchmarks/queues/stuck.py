"""What does not move, and what it costs those that do: one blocked key under a long backlog (reliability test 16), and
one message that nobody acknowledges under very many that are (reliability test 18)."""

import asyncio
import statistics
import time
from pathlib import Path

from benchmarks.engine.places import folder
from benchmarks.queues.broker import process, running
from benchmarks.report import Report, quantiles_ms
from millpond import AsyncAdmin, AsyncDelivery, AsyncProducer, AsyncPublisher, AsyncSubscriber
from millpond.model.subscriptions import SubscriptionConfig
from millpond.queues.dispatcher import Dispatcher
from millpond.queues.settled import FULL
from millpond.queues.tracked import Entry

BACKLOG, QUICK_BACKLOG = 1_000_000, 20_000
OTHERS, QUICK_OTHERS = 1_000_000, 20_000
MACHINE, QUICK_MACHINE = 10_000_000, 200_000
PROBES = 500
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
        "published just before: in the topic itself, behind a message that is blocked, or in another topic.",
    )
    samples: dict[str, list[tuple[float, float]]] = {"nothing blocked": [], "one key blocked": []}
    for number in range(rounds):
        for name, found in samples.items():
            topic = "orders" if name == "one key blocked" else "elsewhere"
            with running(path / f"{number}-{topic}") as address:
                found.append(quantiles_ms(asyncio.run(_probe(address, topic, backlog))))
            print(f"   {name}: {found[-1]}", flush=True)
    rows = []
    plain = statistics.median(p99 for _, p99 in samples["nothing blocked"])
    for name, found in samples.items():
        p50, p99 = (statistics.median(each[index] for each in found) for index in (0, 1))
        rows.append((name, f"{p50:.2f}", f"{p99:.2f}", f"{p99 / plain:.2f}"))
    report.table(("", "p50 ms", "p99 ms", "p99 ratio"), rows)


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


async def _probe(address: str, backlog_topic: str, backlog: int) -> list[float]:
    """The same backlog either way; only in the subscription's own topic is it behind a blocked message."""
    async with AsyncAdmin(address=address) as admin:
        await admin.create_topic("orders", partitions=1)
        await admin.create_subscription("orders", "billing", {"mode": "key_shared", **LONG})
    arrivals = Arrivals()
    async with (
        AsyncSubscriber(address, "orders", "billing", prefetch=1000) as subscriber,
        AsyncPublisher(address, timeout=60) as publisher,
    ):

        async def work() -> None:
            async for delivery in subscriber:
                if delivery.key == b"hot":
                    delivery.nack(HOUR_S)
                else:
                    arrivals.note(delivery.key or b"")
                    delivery.ack()

        working = asyncio.create_task(work())
        await _publish_many(address, backlog_topic, backlog, b"hot")
        await _until_delivered(publisher, arrivals, b"caught up")
        latencies = []
        for number in range(PROBES):
            began, key = time.perf_counter(), b"key-%d" % number
            await publisher.publish("orders", key, b"probe")
            latencies.append(await arrivals.of(key) - began)
            await asyncio.sleep(0.004)
        working.cancel()
    return latencies


async def _publish_many(address: str, topic: str, count: int, key: bytes | None) -> None:
    async with AsyncProducer(topic, address=address, timeout=60) as producer:
        for _ in range(count):
            await producer.submit(b"x" * 100, key=key)
        await producer.flush()


async def _until_delivered(publisher: AsyncPublisher, arrivals: Arrivals, key: bytes) -> None:
    await publisher.publish("orders", key, b"")
    await arrivals.of(key)


def _one_unacknowledged(report: Report, path: Path, others: int) -> None:
    report.section(
        f"One message that nobody acknowledges under {others:,} that are",
        "shared. Memory of the broker before and after; then kill -9, and a start on the same data: how long until the "
        "one message is delivered again, and what else is (nothing should be).",
    )
    with process(path) as (broker, address):
        before = _rss_mib(broker.pid)
        asyncio.run(_work_off(address, others))
        after = _rss_mib(broker.pid)
        broker.kill()
        broker.wait()
    with process(path) as (_, address):
        seconds, again = asyncio.run(_after_restart(address))
    report.table(
        (
            "messages settled above it",
            "RSS before MiB",
            "RSS after MiB",
            "attach to delivery s",
            "delivered again",
        ),
        [(f"{others:,}", f"{before:.0f}", f"{after:.0f}", f"{seconds:.2f}", again)],
    )


async def _work_off(address: str, others: int) -> None:
    async with AsyncAdmin(address=address) as admin:
        await admin.create_topic("orders", partitions=1)
        await admin.create_subscription("orders", "billing", LONG)
    async with AsyncSubscriber(address, "orders", "billing", prefetch=4000) as subscriber:
        publishing = asyncio.create_task(_publish_many(address, "orders", others + 1, None))
        taken = 0
        async for delivery in subscriber:
            if taken:
                delivery.ack()
            taken += 1
            if taken > others:
                break
        await publishing
        await subscriber.flush()


async def _after_restart(address: str) -> tuple[float, int]:
    began = time.perf_counter()
    async with AsyncSubscriber(address, "orders", "billing", prefetch=4000) as subscriber:
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
    dispatcher.attach("worker")
    dispatcher.grant("worker", 1)
    dispatcher.index([Entry(0, None)], 1)
    dispatcher.dispatch(0)
    began, step = time.perf_counter(), 2_000
    for start in range(1, count, step):
        dispatcher.grant("worker", step)
        dispatcher.index([Entry(offset, None) for offset in range(start, start + step)], start + step)
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
        ("us a message", "rows in the catalog", "of them 1 KiB", "tracked in memory", "built anew ms"),
        [(f"{seconds / count * 1e6:.1f}", len(chunks), partial, dispatcher.tracked, f"{loaded * 1000:.1f}")],
    )


def _rss_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20
