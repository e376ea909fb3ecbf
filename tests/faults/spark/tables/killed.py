"""A run of `table` that kills itself with SIGKILL at a named point of its second step. Started by `test_kills`."""

import os
import signal
import sys
from pathlib import Path

from millpond.spark import Place, session
from millpond.spark.pipelines import table as pipeline
from millpond.spark.pipelines.job import PipelineJob
from millpond.spark.tables.formats import parquet
from millpond.spark.tables.model import Format
from millpond.spark.tables.values.spec import ValueFormat, Values

POINTS = ("written", "quarantined", "inside", "committed")


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(function, act):
    def run(*given, **named):
        result = function(*given, **named)
        act()
        return result

    return run


def arm(point: str) -> None:
    """From now on the run dies at this point."""
    if point == "written":  # files are there, nothing is committed
        pipeline._Run._check_topics = die
    elif point == "quarantined":  # bad rows are committed, good ones are not
        pipeline._Run._commit = die
    elif point == "committed":  # and nothing after it
        pipeline._Run._count = die
    elif point == "inside":  # Parquet: in the log, not in its place. The others: between two steps
        parquet.finish = die
        pipeline._Run._perform = after(pipeline._Run._perform, die)


def request_for(kind: str, place: str) -> pipeline.TableRequest:
    return pipeline.TableRequest(
        ("orders",), place, format=Format(kind), values=Values(ValueFormat.STRING), bytes_per_step=2_000
    )


def main(data: str, place: str, kind: str, point: str, work: str) -> None:
    spark = session(
        "killed",
        master="local[1]",
        config={"spark.local.dir": work, "spark.driver.memory": "512m"},
        fast_start=True,
    )

    def progress(done: int, total: int, what: str) -> None:
        arm(point)

    pipeline.run(
        PipelineJob(Place.at(Path(data)), lambda: spark, progress=progress), request_for(kind, place)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
