"""The log engine by itself: throughput, latency, cost by topic size, merging, memory."""

import gc
import sys

import uvloop

from benchmarks.engine import append_cost, latency, memory, merging, store, throughput
from benchmarks.report import Report

SECTIONS = (latency, append_cost, memory, store, throughput, merging)


def run(*, quick: bool, only: str | None = None) -> None:
    command = "make bench PART=engine" + (" (quick)" if quick else "")
    report = Report("Log engine", command)
    for section in SECTIONS:
        if only is None or only in section.__name__:
            gc.collect()
            uvloop.run(section.measure(report, quick=quick))
            print(file=sys.stderr)
    if only is None and not quick:
        report.write("engine")


__all__ = ["run"]
