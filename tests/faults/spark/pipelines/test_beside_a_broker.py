"""Pipelines beside a working broker: producers append and consumers read at all times, and nobody notices anything.

What is checked, of every record that a producer was told about: it is there (unless its topic lets it go), once,
in order, at the offset that was told, with the value that was sent, however often its bytes are moved meanwhile.
"""

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from tests.spark.pipelines.maintaining import (
    MIB,
    collect_garbage,
    job_at,
    stored,
)
from tests.spark.topics import serving

from millpond.log import FetchRequest
from millpond.model.errors import OffsetOutOfRange
from millpond.records import Record, build_batch, iter_records
from millpond.spark.pipelines import compact, merge, retain, verify
from millpond.spark.pipelines.compact import CompactRequest
from millpond.spark.pipelines.merge import MergeRequest
from millpond.spark.pipelines.retain import RetainRequest
from millpond.spark.pipelines.verify import VerifyRequest

TOPICS = {
    "kept": {"retention.ms": "-1"},
    "expiring": {"retention.ms": "-1", "retention.bytes": str(64 * 1024)},
    "state": {"cleanup.policy": "compact", "delete.retention.ms": "0"},
}
PARTITIONS = 2
KEYS = 50


@dataclass
class Lane:
    """One partition: what was acknowledged there, and what its follower has seen."""

    topic: str
    number: int
    sent: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    seen: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    scans: int = 0
    skipped: int = 0


class Traffic:
    """Producers and consumers of every partition, until `stop`."""

    def __init__(self, broker, seed: int = 7):
        self.broker = broker
        self.lanes = [Lane(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
        self._chance = random.Random(seed)
        self._ending = False

    async def run(self, enough) -> None:
        async with asyncio.TaskGroup() as everybody:
            producers = [everybody.create_task(self._produce(lane)) for lane in self.lanes]
            for lane in self.lanes:
                everybody.create_task(self._follow(lane, producers))
                everybody.create_task(self._scan(lane))
            await enough()
            self._ending = True

    async def _produce(self, lane: Lane) -> None:
        topic_partition = self.broker.log.topics.partition(lane.topic, lane.number)
        count = 0
        while not self._ending:
            records = []
            for _ in range(self._chance.randrange(1, 20)):
                key = b"key %d" % self._chance.randrange(KEYS)
                records.append(Record(b"%d " % count + b"." * self._chance.randrange(200), key))
                count += 1
            data = build_batch(records, now_ms=self.broker.clock.now_ms())
            base = (await self.broker.log.append(topic_partition, data)).base_offset
            lane.sent.update({base + n: (record.key, record.value) for n, record in enumerate(records)})
            await asyncio.sleep(self._chance.random() * 0.02)

    async def _follow(self, lane: Lane, producers) -> None:
        """From the first record to the last, once."""
        offset = 0
        topic_partition = self.broker.log.topics.partition(lane.topic, lane.number)
        while offset < self.broker.log.partition(topic_partition).end_offset or not all(
            p.done() for p in producers
        ):
            records, offset = await self._fetch(lane, topic_partition, offset, wait_ms=50)
            lane.seen.extend(records)

    async def _scan(self, lane: Lane) -> None:
        """Again and again from the log start: these readers meet what has been moved."""
        topic_partition = self.broker.log.topics.partition(lane.topic, lane.number)
        while not self._ending:
            partition = self.broker.log.partition(topic_partition)
            offset, end, before = partition.log_start, partition.end_offset, -1
            while offset < end:
                records, offset = await self._fetch(lane, topic_partition, offset)
                for at, key, value in records:
                    assert before < at, f"{topic_partition} goes back from {before} to {at}"
                    before = at
                    check_record(lane, at, key, value)
            lane.scans += 1
            await asyncio.sleep(0.01)

    async def _fetch(self, lane: Lane, topic_partition, offset: int, wait_ms: int = 0):
        request = FetchRequest(topic_partition, offset, 64 * 1024)
        [result] = await self.broker.log.fetch([request], bytes_max=64 * 1024, wait_ms=wait_ms)
        if isinstance(result.error, OffsetOutOfRange) and lane.topic == "expiring":
            lane.skipped += 1
            return [], max(offset, result.error.facts["log_start"])
        if result.error is not None:
            raise result.error
        decoded = [r for data in result.batches for r in iter_records(data, decompressed_bytes_max=MIB)]
        return [(r.offset, r.key, r.value) for r in decoded if r.offset >= offset], result.next_offset


def check_record(lane: Lane, offset: int, key: bytes, value: bytes) -> None:
    """A record may be read a moment before its producer is told; what was told must hold."""
    if offset in lane.sent:
        assert lane.sent[offset] == (key, value), f"{lane.topic}-{lane.number} at {offset}"


def check_followed(lane: Lane) -> None:
    offsets = [offset for offset, _, _ in lane.seen]
    assert offsets == sorted(set(offsets)), f"{lane.topic}-{lane.number}: twice, or out of order"
    for offset, key, value in lane.seen:
        assert lane.sent[offset] == (key, value)
    if lane.topic == "kept":
        assert offsets == sorted(lane.sent), "lost"
    if lane.topic == "state":
        assert latest(lane.seen) == latest_sent(lane), "a key's last value was missed"


def check_stored(path, lane: Lane) -> None:
    found = stored(path, lane.topic, lane.number)
    assert all(lane.sent[offset] == (key, value) for offset, key, value in found)
    offsets = [offset for offset, _, _ in found]
    if lane.topic == "kept":
        assert offsets == sorted(lane.sent)
    if lane.topic == "expiring":
        assert offsets == sorted(lane.sent)[-len(offsets) :], "a hole"
    if lane.topic == "state":
        assert offsets == sorted(offsets)
        assert latest(found) == latest_sent(lane)


def latest(records) -> dict[bytes, bytes]:
    return {key: value for _, key, value in records}


def latest_sent(lane: Lane) -> dict[bytes, bytes]:
    return {key: value for _, (key, value) in sorted(lane.sent.items())}


class Pipelines:
    """Every pipeline again and again, two merges and two compactions at a time, until it is `over`."""

    def __init__(self, path, spark):
        self._job = lambda: job_at(path, spark)
        self.over = False
        self.totals = [Counter() for _ in range(5)]

    async def run(self) -> None:
        await asyncio.gather(
            self._repeat(merge.run, MergeRequest(), self.totals[0]),
            self._repeat(merge.run, MergeRequest(("kept", "state")), self.totals[1]),
            self._repeat(compact.run, CompactRequest(force=True), self.totals[2]),
            self._repeat(compact.run, CompactRequest(("state",), force=True), self.totals[3]),
            self._repeat(retain.run, RetainRequest(), self.totals[4]),
        )

    async def _repeat(self, run, request, total) -> None:
        while not self.over:
            report = await asyncio.to_thread(run, self._job(), request)
            assert report["failed"] == []
            done = report.get("segments", 0) + report.get("extents_removed", 0)
            total.update(runs=1, conflicts=report["conflicts"], done=done)

    def have_worked(self) -> bool:
        merges, compactions = self.totals[0:2], self.totals[2:4]
        busy = all(sum(total["done"] for total in some) > 2 for some in (merges, compactions))
        return busy and all(total["runs"] > 1 for total in self.totals)

    def sum(self, name: str) -> int:
        return sum(total[name] for total in self.totals)


async def maintain(broker) -> None:
    """The broker's own duties, but for merging they are quicker than usual: objects go as soon as they are dead."""
    for turn in itertools.count():
        await asyncio.sleep(0.2)
        await collect_garbage(broker)
        if turn % 20 == 19:
            await broker.maintenance.merging.run_once()


async def work_together(spark, path, seconds: float, figures, label: str) -> None:
    started = time.perf_counter()
    async with serving(path, inline_bytes_max=4_096) as broker:
        for topic, config in TOPICS.items():
            await broker.log.create_topic(topic, PARTITIONS, config)
        traffic, pipelines = Traffic(broker), Pipelines(path, spark)

        async def enough() -> None:
            """On a busy machine it takes its time until every pipeline has had its share."""
            while (passed := time.perf_counter() - started) < 15 * seconds:
                if passed >= seconds and pipelines.have_worked():
                    return
                await asyncio.sleep(0.1)

        duties = asyncio.create_task(maintain(broker))
        jobs = asyncio.create_task(pipelines.run())
        try:
            await traffic.run(enough)
        finally:
            pipelines.over = True
            await jobs
            duties.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await duties
        for lane in traffic.lanes:
            check_followed(lane)
    for lane in traffic.lanes:
        check_stored(path, lane)
    assert pipelines.have_worked(), pipelines.totals
    report = await asyncio.to_thread(verify.run, job_at(path, spark), VerifyRequest())
    assert report["state"] == "ok", report
    sent = sum(len(lane.sent) for lane in traffic.lanes)
    scans = sum(lane.scans for lane in traffic.lanes)
    figures.append(
        f"pipelines beside a broker ({label}): {sent} records, {pipelines.sum('runs')} runs made or expired "
        f"{pipelines.sum('done')} extents with {pipelines.sum('conflicts')} conflicts; {scans} scans: "
        f"lost 0, twice 0, {time.perf_counter() - started:.0f} s"
    )


async def test_merge_compact_and_retain_beside_producers_and_consumers(spark, tmp_path, figures):
    await work_together(spark, tmp_path, 8, figures, "short")


@pytest.mark.long
async def test_merge_compact_and_retain_beside_producers_and_consumers_for_two_minutes(
    spark, tmp_path, figures
):
    await work_together(spark, tmp_path, 120, figures, "long")
