"""An S3 that fails, and one that is slow, under two brokers (reliability tests 9 and 10)."""

import asyncio
import time

import pytest
from tests.faults.cluster.conftest import cluster, owned, shared_topic, until
from tests.faults.cluster.workload import Sender, check, read_all, send_all
from tests.faults.test_object_store import BUCKET, CREDENTIALS, POLICY, REQUEST_TIMEOUT_MS, moto, proxy

from millpond import Record
from millpond.model.errors import MillpondError
from millpond.objects.remote import RemoteStore
from millpond.objects.retrying import Retrying
from millpond.records import build_batch
from millpond.testing import Faults, FaultyStore

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


class Uploads(FaultyStore):
    """Counts what is uploaded."""


async def test_a_slow_put_is_overtaken_by_none_of_its_partition_and_holds_up_no_other(
    databases, s3_store, figures
):
    """Order is the order of commits: what was put first and comes last is committed first."""
    faults = Faults()
    url = databases.new_url()
    parts = [{"wrap_store": lambda store: Uploads(store, faults)}, {}]
    async with cluster([url, url], s3_store, parts=parts, **STORED) as brokers:
        slow_one, other = brokers
        await shared_topic(brokers, partitions=PARTITIONS)
        mine, neighbour = owned(slow_one)
        hold = faults.hold("append")
        first = asyncio.create_task(append(slow_one, mine, b"first"))
        await asyncio.to_thread(hold.wait_reached)
        later = []
        for number in range(3):
            later.append(asyncio.create_task(append(slow_one, mine, b"later %d" % number)))
            await asyncio.sleep(0.05)
        started = time.perf_counter()
        elsewhere = [await append(slow_one, neighbour, b"x"), await append(other, owned(other)[0], b"x")]
        meanwhile_s = time.perf_counter() - started
        assert elsewhere == [0, 0]
        assert not first.done()
        assert not any(each.done() for each in later)
        assert await slow_one.read("t", partition=mine.partition) == []
        hold.release()
        assert [await each for each in (first, *later)] == [0, 1, 2, 3]
        values = [record.value for record in await read_all(brokers, "t", mine.partition)]
        assert values == [b"first", b"later 0", b"later 1", b"later 2"]
    figures.append(f"slow PUT: order kept, two appends elsewhere took {meanwhile_s * 1000:.0f} ms meanwhile")


async def append(broker, where, value):
    return (await broker.log.append(where, build_batch([Record(value)], now_ms=1))).base_offset


async def test_a_slow_put_of_one_whose_lease_ran_out_meanwhile_is_not_seen(databases, s3_store, figures):
    """Its bytes come to lie in the store when another owns the partition: they get no offsets, and are collected."""
    faults = Faults()
    url = databases.new_url()
    parts = [{"wrap_store": lambda store: Uploads(store, faults)}, {}]
    chosen = {**STORED, "lease": 60_000}
    async with cluster([url, url], s3_store, parts=parts, **chosen) as (slow_one, heir):
        await shared_topic([slow_one, heir], partitions=2)
        where = owned(slow_one)[0]
        hold = faults.hold("append")
        late = asyncio.create_task(append(slow_one, where, b"late"))
        await asyncio.to_thread(hold.wait_reached)
        await declare_dead(heir, slow_one)
        await until(lambda: where in owned(heir))
        assert await append(heir, where, b"mine") == 0
        hold.release()
        with pytest.raises(MillpondError):
            await late
        assert [record.value for record in await heir.read("t", partition=where.partition)] == [b"mine"]
        heir.maintenance.garbage._swept_at.clear()
        assert await heir.maintenance.garbage.run_once() == 1
    figures.append("slow PUT of a broker declared dead meanwhile: no offsets, its object collected")


async def declare_dead(judge, broker):
    from millpond.catalog import topology, writers

    def bury(tx):
        writers.bury(tx, broker.session, 1)
        topology.move(tx)
        topology.adopt(tx)

    await judge.log.write(bury, alone=True)
    await judge.log.refresh()
