"""A slow store under two brokers: order is the order of commits, and an upload of a dead broker gets no offsets."""

import asyncio
import time

import pytest
from tests.cluster.over_postgres import cluster, owned, shared_topic, until
from tests.cluster.workload import read_all

from millpond import Record
from millpond.model.errors import MillpondError
from millpond.records import build_batch
from millpond.testing import Faults, FaultyStore

PARTITIONS = 4

STORED = {"inline_bytes_max": 0, "flush_delay": 5, "garbage_grace": 0, "lease": 30_000}
"""Every flush goes to the store, and the lease has no part in it."""


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


async def append(broker, topic_partition, value):
    return (await broker.log.append(topic_partition, build_batch([Record(value)], now_ms=1))).base_offset


async def test_a_slow_put_of_one_whose_lease_ran_out_meanwhile_is_not_seen(databases, s3_store, figures):
    """Its bytes come to lie in the store when another owns the partition: they get no offsets, and are collected."""
    faults = Faults()
    url = databases.new_url()
    parts = [{"wrap_store": lambda store: Uploads(store, faults)}, {}]
    chosen = {**STORED, "lease": 60_000}
    async with cluster([url, url], s3_store, parts=parts, **chosen) as (slow_one, heir):
        await shared_topic([slow_one, heir], partitions=2)
        topic_partition = owned(slow_one)[0]
        hold = faults.hold("append")
        late = asyncio.create_task(append(slow_one, topic_partition, b"late"))
        await asyncio.to_thread(hold.wait_reached)
        await declare_dead(heir, slow_one)
        await until(lambda: topic_partition in owned(heir))
        assert await append(heir, topic_partition, b"mine") == 0
        hold.release()
        with pytest.raises(MillpondError):
            await late
        assert [record.value for record in await heir.read("t", partition=topic_partition.partition)] == [
            b"mine"
        ]
        heir.maintenance.garbage._swept_at.clear()
        assert await heir.maintenance.garbage.run_once() == 1
    figures.append("slow PUT of a broker declared dead meanwhile: no offsets, its object collected")


async def declare_dead(judge, broker):
    from millpond.catalog import topology, writers

    def mark_dead(tx):
        writers.mark_dead(tx, broker.session, 1)
        topology.bump_version(tx)
        topology.adopt(tx)

    await judge.log.write(mark_dead, own_commit=True)
    await judge.log.refresh()
