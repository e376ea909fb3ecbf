"""Micro-batches: the time from trigger to commit when little data arrives, from topic to topic."""

import time

from benchmarks.report import Report
from benchmarks.spark.environment import Workplace, fill, median

BATCHES = 15
WAIT_S = 60


def measure(report: Report, place: Workplace) -> None:
    report.section(
        "Micro-batches",
        "A query from a topic to a topic through the exactly-once sink; a thousand rows arrive before each batch. "
        "`trigger` is Spark's own figure for a whole batch.",
    )
    fill(place.data, "ticks", partitions=2, rows=10_000, value_bytes=100)
    options = {"path": str(place.data)}
    source = place.spark.readStream.format("millpond").options(
        **options, subscribe="ticks", startingOffsets="earliest", maxOffsetsPerTrigger="1000"
    )
    sink = (
        source.load()
        .select("key", "value")
        .writeStream.format("millpond")
        .options(
            **options,
            topic="tocks",
            createTopics="true",
            checkpointLocation=str(place.path / "checkpoint"),
        )
    )
    query = sink.start()
    try:
        deadline = time.monotonic() + WAIT_S
        while len(_busy(query)) < BATCHES // (3 if place.quick else 1) and time.monotonic() < deadline:
            time.sleep(0.2)
        progress = _busy(query)[1:]
    finally:
        query.stop()
    names = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
    rows = [
        (name, f"{median([each['durationMs'].get(name, 0) for each in progress]):,.0f}") for name in names
    ]
    report.table(("phase", f"median ms of {len(progress)} batches"), rows)


def _busy(query: object) -> list[dict[str, dict[str, int]]]:
    return [each for each in query.recentProgress if each["numInputRows"]]  # type: ignore[attr-defined]
