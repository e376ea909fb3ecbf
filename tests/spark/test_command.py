"""`millpond pipeline …` as it is typed. In this process, so that all commands share one Spark."""

import json

import pytest
from click.testing import CliRunner
from tests.spark.pipelines.maintaining import job_at
from tests.spark.topics import append, fill, serving

from millpond.cli.main import cli
from millpond.model.clock import SystemClock
from millpond.records import Record
from millpond.spark.pipelines import retain
from millpond.testing import SimulatedClock

ORDERS = [(b'{"customer": "c%d", "total": %d.5}' % (n % 3, n)) for n in range(30)]


@pytest.fixture
async def data(tmp_path):
    path = tmp_path / "data"
    async with serving(path) as broker:
        await fill(broker, "small", 2, 20, per_batch=1)
        await broker.log.create_topic("orders", 2)
        for partition in (0, 1):
            values = [*ORDERS[partition::2], *([b"no json"] if partition else [])]
            await append(broker, "orders", partition, [Record(value, b"k") for value in values])
        await broker.log.create_topic("latest", 1, {"cleanup.policy": "compact"})
        for n in range(10):
            await append(broker, "latest", 0, [Record(b"%d" % n, b"key %d" % (n % 2), timestamp=1_000)])
    return path


@pytest.fixture
def millpond(spark, data):
    def run(*arguments, fails=False):
        done = CliRunner().invoke(cli, ["pipeline", *arguments, "--data-dir", str(data)])
        assert (done.exit_code != 0) is fails, done.output
        return done

    return run


def answer(done):
    return json.loads(done.stdout)


def test_sql_over_a_topic(millpond):
    statement = "SELECT partition, count(*) AS n FROM orders GROUP BY partition ORDER BY partition"
    assert answer(millpond("sql", statement, "--json")) == {
        "columns": ["partition", "n"],
        "rows": [[0, 15], [1, 16]],
        "truncated": False,
    }
    shown = millpond("sql", "SELECT key, value FROM latest ORDER BY offset", "--text", "--limit", "2")
    assert shown.stdout.split() == ["key", "value", "key", "0", "0", "key", "1", "1"]
    assert "first 2 rows" in shown.stderr


def test_sql_that_is_wrong_is_one_sentence(millpond):
    done = millpond("sql", "SELECT nothing FROM nowhere", fails=True)
    assert "There is no topic 'nowhere'" in done.output
    assert "Traceback" not in done.output
    assert "Exception" not in millpond("sql", "SELEKT", fails=True).output


def test_a_table_then_sql_over_it_then_the_same_again(millpond, tmp_path):
    table = str(tmp_path / "table")
    options = ("orders", table, "--value", "json", "--schema", "customer STRING, total DOUBLE", "--json")
    report = answer(millpond("table", *options))
    assert (report["rows"], report["quarantined"]) == (30, 1)
    assert answer(millpond("table", *options))["rows"] == 0
    statement = "SELECT customer, count(*) FROM t GROUP BY customer ORDER BY customer"
    found = answer(millpond("sql", statement, "--table", f"t={table}", "--json"))
    assert found["rows"] == [["c0", 10], ["c1", 10], ["c2", 10]]


def test_a_dry_run_changes_nothing_and_leaves_no_record(millpond, tmp_path):
    table = tmp_path / "table"
    assert "dry run" in millpond("table", "orders", str(table), "--dry-run").stdout
    millpond("merge", "--dry-run")
    assert not table.exists()
    assert answer(millpond("history", "--json")) == []


def test_merge_verify_and_their_history(millpond):
    report = answer(millpond("merge", "small", "--json"))
    assert report["extents_before"] > report["extents_after"]
    assert answer(millpond("verify", "--json"))["state"] == "ok"
    runs = answer(millpond("history", "--json"))
    assert [(run["pipeline"], run["state"]) for run in runs] == [("verify", "done"), ("merge", "done")]
    shown = millpond("history").stdout
    assert "PIPELINE" in shown
    assert "merge" in shown


def test_verify_of_damaged_data_fails(millpond, data):
    millpond("merge", "small")
    for path in (data / "objects" / "segments").rglob("*"):
        if path.is_file():
            path.unlink()
    done = millpond("verify", fails=True)
    assert done.exit_code == 1
    assert "small" in done.stdout


def test_compact(millpond):
    millpond("compact", "latest", "--force")
    found = answer(
        millpond("sql", "SELECT key, value, offset FROM latest ORDER BY offset", "--text", "--json")
    )
    assert found["rows"] == [["key 0", "8", 8], ["key 1", "9", 9]]


@pytest.mark.parametrize("command", ["compact", "retain"])
def test_a_clock_that_was_set_is_refused_until_somebody_vouches_for_it(millpond, data, command):
    tomorrow = SimulatedClock(SystemClock().now_ms() + 24 * 60 * 60 * 1000)
    retain.run(job_at(data, clock=tomorrow), retain.RetainRequest())
    assert "the wall clock is" in millpond(command, fails=True).output
    millpond(command, "--trust-clock")
    millpond(command)


def test_run_does_all_duties_once(millpond, tmp_path):
    tables = tmp_path / "tables.toml"
    tables.write_text(
        f'[[table]]\ntopic = "orders"\npath = "{tmp_path}/t"\nformat = "parquet"\nvalue = "string"\n'
    )
    report = answer(millpond("run", "--rounds", "1", "--tables", str(tables), "--json"))
    assert report["round"] == 1
    assert report[f"table {tmp_path}/t"]["rows"] == 31
    assert {"merge", "compact", "retain"} <= report.keys()
    assert not [each for each in report.values() if isinstance(each, dict) and "error" in each]


def test_tables_that_cannot_be_read_are_refused(millpond, tmp_path):
    tables = tmp_path / "tables.toml"
    tables.write_text('[[table]]\ntopic = "orders"\npath = "x"\nformat = "excel"\n')
    assert "choose one of" in millpond("run", "--tables", str(tables), fails=True).output
    tables.write_text('[[table]]\ntopic = "orders"\nplace = "x"\n')
    assert "place" in millpond("run", "--tables", str(tables), fails=True).output


def test_a_folder_without_data_is_named(spark, tmp_path):
    done = CliRunner().invoke(cli, ["pipeline", "verify", "--data-dir", str(tmp_path / "empty")])
    assert done.exit_code == 2
    assert "there is no catalog in it" in done.output


@pytest.mark.parametrize(
    "name", ["table", "sql", "publish", "replay", "merge", "compact", "retain", "verify", "run", "history"]
)
def test_each_has_help_with_an_example(name):
    done = CliRunner().invoke(cli, ["pipeline", name, "--help"])
    assert done.exit_code == 0
    assert f"millpond pipeline {name}" in done.output
    for option in ("--dry-run", "--json", "--master", "--data-dir"):
        assert option in done.output


def test_publish_once_however_often_it_is_asked(millpond):
    options = (
        "counts",
        "--sql",
        "SELECT partition, count(*) AS n FROM orders GROUP BY partition",
        "--create",
        "1",
    )
    options += ("--key", "CAST(partition AS STRING)", "--id", "nightly", "--json")
    for expected in (2, 2):
        millpond("publish", *options)
        found = answer(millpond("sql", "SELECT key, value FROM counts ORDER BY key", "--text", "--json"))
        assert len(found["rows"]) == expected
    assert found["rows"][0] == ["0", '{"partition":0,"n":15}']


def test_replay_a_range_into_another_topic(millpond):
    millpond(
        "replay",
        "small",
        "again",
        "--create-like",
        "--from",
        "5",
        "--to",
        "0=9",
        "--to",
        "1=6",
        "--keep-partitions",
    )
    found = answer(
        millpond("sql", "SELECT partition, value FROM again ORDER BY 1, offset", "--text", "--json")
    )
    assert found["rows"] == [[0, "v0-5"], [0, "v0-6"], [0, "v0-7"], [0, "v0-8"], [1, "v1-5"]]
    assert "write it as" in millpond("replay", "small", "again", "--from", "x", fails=True).output


@pytest.mark.parametrize(
    "words",
    [
        ("table", "orders", "t", "--step", "abc"),
        ("compact", "--keys-memory", "abc"),
        ("run", "--every", "abc"),
        ("replay", "*", "again"),
        ("replay", "small", "again", "--from", "1", "--from-time", "2026-01-01"),
        ("table", "orders", "t", "--value", "json", "--schema", "no such type"),
        ("table", "orders", "t", "--value", "avro", "--schema", "@nowhere.avsc"),
        ("table", "nowhere", "t"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(millpond, words):
    done = millpond(*words, fails=True)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (1, 2)
    assert "Traceback" not in done.output
