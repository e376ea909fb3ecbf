"""The time to the first results: a session, one SQL job, one job with a Python worker. Each in a new process."""

import statistics
import subprocess
import sys

from benchmarks.report import Report

SCRIPT = """
import sys, time
begun = time.perf_counter()
from millpond.spark import session
spark = session(master="local[2]", fast_start=sys.argv[1] == "fast", log_level="ERROR")
spark.range(1000).selectExpr("sum(id)").collect()
spark.range(10).mapInArrow(lambda batches: batches, "id long").collect()
print(time.perf_counter() - begun)
spark.stop()
"""


def measure(report: Report) -> None:
    report.section(
        "Start", "A local session with its first two jobs, seconds. `fast` maps its classes from an archive."
    )
    _once("fast")  # creates the archive if there is none
    samples = {kind: [_once(kind) for _ in range(3)] for kind in ("plain", "fast")}
    report.table(
        ("start", "median s"), [(kind, f"{statistics.median(each):.1f}") for kind, each in samples.items()]
    )


def _once(kind: str) -> float:
    done = subprocess.run([sys.executable, "-c", SCRIPT, kind], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])
