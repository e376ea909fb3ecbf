"""Tables and answers into topics, all rows or none, once."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.spark.pipelines.maintaining import job_at
from tests.spark.sink.rows import headers_of, make_place, make_topic, stored, values

from millpond.catalog import pipelines
from millpond.model.errors import InvalidRequest, UnknownTopic
from millpond.model.partitioning import partition_of
from millpond.spark.pipelines.publish import PublishRequest, PublishTarget, run, write_rows
from millpond.spark.place import database

PEOPLE = "SELECT * FROM VALUES (1, 'ann', 1.5), (2, NULL, NULL) AS people (id, name, score)"


@pytest.fixture
def path(tmp_path):
    make_place(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def place(path):
    return make_place(path)


def published(path, spark, statement, topic="people", *, dry_run=False, target=None, **request):
    wanted = PublishRequest(target or PublishTarget(topic), statement=statement, **request)
    return run(job_at(path, spark, is_dry_run=dry_run), wanted)


def test_a_statements_rows_become_messages_of_json(spark, path, place):
    make_topic(place, "people")
    report = published(path, spark, PEOPLE, key="id")
    [records] = stored(place, "people").values()
    found = {record.key: json.loads(record.value) for record in records}
    assert found == {
        b"1": {"id": 1, "name": "ann", "score": 1.5},
        b"2": {"id": 2, "name": None, "score": None},
    }
    size = sum(len(record.key) + len(record.value) for record in records)
    assert report == {
        "topic": "people",
        "rows": 2,
        "bytes": size,
        "partitions": {"0": [0, 2]},
        "skipped": False,
        "dry_run": False,
    }
    with database(place).read() as tx:
        [row] = pipelines.newest(tx, limit=1)
    assert (row.pipeline, row.state, row.report["rows"]) == ("publish", "done", 2)


def test_every_part_of_a_message_may_be_an_expression(spark, path, place):
    make_topic(place, "people", 4, compression_type="producer")
    published(
        path,
        spark,
        PEOPLE,
        target=PublishTarget("people", compression="gzip"),
        key="struct(id)",
        value="repeat(coalesce(name, 'nobody'), 100)",
        headers="array(struct('by' AS key, encode('test', 'utf-8') AS value))",
        partition="id + 1",
        timestamp="'2024-05-06 07:08:09Z'",
    )
    found = stored(place, "people")
    assert {number: len(records) for number, records in found.items()} == {0: 0, 1: 0, 2: 1, 3: 1}
    [record] = found[2]
    assert (record.key, record.value) == (b'{"id":1}', b"ann" * 100)
    assert record.headers == (("by", b"test"),)
    assert record.timestamp == 1_714_979_289_000
    assert {header.codec.name for header in headers_of(place, "people")} == {"GZIP"}


def test_a_table_is_published_whatever_its_format(spark, path, place, tmp_path):
    make_topic(place, "people", 3)
    spark.sql(PEOPLE).write.parquet(str(tmp_path / "parquet"))
    spark.sql(PEOPLE).write.option("header", True).csv(str(tmp_path / "csv"))
    run(
        job_at(path, spark),
        PublishRequest(PublishTarget("people"), table=str(tmp_path / "parquet"), key="name"),
    )
    options = {"header": "true"}
    run(
        job_at(path, spark),
        PublishRequest(
            PublishTarget("people"), table=str(tmp_path / "csv"), format="csv", options=options, key="id"
        ),
    )
    found = stored(place, "people")
    assert sum(map(len, found.values())) == 4
    assert b"ann" in [record.key for record in found[partition_of(b"ann", 3)]]


def test_a_statement_may_ask_other_topics(spark, path, place):
    make_topic(place, "people")
    make_topic(place, "counts")
    published(path, spark, PEOPLE)
    published(path, spark, "SELECT count(*) AS n FROM people", topic="counts", value="n")
    assert values(place, "counts") == [b"2"]


def test_with_an_id_it_happens_once_for_each_version(spark, path, place):
    make_topic(place, "people")
    first = published(path, spark, PEOPLE, target=PublishTarget("people", id="nightly", version=1))
    again = published(path, spark, PEOPLE, target=PublishTarget("people", id="nightly", version=1))
    older = published(path, spark, PEOPLE, target=PublishTarget("people", id="nightly", version=0))
    newer = published(path, spark, PEOPLE, target=PublishTarget("people", id="nightly", version=2))
    assert [each["skipped"] for each in (first, again, older, newer)] == [False, True, True, False]
    assert [each["rows"] for each in (first, again, older, newer)] == [2, 0, 0, 2]
    assert len(values(place, "people")) == 4


def test_one_id_may_be_published_to_several_topics(spark, path, place):
    for topic in ("people", "copy"):
        make_topic(place, topic)
    for skipped in (False, True):
        for topic in ("people", "copy"):
            report = published(path, spark, PEOPLE, target=PublishTarget(topic, id="nightly", version=1))
            assert report["skipped"] is skipped
    assert len(values(place, "people")) == len(values(place, "copy")) == 2


def test_any_thread_may_publish(spark, path, place):
    make_topic(place, "people")
    with ThreadPoolExecutor(1) as pool:
        report = pool.submit(published, path, spark, PEOPLE).result()
    assert report["rows"] == len(values(place, "people")) == 2


def test_what_java_says_is_a_sentence_too(spark, path, place):
    """Not every error of Spark's becomes one of Python's: that of a write in a thread without a session does not."""
    make_topic(place, "people")
    rows = spark.sql("SELECT 'v' AS value")

    def messages():
        rows.write.format("millpond").options(path=str(path), topic="people").mode("append").save()
        return rows

    with ThreadPoolExecutor(1) as pool, pytest.raises(InvalidRequest) as refused:
        pool.submit(write_rows, job_at(path, spark), messages, PublishTarget("people")).result()
    assert "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: millpond." in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "An error occurred while calling" not in str(refused.value)
    assert values(place, "people") == []


def test_what_was_published_starts_no_spark(spark, path, place):
    make_topic(place, "people")
    target = PublishTarget("people", id="once")
    published(path, spark, PEOPLE, target=target)
    assert published(path, None, PEOPLE, target=target)["skipped"]


def test_a_dry_run_counts_and_leaves_everything_alone(spark, path, place):
    report = published(
        path, spark, PEOPLE, target=PublishTarget("new", create_partitions=2, id="x"), dry_run=True
    )
    assert (report["rows"], report["dry_run"], report["partitions"]) == (2, True, {})
    assert report["bytes"] > 40
    with database(place).read() as tx:
        assert tx.rows("SELECT name FROM topics") == []
        assert tx.rows("SELECT sink FROM sink_commits") == []


def test_a_topic_is_created_only_when_asked(spark, path, place):
    with pytest.raises(UnknownTopic, match="'people'"):
        published(path, None, PEOPLE)
    published(path, spark, PEOPLE, target=PublishTarget("people", create_partitions=3), partition="id")
    assert {number: len(records) for number, records in stored(place, "people").items()} == {0: 0, 1: 1, 2: 1}


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"statement": "SELECT 1 AS a", "key": "nothing"}, "nothing"),
        ({"statement": "SELEKT 1"}, "SELEKT"),
        ({"statement": "SELECT 1 AS a", "partition": "7"}, "has no partition 7"),
        ({"statement": "SELECT 1 AS a", "table": "x"}, "not both"),
        ({}, "a table or a statement"),
    ],
)
def test_what_cannot_be_published_is_refused_in_a_sentence(spark, path, place, request_, words):
    make_topic(place, "people")
    with pytest.raises(InvalidRequest) as refused:
        run(job_at(path, spark), PublishRequest(PublishTarget("people"), **request_))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert values(place, "people") == []
