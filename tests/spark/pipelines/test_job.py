"""The record of a run: it lives as long as its driver does, and leaves no work for anybody."""

import time

import pytest
from tests.spark.pipelines.maintaining import collect_at, job_at, rows, sessions
from tests.spark.topics import fill, serving

from millpond.catalog import pipelines, writers
from millpond.spark.pipelines import job as jobs
from millpond.spark.pipelines import merge
from millpond.spark.pipelines.job import run_recorded
from millpond.spark.pipelines.merge import MergeRequest


@pytest.fixture
async def data(tmp_path):
    async with serving(tmp_path) as broker:
        await fill(broker, "orders", 1, 40, per_batch=1)
    return tmp_path


def states(path):
    with job_at(path).database.read() as tx:
        return [run.state for run in pipelines.newest(tx, 10)]


def fail():
    raise RuntimeError("no")


def test_a_run_leaves_a_record_and_no_session_to_look_after(data):
    run_recorded(job_at(data), "merge", [], dict)
    with pytest.raises(RuntimeError):
        run_recorded(job_at(data), "merge", [], fail)
    assert sorted(states(data)) == ["done", "failed"]
    assert sessions(data) == (0, 0)


def test_a_run_that_takes_longer_than_its_lease_is_running_all_the_time(data, monkeypatch):
    monkeypatch.setattr(jobs, "RUN_LEASE_MS", 3_000)
    seen = []

    def work():
        end = time.monotonic() + 4
        while time.monotonic() < end:
            seen.extend(states(data))
            time.sleep(0.02)
        return {}

    run_recorded(job_at(data), "merge", [], work)
    assert set(seen) == {"running"}
    assert states(data) == ["done"]


def test_a_run_that_somebody_buried_goes_on_and_ends_as_what_it_was(data, monkeypatch):
    monkeypatch.setattr(jobs, "RUN_LEASE_MS", 60)

    def work():
        with job_at(data).database.write() as tx:
            for session, kind, _ in writers.living(tx):
                assert kind == "spark"
                writers.mark_dead(tx, session, 1)
        assert states(data) == ["interrupted"]
        time.sleep(0.1)  # a few renewals, which are refused
        return {"n": 1}

    assert run_recorded(job_at(data), "merge", [], work) == {"n": 1}
    assert states(data) == ["done"]
    assert sessions(data) == (0, 0)


async def test_after_a_merge_the_first_collection_forgets_its_sessions(data, spark):
    merge.run(job_at(data, spark), MergeRequest())
    assert sessions(data) == (0, 1)
    await collect_at(data)
    assert sessions(data) == (0, 0)
    assert rows(data, "SELECT count(*) FROM extents") == [(1,)]
