"""`table` and records that nobody should have sent, and the world changing under it: it goes on, and says so."""

import asyncio
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.spark.tables.raw_batches import raw_batch, raw_record
from tests.spark.tables.tabling import fill_with, job_on, origins_of, rows_of
from tests.spark.topics import abort, append, append_in_transaction, commit, fill, serving

from millpond.model.errors import InvalidRequest, OffsetOutOfRange, TopicReplaced
from millpond.records import Record
from millpond.spark.pipelines import table as pipeline
from millpond.spark.pipelines.sql import SqlRequest, run_sql
from millpond.spark.pipelines.table import TableRequest, run
from millpond.spark.tables.columns import quarantine_schema, table_schema
from millpond.spark.tables.formats import delta
from millpond.spark.tables.formats.open import open_quarantine, open_table
from millpond.spark.tables.model import Format, Overtaken, TableProgress
from millpond.spark.tables.steps import ReadableRange, TableRange
from millpond.spark.tables.values.spec import ValueFormat, Values, json_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR_MS = 2**48


async def test_a_record_from_the_far_future_goes_to_quarantine_with_its_value(
    tmp_path: Path, spark: "SparkSession"
):
    data, place = tmp_path / "data", tmp_path / "t"
    async with serving(data) as broker:
        await broker.log.create_topic("far", 1, {"message.timestamp.after.max.ms": str(2 * FAR_MS)})
        far = raw_batch(raw_record(0, b'{"id": 1}', timestamp_delta=FAR_MS))
        await broker.log.append(broker.log.topics.partition("far", 0), far)
        await append(broker, "far", 0, [Record(b'{"id": 2}')])
    request = TableRequest(("far",), str(place), values=json_values("id INT"), partition_by="day")
    report = run(job_on(data, spark), request)
    assert (report["rows"], report["quarantined"]) == (1, 1)
    assert rows_of(place, spark, "offset", "id") == [(1, 2)]
    (bad,) = rows_of(f"{place}_quarantine", spark, "offset", "value", "year(timestamp)", "error")
    assert bad[:3] == (0, b'{"id": 1}', 9999)
    assert "time out of range" in bad[3]
    with pytest.raises(InvalidRequest, match="years 1 to 9999") as caught:
        run_sql(job_on(data, spark), SqlRequest("SELECT timestamp FROM far"))
    assert "\n" not in str(caught.value)
    assert run_sql(job_on(data, spark), SqlRequest("SELECT offset FROM far ORDER BY 1")).rows == ((0,), (1,))


async def test_a_header_whose_key_is_no_text_is_readable_in_the_table_and_after_compaction(
    tmp_path: Path, spark: "SparkSession"
):
    from deltalake import DeltaTable

    data, place = tmp_path / "data", tmp_path / "t"
    async with serving(data) as broker:
        await broker.log.create_topic("orders", 1, {})
        for _ in range(2):
            odd = raw_batch(raw_record(0, b"v", headers=((b"\xff\xfe", b"w"), ("ä".encode(), b"x"))))
            await broker.log.append(broker.log.topics.partition("orders", 0), odd)
    request = TableRequest(("orders",), str(place), bytes_per_step=1, small_files_max=1)
    report = run(job_on(data, spark), request)
    assert (report["rows"], report["compacted"], report["compaction_error"]) == (2, 2, "")
    found = DeltaTable(place).to_pyarrow_table().column("headers").to_pylist()
    assert found == [[{"key": "\ufffd\ufffd", "value": b"w"}, {"key": "ä", "value": b"x"}]] * 2


async def test_a_compaction_that_fails_is_reported_and_the_run_is_done(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
):
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"a", b"b"])

    def fail(*_: object) -> int:
        raise OSError("the disk is\nfull")

    monkeypatch.setattr(delta.DeltaTable, "compact", fail)
    report = run(
        job_on(data, spark), TableRequest(("orders",), str(place), bytes_per_step=1, small_files_max=1)
    )
    assert (report["rows"], report["compacted"]) == (2, 0)
    assert report["compaction_error"] == "the disk is full"
    assert origins_of(place, spark) == [(0, 0), (0, 1)]


async def test_a_quarantine_ahead_of_the_table_is_not_set_back_by_smaller_steps(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
):
    """A run dies between its two commits; the next one reads less in a step, and another partition has news."""
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"\xff" + b"x" * 200] * 8, partitions=2, per_batch=1)
    with monkeypatch.context() as patch:
        patch.setattr(pipeline._Run, "_commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(job_on(data, spark), TableRequest(("orders",), str(place), values=Values(ValueFormat.STRING)))
    async with serving(data) as broker:
        await append(broker, "orders", 1, [Record(b"\xff")])
        for partition in range(2):
            await append(broker, "orders", partition, [Record(b"good")])
    # The news are in the first step, which reads one record more of partition 1 than the quarantine knows.
    smaller = TableRequest(("orders",), str(place), values=Values(ValueFormat.STRING), bytes_per_step=1_500)
    shares = pipeline.next_step

    def uneven(database, positions, ends, bytes_max):
        step = shares(database, positions, ends, bytes_max)
        if step and step[0].start == 0:
            (low, high) = step
            return [TableRange("orders", 0, 0, 1, low.bytes), TableRange("orders", 1, 0, 5, high.bytes)]
        return step

    monkeypatch.setattr(pipeline, "next_step", uneven)
    report = run(job_on(data, spark), smaller)
    assert (report["rows"], report["quarantined"]) == (2, 1)
    bad = origins_of(f"{place}_quarantine", spark)
    assert bad == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]


@pytest.mark.parametrize("kind", list(Format))
async def test_our_own_commit_whose_answer_was_lost_counts_and_keeps_its_files(
    kind: Format, tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
):
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"good", b"\xff", b"good"])
    opened = type(open_table(kind, str(place)))
    real = opened.commit

    def commit_and_lose_the_answer(self, schema, files, positions):
        real(self, schema, files, positions)
        if "error" not in schema.names:
            raise Overtaken

    monkeypatch.setattr(opened, "commit", commit_and_lose_the_answer)
    report = run(job_on(data, spark), TableRequest(("orders",), str(place), kind, Values(ValueFormat.STRING)))
    assert (report["rows"], report["quarantined"], report["overtaken"]) == (2, 1, 0)
    assert origins_of(place, spark) == [(0, 0), (0, 2)]
    assert origins_of(f"{place}_quarantine", spark) == [(0, 1)]


async def test_a_table_ahead_of_its_log_is_an_error_until_it_may_go_back(
    tmp_path: Path, spark: "SparkSession"
):
    """As after a catalog was restored from a backup. The quarantine's positions go back as well."""
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"a", b"b"])
    (topic,) = job_on(data, spark).topics(["orders"])
    schema = table_schema(pa.string(), keys_are_text=False, is_nested=False)
    ahead = {"orders": TableProgress(topic.id.hex(), {0: 9})}
    open_table(Format.DELTA, str(place)).commit(schema, [], ahead)
    open_quarantine(Format.DELTA, str(place)).commit(quarantine_schema(), [], ahead)
    request = TableRequest(("orders",), str(place), values=Values(ValueFormat.STRING))
    with pytest.raises(OffsetOutOfRange, match=r"Partition 0 of topic 'orders' .* offset 9, .* ends at 2"):
        run(pipeline.PipelineJob(job_on(data, spark).place, lambda: 1 / 0), request)
    allowing = TableRequest(("orders",), str(place), values=Values(ValueFormat.STRING), allow_gaps=True)
    assert run(job_on(data, spark), allowing)["gaps"] == [
        {"topic": "orders", "partition": 0, "start": 9, "end": 2}
    ]
    async with serving(data) as broker:
        await append(broker, "orders", 0, [Record(b"c"), Record(b"\xff")])
    report = run(job_on(data, spark), allowing)
    assert (report["rows"], report["quarantined"]) == (1, 1)
    assert origins_of(place, spark) == [(0, 2)]
    assert origins_of(f"{place}_quarantine", spark) == [(0, 3)]
    assert run(job_on(data, spark), request)["rows"] == 0


async def test_a_rival_that_has_read_further_than_we_saw_is_no_error(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
):
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"a", b"b", b"c"])
    request = TableRequest(("orders",), str(place))
    run(job_on(data, spark), request)
    real, looks = pipeline.read_bounds, []

    def look_early(database, topics):
        found = real(database, topics)
        looks.append(found)
        if len(looks) > 1:
            return found
        bounds = found["orders"][0]
        return {"orders": {0: ReadableRange(bounds.topic_partition, bounds.log_start, 2)}}

    monkeypatch.setattr(pipeline, "read_bounds", look_early)
    assert (run(job_on(data, spark), request)["rows"], len(looks)) == (0, 2)


async def test_a_topic_replaced_while_a_step_runs_puts_nothing_into_the_table(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
):
    data, place = tmp_path / "data", tmp_path / "t"
    await fill_with(data, "orders", [b"a", b"b"])
    perform = pipeline._Run._perform

    async def replace() -> None:
        async with serving(data) as broker:
            await broker.log.delete_topic("orders")
            await fill(broker, "orders", 1, 2)

    def perform_and_replace(self, step, schema, quarantined):
        results = perform(self, step, schema, quarantined)
        other = Thread(target=lambda: asyncio.run(replace()))
        other.start()
        other.join()
        return results

    monkeypatch.setattr(pipeline._Run, "_perform", perform_and_replace)
    with pytest.raises(TopicReplaced, match="'orders'"):
        run(job_on(data, spark), TableRequest(("orders",), str(place)))
    assert open_table(Format.DELTA, str(place)).version() == ""


async def test_records_of_aborted_and_open_transactions_stay_out_of_tables(
    tmp_path: Path, spark: "SparkSession"
):
    data, place = tmp_path / "data", tmp_path / "t"
    request = TableRequest(("orders",), str(place))
    async with serving(data) as broker:
        await broker.log.create_topic("orders", 1, {})
        await append(broker, "orders", 0, [Record(b"plain")])
        await abort(broker, await append_in_transaction(broker, "one", "orders", 0, [b"aborted"] * 2))
        await commit(broker, await append_in_transaction(broker, "two", "orders", 0, [b"committed"]))
        producer = await append_in_transaction(broker, "three", "orders", 0, [b"later"])
        await append(broker, "orders", 0, [Record(b"behind")])
        assert run(job_on(data, spark), request)["rows"] == 2
        assert rows_of(place, spark, "value") == [(b"plain",), (b"committed",)]
        await abort(broker, producer)
        assert run(job_on(data, spark), request)["rows"] == 1
    assert rows_of(place, spark, "value") == [(b"plain",), (b"committed",), (b"behind",)]
