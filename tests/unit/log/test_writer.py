"""The writer thread: what shares a commit, what fails alone, and how it ends."""

import asyncio
import threading

import apsw
import pytest
from tests.unit.log.conftest import reached

from millpond.catalog import transactions
from millpond.catalog.commits import OperationResult
from millpond.log.writer import JOBS_PER_COMMIT, JOBS_WAITING_MAX, WriteJob, Writer
from millpond.model.errors import (
    CatalogFailed,
    CatalogUnavailable,
    Defect,
    FlushFailed,
    InvalidRequest,
    Overloaded,
    Stopping,
    StoreUnavailable,
    WriterDead,
)

HANG_S = 60


class Catalog:
    """A committer and a database in one, which can be held and told to fail."""

    def __init__(self):
        self.commits, self.errors = [], []
        self.entered, self.gate = threading.Event(), threading.Event()
        self.gate.set()
        self.changed = False

    def tries(self, operations):
        """One that needs no second try."""
        yield from ()
        self.entered.set()
        assert self.gate.wait(HANG_S)
        if self.errors:
            raise self.errors.pop(0)
        values = []
        for operation in operations:
            try:
                values.append(OperationResult(operation(None)))
            except InvalidRequest as error:
                values.append(OperationResult(error=error))
        self.commits.append([outcome.value for outcome in values])
        return values

    def has_foreign_commits(self):
        changed, self.changed = self.changed, False
        return changed


@pytest.fixture
async def catalog():
    return Catalog()


@pytest.fixture
async def events():
    return []


@pytest.fixture
async def writer(catalog, events):
    made = Writer(
        catalog,
        catalog,
        foreign_check_ms=10,
        on_change=lambda: events.append("changed"),
        on_failure=events.append,
    )
    made.start()
    yield made
    catalog.gate.set()
    await made.stop()


@pytest.fixture
def submit(writer):
    def submitted(value, **named):
        future = asyncio.get_running_loop().create_future()
        writer.submit(WriteJob(lambda _: value, future.set_result, **named))
        return future

    return submitted


async def held(catalog, submit):
    """The thread is busy with a commit of its own; what is submitted now queues up."""
    catalog.gate.clear()
    future = submit("busy")
    await asyncio.to_thread(catalog.entered.wait, HANG_S)
    return future


async def test_what_queued_up_shares_the_next_commit_in_order(catalog, submit):
    busy = await held(catalog, submit)
    answers = [submit(n) for n in range(5)]
    catalog.gate.set()
    assert [(await answer).value for answer in answers] == [0, 1, 2, 3, 4]
    await busy
    assert catalog.commits == [["busy"], [0, 1, 2, 3, 4]]


async def test_a_commit_takes_only_so_many(catalog, submit):
    await held(catalog, submit)
    answers = [submit(n) for n in range(JOBS_PER_COMMIT + 1)]
    catalog.gate.set()
    await asyncio.gather(*answers)
    assert [len(commit) for commit in catalog.commits] == [1, JOBS_PER_COMMIT, 1]


async def test_a_flush_starts_a_new_commit_and_others_may_join_it(catalog, submit):
    await held(catalog, submit)
    answers = [
        submit("row 1"),
        submit("flush 1", starts_commit=True),
        submit("row 2"),
        submit("flush 2", starts_commit=True),
        submit("row 3"),
    ]
    catalog.gate.set()
    await asyncio.gather(*answers)
    assert catalog.commits[1:] == [["row 1", "flush 1", "row 2"], ["flush 2", "row 3"]]


async def test_who_is_alone_shares_a_commit_with_nobody(catalog, submit):
    await held(catalog, submit)
    answers = [
        submit("row 1"),
        submit("merge 1", own_commit=True),
        submit("merge 2", own_commit=True),
        submit("flush", starts_commit=True),
        submit("row 2"),
        submit("merge 3", own_commit=True),
        submit("row 3"),
    ]
    catalog.gate.set()
    await asyncio.gather(*answers)
    assert catalog.commits[1:] == [
        ["row 1"],
        ["merge 1"],
        ["merge 2"],
        ["flush", "row 2"],
        ["merge 3"],
        ["row 3"],
    ]


async def test_who_is_alone_and_last_is_done_before_the_end(catalog, submit, writer):
    await held(catalog, submit)
    answers = [submit("row"), submit("merge", own_commit=True)]
    stopping = asyncio.ensure_future(writer.stop())
    await asyncio.sleep(0)
    catalog.gate.set()
    await stopping
    assert [(await answer).value for answer in answers] == ["row", "merge"]


async def test_a_later_flush_knows_how_the_one_before_it_ended(catalog, submit):
    """`on_outcome` of a flush is called before the next one's `prepare`."""
    order = []
    await held(catalog, submit)
    answers = [
        submit(
            n,
            starts_commit=True,
            prepare=lambda n=n: order.append(("prepare", n)),
            on_outcome=lambda _, n=n: order.append(("outcome", n)),
        )
        for n in (1, 2)
    ]
    catalog.gate.set()
    await asyncio.gather(*answers)
    await submit(
        "behind them"
    )  # an answer may come before `on_outcome` of its flush, the next commit may not
    assert order == [("prepare", 1), ("outcome", 1), ("prepare", 2), ("outcome", 2)]


async def test_a_failing_prepare_fails_only_its_own_job(catalog, submit):
    def torn():
        raise StoreUnavailable(reason="torn")

    await held(catalog, submit)
    answers = [submit("a"), submit("b", prepare=torn), submit("c")]
    catalog.gate.set()
    outcomes = await asyncio.gather(*answers)
    assert [outcome.value for outcome in outcomes] == ["a", None, "c"]
    assert isinstance(outcomes[1].error, StoreUnavailable)
    assert catalog.commits[1] == ["a", "c"]


async def test_a_bug_in_prepare_fails_its_job_and_not_the_thread(submit, caplog):
    outcome = await submit("a", prepare=lambda: 1 // 0)
    assert isinstance(outcome.error, CatalogUnavailable)
    assert (await submit("b")).value == "b"
    assert "unexpected error in flush" in caplog.messages


async def test_a_commit_that_fails_fails_its_jobs_and_no_others(catalog, submit, events):
    catalog.errors.append(CatalogUnavailable(reason="busy"))
    assert isinstance((await submit("a")).error, CatalogUnavailable)
    assert (await submit("b")).value == "b"
    assert events == []


async def test_a_bug_in_a_commit_fails_its_jobs_and_not_the_thread(catalog, submit, caplog):
    catalog.errors.append(ZeroDivisionError())
    assert isinstance((await submit("a")).error, CatalogUnavailable)
    assert (await submit("b")).value == "b"
    assert "unexpected error in commit" in caplog.messages


@pytest.mark.parametrize("error", [CatalogFailed(reason="disk"), WriterDead(session="s")])
async def test_after_a_fatal_error_nothing_is_written_any_more(catalog, submit, events, eventually, error):
    catalog.errors.append(error)
    prepared = []
    assert (await submit("a")).error is error
    assert str((await submit("b", prepare=lambda: prepared.append(1))).error) == str(error)
    assert catalog.commits == []
    assert prepared == []
    await eventually(lambda: events == [error])


async def test_run_returns_the_value_or_raises_the_error(writer):
    assert await writer.run(lambda _: 42) == 42

    def refused(_):
        raise InvalidRequest(reason="no")

    with pytest.raises(InvalidRequest):
        await writer.run(refused)


async def test_past_the_limit_operations_are_refused_and_flushes_and_renewals_are_not(
    catalog, writer, submit
):
    await held(catalog, submit)
    waiting = [submit(n) for n in range(JOBS_WAITING_MAX)]
    with pytest.raises(Overloaded, match="10000 operations wait for the catalog") as refused:
        await writer.run(lambda _: "one too many")
    assert refused.value.retriable
    flush = submit("flush", starts_commit=True)
    renewal = asyncio.ensure_future(writer.run(lambda _: "renewed", own_commit=True, bypass_limit=True))
    await asyncio.sleep(0)
    catalog.gate.set()
    assert await renewal == "renewed"
    assert (await flush).value == "flush"
    assert [(await each).value for each in waiting] == list(range(JOBS_WAITING_MAX))
    assert await writer.run(lambda _: "room again") == "room again"


async def test_a_caller_who_gave_up_harms_nobody(catalog, writer, submit):
    await held(catalog, submit)
    gone = asyncio.ensure_future(writer.run(lambda _: 1))
    await asyncio.sleep(0)
    gone.cancel()
    catalog.gate.set()
    assert await writer.run(lambda _: 2) == 2


async def test_stopping_finishes_what_was_submitted_and_takes_no_more(catalog, writer, submit):
    await held(catalog, submit)
    answers = [submit(n, starts_commit=True) for n in range(3)]
    stopping = asyncio.ensure_future(writer.stop())
    await asyncio.sleep(0)
    with pytest.raises(Stopping):
        submit("late")
    catalog.gate.set()
    await stopping
    assert [(await answer).value for answer in answers] == [0, 1, 2]
    await writer.stop()


async def test_another_process_s_commit_is_noticed_while_idle_and_while_busy(
    catalog, events, submit, eventually
):
    catalog.changed = True
    await eventually(lambda: events == ["changed"])
    catalog.changed = True

    async def busy():
        while len(events) < 2:
            await submit("a")

    await asyncio.wait_for(busy(), HANG_S)


async def test_a_failing_look_around_is_no_reason_to_end(catalog, submit, eventually):
    failures = []

    def broken():
        failures.append(1)
        raise FlushFailed

    catalog.has_foreign_commits = broken
    await eventually(lambda: len(failures) > 1)
    assert (await submit("a")).value == "a"


# -- through the whole log ------------------------------------------------------------------------------------


async def test_an_unexpected_error_does_not_end_the_writer(start, tmp_path):
    engine = await start(tmp_path)
    asked = threading.Event()

    def fail():
        asked.set()
        raise apsw.ProtocolError("locking protocol")

    engine.broker.database.has_foreign_commits = fail
    assert await asyncio.to_thread(asked.wait, HANG_S)
    assert (await asyncio.wait_for(engine.append(b"x"), HANG_S)).base_offset == 0


@pytest.mark.parametrize(
    "operation", [lambda tx: object(), lambda tx: {}["missing"]], ids=["no json", "a bug"]
)
async def test_an_operation_with_a_bug_fails_alone(engine, settle, operation):
    hold = engine.faults.hold("append")
    first = asyncio.ensure_future(engine.append(b"x" * 20_000))
    await reached(hold)
    buggy = asyncio.ensure_future(engine.log.write(operation))
    good = asyncio.ensure_future(engine.log.write(lambda tx: 42))
    behind = asyncio.ensure_future(engine.append(b"y"))
    await settle()
    hold.release()
    with pytest.raises(Defect):
        await buggy
    assert await good == 42
    assert [(await task).base_offset for task in (first, behind)] == [0, 1]


async def test_an_operation_whose_value_is_not_json_is_a_defect_and_changes_nothing(engine):
    with pytest.raises(Defect):
        await engine.log.write(lambda tx: transactions.begin_producer(tx, "t", 1_000, now_ms=1))
    assert engine.rows("SELECT count(*) FROM transactions") == [(0,)]
