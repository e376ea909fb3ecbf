"""The history of pipeline runs, on every database."""

from millpond.catalog import pipelines, writers
from millpond.model.ids import new_session


def begun(catalog, run_id="run", *, at=1_000, topics=("orders",), lease_ms=60_000):
    session = new_session()
    catalog.write(writers.register, session, kind="spark", address="", lease_ms=lease_ms)
    catalog.write(pipelines.begin, run_id, "merge", list(topics), session, now_ms=at)
    return session


def newest(catalog, limit=10):
    return catalog.read(pipelines.newest, limit)


def test_a_run_is_running_then_done_with_its_report(catalog):
    begun(catalog)
    [run] = newest(catalog)
    assert (run.pipeline, run.topics, run.state, run.ended_at) == ("merge", ["orders"], "running", None)
    catalog.write(pipelines.end, "run", "done", {"bytes": 12, "names": ["ä"]}, now_ms=1_500)
    [run] = newest(catalog)
    assert (run.state, run.started_at, run.ended_at) == ("done", 1_000, 1_500)
    assert run.report == {"bytes": 12, "names": ["ä"]}


def test_a_run_whose_job_died_without_a_word_is_interrupted(catalog):
    session = begun(catalog)
    catalog.write(writers.mark_dead, session, 2_000)
    assert [run.state for run in newest(catalog)] == ["interrupted"]


def test_a_run_whose_lease_is_over_is_interrupted_even_if_nobody_buries_its_session(catalog):
    session = begun(catalog, lease_ms=-1)
    assert [run.state for run in newest(catalog)] == ["interrupted"]
    catalog.write(writers.renew, session, 60_000)
    assert [run.state for run in newest(catalog)] == ["running"]


def test_a_run_from_before_the_machine_was_started_anew_is_interrupted(catalog):
    begun(catalog, lease_ms=10**12)
    catalog.write(lambda tx: tx.rows("UPDATE writers SET clock = 'an earlier boot'"))
    assert [run.state for run in newest(catalog)] == ["interrupted"]


def test_a_run_whose_writer_is_gone_without_a_trace_is_interrupted(catalog):
    session = begun(catalog)
    catalog.write(writers.mark_dead, session, 2_000)
    catalog.write(writers.forget, session)
    assert [run.state for run in newest(catalog)] == ["interrupted"]


def test_a_run_that_ended_stays_what_it_was_when_its_writer_is_forgotten(catalog):
    session = begun(catalog)
    catalog.write(pipelines.end, "run", "failed", {"error": "no"}, now_ms=1_500)
    catalog.write(writers.mark_dead, session, 2_000)
    catalog.write(writers.forget, session)
    assert [run.state for run in newest(catalog)] == ["failed"]


def test_the_newest_come_first_and_only_so_many(catalog):
    for number in range(5):
        begun(catalog, f"run-{number}", at=1_000 + number)
    assert [run.id for run in newest(catalog, 3)] == ["run-4", "run-3", "run-2"]


def test_the_oldest_are_forgotten(catalog, monkeypatch):
    monkeypatch.setattr(pipelines, "RUNS_KEPT", 3)
    for number in range(6):
        begun(catalog, f"run-{number}", at=1_000 + number)
    assert [run.id for run in newest(catalog)] == ["run-5", "run-4", "run-3"]
