"""`run --every 1m`: one long-lived session that repeatedly merges, compacts and retains topics and updates
their tables.

A round runs every duty once. A failed duty is reported and tried again in the next round; the other duties
still run.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from millpond.model.errors import MillpondError
from millpond.spark.pipelines import compact, merge, retain, table
from millpond.spark.pipelines.job import PipelineJob, Report
from millpond.spark.pipelines.table import TableRequest

logger = logging.getLogger(__name__)

Duty = tuple[str, Callable[[], Report]]
"""A name and a function."""


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    topics: tuple[str, ...] = ()
    tables: tuple[TableRequest, ...] = ()
    every_s: float = 60.0
    rounds: int | None = None
    """Number of rounds; None: run until stopped."""


def never() -> bool:
    return False


def run(
    job: PipelineJob,
    request: ScheduleRequest,
    *,
    sleep: Callable[[float], object] = time.sleep,
    stop: Callable[[], bool] = never,
) -> Iterator[Report]:
    """Yields a report after each round. A round begins `every_s` after the previous one began, or immediately
    if that has passed. `stop` is called before every duty."""
    number = 0
    while not stop() and (request.rounds is None or number < request.rounds):
        begun = time.monotonic()
        number += 1
        yield {"round": number, **_round(job, request, stop), "seconds": round(time.monotonic() - begun, 3)}
        if number != request.rounds:
            sleep(max(0.0, request.every_s - (time.monotonic() - begun)))


def _round(job: PipelineJob, request: ScheduleRequest, stop: Callable[[], bool]) -> Report:
    reports: Report = {}
    for name, work in _duties(job, request):
        if stop():
            break
        try:
            reports[name] = work()
        except Exception as error:  # Spark raises errors of many types, and the other duties must still run
            if not isinstance(error, MillpondError):
                logger.exception(
                    "unexpected error in pipeline; will retry", extra={"duty": name, "error": error}
                )
            reports[name] = {"error": str(error)}
    return reports


def _duties(job: PipelineJob, request: ScheduleRequest) -> Iterator[Duty]:
    topics = request.topics
    yield "merge", lambda: merge.run(job, merge.MergeRequest(topics=topics))
    yield "compact", lambda: compact.run(job, compact.CompactRequest(topics=topics))
    yield "retain", lambda: retain.run(job, retain.RetainRequest(topics=topics))
    for each in request.tables:
        yield f"table {each.location}", partial(table.run, job, each)
