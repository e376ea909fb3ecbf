"""`python -m benchmarks.against REVISION`: this tree compared with another revision of it, in interleaved rounds.

A refactoring must not cost speed, and figures of two days cannot be compared. So both versions run in the same
minutes, in turns: the engine inside a process, the Kafka interface through librdkafka, and the queue through the
client library of each version. Prints the medians, and of the ratios of each round the median, lowest and highest.
"""

import argparse
import contextlib
import io
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engine.setup import RAM_DISK
from benchmarks.kafka import load as kafka_load
from benchmarks.kafka import shapes
from benchmarks.kafka.subjects import millpond
from benchmarks.report import Report, quantiles_ms
from benchmarks.sources import environment

ROOT = Path(__file__).parents[2]
ENGINE = Path(__file__).with_name("engine.py")
HERE, THERE = "this", "that"
LATENCY_SAMPLES = 1_000
QUEUE_MESSAGES = 40_000

Figures = dict[str, float]
"""Measure, then value. A measure whose name ends with "/s" is better when it is higher; any other when it is lower."""


@dataclass(frozen=True, slots=True)
class Version:
    name: str
    source: Path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("revision", help="What to compare this tree with, as git names it.")
    parser.add_argument("--rounds", type=int, default=3, help="Number of rounds; one more warms up.")
    parser.add_argument("--part", action="append", choices=sorted(PARTS), help="Part to run (default: all).")
    options = parser.parse_args()
    with _extracted(options.revision) as source:
        versions = [Version(HERE, ROOT), Version(THERE, source)]
        report = Report(f"Against {options.revision}", f"python -m benchmarks.against {options.revision}")
        for part in options.part or PARTS:
            _run(report, part, versions, options.rounds)


def _run(report: Report, part: str, versions: list[Version], rounds: int) -> None:
    """The order of the versions changes from round to round; the first round is discarded."""
    found: dict[str, list[Figures]] = {version.name: [] for version in versions}
    for number in range(rounds + 1):
        for version in versions if number % 2 else versions[::-1]:
            with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=RAM_DISK) as folder:
                measured = PARTS[part](version, Path(folder))
            if number:
                found[version.name].append(measured)
    report.section(part)
    report.table(("measure", HERE, THERE, "ratio (1 is equal, more is better)"), list(_rows(found)))


def _rows(found: dict[str, list[Figures]]) -> Iterator[tuple[str, ...]]:
    for measure in found[HERE][0]:
        here, there = ([figures[measure] for figures in found[name]] for name in (HERE, THERE))
        is_rate = measure.endswith("/s")
        ratios = [a / b if is_rate else b / a for a, b in zip(here, there, strict=True)]
        yield (
            measure,
            f"{statistics.median(here):.2f}",
            f"{statistics.median(there):.2f}",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        )


@contextlib.contextmanager
def _extracted(revision: str) -> Iterator[Path]:
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory(prefix="millpond-that-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
            tree.extractall(folder, filter="data")
        yield Path(folder)


# -- the parts --------------------------------------------------------------------------------------------------------


def engine(version: Version, folder: Path) -> Figures:
    return _asked([sys.executable, str(ENGINE), str(folder)], version)


def kafka(version: Version, folder: Path) -> Figures:
    found: Figures = {}
    with millpond(folder, version.source) as subject:
        for shape in shapes(quick=False):
            with kafka_load.fresh_topic(subject, shape.partitions) as topic:
                for verb, function in (("produce", kafka_load.produce), ("consume", kafka_load.consume)):
                    found[f"{verb} {shape.name}, MB/s"] = function(subject, topic, shape).megabytes_per_s
        with kafka_load.fresh_topic(subject, 1) as topic:
            samples = kafka_load.acknowledgements(subject, topic, LATENCY_SAMPLES)
        found["acknowledgement, p50 ms"], found["acknowledgement, p99 ms"] = quantiles_ms(samples)
    return found


def queue(version: Version, folder: Path) -> Figures:
    """With the load program of each version, because it uses the client library of that version."""
    found: Figures = {}
    for mode in ("shared", "key_shared"):
        with millpond(folder / mode, version.source, "grpc") as subject:
            plan = {
                "address": subject.address, "topic": "backlog", "mode": mode, "messages": QUEUE_MESSAGES, "size": 100,
                "window": 500, "prefetch": 2_000, "keys": 1_000 if mode == "key_shared" else 0, "consumers": 1,
            }  # fmt: skip
            for step in ("prepare", "publish", "consume"):
                command = [sys.executable, "-m", "benchmarks.queues.load", json.dumps({**plan, "do": step})]
                measured = _asked(command, version)
                if measured:
                    found[f"{mode} {step}, messages/s"] = QUEUE_MESSAGES / measured["seconds"]
    return found


def _asked(command: list[str], version: Version) -> Figures:
    """What a program of this version prints as JSON."""
    done = subprocess.run(
        command,
        cwd=version.source,
        env=environment(version.source),
        check=True,
        capture_output=True,
        text=True,
    )
    figures: Figures = json.loads(done.stdout)
    return figures


PARTS: dict[str, Callable[[Version, Path], Figures]] = {"engine": engine, "kafka": kafka, "queue": queue}

if __name__ == "__main__":
    main()
