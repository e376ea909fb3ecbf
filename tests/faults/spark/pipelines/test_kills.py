"""Pipelines killed with `kill -9`, at every step: what is stored reads as before, and only garbage is left.

The job runs in a process of its own, with its JVM and its workers, and stops where the test wants it to
(`pausing/sitecustomize.py`); then all of them are killed at once.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.spark.pipelines.maintaining import (
    collect_garbage,
    expire_leases,
    extents,
    job_at,
    objects,
    rows,
    sessions,
    stored,
)
from tests.spark.topics import append, fill, serving

from millpond.records import Record
from millpond.spark.pipelines import compact, merge, retain, verify
from millpond.spark.pipelines.compact import CompactRequest
from millpond.spark.pipelines.merge import MergeRequest
from millpond.spark.pipelines.retain import RetainRequest
from millpond.spark.pipelines.verify import VerifyRequest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[3]
SECONDS_MAX = 300
PARTITIONS = 3


@dataclass(frozen=True)
class Kill:
    """A pipeline, and where it is killed: a function, which call of it, before or after."""

    name: str
    pipeline: str
    at: str


JOBS = "millpond.spark.pipelines"
KILLS = [
    Kill("after planning", "merge", f"{JOBS}.merge:plan 1 after"),
    Kill("while tasks write", "merge", "millpond.objects.file_store:FileStore.put 1 after"),
    Kill("between the commits of two partitions", "merge", f"{JOBS}.merge:_commit 2 before"),
    Kill("inside the commit", "compact", "millpond.catalog.objects:release 1 before"),
    Kill("between log start and removal", "retain", f"{JOBS}.retain:_remove_step 1 before"),
]
MORE_KILLS = [
    Kill("before the run is recorded", "merge", "millpond.catalog.pipelines:begin 1 before"),
    Kill("after the run is recorded", "merge", f"{JOBS}.merge:plan 1 before"),
    Kill("when a task has registered", "merge", f"{JOBS}.merge:read_group 1 before"),
    Kill("before a task writes", "merge", "millpond.objects.file_store:FileStore.put 1 before"),
    Kill("with a half-made object", "merge", "millpond.objects.files:write_all 2 after"),
    Kill("before the first commit", "merge", f"{JOBS}.merge:_commit 1 before"),
    Kill("inside the commit", "merge", "millpond.catalog.objects:release 1 before"),
    Kill("after the first commit", "merge", f"{JOBS}.merge:_commit 1 after"),
    Kill("after the last commit", "merge", f"{JOBS}.merge:_commit 3 after"),
    Kill("before the end is recorded", "merge", "millpond.catalog.pipelines:end 1 before"),
    Kill("after planning", "compact", f"{JOBS}.compact:perform 1 before"),
    Kill("while tasks write", "compact", "millpond.objects.file_store:FileStore.put 1 after"),
    Kill("before the first commit", "compact", f"{JOBS}.compact:_commit 1 before"),
    Kill("between two commits", "compact", f"{JOBS}.compact:_commit 2 before"),
    Kill("after the last commit", "compact", f"{JOBS}.compact:_commit 3 after"),
    Kill("after planning", "retain", f"{JOBS}.retain:perform 1 before"),
    Kill("while log starts are computed", "retain", f"{JOBS}.retain:find_expiry 2 before"),
    Kill("before a log start is applied", "retain", f"{JOBS}.retain:_apply_expiry 1 before"),
    Kill("between two log starts", "retain", f"{JOBS}.retain:_apply_expiry 2 before"),
    Kill("after the last", "retain", f"{JOBS}.retain:_apply_expiry 3 after"),
]


def named(kill: Kill) -> str:
    return f"{kill.pipeline} {kill.name}"


@pytest.fixture(scope="module")
def survived(figures):
    kills: list[Kill] = []
    yield kills
    figures.append(f"pipelines killed with kill -9: {len(kills)}, records lost 0, objects left over 0")


@pytest.mark.parametrize("kill", KILLS, ids=named)
async def test_a_killed_pipeline_leaves_only_garbage(spark, tmp_path, kill, survived):
    await survive(spark, tmp_path, kill)
    survived.append(kill)


@pytest.mark.long
@pytest.mark.parametrize("kill", MORE_KILLS, ids=named)
async def test_a_killed_pipeline_leaves_only_garbage_wherever_it_is_killed(spark, tmp_path, kill, survived):
    await survive(spark, tmp_path, kill)
    survived.append(kill)


async def survive(spark, path: Path, kill: Kill) -> None:
    await filled(path)
    before, latest = tables(path), by_key(path)
    run_until_killed(path, kill)
    assert is_sound(path, kill, before, latest)
    expire_leases(path)
    async with serving(path) as broker:
        await collect_garbage(broker)
    assert is_sound(path, kill, before, latest)
    assert objects(path) == referenced(path) | dead_and_open(path)
    assert sessions(path)[0] == 0
    assert verify.run(job_at(path, spark), VerifyRequest())["state"] == "ok"
    finish(path, spark, kill)
    assert is_sound(path, kill, before, latest)


async def filled(path: Path) -> None:
    """Small extents in journals, with keys that repeat; a third of it is too much for `expiring`."""
    async with serving(path, inline_bytes_max=0) as broker:
        await fill(broker, "orders", PARTITIONS, 200, per_batch=10)
        compacted = {"cleanup.policy": "compact"}
        await broker.log.create_topic("state", PARTITIONS, compacted)
        await broker.log.create_topic(
            "expiring", PARTITIONS, {"retention.ms": "-1", "retention.bytes": "3000"}
        )
        for number in range(PARTITIONS):
            for n in range(20):
                records = [Record(b"value %d" % n, b"key %d" % key) for key in range(10)]
                await append(broker, "state", number, records)
                await append(broker, "expiring", number, records)


def tables(path: Path) -> dict:
    names = ("orders", "state", "expiring")
    return {(name, n): stored(path, name, n) for name in names for n in range(PARTITIONS)}


def by_key(path: Path) -> list[dict]:
    return [{key: (o, value) for o, key, value in stored(path, "state", n)} for n in range(PARTITIONS)]


def is_sound(path: Path, kill: Kill, before: dict, latest: list[dict]) -> bool:
    """Everything as before, but for what the pipeline may rightly have done by then."""
    now = tables(path)
    for (name, number), records in before.items():
        if kill.pipeline == "compact" and name == "state":
            assert set(now[name, number]) <= set(records)
        elif kill.pipeline == "retain" and name == "expiring":
            assert now[name, number] == records[len(records) - len(now[name, number]) :]
            assert len(now[name, number]) >= 10
        else:
            assert now[name, number] == records
    return by_key(path) == latest


def finish(path: Path, spark, kill: Kill) -> None:
    """The same pipeline, run again, takes the work up where it was left."""
    run, request = {
        "merge": (merge.run, MergeRequest()),
        "compact": (compact.run, CompactRequest(force=True)),
        "retain": (retain.run, RetainRequest()),
    }[kill.pipeline]
    report = run(job_at(path, spark), request)
    assert report["failed"] == report["left"] == []
    if kill.pipeline == "merge":
        assert all(len(extents(path, "orders", n)) == 1 for n in range(PARTITIONS))
    if kill.pipeline == "compact":
        assert all(len(stored(path, "state", n)) == 10 for n in range(PARTITIONS))
    if kill.pipeline == "retain":
        assert rows(path, "SELECT count(*) FROM extents e JOIN partitions p ON e.topic_id = p.topic_id"
                    " AND e.partition = p.partition WHERE e.end_offset <= p.log_start") == [(0,)]  # fmt: skip
        assert all(len(stored(path, "expiring", n)) < 200 for n in range(PARTITIONS))


def referenced(path: Path) -> set[str]:
    return {
        key
        for (key,) in rows(path, "SELECT DISTINCT o.key FROM extents e JOIN objects o ON o.id = e.object_id")
    }


def dead_and_open(path: Path) -> set[str]:
    """What a broker keeps although it is dead: the journal of a session that lives."""
    living = "SELECT session FROM writers WHERE dead_since IS NULL"
    return {
        key for (key,) in rows(path, f"SELECT key FROM objects WHERE extents <= 0 AND session IN ({living})")
    }


# -- the process ----------------------------------------------------------------------------------------------


def run_until_killed(path: Path, kill: Kill) -> None:
    paused = path / "paused"
    folders = [str(HERE / "pausing"), str(REPOSITORY / "src"), str(REPOSITORY)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        "PAUSE_AT": kill.at,
        "PAUSED": str(paused),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [sys.executable, str(HERE / "killed.py"), kill.pipeline, str(path)]
    with (path / "output").open("wb") as output:
        job = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True, cwd=path
        )
    try:
        _wait_for(paused, job)
    finally:
        _kill_session(job)
    assert paused.exists(), (path / "output").read_text()[-3_000:]


def _wait_for(paused: Path, job: subprocess.Popen) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not paused.exists() and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def _kill_session(job: subprocess.Popen) -> None:
    """The job, its JVM and its workers, which are all in the session that was started for it."""
    while members := _session_members(job.pid):
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        job.poll()
        time.sleep(0.02)
    job.wait()


def _session_members(session: int) -> list[int]:
    """Those that still run; what has ended and waits to be noticed does no harm."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, its_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if int(its_session) == session and state != "Z":
                members.append(int(entry.name))
    return members
