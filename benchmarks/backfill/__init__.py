"""Part `backfill`: a load of records that are a year old beside the same load of current records, in interleaved rounds
of one run, with a live producer on another topic.

The broker reads the timestamps of old records out of their batches, and those of current records not at all. The load
comes from this process; the live producer and the broker are processes, and all share the cores. The first round warms
up and is not counted.
"""

import statistics
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from benchmarks.backfill import live, load
from benchmarks.backfill.load import SENDERS, Age
from benchmarks.engine.setup import folder
from benchmarks.kafka.load import fresh_topic
from benchmarks.kafka.subjects import Subject, millpond
from benchmarks.report import Report, quantiles_ms

ROUNDS, QUICK_ROUNDS = 4, 1
WARM_UP_ROUNDS = 1
MESSAGES = {"librdkafka": 1_000_000, "prepared batches": 4_000_000}
IDLE_SECONDS = 3.0
CODECS = ("none", "lz4")
RATIO_AIM = 0.6


class Load(NamedTuple):
    sender: str
    codec: str


class Measured(NamedTuple):
    """One round of one load."""

    megabytes_per_s: float
    cpu_s_per_gb: float
    live_s: list[float]


Found = dict[tuple[Load, Age], list[Measured]]


def run(*, quick: bool = False, only: str | None = None) -> None:
    """Writes results/backfill.md; with `only`, which is a codec, or quick, nothing is written."""
    report = Report("Backfill", "make bench PART=backfill" + (" (quick)" if quick else ""))
    rounds = QUICK_ROUNDS if quick else ROUNDS
    loads = [Load(*each) for each in product(SENDERS, CODECS) if only in (None, each[1])]
    found: Found = {}
    idle_s: list[float] = []
    with folder("disk") as path, millpond(path / "millpond") as subject:
        for number in range(rounds + WARM_UP_ROUNDS):
            for wanted in loads:
                for age in list(Age)[:: 1 if number % 2 else -1]:
                    messages = MESSAGES[wanted.sender] // (10 if quick else 1)
                    measured = _measure(subject, wanted, age, messages)
                    if number >= WARM_UP_ROUNDS:
                        found.setdefault((wanted, age), []).append(measured)
            idle_s += live.idle(subject, IDLE_SECONDS) if number >= WARM_UP_ROUNDS else []
    _report_throughput(report, loads, found)
    _report_latency(report, loads, found, idle_s)
    if only is None and not quick:
        report.write("backfill")


def _measure(subject: Subject, wanted: Load, age: Age, messages: int) -> Measured:
    with fresh_topic(subject, 1) as topic, fresh_topic(subject, 1) as live_topic:
        with live.running(subject, live_topic) as producer:
            throughput = load.produce(subject, topic, wanted.sender, wanted.codec, age, messages)
        return Measured(
            throughput.megabytes_per_s,
            throughput.cpu_s_per_gb,
            producer.between(throughput.begin_s, throughput.end_s),
        )


def _report_throughput(report: Report, loads: Sequence[Load], found: Found) -> None:
    report.section(
        "Throughput",
        f"Records of {load.RECORD_BYTES} B to one partition with acks=all: {MESSAGES['librdkafka']:,} a round through "
        f"librdkafka, which is slower than the broker, and {MESSAGES['prepared batches']:,} as batches of "
        f"{load.RECORDS_PER_BATCH:,} records that were built before, {load.IN_FLIGHT_MAX} in flight. Medians over the "
        "rounds; of the ratios old / current of each round the median, lowest and highest. "
        f"Aim: at least {RATIO_AIM}. CPU is that of the broker.",
    )
    rows = []
    for wanted in loads:
        sides = [found[wanted, age] for age in (Age.OLD, Age.CURRENT)]
        ratios = [old.megabytes_per_s / current.megabytes_per_s for old, current in zip(*sides, strict=True)]
        rows.append(
            (
                *wanted,
                *(f"{statistics.median(each.megabytes_per_s for each in side):.1f}" for side in sides),
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                *(f"{statistics.median(each.cpu_s_per_gb for each in side):.1f}" for side in sides),
            )
        )
    columns = (
        "sender",
        "codec",
        "old MB/s",
        "current MB/s",
        "old / current",
        "old CPU s/GB",
        "current CPU s/GB",
    )
    report.table(columns, rows)


def _report_latency(report: Report, loads: Sequence[Load], found: Found, idle_s: Sequence[float]) -> None:
    report.section(
        "Acknowledgement latency of a live producer beside it",
        f"One record of {live.RECORD_BYTES} B to another topic, {live.PAUSE_S * 1000:.0f} ms after the acknowledgement "
        "of the one before, from the call to the acknowledgement, while the load runs; samples of all rounds together.",
    )
    rows: list[Sequence[object]] = [("no load", "", "", *_latency(idle_s))]
    for wanted, age in product(loads, Age):
        samples = [each for measured in found[wanted, age] for each in measured.live_s]
        rows.append((*wanted, age.value, *_latency(samples)))
    report.table(("sender", "codec", "records", "samples", "p50 ms", "p99 ms"), rows)


def _latency(samples: Sequence[float]) -> tuple[object, ...]:
    p50, p99 = quantiles_ms(samples)
    return len(samples), f"{p50:.2f}", f"{p99:.2f}"
