"""`run --every 1m`: one long-lived session that keeps topics merged, compacted, retained, and their tables fresh.

A round runs every duty once. One that fails is recorded and tried again in the next round; it keeps no other from
running.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from millpond.model.errors import MillpondError
from millpond.spark.pipelines import compact, merge, retain, table
from millpond.spark.pipelines.job import Job, Report
from millpond.spark.pipelines.table import TableRequest

logger = logging.getLogger(__name__)

Duty = tuple[str, Callable[[], Report]]
"""A name, and what to do."""


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    topics: tuple[str, ...] = ()
    tables: tuple[TableRequest, ...] = ()
    every_s: float = 60.0
    rounds: int | None = None
    """How many; without end if None."""


def never() -> bool:
    return False


def run(
    job: Job,
    request: ScheduleRequest,
    *,
    sleep: Callable[[float], object] = time.sleep,
    stop: Callable[[], bool] = never,
) -> Iterator[Report]:
    """A report after each round. The next one begins `every_s` after the last one began, or at once if that is past.
    `stop` is asked before every duty."""
    number = 0
    while not stop() and (request.rounds is None or number < request.rounds):
        begun = time.monotonic()
        number += 1
        yield {"round": number, **_round(job, request, stop), "seconds": round(time.monotonic() - begun, 3)}
        if number != request.rounds:
            sleep(max(0.0, request.every_s - (time.monotonic() - begun)))


def _round(job: Job, request: ScheduleRequest, stop: Callable[[], bool]) -> Report:
    reports: Report = {}
    for name, work in _duties(job, request):
        if stop():
            break
        try:
            reports[name] = work()
        except Exception as error:  # Spark's errors are of many kinds, and the others must go on
            if not isinstance(error, MillpondError):
                logger.exception(
                    "unexpected error in pipeline; will retry", extra={"duty": name, "error": repr(error)}
                )
            reports[name] = {"error": str(error)}
    return reports


def _duties(job: Job, request: ScheduleRequest) -> Iterator[Duty]:
    topics = request.topics
    yield "merge", lambda: merge.run(job, merge.MergeRequest(topics=topics))
    yield "compact", lambda: compact.run(job, compact.CompactRequest(topics=topics))
    yield "retain", lambda: retain.run(job, retain.RetainRequest(topics=topics))
    for each in request.tables:
        yield f"table {each.location}", partial(table.run, job, each)
