"""What every format promises, without Spark: files and positions move together, and of two writers one loses."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.model.errors import InvalidRequest
from millpond.model.ids import TopicId
from millpond.model.topics import Topic
from millpond.spark.tables.columns import quarantine_schema, table_schema
from millpond.spark.tables.file_writer import TaskOrder, TaskWork
from millpond.spark.tables.formats import parquet
from millpond.spark.tables.formats.open import find_table, open_quarantine, open_table
from millpond.spark.tables.model import Format, Overtaken, Table, TableProgress, WrittenFile
from millpond.spark.tables.times import FIRST_US, LAST_US
from millpond.spark.tables.values.jsons import DECODED, REASON
from millpond.spark.tables.values.spec import ValueFormat, Values

ORDERS = Topic(TopicId(bytes(range(16))), "orders", 2, 0)
REFUNDS = Topic(TopicId(bytes(range(16, 32))), "refunds", 1, 0)
SCHEMA = table_schema(pa.binary(), keys_are_text=False, is_nested=False)
DAY_US = 24 * 60 * 60 * 1_000_000


def records(*offsets: int, topic: str = "orders", partition: int = 0) -> pa.RecordBatch:
    """One record a day, from the first day of 2026."""
    start = 1_767_225_600_000_000
    return pa.RecordBatch.from_pydict(
        {
            "topic": [topic] * len(offsets),
            "partition": pa.array([partition] * len(offsets), pa.int32()),
            "offset": list(offsets),
            "timestamp": pa.array([start + n * DAY_US for n in offsets], pa.timestamp("us", "UTC")),
            "key": [b"k%d" % n for n in offsets],
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}] for _ in offsets], SCHEMA.field("headers").type
            ),
            "value": [b"v%d" % n for n in offsets],
        }
    )


def write(table: Table, *offsets: int, values: Values | None = None) -> tuple[WrittenFile, ...]:
    order = TaskOrder(SCHEMA, values or Values(), False, False, table.target, None, {})
    return TaskWork(order).perform([records(*offsets)]).files


def progress(topic: Topic, *offsets: int) -> dict[str, TableProgress]:
    return {topic.name: TableProgress(topic.id.hex(), dict(enumerate(offsets)))}


def offsets_in(table: Table, path: Path) -> list[int]:
    """By the format's own library, not by ours."""
    if (path / "_delta_log").exists():
        from deltalake import DeltaTable

        return sorted(DeltaTable(path).to_pyarrow_table().column("offset").to_pylist())
    if (path / "catalog.db").exists():
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("millpond", uri=f"sqlite:///{path / 'catalog.db'}")
        return sorted(
            catalog.load_table(f"default.{path.name}").scan().to_arrow().column("offset").to_pylist()
        )
    found = [
        pq.ParquetFile(file).read().column("offset").to_pylist() for file in path.glob("[!_]*/*.parquet")
    ]
    found += [pq.ParquetFile(file).read().column("offset").to_pylist() for file in path.glob("*.parquet")]
    return sorted(n for each in found for n in each)


@pytest.fixture(params=list(Format))
def kind(request: pytest.FixtureRequest) -> Format:
    return request.param


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made of topics"


@pytest.mark.parametrize("by_day", [False, True])
def test_a_commit_adds_files_and_positions(kind: Format, by_day: bool, path: Path):
    table = open_table(kind, str(path), by_day=by_day)
    assert table.progress([ORDERS]) == {}
    assert table.version() == ""
    table.commit(SCHEMA, write(table, 0, 1, 2), progress(ORDERS, 3, 0))
    table.commit(SCHEMA, write(table, 3), progress(ORDERS, 4, 7))
    again = open_table(kind, path.as_uri(), by_day=by_day)
    assert again.progress([ORDERS, REFUNDS]) == progress(ORDERS, 4, 7)
    assert offsets_in(again, path) == [0, 1, 2, 3]
    assert again.small_files(10**6) == (4 if by_day else 2)
    assert again.version() == table.version() != ""
    assert type(find_table(str(path))) is type(table)


def test_of_two_commits_on_the_same_state_one_is_refused_whole(kind: Format, path: Path):
    first, second = open_table(kind, str(path)), open_table(kind, str(path))
    first.progress([ORDERS])
    first.commit(SCHEMA, write(first, 0), progress(ORDERS, 1))
    assert first.progress([ORDERS]) == second.progress([ORDERS])
    files = write(second, 1, 2)
    first.commit(SCHEMA, write(first, 1), progress(ORDERS, 2))
    with pytest.raises(Overtaken):
        second.commit(SCHEMA, files, progress(ORDERS, 3))
    assert offsets_in(first, path) == [0, 1]
    assert second.progress([ORDERS]) == progress(ORDERS, 2)


def test_of_two_that_make_the_table_one_is_refused(kind: Format, path: Path):
    first, second = open_table(kind, str(path)), open_table(kind, str(path))
    assert first.progress([ORDERS]) == second.progress([ORDERS]) == {}
    files = write(second, 0, 1)
    first.commit(SCHEMA, write(first, 0), progress(ORDERS, 1))
    with pytest.raises(Overtaken):
        second.commit(SCHEMA, files, progress(ORDERS, 2))
    assert offsets_in(first, path) == [0]


def test_positions_move_without_files_and_a_rival_notices(kind: Format, path: Path):
    first, second = open_table(kind, str(path)), open_table(kind, str(path))
    first.progress([ORDERS])
    first.commit(SCHEMA, write(first, 0), progress(ORDERS, 1))
    first.progress([ORDERS])
    second.progress([ORDERS])
    first.commit(SCHEMA, [], progress(ORDERS, 9))
    with pytest.raises(Overtaken):
        second.commit(SCHEMA, write(second, 5), progress(ORDERS, 6))
    assert second.progress([ORDERS]) == progress(ORDERS, 9)


def test_several_topics_keep_their_own_positions(kind: Format, path: Path):
    table = open_table(kind, str(path))
    table.progress([ORDERS])
    table.commit(SCHEMA, write(table, 0), progress(ORDERS, 1, 1))
    table.progress([REFUNDS])
    table.commit(SCHEMA, write(table, 5), progress(REFUNDS, 6))
    assert table.progress([ORDERS, REFUNDS]) == {**progress(ORDERS, 1, 1), **progress(REFUNDS, 6)}


def test_a_topic_made_anew_is_told_from_the_one_in_the_table(kind: Format, path: Path):
    table = open_table(kind, str(path))
    table.progress([ORDERS])
    table.commit(SCHEMA, write(table, 0), progress(ORDERS, 5, 5))
    anew = Topic(TopicId(bytes(range(1, 17))), "orders", 2, 0)
    assert table.progress([anew])["orders"].topic_id != anew.id.hex()
    table.commit(SCHEMA, write(table, 1), progress(anew, 2, 0))
    assert table.progress([anew]) == progress(anew, 2, 0)
    assert table.progress([ORDERS])["orders"].topic_id != ORDERS.id.hex()


def test_other_columns_and_another_partitioning_are_refused(kind: Format, path: Path):
    table = open_table(kind, str(path))
    table.progress([ORDERS])
    table.check_schema(SCHEMA)
    table.commit(SCHEMA, write(table, 0), progress(ORDERS, 1))
    table.check_schema(SCHEMA)
    with pytest.raises(InvalidRequest, match="other columns"):
        table.check_schema(SCHEMA.append(pa.field("more", pa.int32())))
    with pytest.raises(InvalidRequest, match="other columns"):
        open_table(kind, str(path), by_day=True).check_schema(SCHEMA)


def test_a_table_knows_which_files_are_its_own(kind: Format, path: Path):
    table = open_table(kind, str(path), by_day=True)
    table.progress([ORDERS])
    committed, lost = write(table, 0, 1), write(table, 2)
    assert table.committed_paths(committed) == set(), "there is no table yet"
    table.commit(SCHEMA, committed, progress(ORDERS, 2))
    assert open_table(kind, str(path), by_day=True).committed_paths([*committed, *lost]) == {
        file.path for file in committed
    }


FAR = 300_000_000_000_000_000  # microseconds: in the year 11476


@pytest.mark.parametrize("by_day", [False, True])
def test_a_time_that_no_table_can_hold_is_a_bad_row_and_the_others_go_on(
    kind: Format, by_day: bool, path: Path
):
    table, beside = open_table(kind, str(path), by_day=by_day), open_quarantine(kind, str(path))
    times = [0, FAR, -1_000, -70_000_000_000_000_000, FIRST_US, LAST_US, FIRST_US - 1_000, LAST_US + 1_000]
    batch = records(*range(8)).set_column(3, "timestamp", pa.array(times, pa.timestamp("us", "UTC")))
    order = TaskOrder(SCHEMA, Values(), False, False, table.target, beside.target, {})
    result = TaskWork(order).perform([batch])
    (kept,) = result.quarantine_files
    bad = pq.ParquetFile(f"{path}_quarantine/{kept.path}").read().to_pylist()
    table.progress([ORDERS])
    table.commit(SCHEMA, result.files, progress(ORDERS, 8))
    beside.progress([ORDERS])
    beside.commit(quarantine_schema(), result.quarantine_files, progress(ORDERS, 8))
    assert offsets_in(table, path) == [0, 2, 4, 5]
    assert [(row["offset"], row["timestamp"].year) for row in bad] == [(1, 9999), (3, 1), (6, 1), (7, 9999)]
    assert bad[0]["error"] == f"time out of range: {FAR} microseconds from 1970"
    assert bad[0]["value"] == b"v1"


def test_a_time_inside_a_value_that_no_table_can_hold_is_a_bad_row(path: Path):
    inner = pa.struct([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    value = pa.struct([("one", inner), ("many", pa.list_(inner)), ("named", pa.map_(pa.string(), inner))])
    good, bad = {"at": 0, "day": 1}, [{"at": FAR, "day": 0}, {"at": None, "day": 10**7}]
    rows = [
        {"one": good, "many": [good, good], "named": [("a", good)]},
        None,
        {"one": bad[0], "many": None, "named": None},
        {"one": None, "many": [], "named": []},
        {"one": good, "many": [good, bad[1]], "named": None},
        {"one": good, "many": None, "named": [("a", good), ("b", bad[0])]},
    ]
    table = open_table(Format.ICEBERG, str(path))
    schema = table_schema(value, keys_are_text=False, is_nested=True)
    batch = records(*range(6)).append_column(DECODED, pa.array(rows, value))
    batch = batch.append_column(REASON, pa.nulls(6, pa.string()))
    order = TaskOrder(schema, Values(ValueFormat.JSON), False, True, table.target, None, {})
    result = TaskWork(order).perform([batch])
    table.progress([ORDERS])
    table.commit(schema, result.files, progress(ORDERS, 6))
    assert (result.bad, result.first_bad.offset) == (3, 2)
    assert result.first_bad.error == "a time in the value is out of range"
    assert offsets_in(table, path) == [0, 1, 3]


def test_deltas_statistics_have_four_digits_of_a_year(path: Path):
    from deltalake import DeltaTable

    table = open_table(Format.DELTA, str(path))
    batch = records(0, 1).set_column(3, "timestamp", pa.array([FIRST_US, 0], pa.timestamp("us", "UTC")))
    files = TaskWork(TaskOrder(SCHEMA, Values(), False, False, table.target, None, {})).perform([batch]).files
    table.progress([ORDERS])
    table.commit(SCHEMA, files, progress(ORDERS, 2))
    found = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()[0]
    assert (found["min.timestamp"].year, found["max.timestamp"].year) == (1, 1970)


def test_the_quarantine_lies_beside_the_table(kind: Format, path: Path):
    table, beside = open_table(kind, str(path)), open_quarantine(kind, str(path))
    table.progress([ORDERS])
    assert beside.progress([ORDERS]) == {}
    table.commit(SCHEMA, write(table, 0), progress(ORDERS, 1))
    beside.commit(SCHEMA, write(beside, 5), progress(ORDERS, 6))
    assert table.progress([ORDERS]) == progress(ORDERS, 1)
    assert beside.progress([ORDERS]) == progress(ORDERS, 6)
    assert offsets_in(table, path) == [0]
    assert type(find_table(f"{path}_quarantine")) is type(table)


def test_there_is_no_table_at_a_place_with_nothing(path: Path):
    with pytest.raises(InvalidRequest, match="no table at"):
        find_table(str(path))


def test_parquet_needs_a_folder():
    with pytest.raises(InvalidRequest, match="Delta or Iceberg"):
        open_table(Format.PARQUET, "s3://bucket/orders")


def test_deltas_statistics_let_a_reader_skip_files(path: Path):
    from deltalake import DeltaTable

    table = open_table(Format.DELTA, str(path))
    table.progress([ORDERS])
    table.commit(SCHEMA, write(table, 3, 9), progress(ORDERS, 10))
    actions = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()[0]
    assert (actions["num_records"], actions["min.offset"], actions["max.offset"]) == (2, 3, 9)
    assert str(actions["min.timestamp"]).startswith("2026-01-04 00:00:00")


def test_icebergs_snapshot_says_how_far_it_goes(path: Path):
    table = open_table(Format.ICEBERG, str(path))
    table.progress([ORDERS])
    table.commit(SCHEMA, write(table, 0), progress(ORDERS, 1, 4))
    summary = table._open().current_snapshot().summary
    assert summary["millpond.positions"].endswith('"offsets": {"0": 1, "1": 4}}}')


def test_an_iceberg_table_of_somebody_elses_making_is_not_rebased_by_pyiceberg(path: Path):
    """It would add the loser's records as well: by default pyiceberg tries a refused commit again by itself."""
    table = open_table(Format.ICEBERG, str(path))
    table._load_catalog().create_namespace("default")
    table._load_catalog().create_table(f"default.{path.name}", SCHEMA, location=path.as_uri())
    table.progress([ORDERS])
    with pytest.raises(Overtaken):
        table.commit(SCHEMA, write(table, 0), progress(ORDERS, 1))
    rival = open_table(Format.ICEBERG, str(path))
    assert table.progress([ORDERS]) == rival.progress([ORDERS]) == {}
    table.commit(SCHEMA, write(table, 0), progress(ORDERS, 1))
    with pytest.raises(Overtaken):
        rival.commit(SCHEMA, write(rival, 0), progress(ORDERS, 1))
    assert offsets_in(table, path) == [0]


def test_a_parquet_commit_that_died_before_moving_its_files_is_finished_by_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    table = open_table(Format.PARQUET, str(path))
    table.progress([ORDERS])
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "finish", lambda root: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            table.commit(SCHEMA, write(table, 0, 1), progress(ORDERS, 2))
    assert offsets_in(table, path) == []
    again = open_table(Format.PARQUET, str(path))
    assert again.progress([ORDERS]) == progress(ORDERS, 2)
    assert offsets_in(again, path) == [0, 1]


def test_parquet_files_of_no_commit_are_never_seen_and_deleted_after_a_day(path: Path):
    table = open_table(Format.PARQUET, str(path))
    table.progress([ORDERS])
    table.commit(SCHEMA, write(table, 0), progress(ORDERS, 1))
    (lost,) = write(table, 1)
    (fresh,) = write(table, 2)
    yesterday = time.time() - parquet.LEFTOVER_AGE_S - 1
    os.utime(path / lost.path, (yesterday, yesterday))
    assert table.progress([ORDERS]) == progress(ORDERS, 1)
    assert offsets_in(table, path) == [0]
    assert not (path / lost.path).exists()
    assert (path / fresh.path).exists()


def test_a_parquet_tables_log_is_read_from_its_newest_checkpoint(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parquet, "CHECKPOINT_EVERY", 4)
    table = open_table(Format.PARQUET, str(path))
    for offset in range(10):
        table.progress([ORDERS])
        table.commit(SCHEMA, write(table, offset), progress(ORDERS, offset + 1))
    for number in range(8):
        (path / parquet.COMMITS / parquet._name(number)).unlink()
    again = open_table(Format.PARQUET, str(path))
    assert again.progress([ORDERS]) == progress(ORDERS, 10)
    assert again.small_files(10**6) == 10
    assert again.version() == "9"


def test_a_task_splits_its_rows_by_day_and_its_bad_ones_off(path: Path):
    table, beside = open_table(Format.DELTA, str(path), by_day=True), open_quarantine(Format.DELTA, str(path))
    batch = records(0, 1, 2, 3)
    batch = batch.set_column(6, "value", pa.array([b"a", b"\xff", None, b"\xfe"]))
    schema = table_schema(pa.string(), keys_are_text=False, is_nested=False)
    order = TaskOrder(
        schema, Values(ValueFormat.STRING), False, False, table.target, beside.target, {("orders", 0): 2}
    )
    result = TaskWork(order).perform([batch])
    assert [(file.day, file.rows) for file in result.files] == [("2026-01-01", 1), ("2026-01-03", 1)]
    assert result.bad == 2
    assert (result.first_bad.partition, result.first_bad.offset) == (0, 1)
    (kept,) = result.quarantine_files
    (row,) = pq.ParquetFile(f"{path}_quarantine/{kept.path}").read().to_pylist()
    assert (row["offset"], row["key"], row["value"]) == (3, b"k3", b"\xfe"), (
        "offset 1 is in the quarantine already"
    )
    assert "utf-8" in row["error"]


def test_a_key_that_is_no_text_is_a_bad_row(path: Path):
    table = open_table(Format.PARQUET, str(path))
    schema = table_schema(pa.binary(), keys_are_text=True, is_nested=False)
    batch = records(0, 1).set_column(4, "key", pa.array([b"\xff", b"good"]))
    result = TaskWork(TaskOrder(schema, Values(), True, False, table.target, None, {})).perform([batch])
    assert (result.bad, result.first_bad.offset) == (1, 0)
    assert result.first_bad.error.startswith("key: ")
    assert [file.rows for file in result.files] == [1]


def test_decoded_json_has_its_value_in_columns_and_nulls_for_none(path: Path):
    table = open_table(Format.PARQUET, str(path))
    value = pa.struct([("id", pa.int64()), ("name", pa.string())])
    schema = table_schema(value, keys_are_text=False, is_nested=False)
    batch = records(0, 1).append_column(DECODED, pa.array([{"id": 1, "name": "x"}, None], value))
    batch = batch.append_column(REASON, pa.nulls(2, pa.string()))
    order = TaskOrder(schema, Values(ValueFormat.JSON), False, False, table.target, None, {})
    (file,) = TaskWork(order).perform([batch]).files
    found = pq.ParquetFile(path / file.path).read().select(["offset", "id", "name"]).to_pylist()
    assert found == [{"offset": 0, "id": 1, "name": "x"}, {"offset": 1, "id": None, "name": None}]
