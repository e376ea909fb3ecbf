"""Part `spark`: reading, streaming, the sink, compaction and merging on Spark, each compared with a peer in
the same run.

Reads are compared with native Parquet of the same rows and, where peers are available, with Spark's own Kafka
source on Apache Kafka; the sink is compared with Spark's Kafka sink. All use one session. Rounds are
interleaved, the first is discarded (JVMs warm up), and medians are reported.
"""

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path

from benchmarks.engine.setup import folder
from benchmarks.report import Report
from benchmarks.spark import latency, maintenance, reading, start, writing
from benchmarks.spark.environment import Workplace, connector_jars, spark_session

SECTIONS = (reading, writing, latency, maintenance)


def run(*, quick: bool = False, only: str | None = None) -> None:
    """Writes results/spark.md, unless `only` or `quick` is set."""
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
