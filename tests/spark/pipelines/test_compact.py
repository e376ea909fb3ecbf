"""`compact`: the last record of each key stays, at its offset, as a Spark SQL query over the same rows says."""

import asyncio
import random

import pytest
from tests.spark.pipelines.maintaining import (
    change,
    collect_at,
    extents,
    job_at,
    merge_in_broker,
    objects,
    partition,
    rows,
    sessions,
    stored,
)
from tests.spark.topics import append, serving

from millpond.catalog import compactions
from millpond.model.errors import ExtentsChanged, InvalidRequest
from millpond.records import Codec, Record
from millpond.spark.pipelines import compact, merge, verify
from millpond.spark.pipelines.compact import CompactRequest
from millpond.spark.pipelines.merge import MergeRequest
from millpond.spark.pipelines.verify import VerifyRequest

ALL = CompactRequest()
FORCED = CompactRequest(force=True)
COMPACT = {"cleanup.policy": "compact"}


async def filled(
    path, *, partitions=2, batches=30, per_batch=50, keys=40, codec=Codec.NONE, seed=1, **config
) -> None:
    """Records of random keys, some of them tombstones; the values say where they are."""
    chance = random.Random(seed)
    async with serving(path) as broker:
        if not broker.log.topics.knows("state"):
            await broker.log.create_topic("state", partitions, {**COMPACT, **config})
        for number in range(partitions):
            for batch in range(batches):
                records = [
                    Record(
                        None if chance.random() < 0.1 else b"value %d-%d-%d" % (number, batch, n),
                        b"key %d" % chance.randrange(keys),
                        timestamp=1_000 + batch,
                    )
                    for n in range(per_batch)
                ]
                await append(broker, "state", number, records, compression=codec)


def latest_by_sql(spark, tables):
    """The reference: the last record of each key, tombstones included, as Spark SQL finds it."""
    written = [(n, offset, key, value) for n, table in enumerate(tables) for offset, key, value in table]
    spark.createDataFrame(
        written, "partition int, offset long, key binary, value binary"
    ).createOrReplaceTempView("written")
    latest = spark.sql("""
        SELECT partition, offset, key, value FROM (
          SELECT *, row_number() OVER (PARTITION BY partition, key ORDER BY offset DESC) AS age FROM written)
        WHERE age = 1 ORDER BY partition, offset
    """).collect()
    found = [[] for _ in tables]
    for row in latest:
        value = None if row["value"] is None else bytes(row["value"])
        found[row["partition"]].append((row["offset"], bytes(row["key"]), value))
    return found


def tables(path, partitions=2):
    return [stored(path, "state", number) for number in range(partitions)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD, Codec.LZ4])
async def test_what_stays_is_what_a_sql_query_says(spark, tmp_path, codec):
    await filled(tmp_path, codec=codec)
    expected = latest_by_sql(spark, tables(tmp_path))
    report = compact.run(job_at(tmp_path, spark), ALL)
    assert tables(tmp_path) == expected
    assert (report["partitions"], report["records_read"]) == (2, 3_000)
    assert report["records_kept"] == sum(map(len, expected)) <= 80
    assert report["bytes_freed"] > 0
    assert report["failed"] == report["left"] == []
    assert verify.run(job_at(tmp_path, spark), VerifyRequest())["state"] == "ok"


async def test_a_log_compacted_again_and_again_stays_what_sql_says(spark, tmp_path):
    written: list[dict] = [{}, {}]
    for seed in range(3):
        await filled(tmp_path, seed=seed, batches=10)
        for number, table in enumerate(tables(tmp_path)):
            written[number].update({offset: (offset, key, value) for offset, key, value in table})
        compact.run(job_at(tmp_path, spark), FORCED)
        assert tables(tmp_path) == latest_by_sql(spark, [sorted(each.values()) for each in written])


async def test_what_was_compacted_away_is_collected(spark, tmp_path):
    await filled(tmp_path)
    merge.run(job_at(tmp_path, spark), MergeRequest())
    compact.run(job_at(tmp_path, spark), ALL)
    before = tables(tmp_path)
    await collect_at(tmp_path)
    kept = {key for number in (0, 1) for _, _, key in extents(tmp_path, "state", number)}
    assert objects(tmp_path) == kept
    assert tables(tmp_path) == before
    assert sessions(tmp_path)[0] == 0


async def test_only_what_is_worth_it_is_compacted_unless_it_is_forced(spark, tmp_path):
    await filled(tmp_path)
    compact.run(job_at(tmp_path, spark), ALL)
    assert compact.run(job_at(tmp_path), ALL)["partitions"] == 0
    await filled(tmp_path, batches=1, per_batch=5, seed=2)
    expected = latest_by_sql(spark, tables(tmp_path))
    assert compact.run(job_at(tmp_path), ALL)["partitions"] == 0
    assert compact.run(job_at(tmp_path, spark), FORCED)["partitions"] == 2
    assert tables(tmp_path) == expected


async def test_a_key_map_that_is_full_takes_further_rounds(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(compact, "KEYS_BYTES_MIN", 1)
    await filled(tmp_path, keys=3_000, batches=60, partitions=1)
    expected = latest_by_sql(spark, tables(tmp_path, 1))
    rounds = []
    job = job_at(tmp_path, spark, progress=lambda *step: rounds.append(step))
    compact.run(job, CompactRequest(keys_bytes_max=50_000))
    assert tables(tmp_path, 1) == expected
    assert len(rounds) > 1


async def test_tombstones_go_when_their_time_has_come(spark, tmp_path):
    await filled(tmp_path, partitions=1, **{"delete.retention.ms": "0"})
    expected = latest_by_sql(spark, tables(tmp_path, 1))[0]
    compact.run(job_at(tmp_path, spark), ALL)
    assert any(value is None for _, _, value in stored(tmp_path, "state"))
    compact.run(job_at(tmp_path, spark), ALL)
    assert stored(tmp_path, "state") == [row for row in expected if row[2] is not None]


async def test_open_transactions_bound_it_and_everything_above_stays(spark, tmp_path):
    await filled(tmp_path, partitions=1)
    async with serving(tmp_path) as broker:
        topic_partition = broker.log.topics.partition("state", 0)
        await append(broker, "state", 0, [Record(b"above", b"key 1")] * 50)
        assert broker.log.partition(topic_partition).end_offset == 1_550
    before = stored(tmp_path, "state")
    change(
        tmp_path,
        "INSERT INTO txn_partitions (topic_id, partition, producer_id, producer_epoch, first_offset)"
        " VALUES (?, ?, 5, 0, 1500)",
        *partition(tmp_path, "state"),
    )
    compact.run(job_at(tmp_path, spark), ALL)
    below = latest_by_sql(spark, [[row for row in before if row[0] < 1_500]])[0]
    assert stored(tmp_path, "state") == below + before[1_500:]


async def test_a_race_that_was_lost_is_run_again(spark, tmp_path, monkeypatch):
    """A broker merges under the compaction's feet, once."""
    await filled(tmp_path)
    expected = latest_by_sql(spark, tables(tmp_path))
    genuine, raced = compact._commit, []

    async def merge_elsewhere():
        async with serving(tmp_path) as broker:
            await merge_in_broker(broker)

    def commit_late(job, result, tally):
        if not raced:
            raced.append(True)
            asyncio.run(merge_elsewhere())
        return genuine(job, result, tally)

    monkeypatch.setattr(compact, "_commit", commit_late)
    report = await asyncio.to_thread(compact.run, job_at(tmp_path, spark), ALL)
    assert report["conflicts"] == 2
    assert tables(tmp_path) == expected
    assert sessions(tmp_path)[0] == 0
    await collect_at(tmp_path)
    kept = {key for number in (0, 1) for _, _, key in extents(tmp_path, "state", number)}
    assert objects(tmp_path) == kept


async def test_a_race_that_is_always_lost_ends_and_says_so(spark, tmp_path, monkeypatch):
    await filled(tmp_path, partitions=1)
    before = stored(tmp_path, "state")

    def commit_compaction(tx, compacted, *, now_ms):
        raise ExtentsChanged

    monkeypatch.setattr(compact, "commit_compaction", commit_compaction)
    report = compact.run(job_at(tmp_path, spark), ALL)
    assert report["conflicts"] == compact.CONFLICTS_MAX
    assert report["left"] == [{"topic": "state", "partition": 0}]
    assert stored(tmp_path, "state") == before
    assert sessions(tmp_path) == (0, compact.CONFLICTS_MAX)


async def test_a_dry_run_says_how_much_is_dirty(tmp_path):
    await filled(tmp_path)
    report = compact.run(job_at(tmp_path, is_dry_run=True), ALL)
    size = rows(tmp_path, "SELECT sum(length) FROM extents")[0][0]
    assert (report["topics"], report["partitions"]) == (1, 2)
    assert (report["dirty_bytes"], report["bytes"]) == (size, size)


async def test_a_damaged_object_is_reported_and_the_other_partition_is_compacted(spark, tmp_path):
    await filled(tmp_path)
    merge.run(job_at(tmp_path, spark), MergeRequest())
    expected = latest_by_sql(spark, tables(tmp_path))
    [(_, _, key)] = extents(tmp_path, "state", 0)
    data = bytearray((tmp_path / "objects" / key).read_bytes())
    data[300] ^= 1
    (tmp_path / "objects" / key).write_bytes(data)
    report = compact.run(job_at(tmp_path, spark), ALL)
    [failed] = report["failed"]
    assert (failed["topic"], failed["partition"]) == ("state", 0)
    assert key in failed["error"]
    assert stored(tmp_path, "state", 1) == expected[1]


async def test_a_topic_that_is_not_compacted_is_passed_over_and_told_if_it_was_named(tmp_path):
    async with serving(tmp_path) as broker:
        await broker.log.create_topic("orders", 1)
        await append(broker, "orders", 0, [Record(b"a", b"k")] * 10)
    for patterns, told in (((), []), (("ord*",), []), (("orders",), ["orders"])):
        report = compact.run(job_at(tmp_path), CompactRequest(patterns, force=True))
        assert (report["topics"], report["not_compacted"]) == (0, told)
    assert len(stored(tmp_path, "orders")) == 10


async def test_a_run_leaves_a_point_to_go_on_from(spark, tmp_path):
    await filled(tmp_path, partitions=1)
    job = job_at(tmp_path, spark)
    compact.run(job, ALL)
    with job.database.read() as tx:
        points = compactions.read(tx, partition(tmp_path, "state"))
    assert points[-1].end_offset == 1_500


def test_a_key_map_too_small_to_work_with_is_refused():
    with pytest.raises(InvalidRequest):
        CompactRequest(keys_bytes_max=1_000)
