"""Several processes write one SQLite catalog at once: no error, no lost commit, and nobody starves."""

import json
import subprocess
import sys

import pytest

from millpond.catalog import partitions, topics
from millpond.catalog.sqlite import SqliteDatabase

WRITERS = 4
PARTITIONS = 3
FAIR = 4
"""Nobody commits so many times more often than another."""
WRITER = """
import json, sys, time
from pathlib import Path
from millpond.catalog import appends, topics, writers
from millpond.catalog.commits import Committer
from millpond.catalog.sqlite import SqliteDatabase
from millpond.model.ids import TopicPartition, new_session

path, seconds = Path(sys.argv[1]), float(sys.argv[2])
database = SqliteDatabase(path)
session = new_session()
with database.write() as tx:
    writers.register(tx, session, kind="spark", address="", lease_ms=600_000)
    topic = topics.find(tx, "orders")
committer = Committer(database, session)
print("ready", flush=True)
sys.stdin.readline()
deadline, commits = time.monotonic() + seconds, 0
while time.monotonic() < deadline:
    topic_partitions = [TopicPartition(topic.id, number) for number in range(topic.partitions)]
    shares = [appends.AppendShare(w, appends.FOREIGN, 0, 1024, 1, 0, 0, inline=bytes(1024)) for w in topic_partitions]
    (outcome,) = committer.commit([lambda tx: appends.encode_results(appends.append(tx, shares, None, now_ms=1))])
    assert outcome.error is None, outcome.error
    assert all(isinstance(each, appends.AppendedShare) for each in appends.decode_results(outcome.value))
    commits += 1
print(json.dumps({"commits": commits, "longest_wait_ms": round(database.longest_wait_ms, 1)}))
database.close()
"""


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.long)])
def test_four_processes_write_one_sqlite_catalog_without_error_or_starvation(tmp_path, seconds, figures):
    database = SqliteDatabase(tmp_path / "catalog.db")
    database.migrate()
    with database.write() as tx:
        topic = topics.create(tx, "orders", PARTITIONS, {}, now_ms=1)
    command = [sys.executable, "-c", WRITER, str(tmp_path / "catalog.db"), str(seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for _ in range(WRITERS)]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    finished = [process.communicate(timeout=seconds + 60) for process in started]
    assert [(process.returncode, errors) for process, (_, errors) in zip(started, finished, strict=True)] == [
        (0, "")
    ] * WRITERS
    results = [json.loads(output) for output, _ in finished]
    commits = [result["commits"] for result in results]
    total = sum(commits)
    waits = [result["longest_wait_ms"] for result in results]
    figures.append(
        f"{WRITERS} processes write one SQLite catalog for {seconds} s: {total / seconds:.0f} commits/s,"
        f" longest waits {waits} ms"
    )
    with database.read() as tx:
        rows = partitions.of_topic(tx, topic.id)
    database.close()
    assert [row.end_offset for row in rows] == [total] * PARTITIONS
    assert min(commits) * FAIR > max(commits), commits
    assert max(waits) < seconds * 1000
