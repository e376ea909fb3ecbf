"""The writer thread: it makes bytes durable, commits their rows, and returns the outcomes to the event loop,
in one hop.

Everything the broker writes goes through it as jobs, in the order of submission. Jobs that queue up during a
commit share the next one. A commit holds at most one flush, so that a later flush knows the outcome of the
one before it. An operation that rewrites extents has a commit to itself: it locks objects that several
partitions share, and together with a flush it would lock them in another order than a Spark job does.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

from millpond.catalog.commits import CommitOperation, Committer, OperationResult
from millpond.catalog.database import Database
from millpond.model.errors import (
    CatalogFailed,
    CatalogUnavailable,
    MillpondError,
    Overloaded,
    Stopping,
    WriterDead,
)

JOBS_PER_COMMIT: Final = 64
JOBS_WAITING_MAX: Final = 10_000
"""Maximum number of operations waiting for their commit. Above it `run` refuses with `Overloaded`, which
clients retry. `run` never waits for room, so callers that wait for each other cannot deadlock. Flushes are
not refused, because `buffer_bytes_max` bounds them. A lease's renewal is not refused either."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class WriteJob:
    """`prepare` runs first, outside the transaction, and may raise; `operation` runs inside it; `done` is
    called on the event loop with the outcome. A job with `starts_commit` does not share a commit with an earlier
    such job. A job with `own_commit` does not share a commit with any other job."""

    operation: CommitOperation
    done: Callable[[OperationResult], None]
    prepare: Callable[[], None] | None = None
    on_outcome: Callable[[OperationResult], None] | None = None
    """Called on the writer thread when the outcome is known, before the next job starts."""
    starts_commit: bool = False
    own_commit: bool = False


class Writer:
    """Owns the thread. `on_change` is called on the event loop when another process may have committed,
    `on_failure` when this process can no longer write."""

    def __init__(
        self,
        database: Database,
        committer: Committer,
        *,
        foreign_check_ms: int,
        on_change: Callable[[], None],
        on_failure: Callable[[MillpondError], None],
    ) -> None:
        self._database = database
        self._committer = committer
        self._foreign_check_s = foreign_check_ms / 1000
        self._on_change = on_change
        self._on_failure = on_failure
        self._jobs: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._held_back: WriteJob | None = None
        self._failed: MillpondError | None = None
        self._stopping = False
        self._checked_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="millpond-writer", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def submit(self, job: WriteJob) -> None:
        if self._stopping:
            raise Stopping
        self._jobs.put(job)

    async def run(
        self,
        operation: CommitOperation,
        then: Callable[[Any], Any] | None = None,
        *,
        own_commit: bool = False,
        bypass_limit: bool = False,
    ) -> Any:
        """Run one operation through the commit queue; returns its value, or raises its error. `then` computes
        the result from the value. It is called in commit order, before the outcome of any later commit is
        delivered, even if the caller is gone. While `JOBS_WAITING_MAX` operations wait, `run` raises
        `Overloaded`, unless `bypass_limit`."""
        if not bypass_limit and (waiting := self._jobs.qsize()) >= JOBS_WAITING_MAX:
            message = f"{waiting} operations wait for the catalog; the limit is {JOBS_WAITING_MAX}."
            raise Overloaded(message, waiting=waiting, limit=JOBS_WAITING_MAX)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(
            WriteJob(operation, lambda outcome: _set_future(future, outcome, then), own_commit=own_commit)
        )
        return await future

    async def stop(self) -> None:
        """Finish all submitted jobs, then end the thread."""
        if self._stopping:
            return
        self._stopping = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while True:
            jobs, stop = self._next_jobs()
            for pause_s in self._perform(jobs) if jobs else ():
                time.sleep(pause_s)
            try:
                self._check_foreign_commits(time.monotonic())
            except Exception as error:  # an unexpected error here must not stop the commits
                logger.exception("unexpected error in check for foreign commits", extra={"error": error})
            if stop:
                return

    def _next_jobs(self) -> tuple[list[WriteJob], bool]:
        jobs = [self._held_back] if self._held_back is not None else []
        self._held_back = None
        try:
            while len(jobs) < JOBS_PER_COMMIT and not any(each.own_commit for each in jobs):
                job = self._jobs.get_nowait() if jobs else self._jobs.get(timeout=self._foreign_check_s)
                if job is None:
                    return jobs, True
                if jobs and (
                    job.own_commit or (job.starts_commit and any(each.starts_commit for each in jobs))
                ):
                    self._held_back = job
                    break
                jobs.append(job)
        except queue.Empty:
            pass
        return jobs, False

    def _perform(self, jobs: list[WriteJob]) -> Generator[float, None, None]:
        """Yields the seconds to wait before the commit is retried."""
        outcomes = [_prepare(job, self._failed) for job in jobs]
        ready = [job for job, outcome in zip(jobs, outcomes, strict=True) if outcome is None]
        committed = iter((yield from self._commit([job.operation for job in ready])))
        finals = [outcome or next(committed) for outcome in outcomes]
        self._call_soon(_deliver, jobs, finals)  # the loop wakes up while this thread calls `on_outcome`
        for job, outcome in zip(jobs, finals, strict=True):
            if job.on_outcome is not None:
                _guarded(job.on_outcome, outcome)

    def _commit(self, operations: list[CommitOperation]) -> Generator[float, None, list[OperationResult]]:
        if not operations:
            return []
        try:
            return (yield from self._committer.tries(operations))
        except (CatalogFailed, WriterDead) as error:
            self._failed = error
            _report_failure(error)
            self._call_soon(self._on_failure, error)
            return [OperationResult(error=error)] * len(operations)
        except MillpondError as error:
            return [OperationResult(error=error)] * len(operations)
        except Exception as error:  # a bug must fail its waiters, not hang them
            logger.exception("unexpected error in commit", extra={"error": error})
            return [OperationResult(error=CatalogUnavailable(reason=repr(error)))] * len(operations)

    def _check_foreign_commits(self, now: float) -> None:
        if now - self._checked_at < self._foreign_check_s or self._failed is not None:
            return
        self._checked_at = now
        try:
            changed = self._database.has_foreign_commits()
        except MillpondError:
            return
        if changed:
            self._call_soon(self._on_change)

    def _call_soon(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None, "start() comes first"
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


def _report_failure(error: CatalogFailed | WriterDead) -> None:
    if isinstance(error, WriterDead):
        logger.critical("session fenced; broker stops writing", extra={"error": str(error)})
    else:
        logger.critical("catalog failed; broker is shutting down", extra={"error": str(error)})


def _prepare(job: WriteJob, failed: MillpondError | None) -> OperationResult | None:
    if failed is not None:
        return OperationResult(error=failed.copy())
    if job.prepare is None:
        return None
    try:
        job.prepare()
    except MillpondError as error:
        return OperationResult(error=error)
    except Exception as error:  # a bug must fail its waiters, not hang them
        logger.exception("unexpected error in flush", extra={"error": error})
        return OperationResult(error=CatalogUnavailable(reason=repr(error)))
    return None


def _set_future(
    future: "asyncio.Future[Any]", outcome: OperationResult, then: Callable[[Any], Any] | None
) -> None:
    error: Exception | None = outcome.error
    value = outcome.value
    if error is None and then is not None:
        try:
            value = then(value)
        except Exception as bug:  # a bug must fail its waiters, not hang them
            logger.exception("unexpected error while applying a commit", extra={"error": bug})
            error = bug
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


def _deliver(jobs: list[WriteJob], outcomes: list[OperationResult]) -> None:
    for job, outcome in zip(jobs, outcomes, strict=True):
        _guarded(job.done, outcome)


def _guarded(function: Callable[[OperationResult], None], outcome: OperationResult) -> None:
    """A bug in one job must not leave the other jobs without an outcome, nor end the thread."""
    try:
        function(outcome)
    except Exception as error:
        logger.exception("unexpected error in commit callback", extra={"error": error})
