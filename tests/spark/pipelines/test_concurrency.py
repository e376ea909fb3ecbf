"""Two runs of a pipeline over the same extents: one commits, the other yields."""

import asyncio
import threading

from tests.spark.pipelines.maintaining import (
    collect_garbage,
    expire_leases,
    extents,
    job_at,
    objects,
    sessions,
    stored,
)
from tests.spark.topics import fill, serving

from millpond.records import Record, build_batch
from millpond.spark.pipelines import compact, merge
from millpond.spark.pipelines.compact import CompactRequest
from millpond.spark.pipelines.merge import MergeRequest

TOPICS = {
    "kept": {"retention.ms": "-1"},
    "expiring": {"retention.ms": "-1", "retention.bytes": str(64 * 1024)},
    "state": {"cleanup.policy": "compact", "delete.retention.ms": "0"},
}


async def two_at_once(run, requests, path, spark) -> list[dict]:
    """Two runs that have planned the same work before either commits."""
    return await asyncio.gather(
        *(asyncio.to_thread(run, job_at(path, spark), request) for request in requests)
    )


def meet(monkeypatch, module, parties: int = 2) -> None:
    """The first commits of all runs wait for each other."""
    barrier, genuine, met = threading.Barrier(parties), module._commit, threading.local()

    def commit(*arguments):
        if not getattr(met, "here", False):
            met.here = True
            barrier.wait(timeout=60)
        return genuine(*arguments)

    monkeypatch.setattr(module, "_commit", commit)


async def test_of_two_merges_of_the_same_extents_one_wins_and_the_other_yields(spark, tmp_path, monkeypatch):
    async with serving(tmp_path) as broker:
        await fill(broker, "orders", 1, 400, per_batch=10)
    before = stored(tmp_path, "orders")
    meet(monkeypatch, merge)
    reports = await two_at_once(merge.run, [MergeRequest()] * 2, tmp_path, spark)
    assert sorted(report["segments"] for report in reports) == [0, 1]
    assert sorted(report["conflicts"] for report in reports) == [0, 1]
    assert len(extents(tmp_path, "orders")) == 1
    assert stored(tmp_path, "orders") == before
    await assert_only_garbage_is_left(tmp_path, "orders")


async def test_of_two_compactions_of_a_partition_one_wins_and_the_other_yields(spark, tmp_path, monkeypatch):
    async with serving(tmp_path) as broker:
        await broker.log.create_topic("orders", 1, TOPICS["state"])
        topic_partition = broker.log.topics.partition("orders", 0)
        for n in range(40):
            records = [Record(b"%d" % n, b"key %d" % key) for key in range(10)]
            await broker.log.append(topic_partition, build_batch(records, now_ms=n))
    expected = stored(tmp_path, "orders")[-10:]
    meet(monkeypatch, compact)
    reports = await two_at_once(compact.run, [CompactRequest(force=True)] * 2, tmp_path, spark)
    assert sorted(report["conflicts"] for report in reports) == [0, 1]
    assert all(report["failed"] == report["left"] == [] for report in reports)
    assert stored(tmp_path, "orders") == expected
    await assert_only_garbage_is_left(tmp_path, "orders")


async def assert_only_garbage_is_left(path, topic) -> None:
    before = stored(path, topic)
    expire_leases(path)
    async with serving(path) as broker:
        await collect_garbage(broker)
    assert objects(path) == {key for _, _, key in extents(path, topic) if key is not None}
    assert stored(path, topic) == before
    assert sessions(path)[0] == 0
