"""SQL over topics and tables, on real Spark."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.tables.tabling import fill_with, job_on
from tests.spark.topics import append, serving

from millpond.model.errors import InvalidRequest, UnknownTopic
from millpond.records import Record
from millpond.spark.pipelines import publish
from millpond.spark.pipelines.publish import PublishRequest, PublishTarget
from millpond.spark.pipelines.sql import SqlRequest, SqlResult, run_sql
from millpond.spark.pipelines.table import TableRequest, run
from millpond.spark.tables.model import Format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "data"
    asyncio.run(make_topics(path))
    return path


async def make_topics(path: Path) -> None:
    await fill_with(path, "orders", [b'{"id": %d, "sum": %d}' % (n, n * 10) for n in range(6)], partitions=2)
    await fill_with(path, "web.clicks-v2", [b"a", b"b"])
    await fill_with(path, "clash", [b'{"offset": 7}', b"no json"])
    async with serving(path) as broker:
        for name in ("Mixed", "mixed"):
            await broker.log.create_topic(name, 1, {})
        await append(broker, "orders", 0, [Record(b"no json", b"k0")])


@pytest.fixture
def ask(data: Path, spark: "SparkSession"):
    def run_it(statement: str, **options) -> SqlResult:
        return run_sql(job_on(data, spark), SqlRequest(statement, **options))

    return run_it


def test_a_topic_is_a_view_with_the_columns_of_the_source(ask):
    result = ask("SELECT key, count(*) AS n FROM orders GROUP BY key ORDER BY key")
    assert result.columns == ("key", "n")
    assert result.rows[:2] == ((b"k0", 2), (b"k1", 1))
    assert not result.truncated


def test_names_with_dots_and_dashes_stand_in_backquotes(ask):
    result = ask(
        "SELECT CAST(value AS STRING) AS text FROM `web.clicks-v2` WHERE topic = 'web.clicks-v2' ORDER BY 1"
    )
    assert result.rows == (("a",), ("b",))


def test_only_topics_that_are_meant_are_planned(ask):
    """`nothing` is a string, a comment and the name of a common table expression, and no topic."""
    named = "WITH nothing AS (SELECT 'FROM nothing' AS a FROM orders)"
    statement = f"{named} SELECT a FROM nothing /* FROM nothing */ LIMIT 1"
    assert ask(statement).rows == (("FROM nothing",),)


def test_more_rows_than_the_limit_are_cut_and_it_says_so(ask):
    cut = ask("SELECT offset FROM orders ORDER BY offset", limit=2)
    assert (len(cut.rows), cut.truncated) == (2, True)
    whole = ask("SELECT offset FROM orders", limit=7)
    assert (len(whole.rows), whole.truncated) == (7, False)
    with pytest.raises(InvalidRequest, match="0 rows"):
        ask("SELECT 1", limit=0)


def test_json_values_become_columns_and_bad_ones_are_null(ask):
    result = ask(
        "SELECT id, sum FROM orders ORDER BY id NULLS LAST", json_schemas={"orders": "id INT, sum INT"}
    )
    assert result.rows[1] == (1, 10)
    assert result.rows[-1] == (None, None)
    assert len(result.rows) == 7


def test_fields_that_clash_with_columns_stay_together(ask):
    result = ask("SELECT offset, value.offset FROM clash ORDER BY 1", json_schemas={"clash": "offset INT"})
    assert result.rows == ((0, 7), (1, None))


def test_keys_and_values_can_be_text(ask):
    assert ask("SELECT key FROM orders ORDER BY 1 LIMIT 1", values_are_text=True).rows == (("k0",),)


@pytest.mark.parametrize("kind", list(Format))
def test_a_table_is_a_view_beside_topics(
    kind: Format, ask, data: Path, spark: "SparkSession", tmp_path: Path
):
    run(job_on(data, spark), TableRequest(("orders",), str(tmp_path / "t"), format=kind))
    result = ask(
        "SELECT count(*) FROM t JOIN orders o ON o.offset = t.offset AND o.partition = t.partition",
        tables={"t": str(tmp_path / "t")},
    )
    assert result.rows == ((7,),)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT * FROM nowhere", "'nowhere'"),
        ("SELECT * FROM web.clicks", r"'web\.clicks'"),
    ],
)
def test_a_topic_that_is_not_there_is_named(ask, statement: str, said: str):
    with pytest.raises(UnknownTopic, match=said):
        ask(statement)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELEC 1", "SELEC"),
        ("SELECT nothing FROM orders", "nothing"),
        ("SELECT 1 / 0 FROM orders", "zero"),
        ("SELECT no_function(1)", "no_function"),
        ("SELECT * FROM mixed", "'Mixed' and 'mixed'"),
        ("SELECT 1 FROM `web`.`clicks-v2`", "backquotes"),
    ],
)
def test_a_wrong_statement_is_answered_in_one_line_that_names_the_thing(ask, statement: str, said: str):
    with pytest.raises(InvalidRequest, match=said) as caught:
        ask(statement)
    assert "\n" not in str(caught.value)
    assert "Exception" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_schemas_of_unknown_topics_and_tables_that_are_not_there_are_refused(ask):
    with pytest.raises(UnknownTopic, match="'nowhere'"):
        ask("SELECT 1", json_schemas={"nowhere": "id INT"})
    with pytest.raises(InvalidRequest, match="no table at"):
        ask("SELECT * FROM t", tables={"t": "/nowhere/at/all"})


def test_nothing_is_left_in_the_session(ask, spark: "SparkSession"):
    ask("SELECT 1 FROM orders LIMIT 1")
    assert "orders" not in [table.name for table in spark.catalog.listTables()]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE made AS SELECT 1 AS a",
        "INSERT INTO orders SELECT 1",
        "WITH q AS (SELECT 1) INSERT INTO orders SELECT * FROM q",
        "FROM orders INSERT INTO made SELECT *",
        "DROP VIEW orders",
        "SET spark.sql.session.timeZone = Asia/Tokyo",
        "RESET",
        "SHOW TABLES",
        "CLEAR CACHE",
        "EXECUTE IMMEDIATE 'CREATE TABLE made AS SELECT 1 AS a'",
        "BEGIN CREATE TABLE made AS SELECT 1 AS a; END",
        "SELECT 1) SELECT 2 -- ",
        "",
    ],
)
def test_whatever_is_no_query_is_refused_and_does_nothing(ask, statement: str, spark: "SparkSession"):
    with pytest.raises(InvalidRequest, match="not a query") as caught:
        ask(statement)
    assert "\n" not in str(caught.value)
    assert "made" not in [table.name for table in spark.catalog.listTables()]


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_a_statement_to_publish_must_be_a_query_too(data: Path, spark: "SparkSession", is_dry_run: bool):
    request = PublishRequest(PublishTarget("orders"), statement="CREATE TABLE made AS SELECT 1 AS a")
    with pytest.raises(InvalidRequest, match="not a query"):
        publish.run(job_on(data, spark, is_dry_run=is_dry_run), request)
    assert "made" not in [table.name for table in spark.catalog.listTables()]


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("SELECT 1 AS a;\n", [(1,)]),
        ("SELECT 1 AS a -- one", [(1,)]),
        ("VALUES (2), (1) ORDER BY 1", [(1,), (2,)]),
        ("WITH q AS (SELECT 3 AS a) SELECT * FROM q UNION ALL SELECT 4", [(3,), (4,)]),
        ("FROM orders SELECT count(*)", [(7,)]),
        ("SELECT '); DROP TABLE x' AS a", [("); DROP TABLE x",)]),
    ],
)
def test_queries_of_every_form_are_answered(ask, statement: str, rows: list[tuple]):
    assert list(ask(statement).rows) == rows


def test_json_with_something_behind_it_is_null(spark: "SparkSession", tmp_path: Path):
    asyncio.run(
        fill_with(tmp_path / "data", "notes", [b'{"a": 1}', b'{"a": 2} and more', b'{"a": 3}{"a": 4}'])
    )
    request = SqlRequest("SELECT offset, a FROM notes ORDER BY 1", json_schemas={"notes": "a INT"})
    assert run_sql(job_on(tmp_path / "data", spark), request).rows == ((0, 1), (1, None), (2, None))
