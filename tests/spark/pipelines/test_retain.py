"""`retain`: what is past its topic's own limits goes, to the batch, and nothing else does."""

from dataclasses import replace

import pytest
from tests.spark.pipelines.maintaining import (
    DAY_MS,
    NO_SPARK,
    change,
    collect_at,
    extents,
    job_at,
    merge_extents,
    objects,
    partition,
    rows,
    stored,
)
from tests.spark.topics import append, serving

from millpond.catalog import extents as catalog_extents
from millpond.catalog import topics as catalog_topics
from millpond.model.errors import InvalidRequest
from millpond.records import Record
from millpond.spark.pipelines import clock, merge, retain
from millpond.spark.pipelines.merge import MergeRequest
from millpond.spark.pipelines.retain import RetainRequest
from millpond.testing import SimulatedClock

ALL = RetainRequest()
NOW_MS = 1_800_000_000_000
HOUR_MS = 60 * 60 * 1000
FOR_EVER = "-1"


async def filled(path, *, hours=10, partitions=1, per_hour=2, merged=None, grace_ms=0, **config) -> None:
    """A topic with batches of ten records, the oldest `hours` old: their values say when they were written."""
    async with serving(path, clock=SimulatedClock(NOW_MS), retention_grace=grace_ms) as broker:
        await broker.log.create_topic("orders", partitions, config)
        for number in range(partitions):
            for hour in range(hours, 0, -1):
                for _ in range(per_hour):
                    written = NOW_MS - hour * HOUR_MS
                    await append(
                        broker, "orders", number, [Record(b"%02d" % hour, b"key", timestamp=written)] * 10
                    )
    if merged is not None:
        merge.run(job_at(path, merged), MergeRequest())


def retained(path, spark, request=ALL, *, now_ms=NOW_MS, **named):
    return retain.run(job_at(path, spark, clock=SimulatedClock(now_ms), **named), request)


def hours_left(path, number=0):
    return [int(value) for _, _, value in stored(path, "orders", number)]


def log_start(path, number=0):
    return rows(path, "SELECT log_start FROM partitions WHERE partition = ?", number)[0][0]


@pytest.mark.parametrize("is_merged", [False, True], ids=["small extents", "one segment"])
async def test_records_older_than_the_limit_go_also_inside_one_large_extent(spark, tmp_path, is_merged):
    config = {"retention.ms": str(4 * HOUR_MS + 1)}
    await filled(tmp_path, partitions=2, merged=spark if is_merged else None, **config)
    report = retained(tmp_path, spark)
    for number in (0, 1):
        assert hours_left(tmp_path, number) == [4] * 20 + [3] * 20 + [2] * 20 + [1] * 20
        assert log_start(tmp_path, number) == 120
        assert stored(tmp_path, "orders", number)[0][0] == 120
    assert (report["partitions_moved"], report["offsets_expired"]) == (2, 240)
    assert report["extents_removed"] == (0 if is_merged else 24)


async def test_what_is_too_much_by_size_goes_in_whole_extents(spark, tmp_path):
    await filled(tmp_path, **{"retention.bytes": "1", "retention.ms": FOR_EVER})
    [(size, one)] = rows(tmp_path, "SELECT sum(length), max(length) FROM extents")
    change_config(tmp_path, {"retention.bytes": str(size - 5 * one)})
    report = retained(tmp_path, spark)
    assert log_start(tmp_path) == 50
    assert report["bytes_removed"] == 5 * one
    assert rows(tmp_path, "SELECT bytes FROM partitions") == [(size - 5 * one,)]


async def test_expired_extents_are_removed_in_steps_and_their_objects_collected(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(retain, "REMOVED_PER_STEP", 3)
    monkeypatch.setattr(retain, "EXTENTS_PER_PAGE", 4)
    monkeypatch.setattr(retain, "PARTITIONS_PER_ITEM", 1)
    await filled(tmp_path, partitions=2, merged=None, **{"retention.ms": str(HOUR_MS + 1)})
    report = retained(tmp_path, spark)
    assert report["extents_removed"] == 2 * 18
    assert [hours_left(tmp_path, number) for number in (0, 1)] == [[1] * 20] * 2


async def test_segments_that_have_expired_are_collected(spark, tmp_path):
    await filled(tmp_path, merged=spark, **{"retention.ms": str(HOUR_MS // 2)})
    assert len(objects(tmp_path)) == 1
    report = retained(tmp_path, spark)
    assert (report["offsets_expired"], extents(tmp_path, "orders")) == (200, [])
    await collect_at(tmp_path, clock=SimulatedClock(NOW_MS + 1))
    assert objects(tmp_path) == set()
    async with serving(tmp_path) as broker:
        assert await append(broker, "orders", 0, [Record(b"next")]) == 200


async def test_topics_without_a_limit_of_their_own_are_left_to_brokers(tmp_path):
    await filled(tmp_path, hours=1)
    report = retained(tmp_path, None, now_ms=NOW_MS + 365 * DAY_MS)
    assert report["left_to_brokers"] == ["orders"]
    assert report["topics"] == report["offsets_expired"] == 0


@pytest.mark.parametrize(
    "config",
    [
        {"retention.ms": FOR_EVER},
        {"retention.ms": FOR_EVER, "retention.bytes": FOR_EVER},
        {"retention.ms": "1000", "cleanup.policy": "compact"},
    ],
)
async def test_topics_that_keep_everything_keep_everything(tmp_path, config):
    await filled(tmp_path, hours=1, **config)
    assert retained(tmp_path, None, now_ms=NOW_MS + 365 * DAY_MS)["topics"] == 0


async def test_a_dry_run_says_what_would_go_and_nothing_does(spark, tmp_path):
    await filled(tmp_path, **{"retention.ms": str(4 * HOUR_MS + 1)})
    report = retained(tmp_path, spark, is_dry_run=True)
    assert (report["offsets_expired"], report["extents_removed"]) == (120, 12)
    assert log_start(tmp_path) == 0
    assert len(extents(tmp_path, "orders")) == 20
    real = retained(tmp_path, spark)
    assert real["bytes_removed"] == report["bytes_removed"] > 0


async def test_a_second_run_finds_nothing(spark, tmp_path):
    await filled(tmp_path, **{"retention.ms": str(4 * HOUR_MS + 1)})
    retained(tmp_path, spark)
    again = retained(tmp_path, spark)
    assert (again["offsets_expired"], again["extents_removed"], again["conflicts"]) == (0, 0, 0)


async def test_what_an_interrupted_run_left_below_the_log_start_goes_in_the_next(spark, tmp_path):
    await filled(tmp_path, **{"retention.ms": str(4 * HOUR_MS + 1)})
    change(tmp_path, "UPDATE partitions SET log_start = 120")
    report = retained(tmp_path, spark)
    assert (report["offsets_expired"], report["extents_removed"]) == (0, 12)
    assert extents(tmp_path, "orders")[0][0] == 120


async def test_leftovers_do_not_count_twice_against_the_size(spark, tmp_path):
    """Their bytes are still in the partition's sum when the line is drawn."""
    await filled(tmp_path, **{"retention.ms": FOR_EVER, "retention.bytes": "1"})
    [(size, one)] = rows(tmp_path, "SELECT sum(length), max(length) FROM extents")
    change_config(tmp_path, {"retention.bytes": str(size - 5 * one)})
    change(tmp_path, "UPDATE partitions SET log_start = 30")
    retained(tmp_path, spark)
    assert log_start(tmp_path) == 50
    assert rows(tmp_path, "SELECT bytes FROM partitions") == [(size - 5 * one,)]


async def test_a_limit_raised_meanwhile_is_honoured(spark, tmp_path, monkeypatch):
    await filled(tmp_path, **{"retention.ms": "1000"})
    interfere(monkeypatch, lambda: change_config(tmp_path, {"retention.ms": str(4 * HOUR_MS + 1)}))
    report = retained(tmp_path, spark)
    assert log_start(tmp_path) == 120
    assert report["conflicts"] == 1


async def test_a_limit_lifted_meanwhile_keeps_everything(spark, tmp_path, monkeypatch):
    await filled(tmp_path, **{"retention.ms": "1000"})
    interfere(monkeypatch, lambda: change_config(tmp_path, {"retention.ms": FOR_EVER}))
    retained(tmp_path, spark)
    assert log_start(tmp_path) == 0


async def test_a_partition_that_became_smaller_meanwhile_is_looked_at_again(spark, tmp_path, monkeypatch):
    """Somebody compacted it: what was too much by size is too much no longer."""
    await filled(tmp_path, **{"retention.ms": FOR_EVER, "retention.bytes": "1"})
    [(size, one)] = rows(tmp_path, "SELECT sum(length), max(length) FROM extents")
    change_config(tmp_path, {"retention.bytes": str(size - 5 * one)})

    def shrink():
        change(tmp_path, "UPDATE partitions SET bytes = bytes - ?", 5 * one)

    interfere(monkeypatch, shrink)
    report = retained(tmp_path, spark)
    assert (log_start(tmp_path), report["conflicts"]) == (0, 1)


async def test_a_topic_deleted_meanwhile_is_let_go(spark, tmp_path, monkeypatch):
    await filled(tmp_path, **{"retention.ms": "1000"})

    def delete():
        with job_at(tmp_path).database.write() as tx:
            catalog_topics.delete(tx, "orders", now_ms=1)

    interfere(monkeypatch, delete)
    report = retained(tmp_path, spark)
    assert report["offsets_expired"] == 0
    assert report["failed"] == report["left"] == []


async def test_what_was_aborted_stays_listed_until_the_next_run(spark, tmp_path):
    """A reader that does not know of the new log start yet would otherwise be shown aborted records."""
    await filled(tmp_path, **{"retention.ms": str(4 * HOUR_MS + 1)})
    insert = "INSERT INTO aborted_txns (topic_id, partition, first_offset, last_offset, producer_id) VALUES (?,?,?,?,?)"
    topic_partition = partition(tmp_path, "orders")
    change(tmp_path, insert, *topic_partition, 10, 12, 7)
    change(tmp_path, insert, *topic_partition, 130, 135, 7)
    retained(tmp_path, spark)
    assert rows(tmp_path, "SELECT count(*) FROM aborted_txns") == [(2,)]
    retained(tmp_path, spark, now_ms=NOW_MS + HOUR_MS, request=RetainRequest(trust_clock=True))
    assert rows(tmp_path, "SELECT last_offset FROM aborted_txns") == [(135,)]


async def test_a_damaged_object_is_reported_and_the_other_partitions_expire(spark, tmp_path):
    await filled(tmp_path, partitions=2, merged=spark, **{"retention.ms": str(4 * HOUR_MS + 1)})
    [(_, _, key)] = extents(tmp_path, "orders", 0)
    data = bytearray((tmp_path / "objects" / key).read_bytes())
    data[200] ^= 1
    (tmp_path / "objects" / key).write_bytes(data)
    report = retained(tmp_path, spark)
    [failed] = report["failed"]
    assert (failed["topic"], failed["partition"]) == ("orders", 0)
    assert key in failed["error"]
    assert [log_start(tmp_path, number) for number in (0, 1)] == [0, 120]


# -- the brokers' grace, and extents whose times are not known ----------------------------------------------------


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(retain, "perform", lambda spark, items, work: map(work, items))


async def test_what_was_old_when_it_arrived_stays_for_the_brokers_grace(tmp_path, in_this_process):
    await filled(tmp_path, grace_ms=300_000, **{"retention.ms": str(4 * HOUR_MS + HOUR_MS // 2)})
    assert retained(tmp_path, NO_SPARK, now_ms=NOW_MS + 299_999)["offsets_expired"] == 0
    assert retained(tmp_path, NO_SPARK, now_ms=NOW_MS + 300_000)["offsets_expired"] == 120


async def test_extents_without_an_append_time_are_examined_and_expire_after_the_grace(
    tmp_path, in_this_process
):
    await filled(tmp_path, grace_ms=60_000, **{"retention.ms": str(4 * HOUR_MS + HOUR_MS // 2)})
    change(tmp_path, "UPDATE extents SET appended_at = -1, max_timestamp = min_timestamp - 5")
    dry = retained(tmp_path, NO_SPARK, is_dry_run=True)
    assert (dry["offsets_expired"], dry["extents_examined"]) == (0, 0)
    report = retained(tmp_path, NO_SPARK)
    assert (report["offsets_expired"], report["extents_examined"], report["failed"]) == (0, 12, [])
    examined = "SELECT count(*) FROM extents WHERE appended_at = ? AND max_timestamp = min_timestamp"
    assert rows(tmp_path, examined, NOW_MS) == [(12,)]
    later = retained(tmp_path, NO_SPARK, now_ms=NOW_MS + 60_000)
    assert (later["offsets_expired"], later["extents_examined"]) == (120, 0)


async def test_extents_whose_headers_are_wrong_are_left_to_a_broker(tmp_path, in_this_process, monkeypatch):
    await filled(tmp_path, hours=2, **{"retention.ms": str(HOUR_MS)})
    change(tmp_path, "UPDATE extents SET appended_at = -1")
    genuine = retain.examine
    monkeypatch.setattr(retain, "examine", lambda *given: replace(genuine(*given), corrected=1))
    report = retained(tmp_path, NO_SPARK)
    [failed] = report["failed"]
    assert "a broker corrects it" in failed["error"]
    assert (report["offsets_expired"], report["extents_examined"], log_start(tmp_path)) == (0, 0, 0)


# -- page by page ---------------------------------------------------------------------------------------------


async def too_large_by(path, count, monkeypatch):
    """A topic of twenty extents of one size, of which `count` are too many; looked at four by four, in this process."""
    monkeypatch.setattr(retain, "EXTENTS_PER_PAGE", 4)
    monkeypatch.setattr(retain, "perform", lambda spark, items, work: map(work, items))
    await filled(path, **{"retention.ms": FOR_EVER, "retention.bytes": "1"})
    [(size, one)] = rows(path, "SELECT sum(length), max(length) FROM extents")
    change_config(path, {"retention.bytes": str(size - count * one)})
    return size - count * one


def merge_after_the_first_page(monkeypatch, path, chosen):
    genuine, done = catalog_extents.find, []

    def find(*arguments, **named):
        found = genuine(*arguments, **named)
        if not done and named["extents_max"] == retain.EXTENTS_PER_PAGE:
            done.append(True)
            merge_extents(path, "orders", 0, chosen)
        return found

    monkeypatch.setattr(catalog_extents, "find", find)


def bytes_left(path):
    sql = "SELECT sum(length) FROM extents WHERE end_offset > (SELECT log_start FROM partitions)"
    return rows(path, sql)[0][0]


@pytest.mark.parametrize("is_dry_run", [False, True], ids=["for real", "dry run"])
async def test_what_a_merge_puts_across_the_edge_of_two_looks_is_counted(tmp_path, monkeypatch, is_dry_run):
    limit = await too_large_by(tmp_path, 10, monkeypatch)
    merge_after_the_first_page(monkeypatch, tmp_path, slice(2, 14))
    report = retained(tmp_path, NO_SPARK, is_dry_run=is_dry_run)
    assert report["conflicts"] == 1
    if is_dry_run:
        assert (report["offsets_expired"], report["left"]) == (0, [{"topic": "orders", "partition": 0}])
    else:
        assert (log_start(tmp_path), report["left"]) == (20, [])
    assert bytes_left(tmp_path) >= limit


async def test_a_merge_that_keeps_to_the_edge_of_two_looks_disturbs_nothing(tmp_path, monkeypatch):
    limit = await too_large_by(tmp_path, 10, monkeypatch)
    merge_after_the_first_page(monkeypatch, tmp_path, slice(4, 8))
    report = retained(tmp_path, NO_SPARK)
    assert (log_start(tmp_path), report["conflicts"]) == (100, 0)
    assert bytes_left(tmp_path) == limit


async def test_gaps_that_compaction_left_are_no_change(tmp_path, monkeypatch):
    await too_large_by(tmp_path, 10, monkeypatch)
    change(
        tmp_path, "UPDATE partitions SET bytes = bytes - (SELECT length FROM extents WHERE base_offset = 40)"
    )
    change(tmp_path, "DELETE FROM extents WHERE base_offset = 40")
    planned = retained(tmp_path, NO_SPARK, is_dry_run=True)
    report = retained(tmp_path, NO_SPARK)
    assert (log_start(tmp_path), report["conflicts"]) == (100, 0)
    assert planned["extents_removed"] == report["extents_removed"] == 9


# -- the clock ------------------------------------------------------------------------------------------------


async def test_a_clock_that_jumped_since_the_last_run_expires_nothing(spark, tmp_path):
    await filled(tmp_path, **{"retention.ms": str(100 * DAY_MS)})
    retained(tmp_path, spark)
    with pytest.raises(InvalidRequest, match="off against the catalog's"):
        retained(tmp_path, spark, now_ms=NOW_MS + 365 * DAY_MS)
    assert log_start(tmp_path) == 0
    retained(tmp_path, spark, now_ms=NOW_MS + clock.CLOCK_TOLERANCE_MS - 60_000)


async def test_a_clock_that_the_operator_vouches_for_is_trusted_from_then_on(spark, tmp_path):
    await filled(tmp_path, **{"retention.ms": str(100 * DAY_MS)})
    retained(tmp_path, spark)
    later = NOW_MS + 365 * DAY_MS
    retained(tmp_path, spark, RetainRequest(trust_clock=True), now_ms=later)
    assert log_start(tmp_path) == 200
    retained(tmp_path, spark, now_ms=later)


async def test_a_clock_behind_what_the_catalog_holds_is_not_trusted(spark, tmp_path):
    await filled(tmp_path, merged=spark, **{"retention.ms": str(HOUR_MS)})
    change(tmp_path, "UPDATE objects SET created_at = ?", NOW_MS)
    change(tmp_path, "UPDATE extents SET appended_at = 1, late_at = 1")
    behind = NOW_MS - clock.CLOCK_TOLERANCE_MS - 1
    with pytest.raises(InvalidRequest, match="behind the newest object"):
        retained(tmp_path, spark, now_ms=behind)
    assert log_start(tmp_path) == 0
    retained(tmp_path, spark, now_ms=behind + 1)
    assert log_start(tmp_path) > 0


def change_config(path, config):
    with job_at(path).database.write() as tx:
        catalog_topics.alter_config(tx, "orders", config)


def interfere(monkeypatch, deed):
    """Once, after the new log starts were computed and before the first is applied."""
    genuine = retain._apply_expiry
    done = []

    def apply(*arguments):
        if not done:
            done.append(True)
            deed()
        return genuine(*arguments)

    monkeypatch.setattr(retain, "_apply_expiry", apply)


def test_the_same_limits_are_read_from_a_topic_as_a_broker_reads_them():
    topic = catalog_topics.Topic(b"t" * 16, "t", 1, 0, {"retention.ms": "5", "retention.bytes": "7"})
    config = topic.config()
    assert retain.limits_of(topic) == retain.RetentionLimits(config.retention_ms, config.retention_bytes)
