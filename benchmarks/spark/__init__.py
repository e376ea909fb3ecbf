"""Part `spark`: reading, streaming, the sink, compaction and merging on Spark, each beside a peer of the same run.

Reads are held against native Parquet of the same rows and, where peers can be had, against Spark's own Kafka source
on Apache Kafka; the sink against Spark's Kafka sink. One session serves all of them. Rounds are interleaved, the first
is thrown away (JVMs warm up), and medians are reported.
"""

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path

from benchmarks.engine.places import folder
from benchmarks.report import Report
from benchmarks.spark import latency, maintenance, reading, start, writing
from benchmarks.spark.workplace import Workplace, connector_jars, spark_session

SECTIONS = (reading, writing, latency, maintenance)


def run(*, quick: bool = False, only: str | None = None) -> None:
    """Writes results/spark.md; with `only`, or quick, nothing is written."""
    report = Report("Spark", "make bench PART=spark" + (" (quick)" if quick else ""))
    if only is None or only in "start":
        start.measure(report)
    with folder("disk") as path, _workplace(path, quick) as place:
        for section in SECTIONS:
            if only is None or only in section.__name__:
                gc.collect()
                section.measure(report, place)
    if only is None and not quick:
        report.write("spark")


@contextlib.contextmanager
def _workplace(path: Path, quick: bool) -> Iterator[Workplace]:
    jars = connector_jars()
    spark = spark_session(path, jars)
    try:
        yield Workplace(spark, path, has_connector=bool(jars), quick=quick)
    finally:
        spark.stop()


__all__ = ["run"]
