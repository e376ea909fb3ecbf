"""The commit of a sink: one catalog transaction that assigns an offset to every row, or to none.

It claims the batch first. If the batch was committed before, because the response was lost or Spark runs it
again, the commit appends nothing and only ends the sessions of its tasks.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Final, TypeVar

from millpond.catalog import appends, sinks, writers
from millpond.catalog.database import CatalogTransaction, Database
from millpond.catalog.objects import NewObject
from millpond.model.backoff import retry_delay
from millpond.model.clock import Clock, SystemClock
from millpond.model.errors import (
    CatalogFailed,
    CatalogUnavailable,
    MillpondError,
    UnknownPartition,
    UnknownTopic,
)
from millpond.model.ids import Session, TopicId
from millpond.spark.sink.messages import Flushed, TaskCommit
from millpond.spark.task_writer import end_sessions

TRIES_MAX: Final = 10
RETRY_DELAY_S: Final = 0.1
RETRY_DELAY_S_MAX: Final = 5.0
"""With these, an outage of the catalog of about half a minute is tolerated."""
NO_SESSION: Final = Session("")
logger = logging.getLogger(__name__)

T = TypeVar("T")


def commit(
    database: Database,
    sink: str,
    batch: int,
    tasks: Sequence[TaskCommit],
    *,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
    random: Random | None = None,
) -> bool:
    """Whether the batch is new. If it is not, nothing is appended. `random` spreads retries."""
    now_ms = (clock or SystemClock()).now_ms()
    jitter = random or Random()  # noqa: S311  # not a secret
    return _with_retries(lambda: _commit(database, sink, batch, tasks, now_ms), sleep, jitter)


def abandon(database: Database, tasks: Iterable[TaskCommit | None], *, clock: Clock | None = None) -> None:
    """Abandon what tasks have stored: their sessions can no longer commit, so their objects can be collected."""
    now_ms = (clock or SystemClock()).now_ms()
    with database.write() as tx:
        _declare_dead(tx, [task for task in tasks if task is not None], now_ms)


def _commit(database: Database, sink: str, batch: int, tasks: Sequence[TaskCommit], now_ms: int) -> bool:
    sessions = [task.session for task in tasks if task.session is not None]
    claimant = min(sessions, default=NO_SESSION)
    with database.write() as tx:
        sinks.delete_one_time_sinks(tx, now_ms=now_ms)
        is_new = sinks.claim(tx, sink, batch, claimant, now_ms=now_ms)
        if is_new:
            end_sessions(tx, sessions, now_ms=now_ms)
            _append(tx, tasks, now_ms)
        else:
            if not sinks.is_newest(tx, sink, batch, claimant):
                logger.warning(
                    "batch was committed before; nothing appended", extra={"sink": sink, "batch": batch}
                )
            _declare_dead(tx, tasks, now_ms)
    return is_new


def _append(tx: CatalogTransaction, tasks: Sequence[TaskCommit], now_ms: int) -> None:
    names = {topic_id: name for task in tasks for topic_id, name in task.topics}
    try:
        # Lock all rows together and in order: if they were locked flush by flush, two sinks could deadlock.
        sinks.lock_partitions(
            tx, sorted({share.topic_partition for _, flush in _flushes(tasks) for share in flush.shares})
        )
        for session, flush in _flushes(tasks):
            new = NewObject(flush.key, "journal", session, flush.bytes, sealed=True)
            for result in appends.append(tx, flush.shares, new, now_ms=now_ms):
                if isinstance(result, MillpondError):
                    raise result
    except UnknownPartition as error:
        raise UnknownTopic(topic=names[TopicId(bytes.fromhex(error.facts["topic"]))]) from error


def _flushes(tasks: Sequence[TaskCommit]) -> Iterator[tuple[Session, Flushed]]:
    """In the order of tasks, and of each task's flushes. A partition's rows get their offsets in this order."""
    for task in tasks:
        for flush in task.flushes:
            assert task.session is not None, "what is stored has a session in its key"
            yield task.session, flush


def _declare_dead(tx: CatalogTransaction, tasks: Iterable[TaskCommit], now_ms: int) -> None:
    """The sessions end in order: a task that has sent its message is done."""
    for session in sorted(task.session for task in tasks if task.session is not None):
        writers.mark_dead(tx, session, now_ms, in_order=True)


def _with_retries(work: Callable[[], T], sleep: Callable[[float], None], random: Random) -> T:
    """Retry while the catalog is unavailable or its response was lost; the claim makes that safe."""
    for attempt in range(1, TRIES_MAX):
        try:
            return work()
        except CatalogFailed:
            raise
        except CatalogUnavailable:
            sleep(retry_delay(RETRY_DELAY_S, attempt, random, maximum=RETRY_DELAY_S_MAX))
    return work()
