"""Milliseconds on S3: what is small rides in PostgreSQL, as long as that stays small, and nothing is lost between."""

import asyncio
import statistics
import time

from tests.cluster.over_postgres import shared_topic
from tests.cluster.workload import Sender, check, read_all
from tests.faults.cluster.conftest import cluster

from millpond import Record
from millpond.catalog import extents
from millpond.records import build_batch

PUT_MS = 100
KIB = 1024
SAMPLES = 200


class SlowPuts:
    """A store whose every PUT takes 100 ms longer."""

    def __init__(self, store):
        self._store = store
        self.puts = 0

    def append(self, parts):
        self.puts += 1
        time.sleep(PUT_MS / 1000)
        return self._store.append(parts)

    def put(self, key, parts):
        self.puts += 1
        time.sleep(PUT_MS / 1000)
        self._store.put(key, parts)

    def __getattr__(self, name):
        return getattr(self._store, name)


async def test_one_record_in_flight_waits_for_no_put(databases, s3_store, figures):
    """The time is a figure; that no PUT is on the way is the promise."""
    url = databases.new_url()
    parts = [{"wrap_store": SlowPuts, "maintain": True}] * 2
    async with cluster([url, url], s3_store, parts=parts, flush_delay=250, lease=30_000) as brokers:
        topic = await shared_topic(brokers, partitions=2)
        broker = brokers[0]
        topic_partition = broker.log.partitions()[0].topic_partition
        batch = bytes(build_batch([Record(b"x" * 1_000)], now_ms=time.time_ns() // 1_000_000))
        latencies, puts = [], 0
        for _ in range(SAMPLES):
            before = sum(each.log._flusher.flushes for each in brokers), uploads(broker)
            started = time.perf_counter()
            await broker.log.append(topic_partition, batch)
            latencies.append(time.perf_counter() - started)
            puts += uploads(broker) - before[1]
        assert puts == 0, "a single small record has waited for an upload"
        assert broker.metrics.log.inline_flushes._value.get() == SAMPLES
        assert topic.partitions == 2
    p50, p99 = (
        statistics.quantiles(latencies, n=100)[49] * 1000,
        statistics.quantiles(latencies, n=100)[98] * 1000,
    )
    figures.append(
        f"one record in flight, every PUT {PUT_MS} ms slower: p50 {p50:.2f} ms, p99 {p99:.2f} ms, PUTs on its way 0"
    )


def uploads(broker):
    return broker.metrics.log.stored_flushes._value.get()


async def test_several_times_the_budget_stays_within_the_bound_and_keeps_the_order(
    databases, s3_store, figures
):
    """Producers alternate between trickling and pouring, at several times what the catalog takes; both ways are used in
    turns, nothing is lost or reordered, and PostgreSQL never holds more than the bound."""
    rate, bound = 64 * KIB, 64 * KIB  # which would be reached in a second, and merging comes every two
    limits = {
        "inline_bytes_per_second": rate,
        "inline_bytes_kept_max": bound,
        "flush_delay": 50,
        "lease": 30_000,
    }
    url = databases.new_url()
    parts = [{"wrap_store": SlowPuts, "maintain": True}] * 2
    async with cluster([url, url], s3_store, parts=parts, **limits) as brokers:
        topic = await shared_topic(brokers, partitions=4)
        senders = [Sender(number % 4, pace_s=0.002, size=4_000) for number in range(16)]
        kept = []
        task = asyncio.create_task(watch(brokers[0], kept))
        started = time.perf_counter()
        runs = [each.run(brokers, topic.id, 60) for each in senders]
        await asyncio.wait_for(asyncio.gather(*runs), 90)
        seconds = time.perf_counter() - started
        task.cancel()
        acknowledged, unanswered, doubled = await check(brokers, "t", senders)
        ways = [
            (each.metrics.log.inline_flushes._value.get(), each.metrics.log.stored_flushes._value.get())
            for each in brokers
        ]
        inline, stored = (int(sum(way)) for way in zip(*ways, strict=True))
        assert inline > 0, "everything went through the store"
        assert stored > 0, "everything went through the catalog"
        assert (unanswered, doubled) == (0, 0)
        slack = len(brokers) * 16 * KIB  # what was on its way when the bound was reached
        assert max(kept) <= len(brokers) * bound + slack
        assert len(await read_all(brokers, "t", 0)) == acknowledged // 4
        sent = acknowledged * 4_000 / seconds / len(brokers)
    figures.append(
        f"producers at {sent / rate:.1f} times the catalog's budget: acknowledged {acknowledged}, lost 0, order kept, "
        f"{inline} flushes inline and {stored} stored, at most {max(kept) / KIB:.0f} KiB in PostgreSQL "
        f"(bound {bound // KIB} KiB for each of {len(brokers)} brokers)"
    )


async def watch(broker, kept):
    """Inline bytes of all brokers, as the catalog says, again and again."""
    while True:
        kept.append((await broker.log.read(extents.totals)).inline_bytes)
        await asyncio.sleep(0.05)
