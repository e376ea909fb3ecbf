"""The pipeline `table` on real topics: every record once, whatever its value, over any number of runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.tables.tabling import fill_with, job_on, origins_of, rows_of
from tests.spark.tables.test_values import ORDER, SCHEMA, descriptor_set, encoded, protobuf_order
from tests.spark.topics import append, fill, serving

from millpond.model.errors import InvalidRecord, InvalidRequest, OffsetOutOfRange, TopicReplaced, UnknownTopic
from millpond.records import Record
from millpond.spark.pipelines import table as pipeline
from millpond.spark.pipelines.table import OnBad, TableRequest, run
from millpond.spark.tables.formats.open import open_table
from millpond.spark.tables.model import Format
from millpond.spark.tables.values.spec import ValueFormat, Values, avro_values, json_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = [(partition, offset) for partition in range(2) for offset in range(40)]


@pytest.mark.parametrize("kind", list(Format))
async def test_runs_go_on_where_the_last_one_ended(kind: Format, tmp_path: Path, spark: "SparkSession"):
    data, place = tmp_path / "data", tmp_path / "orders table"
    request = TableRequest(("orders",), str(place), format=kind, partition_by="day", bytes_per_step=700)
    async with serving(data) as broker:
        await fill(broker, "orders", 2, 30)
        report = run(job_on(data, spark), request)
        assert (report["rows"], report["quarantined"]) == (60, 0)
        assert report["steps"] > 1
        assert report["positions"] == {"orders": {"0": 30, "1": 30}}
        for partition in range(2):
            more = [Record(b"more", b"k%d" % n, timestamp=86_400_000) for n in range(10)]
            await append(broker, "orders", partition, more)
        again = run(job_on(data, spark), request)
    assert again["rows"] == 20
    assert origins_of(place, spark) == EVERY
    found = rows_of(place, spark, "topic", "key", "value", "headers", "cast(timestamp as long)")
    assert found[0] == ("orders", b"k0", b"v0-0", None, 1)
    assert found[30][2:] == (b"more", None, 86_400)
    idle = run(job_on(data, spark), request)
    assert (idle["rows"], idle["steps"]) == (0, 0)
    assert idle["version"] == again["version"]


async def test_a_run_without_news_starts_no_spark(tmp_path: Path, spark: "SparkSession"):
    data, request = tmp_path / "data", TableRequest(("orders",), str(tmp_path / "t"))
    await fill_with(data, "orders", [b"a"])
    run(job_on(data, spark), request)
    assert run(pipeline.PipelineJob(job_on(data, spark).place, lambda: 1 / 0), request)["rows"] == 0


async def test_a_dry_run_says_what_would_be_read_and_writes_nothing(tmp_path: Path, spark: "SparkSession"):
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"a", b"b", b"c"])
    job = pipeline.PipelineJob(job_on(data, spark).place, lambda: 1 / 0, is_dry_run=True)
    report = run(job, TableRequest(("orders",), str(place)))
    assert [(each["start"], each["end"]) for each in report["read"]] == [(0, 3)]
    assert report["bytes"] > 0
    assert not place.exists()


JSON_VALUES = [
    b'{"id": 1, "name": "a", "inner": {"x": [1, 2]}}',
    b'{"id": "no number"}',
    b"no json",
    None,
    b'{"id": 5}',
    b"\xff",
    b"[1]",
    b"",
    b'{"id": 8, "other": true}',
    b'{"id": 9} and more',
    b'{"id": 10}{"id": 11}',
    b'{"id": 12}, {"id": 13}',
    b'{"id": 14}], [{"id": 15}',
    b' {"id": 16}\n',
]


@pytest.mark.parametrize("kind", list(Format))
async def test_json_becomes_columns_and_what_is_none_goes_to_quarantine(
    kind: Format, tmp_path: Path, spark: "SparkSession"
):
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", JSON_VALUES)
    values = json_values("id BIGINT, name STRING, inner STRUCT<x: ARRAY<INT>>")
    report = run(job_on(data, spark), TableRequest(("orders",), str(place), format=kind, values=values))
    assert (report["rows"], report["quarantined"]) == (5, 9)
    assert rows_of(place, spark, "offset", "id", "name", "inner.x") == [
        (0, 1, "a", [1, 2]),
        (3, None, None, None),
        (4, 5, None, None),
        (8, 8, None, None),
        (13, 16, None, None),
    ]
    bad = rows_of(f"{place}_quarantine", spark, "offset", "key", "value", "error")
    assert [(row[0], row[2]) for row in bad] == [(n, JSON_VALUES[n]) for n in (1, 2, 5, 6, 7, 9, 10, 11, 12)]
    assert bad[0][1] == b"k1"
    assert "no JSON object" in bad[0][3]


async def test_bad_rows_can_fail_the_run_and_leave_the_table_as_it_was(tmp_path: Path, spark: "SparkSession"):
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"good", b"\xff", b"good"])
    request = TableRequest(("orders",), str(place), values=Values(ValueFormat.STRING), on_bad=OnBad.FAIL)
    with pytest.raises(InvalidRecord, match="offset 1 of partition 0 of topic 'orders'"):
        run(job_on(data, spark), request)
    assert not list(place.rglob("*.parquet"))
    skipping = TableRequest(("orders",), str(place), values=Values(ValueFormat.STRING), on_bad=OnBad.SKIP)
    report = run(job_on(data, spark), skipping)
    assert (report["rows"], report["skipped"], report["quarantined"]) == (2, 1, 0)
    assert rows_of(place, spark, "value") == [("good",), ("good",)]
    assert not Path(f"{place}_quarantine").exists()


async def test_avro_and_protobuf_become_columns(tmp_path: Path, spark: "SparkSession"):
    data = tmp_path / "data"
    await fill_with(data, "avro", [b"\0\0\0\0\1" + encoded(ORDER), b"junk"])
    await fill_with(data, "protobuf", [protobuf_order(id=2**64 - 1, name="n"), b"\xff\xff"])
    schema = {**SCHEMA, "fields": [field for field in SCHEMA["fields"] if field["name"] != "day"]}
    values = avro_values(json.dumps(SCHEMA), is_confluent=True)
    with pytest.raises(InvalidRequest, match="'day'"):
        run(job_on(data, spark), TableRequest(("avro",), str(tmp_path / "a"), values=values))
    request = TableRequest(("avro",), str(tmp_path / "a"), values=values, is_nested=True)
    assert run(job_on(data, spark), request)["quarantined"] == 1
    assert rows_of(tmp_path / "a", spark, "value.amount", "value.lines[0].sku")[0][1] == "a"
    assert len(schema["fields"]) == 9
    values = Values(ValueFormat.PROTOBUF, descriptors=descriptor_set(), message="shop.Order")
    request = TableRequest(("protobuf",), str(tmp_path / "p"), Format.ICEBERG, values)
    assert run(job_on(data, spark), request)["quarantined"] == 1
    assert rows_of(tmp_path / "p", spark, "cast(id as string)", "name") == [(str(2**64 - 1), "n")]


async def test_a_run_that_died_between_quarantine_and_table_quarantines_nothing_twice(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
):
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"a", b"\xff", b"b"])
    request = TableRequest(("orders",), str(place), values=Values(ValueFormat.STRING))
    with monkeypatch.context() as patch:
        patch.setattr(pipeline._Run, "_commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(job_on(data, spark), request)
    async with serving(data) as broker:
        await append(broker, "orders", 0, [Record(b"\xfe"), Record(b"c")])
    report = run(job_on(data, spark), request)
    assert (report["rows"], report["quarantined"]) == (3, 1)
    assert origins_of(place, spark) == [(0, 0), (0, 2), (0, 4)]
    assert origins_of(f"{place}_quarantine", spark) == [(0, 1), (0, 3)]


@pytest.mark.parametrize("kind", list(Format))
async def test_a_run_that_is_overtaken_goes_on_from_the_others_position(
    kind: Format, tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
):
    """The other run comes in between this one's reading and its commit."""
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"%d" % n for n in range(20)], partitions=2)
    request = TableRequest(("orders",), str(place), format=kind)
    rival = TableRequest(("orders",), str(place), format=kind, bytes_per_step=200)
    perform = pipeline._Run._perform
    rivals: list[dict] = []

    def perform_late(self, step, schema, quarantined):
        results = perform(self, step, schema, quarantined)
        monkeypatch.setattr(pipeline._Run, "_perform", perform)
        if not rivals:
            rivals.append(run(job_on(data, spark), rival))
        return results

    monkeypatch.setattr(pipeline._Run, "_perform", perform_late)
    report = run(job_on(data, spark), request)
    assert (report["rows"], report["overtaken"], rivals[0]["rows"]) == (0, 1, 20)
    assert origins_of(place, spark) == [(partition, n) for partition in range(2) for n in range(10)]


async def test_a_table_changed_by_its_owner_takes_the_same_files_at_the_second_try(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
):
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"a", b"b"])
    request = TableRequest(("orders",), str(place), format=Format.ICEBERG, bytes_per_step=1)
    perform, changes = pipeline._Run._perform, []

    def perform_late(self, step, schema, quarantined):
        results = perform(self, step, schema, quarantined)
        if step[0].start == 1:
            changes.append(open_table(Format.ICEBERG, str(place))._open().delete("offset = 0"))
        return results

    monkeypatch.setattr(pipeline._Run, "_perform", perform_late)
    report = run(job_on(data, spark), request)
    assert (len(changes), report["overtaken"], report["rows"]) == (1, 1, 2)
    assert origins_of(place, spark) == [(0, 1)]


async def test_a_topic_made_anew_needs_a_restart_and_then_follows_the_old_rows(
    tmp_path: Path, spark: "SparkSession"
):
    data, place = tmp_path / "data", tmp_path / "t"
    request = TableRequest(("orders",), str(place))
    async with serving(data) as broker:
        await fill(broker, "orders", 1, 3)
        run(job_on(data, spark), request)
        await broker.log.delete_topic("orders")
        await fill(broker, "orders", 1, 2)
        with pytest.raises(TopicReplaced, match="'orders'"):
            run(job_on(data, spark), request)
        assert run(job_on(data, spark), TableRequest(("orders",), str(place), restart=True))["rows"] == 2
        assert run(job_on(data, spark), request)["rows"] == 0
    assert [offset for _, offset in origins_of(place, spark)] == [0, 0, 1, 1, 2]


async def test_expired_records_stop_a_run_unless_gaps_are_allowed(tmp_path: Path, spark: "SparkSession"):
    data, place = tmp_path / "data", tmp_path / "t"
    request = TableRequest(("orders",), str(place), format=Format.PARQUET)
    async with serving(data) as broker:
        await fill(broker, "orders", 1, 3)
        run(job_on(data, spark), request)
        await append(broker, "orders", 0, [Record(b"x") for _ in range(5)])
        await broker.log.delete_records(broker.log.topics.partition("orders", 0), 6)
        with pytest.raises(OffsetOutOfRange, match="offsets 3 to 5 have expired"):
            run(job_on(data, spark), request)
        allowing = TableRequest(("orders",), str(place), format=Format.PARQUET, allow_gaps=True)
        report = run(job_on(data, spark), allowing)
    assert report["gaps"] == [{"topic": "orders", "partition": 0, "start": 3, "end": 6}]
    assert [offset for _, offset in origins_of(place, spark)] == [0, 1, 2, 6, 7]


@pytest.mark.parametrize("kind", [Format.PARQUET, Format.DELTA])
async def test_many_small_files_become_few(kind: Format, tmp_path: Path, spark: "SparkSession"):
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"%d" % n for n in range(6)])
    request = TableRequest(
        ("orders",), str(place), format=kind, bytes_per_step=1, small_files_max=3, partition_by="day"
    )
    report = run(job_on(data, spark), request)
    assert (report["files"], report["compacted"]) == (6, 6)
    assert open_table(kind, str(place), by_day=True).small_files(10**9) == 1
    assert origins_of(place, spark) == [(0, n) for n in range(6)]
    if kind is Format.PARQUET:
        assert len(list(place.rglob("*.parquet"))) == 1
    assert run(job_on(data, spark), request)["rows"] == 0, "positions outlive compaction"


async def test_what_cannot_be_asked_for_is_refused_in_words(tmp_path: Path, spark: "SparkSession"):
    data, place = tmp_path / "data", str(tmp_path / "t")
    await fill_with(data, "orders", [b"a"])
    job = job_on(data, spark)
    with pytest.raises(UnknownTopic, match="'nothing'"):
        run(job, TableRequest(("nothing",), place))
    with pytest.raises(InvalidRequest, match="by 'hour'"):
        run(job, TableRequest(("orders",), place, partition_by="hour"))
    with pytest.raises(InvalidRequest, match="no list of columns"):
        run(job, TableRequest(("orders",), place, values=json_values("id NUMBERS")))
    run(job, TableRequest(("orders",), place))
    async with serving(data) as broker:
        await append(broker, "orders", 0, [Record(b"b")])
    with pytest.raises(InvalidRequest, match="other columns"):
        run(job, TableRequest(("orders",), place, values=Values(ValueFormat.STRING)))
