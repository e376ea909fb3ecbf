"""An S3 that fails, and one that is slow, under two brokers (reliability tests 9 and 10)."""

import asyncio
import time

import pytest
from tests.cluster.over_postgres import shared_topic
from tests.cluster.workload import Sender, check, send_all
from tests.faults.cluster.conftest import cluster
from tests.faults.test_object_store import BUCKET, CREDENTIALS, POLICY, REQUEST_TIMEOUT_MS, moto, proxy

from millpond import Record
from millpond.objects.remote import RemoteStore
from millpond.objects.retrying import Retrying
from millpond.records import build_batch

__all__ = ["moto", "proxy"]
PARTITIONS = 4
VALUES = 15
STORED = {"inline_bytes_max": 0, "flush_delay": 5, "garbage_grace": 0, "lease": 30_000}
"""Every flush goes to the store, and the lease has no part in it."""


class StaleLists:
    """A store whose listings are old: they lack what was put last, and name what was deleted last."""

    def __init__(self, store):
        self._store = store
        self._before = {}

    def list(self, prefix):
        now = list(self._store.list(prefix))
        shown, self._before[prefix] = self._before.get(prefix, []), now
        return iter(shown)

    def __getattr__(self, name):
        return getattr(self._store, name)


def over(proxy, prefix, wrap=lambda store: store):
    """A broker's store: S3 behind the proxy, with short timeouts. Its objects bear the session of their writer."""

    def wrap_store(unused):
        session = unused_session(unused)
        unused.close()
        config = {**CREDENTIALS, "endpoint": proxy.url}
        remote = RemoteStore(
            f"s3://{BUCKET}/{prefix}", session, config=config, request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        return wrap(Retrying(remote, POLICY))

    return wrap_store


def unused_session(store):
    while not hasattr(store, "_session"):
        store = store._store
    return store._session


@pytest.mark.parametrize("percent", [0, 1, 10, 50])
async def test_two_brokers_over_a_store_that_fails_lose_nothing_and_double_nothing(
    databases, proxy, figures, percent
):
    url, prefix = databases.new_url(), f"two-{percent}"
    parts = [{"wrap_store": over(proxy, prefix)} for _ in range(2)]
    senders = [Sender(n % PARTITIONS, idempotent=n < PARTITIONS, pace_s=0) for n in range(2 * PARTITIONS)]
    async with cluster([url, url], "memory://", parts=parts, **STORED) as brokers:
        topic = await shared_topic(brokers, partitions=PARTITIONS)
        proxy.error_rate = percent / 100
        started = time.perf_counter()
        await send_all(senders, brokers, topic.id, VALUES)
        seconds = time.perf_counter() - started
        flushes = sum(each.log._flusher.flushes for each in brokers)
        puts = proxy.puts
        assert puts <= flushes * POLICY.attempts_max, "retries are not bounded"
        proxy.error_rate = 0.0
        acknowledged, unanswered, doubled = await check(brokers, "t", senders)
    parts = [{"wrap_store": over(proxy, prefix)} for _ in range(2)]
    async with cluster([url, url], "memory://", parts=parts, **STORED) as brokers:
        collected = sum(await asyncio.gather(*(each.maintenance.garbage.run_once() for each in brokers)))
        known = {row[0] for row in await brokers[0].log.read(lambda tx: tx.rows("SELECT key FROM objects"))}
        assert set(brokers[0].store.list("")) == known, "orphans are left"
        assert (await check(brokers, "t", senders))[0] == acknowledged
    figures.append(
        f"two brokers, S3 at {percent} % errors: acknowledged {acknowledged}, lost 0, idempotent duplicates 0, "
        f"unanswered but stored {unanswered}, other duplicates {doubled}, {acknowledged / seconds:.0f} appends/s, "
        f"{puts} PUTs for {flushes} flushes, {sum(len(each.refusals) for each in senders)} refusals, "
        f"orphans deleted {collected} times"
    )


async def test_old_listings_delete_nothing_that_is_needed_and_keep_nothing_for_ever(
    databases, proxy, figures
):
    """What a listing does not show yet is collected by a later sweep; what it still shows is deleted in vain."""
    url = databases.new_url()
    stale = [{"wrap_store": over(proxy, "stale", StaleLists)} for _ in range(2)]
    senders = [Sender(n) for n in range(PARTITIONS)]
    proxy.kinds, proxy.error_rate = ("unanswered", "500"), 0.3
    async with cluster([url, url], "memory://", parts=stale, **STORED) as brokers:
        topic = await shared_topic(brokers, partitions=PARTITIONS)
        await send_all(senders, brokers, topic.id, VALUES)
    proxy.error_rate = 0.0
    stale = [{"wrap_store": over(proxy, "stale", StaleLists)} for _ in range(2)]
    async with cluster([url, url], "memory://", parts=stale, **STORED) as brokers:
        swept = 0
        for _ in range(3):
            for each in brokers:
                each.maintenance.garbage._swept_at.clear()  # as if the time for the next sweep had come
                swept += await each.maintenance.garbage.run_once()
            await check(brokers, "t", senders)
        known = {row[0] for row in await brokers[0].log.read(lambda tx: tx.rows("SELECT key FROM objects"))}
        assert set(brokers[0].store._store.list("")) == known
    figures.append(f"old listings: deletions {swept}, lost 0, orphans left 0")


async def append(broker, topic_partition, value):
    return (await broker.log.append(topic_partition, build_batch([Record(value)], now_ms=1))).base_offset
