"""Whoever deletes by age first looks whether the clock can be right."""

import asyncio
import time

import pytest
from tests.spark.pipelines.maintaining import DAY_MS, NO_SPARK, job_at, new_postgres, rows, stored
from tests.spark.topics import append, serving

from millpond.catalog import pipelines
from millpond.model.clock import SystemClock
from millpond.model.errors import InvalidRequest
from millpond.records import Record
from millpond.spark.pipelines import clock, compact, merge, retain, schedule
from millpond.spark.pipelines.compact import CompactRequest
from millpond.spark.pipelines.retain import RetainRequest
from millpond.spark.pipelines.schedule import ScheduleRequest
from millpond.spark.place import Place
from millpond.testing import SimulatedClock

NOW_MS = 1_800_000_000_000
OFF = "off against the catalog's"
WRONG = pytest.mark.parametrize("wrong_ms", [2 * DAY_MS, -2 * DAY_MS], ids=["ahead", "behind"])


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    for module in (merge, compact, retain):
        monkeypatch.setattr(module, "perform", lambda spark, items, work: map(work, items))


def at(path, now_ms, **named):
    """A job whose wall clock says this. The last run is known by the time since the machine was started, in
    milliseconds: no two runs may have the same."""
    time.sleep(0.003)
    return job_at(path, NO_SPARK, clock=SimulatedClock(now_ms), **named)


async def fill(broker):
    """Its last record is a tombstone, which must stay for a day after the record before it has gone."""
    await broker.log.create_topic("state", 1, {"cleanup.policy": "compact"})
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", None)):
        await append(broker, "state", 0, [Record(value, key, timestamp=broker.clock.now_ms())])


@WRONG
async def test_tombstones_stay_when_a_jobs_clock_is_not_that_of_the_broker_beside_it(tmp_path, wrong_ms):
    async with serving(tmp_path, clock=SimulatedClock(NOW_MS)) as broker:
        await fill(broker)
        if wrong_ms > 0:
            await broker.maintenance.compaction.run_once()
        job = at(tmp_path, NOW_MS + wrong_ms)
        with pytest.raises(InvalidRequest, match=OFF):
            await asyncio.to_thread(compact.run, job, CompactRequest(force=True))
        await broker.maintenance.compaction.run_once()
        assert [row[1:] for row in stored(tmp_path, "state")] == [(b"b", b"1"), (b"a", None)]


@WRONG
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda job: compact.run(job, CompactRequest()), lambda job: compact.run(job, CompactRequest())),
        (lambda job: retain.run(job, RetainRequest()), lambda job: compact.run(job, CompactRequest())),
        (lambda job: compact.run(job, CompactRequest()), lambda job: retain.run(job, RetainRequest())),
    ],
    ids=["compact then compact", "retain then compact", "compact then retain"],
)
async def test_what_one_run_saw_of_the_clock_the_next_compares_with(tmp_path, first, second, wrong_ms):
    async with serving(tmp_path, clock=SimulatedClock(NOW_MS)) as broker:
        await fill(broker)
    first(at(tmp_path, NOW_MS))
    with pytest.raises(InvalidRequest, match=OFF):
        second(at(tmp_path, NOW_MS + wrong_ms))
    second(at(tmp_path, NOW_MS))
    with job_at(tmp_path).database.read() as tx:
        assert [run.state for run in pipelines.newest(tx, 10)].count("failed") == 1


async def test_a_compaction_whose_clock_the_operator_vouches_for_works_and_is_believed(tmp_path):
    async with serving(tmp_path, clock=SimulatedClock(NOW_MS)) as broker:
        await fill(broker)
    compact.run(at(tmp_path, NOW_MS), CompactRequest())
    later = NOW_MS + 2 * DAY_MS
    compact.run(at(tmp_path, later), CompactRequest(trust_clock=True))
    assert stored(tmp_path, "state") == [(1, b"b", b"1")]
    compact.run(at(tmp_path, later), CompactRequest())


async def test_a_clock_that_was_ahead_and_is_right_again_need_be_vouched_for_once(tmp_path):
    """The run that went by it seems newer than all that follow, until the clock is there again."""
    async with serving(tmp_path):
        pass
    retain.run(at(tmp_path, NOW_MS + DAY_MS), RetainRequest())
    retain.run(at(tmp_path, NOW_MS), RetainRequest(trust_clock=True))
    retain.run(at(tmp_path, NOW_MS), RetainRequest())
    compact.run(at(tmp_path, NOW_MS), CompactRequest())
    with pytest.raises(InvalidRequest, match=OFF):
        compact.run(at(tmp_path, NOW_MS + DAY_MS), CompactRequest())


async def test_a_run_that_was_refused_or_does_not_ask_is_no_witness(tmp_path):
    async with serving(tmp_path, clock=SimulatedClock(NOW_MS)) as broker:
        await fill(broker)
    compact.run(at(tmp_path, NOW_MS), CompactRequest())
    wrong = at(tmp_path, NOW_MS + DAY_MS)
    for _ in range(2):
        [report] = schedule.run(wrong, ScheduleRequest(rounds=1))
        assert "error" not in report["merge"]
        assert OFF in report["compact"]["error"]
        assert OFF in report["retain"]["error"]


async def test_a_broker_that_is_gone_is_no_witness(tmp_path):
    async with serving(tmp_path, clock=SimulatedClock(NOW_MS)) as broker:
        await fill(broker)
    compact.run(at(tmp_path, NOW_MS + DAY_MS), CompactRequest())
    assert len(stored(tmp_path, "state")) == 2


async def test_the_wall_clock_must_agree_with_a_database_server(tmp_path, postgres_url):
    place = Place(new_postgres(postgres_url, "clocks"), tmp_path.as_uri())
    true_ms = SystemClock().now_ms()
    for run, request in ((compact.run, CompactRequest()), (retain.run, RetainRequest())):
        for wrong_ms in (DAY_MS, -DAY_MS):
            with pytest.raises(InvalidRequest, match=OFF):
                run(at(place, true_ms + wrong_ms), request)
        assert run(at(place, true_ms), request)["clock"][0] == clock.DATABASE_CLOCK
    assert rows(place, "SELECT count(*) FROM pipeline_runs WHERE state = 'failed'") == [(4,)]


class TellingTime:
    """A catalog with a wall clock of its own, to the millisecond."""

    def __init__(self, inner, now_ms):
        self._inner, self._now_ms = inner, now_ms

    def read(self):
        return _Telling(self._inner.read(), self._now_ms)


class _Telling:
    def __init__(self, inner, now_ms):
        self._inner, self._now_ms = inner, now_ms

    def __enter__(self):
        tx = self._inner.__enter__()
        now_ms = self._now_ms

        class Telling:
            rows = tx.rows

            def lease_clock(self):
                return "postgres", now_ms

        return Telling()

    def __exit__(self, *error):
        return self._inner.__exit__(*error)


@pytest.mark.parametrize(
    ("off_ms", "is_trusted"), [(0, True), (300_000, True), (300_001, False), (-300_001, False)]
)
async def test_five_minutes_are_no_fault(tmp_path, off_ms, is_trusted):
    async with serving(tmp_path):
        pass
    catalog = TellingTime(job_at(tmp_path).database, NOW_MS)
    fault = clock.clock_fault(catalog, SimulatedClock(NOW_MS + off_ms))
    assert (fault is None) == is_trusted


# -- a broker that has paused retention -----------------------------------------------------------------------------


async def test_a_job_does_not_delete_what_a_brokers_pause_protects(tmp_path):
    """The broker is gone, and its pause is in the catalog."""
    broken = SimulatedClock(NOW_MS)
    async with serving(tmp_path, clock=broken, retention_grace=0) as broker:
        await broker.log.create_topic("orders", 1, {"retention.ms": str(DAY_MS)})
        await append(broker, "orders", 0, [Record(b"kept", timestamp=NOW_MS)])
        broken.jump(2 * DAY_MS)
        await broker.maintenance.retention.run_once()
    job = job_at(tmp_path, NO_SPARK, clock=broken)
    with pytest.raises(InvalidRequest, match="a broker has paused retention because the wall clock jumped"):
        retain.run(job, RetainRequest())
    broken.jump(-2 * DAY_MS)
    assert retain.run(job, RetainRequest())["offsets_expired"] == 0
    broken.jump(2 * DAY_MS)
    assert retain.run(job, RetainRequest(trust_clock=True))["offsets_expired"] == 1
