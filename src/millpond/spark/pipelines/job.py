"""The context that every pipeline receives, and the record that is kept of its run.

A pipeline is a function `run(job, request) -> Report`. The request is a frozen dataclass of plain values, and
the report consists of plain values too, so that a command line, a schedule and a console can all start it and
show the result.

A run has a session that stores nothing. Its lease shows that the driver is alive, however long one step
takes, and its row is removed when the run ends.
"""

import fnmatch
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from millpond.catalog import pipelines as catalog_runs
from millpond.catalog import topics as catalog_topics
from millpond.catalog import writers
from millpond.catalog.database import Database
from millpond.model.clock import Clock, SystemClock
from millpond.model.errors import CatalogUnavailable, UnknownTopic, WriterDead
from millpond.model.ids import Session, new_session
from millpond.model.topics import Topic
from millpond.spark.place import Place, prepare
from millpond.spark.task_writer import KIND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Report = dict[str, Any]
"""What a run did, as JSON-compatible values."""

RUN_LEASE_MS = 60 * 60 * 1000
"""A run whose driver has not renewed its lease for this long is shown as interrupted."""
RENEWALS_PER_LEASE = 6

logger = logging.getLogger(__name__)


class Progress(Protocol):
    """Receives progress; called on the driver only."""

    def __call__(self, done: int, total: int, what: str) -> None: ...


def silent(done: int, total: int, what: str) -> None:
    """The default: ignores progress."""


@dataclass(frozen=True)
class PipelineJob:
    """The location of the data, the Spark session to work with, and the receiver of progress."""

    place: Place
    start_spark: "Callable[[], SparkSession]"
    """Called when there is work: a plan with nothing to do starts no JVM."""
    clock: Clock = field(default_factory=SystemClock)
    is_dry_run: bool = False
    progress: Progress = silent

    @property
    def spark(self) -> "SparkSession":
        return self.start_spark()

    @property
    def database(self) -> Database:
        return prepare(self.place)

    def topics(self, patterns: Sequence[str] = ()) -> list[Topic]:
        """The topics that match one of the patterns (all if there are none). A pattern that matches no topic
        is an error."""
        with self.database.read() as tx:
            everything = catalog_topics.all_topics(tx)
        if not patterns:
            return everything
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(topic.name, pattern) for topic in everything):
                raise UnknownTopic(topic=pattern)
        return [t for t in everything if any(fnmatch.fnmatchcase(t.name, pattern) for pattern in patterns)]


def run_recorded(
    job: PipelineJob, pipeline: str, topics: Sequence[str], work: Callable[[], Report]
) -> Report:
    """Do the work and keep a record of the run in the catalog. A dry run is not recorded."""
    if job.is_dry_run:
        return work()
    run_id, session, database = str(uuid4()), new_session(), job.database
    with database.write() as tx:
        writers.register(tx, session, kind=KIND, address="", lease_ms=RUN_LEASE_MS)
        catalog_runs.begin(tx, run_id, pipeline, list(topics), session, now_ms=job.clock.now_ms())
    state, report = "failed", {}
    try:
        with _renewing_lease(database, session):
            report = work()
        state = "done"
    except Exception as error:
        report = {"error": str(error)}
        raise
    finally:
        with database.write() as tx:
            catalog_runs.end(tx, run_id, state, report, now_ms=job.clock.now_ms())
            writers.mark_dead(tx, session, job.clock.now_ms(), in_order=True)
            writers.forget(tx, session)
    return report


@contextmanager
def _renewing_lease(database: Database, session: Session) -> Iterator[None]:
    """Renew the session's lease during the block, in a thread, because one Spark job may take longer than a
    lease."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(RUN_LEASE_MS / RENEWALS_PER_LEASE / 1000):
            try:
                with database.write() as tx:
                    writers.renew(tx, session, RUN_LEASE_MS)
            except CatalogUnavailable as error:
                logger.warning("run lease renewal failed; will retry", extra={"error": str(error)})
            except WriterDead:
                return  # the machine slept: the run continues, and is shown as interrupted until it ends

    thread = threading.Thread(target=renew, name="millpond-run-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
