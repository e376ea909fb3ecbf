"""A range of a topic into another one, with what should stay kept and what should change changed."""

import asyncio

import pytest
from tests.spark.pipelines.maintaining import job_at
from tests.spark.sink.rows import make_place, make_topic, stored, values
from tests.spark.topics import append, append_in_transaction, fill, serving

from millpond.catalog import topics
from millpond.model.errors import InvalidRequest, MillpondError, UnknownPartition, UnknownTopic
from millpond.model.partitioning import partition_of
from millpond.records import Record
from millpond.spark.pipelines.publish import PublishTarget
from millpond.spark.pipelines.replay import ALL_PARTITIONS, ReplayBound, ReplayRequest, run
from millpond.spark.place import database

COUNT = 250


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Topic `source`, two partitions of 250 records (timestamp 1000 + n), and `odd` with records of all kinds."""
    path = tmp_path_factory.mktemp("replay") / "data"
    asyncio.run(make_topics(path))
    return path


async def make_topics(path):
    async with serving(path) as broker:
        await fill(broker, "source", 2, COUNT, **{"retention.ms": "-1"})
        await broker.log.create_topic("odd", 1, {})
        records = [
            Record(None, b"gone", (("h", b"\x00"), ("h", None)), 5000),
            Record(b"no key", None, (), 4000),
        ]
        await append(broker, "odd", 0, records)


@pytest.fixture
def replayed(source, spark, request):
    """Replays into a topic of its own; gives the report and the records of each partition."""
    place = make_place(source)

    def replay(*, partitions=2, dry_run=False, target=None, topic="source", **wanted):
        name = f"target-{request.node.name.replace('[', '-').rstrip(']')}"
        if target is None:
            make_topic(place, name, partitions)
        report = run(
            job_at(source, spark, is_dry_run=dry_run),
            ReplayRequest(topic, target or PublishTarget(name), **wanted),
        )
        return report, stored(place, report["topic"]) if not dry_run else {}

    return replay


def numbers(records):
    """n of value v<partition>-<n>."""
    return [int(record.value.split(b"-")[1]) for record in records]


def test_a_whole_topic_keeps_order_times_and_keys(replayed, source):
    report, found = replayed(keeps_partitions=True)
    original = stored(make_place(source), "source")
    assert found == original
    assert report["rows"] == 2 * COUNT
    assert report["partitions"] == {"0": [0, COUNT], "1": [0, COUNT]}
    assert report["bytes"] == sum(len(r.key) + len(r.value) for each in original.values() for r in each)
    assert (report["source"], report["skipped"]) == ("source", False)


def test_headers_tombstones_and_records_without_a_key_are_kept(replayed):
    _, found = replayed(topic="odd", partitions=1)
    first, second = found[0]
    assert (first.key, first.value, first.headers, first.timestamp) == (
        b"gone", None, (("h", b"\x00"), ("h", None)), 5000,
    )  # fmt: skip
    assert (second.key, second.value, second.headers, second.timestamp) == (None, b"no key", (), 4000)


def test_a_range_of_offsets(replayed):
    _, found = replayed(
        start=ReplayBound({0: 10, 1: 20}), end=ReplayBound({ALL_PARTITIONS: 30, 1: 25}), keeps_partitions=True
    )
    assert numbers(found[0]) == list(range(10, 30))
    assert numbers(found[1]) == list(range(20, 25))


def test_offsets_outside_of_what_is_there_mean_its_ends(replayed):
    _, found = replayed(
        start=ReplayBound({0: 245, 1: 10_000}), end=ReplayBound({0: 10_000}), keeps_partitions=True
    )
    assert numbers(found[0]) == list(range(245, COUNT))
    assert found[1] == []


def test_an_open_transaction_ends_a_range_unless_an_end_past_it_is_named(spark, tmp_path):
    path = tmp_path / "data"

    async def make():
        async with serving(path) as broker:
            await fill(broker, "source", 2, 3)
            await append_in_transaction(broker, "a", "source", 1, [b"open"])
            await append(broker, "source", 1, [Record(b"behind")])

    asyncio.run(make())
    make_topic(make_place(path), "out")
    for end in (ReplayBound({1: 5}), ReplayBound({ALL_PARTITIONS: 4}), ReplayBound({ALL_PARTITIONS: 10_000})):
        with pytest.raises(MillpondError, match="'source', partition 1: a transaction at offset 3 is open"):
            run(job_at(path, spark), ReplayRequest("source", PublishTarget("out"), end=end))
    assert values(make_place(path), "out") == []
    report = run(job_at(path, spark), ReplayRequest("source", PublishTarget("out"), end=ReplayBound({0: 2})))
    assert report["rows"] == 2 + 3
    report = run(
        job_at(path, spark), ReplayRequest("source", PublishTarget("out"), start=ReplayBound({0: 2}))
    )
    assert report["rows"] == 1 + 3


def test_a_range_of_time(replayed):
    _, found = replayed(start=ReplayBound(time_ms=1100), end=ReplayBound(time_ms=1150), keeps_partitions=True)
    assert numbers(found[0]) == numbers(found[1]) == list(range(100, 150))


def test_a_time_after_everything_is_an_empty_range(replayed):
    report, found = replayed(start=ReplayBound(time_ms=10**12))
    assert report["rows"] == 0
    assert found == {0: [], 1: []}


def test_a_filter_and_other_keys_and_partitions(replayed):
    _, found = replayed(
        partitions=5,
        where="partition = 1 AND CAST(substr(CAST(key AS STRING), 2) AS INT) % 2 = 0",
        key="concat('n', substr(CAST(key AS STRING), 2, 1))",
    )
    records = [record for each in found.values() for record in each]
    assert sorted(numbers(records)) == list(range(0, COUNT, 2))
    for number, each in found.items():
        assert all(partition_of(record.key, 5) == number for record in each)
        by_key = {}
        for record in each:
            by_key.setdefault(record.key, []).append(numbers([record])[0])
        assert all(found == sorted(found) for found in by_key.values())


def test_a_target_is_created_like_the_source(replayed, source):
    report, found = replayed(
        target=PublishTarget("copy"), creates_target=True, end=ReplayBound({ALL_PARTITIONS: 3})
    )
    assert report["rows"] == 6
    with database(make_place(source)).read() as tx:
        made = topics.find(tx, "copy")
    assert (made.partitions, dict(made.overrides)) == (2, {"retention.ms": "-1"})
    assert sum(map(len, found.values())) == 6


def test_a_created_target_may_have_other_partitions(replayed):
    _, found = replayed(
        target=PublishTarget("wider", create_partitions=7),
        creates_target=True,
        end=ReplayBound({ALL_PARTITIONS: 3}),
    )
    assert len(found) == 7


def test_with_an_id_it_happens_once(replayed, source):
    make_topic(make_place(source), "once")
    target = PublishTarget("once", id="replay-1")
    assert not replayed(target=target)[0]["skipped"]
    assert replayed(target=target)[0]["skipped"]
    assert len(values(make_place(source), "once")) == 2 * COUNT


def test_a_dry_run_only_counts(replayed, source):
    report, _ = replayed(target=PublishTarget("never"), creates_target=True, where="offset < 5", dry_run=True)
    assert (report["rows"], report["dry_run"]) == (10, True)
    with database(make_place(source)).read() as tx, pytest.raises(UnknownTopic):
        topics.find(tx, "never")


def test_what_cannot_be_replayed_is_refused(replayed):
    with pytest.raises(UnknownTopic, match="'nothing'"):
        replayed(topic="nothing", target=PublishTarget("x"))
    with pytest.raises(InvalidRequest, match=r"one topic is replayed at a time, and .* several: odd, source"):
        replayed(topic="[os][do]*[de]", target=PublishTarget("x"))
    with pytest.raises(UnknownTopic, match="'x'"):
        replayed(target=PublishTarget("x"))
    with pytest.raises(InvalidRequest, match="into itself"):
        replayed(target=PublishTarget("source"))
    with pytest.raises(UnknownPartition, match="no partition 2"):
        replayed(target=PublishTarget("odd"), start=ReplayBound({2: 0}))
    with pytest.raises(InvalidRequest, match="nosuchcolumn"):
        replayed(target=PublishTarget("odd"), where="nosuchcolumn = 1")
