"""`merge`: fewer rows, the same records at the same offsets, and nothing left over."""

import asyncio

import pytest
from tests.spark.pipelines.maintaining import (
    MIB,
    change,
    collect_at,
    collect_garbage,
    expire_leases,
    extents,
    job_at,
    merge_in_broker,
    new_postgres,
    objects,
    partition,
    rows,
    sessions,
    stored,
)
from tests.spark.topics import append, fill, serving

from millpond.catalog import pipelines
from millpond.model.errors import ExtentsChanged, OutcomeUnknown, UnknownTopic, WriterDead
from millpond.records import Codec, Record
from millpond.spark.pipelines import commit as committing
from millpond.spark.pipelines import compact, merge, retain, verify
from millpond.spark.pipelines.compact import CompactRequest
from millpond.spark.pipelines.merge import MergeRequest
from millpond.spark.pipelines.retain import RetainRequest
from millpond.spark.pipelines.verify import VerifyRequest
from millpond.spark.place import Place, database
from millpond.spark.task_writer import TaskWriter

ALL = MergeRequest()


async def filled(path, *, partitions=2, count=400, per_batch=10, **settings) -> list:
    """A topic of many small extents; returns what is stored in each partition."""
    async with serving(path, **settings) as broker:
        await fill(broker, "orders", partitions, count, per_batch=per_batch)
    return [stored(path, "orders", number) for number in range(partitions)]


@pytest.mark.parametrize("settings", [{}, {"inline_bytes_max": 0}], ids=["inline", "journals"])
async def test_small_extents_become_segments_and_every_record_keeps_its_offset(spark, tmp_path, settings):
    before = await filled(tmp_path, **settings)
    report = merge.run(job_at(tmp_path, spark), ALL)
    assert report["extents_before"] == report["merged_extents"] == 80
    assert report["extents_after"] == report["segments"] == 2
    assert [len(extents(tmp_path, "orders", number)) for number in (0, 1)] == [1, 1]
    assert [stored(tmp_path, "orders", number) for number in (0, 1)] == before
    assert [len(records) for records in before] == [400, 400]


async def test_what_was_merged_away_is_collected_and_the_segments_are_not(spark, tmp_path):
    before = await filled(tmp_path, inline_bytes_max=0)
    merge.run(job_at(tmp_path, spark), ALL)
    async with serving(tmp_path) as broker:
        assert await collect_garbage(broker) > 0
    kept = {key for number in (0, 1) for _, _, key in extents(tmp_path, "orders", number)}
    assert objects(tmp_path) == kept
    assert [stored(tmp_path, "orders", number) for number in (0, 1)] == before
    assert sessions(tmp_path)[0] == 0


async def test_a_second_run_finds_nothing_and_starts_no_spark(spark, tmp_path):
    await filled(tmp_path)
    merge.run(job_at(tmp_path, spark), ALL)
    again = merge.run(job_at(tmp_path), ALL)
    assert (again["merged_extents"], again["extents_after"], again["left"]) == (0, 2, [])


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(tmp_path):
    await filled(tmp_path)
    job = job_at(tmp_path, is_dry_run=True)
    report = merge.run(job, ALL)
    assert (report["extents_before"], report["extents_after"], report["segments"]) == (80, 2, 2)
    assert len(extents(tmp_path, "orders")) == 40
    with job.database.read() as tx:
        assert pipelines.newest(tx, 10) == []


async def test_only_the_topics_asked_for_are_merged(spark, tmp_path):
    async with serving(tmp_path) as broker:
        for name in ("orders", "orders-old", "payments"):
            await fill(broker, name, 1, 200, per_batch=10)
    merge.run(job_at(tmp_path, spark), MergeRequest(("orders*",)))
    assert [len(extents(tmp_path, n)) for n in ("orders", "orders-old", "payments")] == [1, 1, 20]
    with pytest.raises(UnknownTopic):
        merge.run(job_at(tmp_path), MergeRequest(("orders", "nothing")))


async def test_the_run_is_recorded_and_watched(spark, tmp_path):
    await filled(tmp_path)
    seen = []
    job = job_at(tmp_path, spark, progress=lambda *step: seen.append(step))
    report = merge.run(job, ALL)
    assert seen == [(1, 2, "merging"), (2, 2, "merging")]
    with job.database.read() as tx:
        [run] = pipelines.newest(tx, 10)
    assert (run.pipeline, run.topics, run.state, run.report) == ("merge", ["orders"], "done", report)


async def test_groups_are_found_over_many_pages_and_cut_into_items(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(merge, "EXTENTS_PER_PAGE", 30)
    monkeypatch.setattr(merge, "ITEM_EXTENTS_MAX", 60)
    before = await filled(tmp_path, partitions=1, count=2_000, per_batch=10)
    items = merge.plan(database(Place.at(tmp_path)), Place.at(tmp_path), [partition(tmp_path, "orders")])
    assert [sum(map(len, item.groups)) for item in items] == [60, 60, 60, 20]
    report = merge.run(job_at(tmp_path, spark), ALL)
    assert report["extents_after"] == len(extents(tmp_path, "orders")) < 8
    assert stored(tmp_path, "orders") == before[0]


async def test_large_extents_stay_where_they_are(spark, tmp_path):
    async with serving(tmp_path) as broker:
        await broker.log.create_topic("orders", 1, {"max.message.bytes": str(4 * MIB)})
        for n in range(3):
            await append(broker, "orders", 0, [Record(bytes([n]) * (MIB - 2_000), b"k")] * 2)
            for _ in range(10):
                await append(broker, "orders", 0, [Record(b"small", b"k")])
    large = [row for row in extents(tmp_path, "orders") if row[2] is not None]
    merge.run(job_at(tmp_path, spark), ALL)
    after = extents(tmp_path, "orders")
    assert len(after) == 6
    assert set(large) <= set(after)


async def test_compressed_batches_are_moved_as_they_are(spark, tmp_path):
    async with serving(tmp_path) as broker:
        await broker.log.create_topic("orders", 1)
        for n in range(20):
            records = [Record(b"value" * 20, b"%d" % n, timestamp=1_000)] * 10
            await append(broker, "orders", 0, records, compression=Codec.ZSTD)
    before = stored(tmp_path, "orders")
    size = rows(tmp_path, "SELECT sum(length) FROM extents")
    merge.run(job_at(tmp_path, spark), ALL)
    assert rows(tmp_path, "SELECT count(*), sum(length) FROM extents") == [(1, size[0][0])]
    assert stored(tmp_path, "orders") == before


async def test_a_merge_that_lost_a_race_is_planned_again_and_its_objects_are_garbage(
    spark, tmp_path, monkeypatch
):
    """The broker merges partition 0 while the tasks of the first round work."""
    before = await filled(tmp_path)
    raced = []
    genuine = merge._commit

    def commit_after_the_broker(job, item, result, tally):
        if not raced:
            raced.append(item.topic_partition)
            asyncio.run(_merge_elsewhere(tmp_path))
        return genuine(job, item, result, tally)

    monkeypatch.setattr(merge, "_commit", commit_after_the_broker)
    report = await asyncio.to_thread(merge.run, job_at(tmp_path, spark), ALL)
    assert report["conflicts"] == 2
    assert report["failed"] == report["left"] == []
    assert [stored(tmp_path, "orders", number) for number in (0, 1)] == before
    assert sessions(tmp_path)[0] == 0
    left = objects(tmp_path)
    await collect_at(tmp_path)
    kept = {key for number in (0, 1) for _, _, key in extents(tmp_path, "orders", number)}
    assert objects(tmp_path) == kept
    assert len(left) > len(kept)


async def test_what_was_merged_away_before_a_task_reads_it_is_planned_again(spark, tmp_path, monkeypatch):
    before = await filled(tmp_path)
    genuine, raced = merge.perform, []

    def perform_late(*arguments):
        if not raced:
            raced.append(True)
            asyncio.run(_merge_elsewhere(tmp_path))
            asyncio.run(collect_at(tmp_path))
        return genuine(*arguments)

    monkeypatch.setattr(merge, "perform", perform_late)
    report = await asyncio.to_thread(merge.run, job_at(tmp_path, spark), ALL)
    assert (report["conflicts"], report["segments"], report["failed"]) == (2, 0, [])
    assert [stored(tmp_path, "orders", number) for number in (0, 1)] == before
    assert sessions(tmp_path)[0] == 0


async def test_a_damaged_object_keeps_only_its_own_group_from_being_merged(spark, tmp_path):
    before = await filled(tmp_path, inline_bytes_max=0)
    [(key, position)] = rows(
        tmp_path,
        "SELECT o.key, e.position FROM extents e JOIN objects o ON o.id = e.object_id"
        " WHERE e.partition = 0 AND e.base_offset = 100",
    )
    path = tmp_path / "objects" / key
    data = bytearray(path.read_bytes())
    data[position + 80] ^= 1
    path.write_bytes(data)
    report = merge.run(job_at(tmp_path, spark), ALL)
    [failed] = report["failed"]
    assert (failed["topic"], failed["partition"]) == ("orders", 0)
    assert key in failed["error"]
    assert len(extents(tmp_path, "orders", 0)) == 40
    assert stored(tmp_path, "orders", 1) == before[1]
    assert len(extents(tmp_path, "orders", 1)) == 1


async def test_a_session_given_up_before_the_commit_costs_the_round_and_nothing_else(
    spark, tmp_path, monkeypatch
):
    before = await filled(tmp_path, partitions=1)
    genuine = merge._commit
    late = []

    def commit_late(job, item, result, tally):
        if not late:
            late.append(True)
            expire_leases(tmp_path)
            asyncio.run(collect_at(tmp_path))
        return genuine(job, item, result, tally)

    monkeypatch.setattr(merge, "_commit", commit_late)
    report = await asyncio.to_thread(merge.run, job_at(tmp_path, spark), ALL)
    assert report["conflicts"] == 1
    assert len(extents(tmp_path, "orders")) == 1
    assert stored(tmp_path, "orders") == before[0]


async def _merge_elsewhere(path):
    async with serving(path) as broker:
        await merge_in_broker(broker)


async def test_all_four_pipelines_work_on_postgresql(spark, tmp_path, postgres_url):
    url = new_postgres(postgres_url, "pipelines")
    place = Place(url, (tmp_path / "objects").as_uri())
    async with serving(tmp_path, catalog=url) as broker:
        await fill(broker, "orders", 2, 200, per_batch=10)
        await fill(broker, "state", 1, 50, per_batch=10, **{"cleanup.policy": "compact"})
        for start in range(0, 50, 10):
            records = [Record(b"new", b"k%d" % n, timestamp=2_000) for n in range(start, start + 10)]
            await append(broker, "state", 0, records)
        await fill(
            broker, "expiring", 1, 200, per_batch=10, **{"retention.ms": "-1", "retention.bytes": "2000"}
        )
    before = [stored(place, "orders", number) for number in (0, 1)]
    assert merge.run(job_at(place, spark), MergeRequest(("orders",)))["extents_after"] == 2
    assert compact.run(job_at(place, spark), CompactRequest(force=True))["records_kept"] == 50
    assert retain.run(job_at(place, spark), RetainRequest())["offsets_expired"] > 0
    assert [stored(place, "orders", number) for number in (0, 1)] == before
    assert {value for _, _, value in stored(place, "state")} == {b"new"}
    assert verify.run(job_at(place, spark), VerifyRequest())["state"] == "ok"
    async with serving(tmp_path, catalog=url) as broker:
        await collect_garbage(broker)
    assert verify.run(job_at(place, spark), VerifyRequest())["dead"] == 0
    assert [stored(place, "orders", number) for number in (0, 1)] == before
    database(place).close()


# -- the commit itself ----------------------------------------------------------------------------------------


class LosingAnswers:
    """A database that loses the answer to a COMMIT, before or after it took effect."""

    def __init__(self, inner, *, took_effect: bool):
        self._inner, self._took_effect, self.lost = inner, took_effect, 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def write(self):
        if self.lost:
            return self._inner.write()
        self.lost = 1
        return _Losing(self._inner.write(), self._took_effect)


class _Losing:
    def __init__(self, inner, took_effect):
        self._inner, self._took_effect = inner, took_effect

    def __enter__(self):
        return self._inner.__enter__()

    def __exit__(self, *error):
        if self._took_effect:
            self._inner.__exit__(None, None, None)
        else:
            lost = OutcomeUnknown()
            assert not self._inner.__exit__(OutcomeUnknown, lost, None)
        raise OutcomeUnknown


@pytest.fixture
async def place(tmp_path):
    async with serving(tmp_path):
        pass
    change(tmp_path, "CREATE TABLE marks (n BIGINT)")
    return Place.at(tmp_path)


def mark(tx):
    tx.rows("INSERT INTO marks (n) VALUES (1)")


@pytest.mark.parametrize("took_effect", [True, False])
async def test_a_commit_whose_answer_is_lost_takes_effect_once(place, tmp_path, took_effect):
    with TaskWriter(place) as writer:
        pass
    losing = LosingAnswers(database(place), took_effect=took_effect)
    job = job_at(tmp_path)
    committing.commit(losing, [writer.session], mark, clock=job.clock, sleep=lambda _: None)
    assert rows(tmp_path, "SELECT count(*) FROM marks") == [(1,)]
    assert sessions(tmp_path) == (0, 1)


async def test_a_refused_change_buries_the_sessions_and_leaves_nothing(place, tmp_path):
    with TaskWriter(place) as writer:
        pass

    def refuse(tx):
        mark(tx)
        raise ExtentsChanged

    job = job_at(tmp_path)
    with pytest.raises(ExtentsChanged):
        committing.commit(database(place), [writer.session], refuse, clock=job.clock)
    assert rows(tmp_path, "SELECT count(*) FROM marks") == [(0,)]
    assert sessions(tmp_path) == (0, 1)


async def test_a_session_that_is_dead_cannot_commit(place, tmp_path):
    with TaskWriter(place) as writer:
        pass
    job = job_at(tmp_path)
    committing.mark_dead(database(place), [writer.session], clock=job.clock)
    with pytest.raises(WriterDead):
        committing.commit(database(place), [writer.session], mark, clock=job.clock)
    assert rows(tmp_path, "SELECT count(*) FROM marks") == [(0,)]
