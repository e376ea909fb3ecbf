"""`df.write.format("millpond")` and `df.writeStream.format("millpond")`, in a real Spark."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import AnalysisException, PythonException
from tests.spark.sink.rows import (
    headers_of,
    living_sessions,
    make_place,
    make_topic,
    publish,
    stored,
    values,
)

from millpond.catalog import sinks
from millpond.model.partitioning import partition_of
from millpond.spark import session
from millpond.spark.place import database, store

EVERYTHING = """
    SELECT * FROM VALUES
      ('k1', 'v1', array(named_struct('key', 'h', 'value', X'01')), 'a', 1, timestamp'2024-01-02 03:04:05.678Z'),
      ('k2', NULL, NULL, 'b', NULL, NULL),
      (NULL, 'v3', array(), 'a', 0, timestamp'1970-01-01 00:00:01Z')
    AS t (key, value, headers, topic, partition, timestamp)
"""


@pytest.fixture
def place(tmp_path):
    return make_place(tmp_path / "data")


def save(frame, tmp_path, mode="append", **options):
    frame.write.format("millpond").options(path=str(tmp_path / "data"), **options).mode(mode).save()


def refusal(frame, tmp_path, kind=AnalysisException, **options) -> str:
    with pytest.raises(kind) as refused:
        save(frame, tmp_path, **options)
    return str(refused.value)


def test_every_column_arrives(spark, place, tmp_path):
    make_topic(place, "a", 2)
    make_topic(place, "b", 3)
    save(spark.sql(EVERYTHING), tmp_path)
    a = stored(place, "a")
    [first], [third] = a[1], a[0]
    assert (first.key, first.value, first.headers) == (b"k1", b"v1", (("h", b"\x01"),))
    assert first.timestamp == 1_704_164_645_678
    assert (third.key, third.value, third.headers, third.timestamp) == (None, b"v3", (), 1000)
    [second] = stored(place, "b")[partition_of(b"k2", 3)]
    assert (second.key, second.value, second.headers) == (b"k2", None, ())


def test_the_option_topic_overrides_the_column_and_names_have_no_case(spark, place, tmp_path):
    make_topic(place, "c", 2)
    save(spark.sql(EVERYTHING).withColumnRenamed("value", "VALUE"), tmp_path, TOPIC="c")
    assert sum(map(len, stored(place, "c").values())) == 3


def test_rows_of_many_tasks_arrive_once_each(spark, place, tmp_path):
    make_topic(place, "t", 4)
    rows = spark.range(20_000).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    save(rows.repartition(5), tmp_path, topic="t", **{"kafka.compression.type": "lz4"})
    assert sorted(values(place, "t")) == sorted(b"%d" % n for n in range(20_000))
    found = stored(place, "t")
    assert all(
        partition_of(record.key, 4) == number for number, records in found.items() for record in records
    )
    assert {header.codec.name for header in headers_of(place, "t")} == {"LZ4"}
    assert living_sessions(place) == set()


def test_rows_of_one_task_keep_their_order(spark, place, tmp_path):
    make_topic(place, "t")
    save(spark.range(30_000).coalesce(1).selectExpr("CAST(id AS STRING) AS value"), tmp_path, topic="t")
    assert values(place, "t") == [b"%d" % n for n in range(30_000)]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["'k' AS key"], "required column 'value'"),
        (["1 AS value"], "column 'value' is of type int, and must be string or binary"),
        (["'v' AS value", "1 AS key"], "column 'key' is of type int"),
        (["'v' AS value", "1L AS partition"], "column 'partition' is of type bigint"),
        (["'v' AS value", "'x' AS headers"], "column 'headers' is of type string"),
        (["'v' AS value", "'now' AS timestamp"], "column 'timestamp' is of type string"),
        (["'v' AS value", "2 AS other"], "no column 'other'"),
    ],
)
def test_wrong_columns_are_refused_by_name(spark, place, tmp_path, columns, words):
    make_topic(place, "t")
    assert words in refusal(spark.range(1).selectExpr(*columns), tmp_path, topic="t")


def test_bad_options_are_refused_and_nothing_is_written(spark, place, tmp_path):
    make_topic(place, "t")
    rows = spark.range(1).selectExpr("'v' AS value")
    assert "no topic is given" in refusal(rows, tmp_path)
    assert "There is no topic 'nowhere', and option createTopics is false" in refusal(
        rows, tmp_path, topic="nowhere", createTopics="false"
    )
    assert "Topic name 'no/where' is not valid" in refusal(rows, tmp_path, topic="no/where")
    assert "cannot be overwritten" in refusal(rows, tmp_path, topic="t", mode="overwrite")
    assert "kafka.compression.type is 'brotli'" in refusal(
        rows, tmp_path, topic="t", **{"kafka.compression.type": "brotli"}
    )
    assert "belong together" in refusal(rows, tmp_path, topic="t", txnAppId="a")
    assert "not a number" in refusal(rows, tmp_path, topic="t", txnAppId="a", txnVersion="x")
    assert "has a broker run there" in refusal(rows, tmp_path / "elsewhere", topic="t")
    assert list(store(place).list("")) == []


def test_a_row_that_cannot_be_written_fails_the_write_whole(spark, place, tmp_path):
    make_topic(place, "t", cleanup_policy="compact")
    rows = (
        spark.range(100)
        .repartition(3)
        .selectExpr("CAST(id AS STRING) AS value", "IF(id = 50, NULL, 'k') AS key")
    )
    assert "'t' is compacted, and a row for it has no key" in refusal(
        rows, tmp_path, kind=PythonException, topic="t"
    )
    assert values(place, "t") == []
    assert living_sessions(place) == set()


def test_a_topic_that_does_not_exist_is_created_by_the_brokers_rule(spark, place, tmp_path):
    rows = spark.range(4).coalesce(1).selectExpr("'v' AS value")
    save(rows, tmp_path, topic="counts")
    assert [len(records) for records in stored(place, "counts").values()] == [4]
    publish(place, auto_create_topics=False, default_partitions=2)
    assert "brokers' setting auto_create_topics is false" in refusal(rows, tmp_path, topic="new")
    save(rows, tmp_path, topic="new", createTopics="true")
    assert [len(records) for records in stored(place, "new").values()] == [2, 2]


def test_a_numbered_write_counts_once(spark, place, tmp_path):
    make_topic(place, "t")
    for version, value in ((1, "a"), (1, "again"), (0, "older"), (3, "b"), (2, "late")):
        rows = spark.range(1).selectExpr(f"'{value}' AS value")
        save(rows, tmp_path, topic="t", txnAppId="nightly", txnVersion=str(version))
    assert values(place, "t") == [b"a", b"b"]
    save(spark.range(1).selectExpr("'c' AS value"), tmp_path, topic="t", txnAppId="other", txnVersion="1")
    assert values(place, "t") == [b"a", b"b", b"c"]


def test_one_number_may_be_written_into_several_topics(spark, place, tmp_path):
    rows = spark.sql("SELECT * FROM VALUES ('v', 'c'), ('w', 'd') AS t (value, topic)")
    for topic in ("a", "b", "c", "d"):
        make_topic(place, topic)
    for _ in range(2):
        for topic in ("a", "b"):
            save(rows, tmp_path, topic=topic, txnAppId="app", txnVersion="7")
        save(rows, tmp_path, txnAppId="app", txnVersion="7")
    assert [len(values(place, topic)) for topic in ("a", "b", "c", "d")] == [2, 2, 1, 1]


def test_a_thread_that_asks_for_the_session_can_write(spark, place, tmp_path):
    make_topic(place, "t")

    def write():
        rows = session().range(1).selectExpr("'v' AS value")
        save(rows, tmp_path, topic="t")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
    assert values(place, "t") == [b"v"]


def test_writes_without_a_number_all_count(spark, place, tmp_path):
    make_topic(place, "t")
    rows = spark.range(1).selectExpr("'v' AS value")
    save(rows, tmp_path, topic="t")
    save(rows, tmp_path, topic="t")
    assert values(place, "t") == [b"v", b"v"]


def stream(spark, tmp_path, transform=lambda lines: lines, mode="append"):
    query = (
        transform(spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "lines")))
        .writeStream.format("millpond")
        .options(path=str(tmp_path / "data"), topic="t", checkpointLocation=str(tmp_path / "checkpoint"))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def add_lines(tmp_path, name, *lines):
    """A file for a batch of its own: the older ones come first."""
    (tmp_path / "lines").mkdir(exist_ok=True)
    (tmp_path / "lines" / name).write_text("".join(f"{line}\n" for line in lines))
    os.utime(tmp_path / "lines" / name, (int(name), int(name)))


def test_a_stream_goes_on_from_its_checkpoint_and_a_batch_run_again_changes_nothing(spark, place, tmp_path):
    make_topic(place, "t")
    add_lines(tmp_path, "1", "a", "b")
    add_lines(tmp_path, "2", "c")
    query = stream(spark, tmp_path)
    assert sorted(values(place, "t")) == [b"a", b"b", b"c"]
    with database(place).read() as tx:
        assert sinks.newest_batch(tx, f"stream/{query.id}/t") == 1
    # As if the driver had died before Spark noted its last batch.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink()
    add_lines(tmp_path, "3", "d")
    stream(spark, tmp_path)
    assert sorted(values(place, "t")) == [b"a", b"b", b"c", b"d"]
    assert living_sessions(place) == set()


def test_another_query_is_another_sink(spark, place, tmp_path):
    make_topic(place, "t")
    add_lines(tmp_path, "1", "a")
    stream(spark, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    stream(spark, tmp_path)
    assert values(place, "t") == [b"a", b"a"]


def test_in_complete_mode_each_batch_appends_the_whole_result_as_kafkas_sink_does(spark, place, tmp_path):
    make_topic(place, "t")
    add_lines(tmp_path, "1", "a", "b")
    add_lines(tmp_path, "2", "c")
    stream(
        spark,
        tmp_path,
        lambda lines: lines.groupBy().count().selectExpr("CAST(count AS STRING) AS value"),
        "complete",
    )
    assert values(place, "t") == [b"2", b"3"]
