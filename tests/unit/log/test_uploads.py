"""Uploads that are held back or fail, in chosen order: a later flush of a partition never overtakes an earlier one."""

import asyncio
import contextlib
import time

import pytest

from millpond import Broker, Record, Settings, TopicPartition
from millpond.log.flights import Phase
from millpond.model.errors import FlushFailed, MillpondError, StoreUnavailable, Unavailable
from millpond.objects.memory import MemoryStore
from millpond.records import build_batch
from millpond.testing import Faults, FaultyStore


class Uploads(FaultyStore):
    """Treated as an object store: appends upload side by side."""

    appends_are_uploads = True


@contextlib.asynccontextmanager
async def uploading_broker(faults, **settings):
    chosen = {
        "inline_bytes_max": 0,
        "flush_delay": 1,
        "catalog": "memory://",
        "storage": "memory://",
        **settings,
    }
    wrap = lambda _: Uploads(MemoryStore(broker.session), faults)  # noqa: E731
    broker = Broker(Settings(**chosen), wrap_store=wrap, maintain=False)
    async with broker:
        yield broker


def idempotent(sequence, value):
    return build_batch([Record(value)], producer_id=9, producer_epoch=0, base_sequence=sequence, now_ms=1)


async def soon(awaitable):
    return await asyncio.wait_for(awaitable, 10)


async def test_a_slow_upload_is_overtaken_by_no_later_one_of_its_partition(figures):
    """Three flushes of one partition; the first hangs. Other partitions' flushes pass it by."""
    faults = Faults()
    async with uploading_broker(faults) as broker:
        await broker.log.create_topic("topic", 3)
        slow = faults.hold("append")
        first = asyncio.create_task(broker.produce("topic", b"first"))
        await asyncio.to_thread(slow.wait_reached)
        started = time.perf_counter()
        others = [(await soon(broker.produce("topic", b"x", partition=p))).base_offset for p in (1, 2, 1, 2)]
        waited_s = time.perf_counter() - started
        later = []
        for value in (b"second", b"third"):
            later.append(asyncio.create_task(broker.produce("topic", value)))
            await asyncio.sleep(0.03)
        assert others == [0, 0, 1, 1]
        assert not first.done()
        assert not any(task.done() for task in later)
        assert await broker.read("topic") == []
        slow.release()
        assert [(await soon(task)).base_offset for task in (first, *later)] == [0, 1, 2]
        assert [record.value for record in await broker.read("topic")] == [b"first", b"second", b"third"]
    figures.append(f"slow upload: 4 appends elsewhere took {waited_s * 1000:.0f} ms meanwhile, order kept")


async def test_a_slow_upload_does_not_delay_partitions_that_only_share_a_later_flush():
    faults = Faults()
    async with uploading_broker(faults, flush_delay=50) as broker:
        await broker.log.create_topic("topic", 2)
        slow = faults.hold("append")
        first = asyncio.create_task(broker.produce("topic", b"first"))
        await asyncio.to_thread(slow.wait_reached)
        same = asyncio.create_task(broker.produce("topic", b"second"))
        other = asyncio.create_task(broker.produce("topic", b"elsewhere", partition=1))
        try:
            await asyncio.wait([other], timeout=20)
            assert other.done()
        finally:
            slow.release()
            await asyncio.gather(first, same, other)


async def test_a_failed_upload_behind_a_slow_one_keeps_an_idempotent_producers_order():
    """Sequence 0 hangs, 1 fails and is sent again: each is answered once, and both are stored once, in order."""
    faults = Faults()
    async with uploading_broker(faults) as broker:
        topic = await broker.log.create_topic("topic", 1)
        topic_partition = TopicPartition(topic.id, 0)
        slow = faults.hold("append")
        zero = asyncio.create_task(broker.log.append(topic_partition, idempotent(0, b"zero")))
        await asyncio.to_thread(slow.wait_reached)
        faults.fail_before("append")
        one = asyncio.create_task(broker.log.append(topic_partition, idempotent(1, b"one")))
        await asyncio.sleep(0.1)
        slow.release()
        assert (await soon(zero)).base_offset == 0
        with pytest.raises(Unavailable):
            await soon(one)
        again = await soon(insist_on(lambda: broker.log.append(topic_partition, idempotent(1, b"one"))))
        assert again.base_offset == 1
        assert (await soon(broker.log.append(topic_partition, idempotent(0, b"zero")))).base_offset == 0
        assert [record.value for record in await broker.read("topic")] == [b"zero", b"one"]


async def test_retries_that_race_a_slow_upload_are_answered_and_stored_once():
    faults = Faults()
    async with uploading_broker(faults) as broker:
        topic = await broker.log.create_topic("topic", 1)
        topic_partition = TopicPartition(topic.id, 0)
        slow = faults.hold("append")
        zero = asyncio.create_task(broker.log.append(topic_partition, idempotent(0, b"zero")))
        await asyncio.to_thread(slow.wait_reached)
        faults.fail_before("append")
        sends = [
            asyncio.create_task(
                insist_on(lambda n=n: broker.log.append(topic_partition, idempotent(n, b"%d" % n)))
            )
            for n in (1, 2)
        ]
        await asyncio.sleep(0.5)
        slow.release()
        assert (await soon(zero)).base_offset == 0
        assert [(await soon(task)).base_offset for task in sends] == [1, 2]
        assert [record.value for record in await broker.read("topic")] == [b"zero", b"1", b"2"]


async def insist_on(call):
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0.02)


async def test_a_failed_upload_takes_what_follows_it_in_its_partition_and_nothing_else():
    faults = Faults()
    async with uploading_broker(faults) as broker:
        await broker.log.create_topic("topic", 2)
        held = faults.hold("append")
        first = asyncio.create_task(broker.produce("topic", b"first"))
        await asyncio.to_thread(held.wait_reached)
        elsewhere = await soon(broker.produce("topic", b"elsewhere", partition=1))
        second = asyncio.create_task(broker.produce("topic", b"second"))
        async with asyncio.timeout(10):
            while [flight.phase for flight in broker.log._flusher._flights] != [
                Phase.UPLOADING,
                Phase.WAITING,
            ]:
                await asyncio.sleep(0.01)
        held._released.set = lambda: None  # it never comes back: the held call raises instead
        broker.store._store.close()
        held._released.__class__.set(held._released)
        results = await soon(asyncio.gather(first, second, return_exceptions=True))
        assert isinstance(results[0], StoreUnavailable)
        assert isinstance(results[1], FlushFailed)
        assert elsewhere.base_offset == 0
        assert await broker.read("topic") == []
        assert all(isinstance(error, MillpondError) and error.retriable for error in results)
