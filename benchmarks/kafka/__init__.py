"""Part `kafka`: Millpond's Kafka interface compared with Apache Kafka, through librdkafka, in interleaved
rounds of one run.

All subjects run twice: on a RAM disk, where the code determines the result, and on the disk, next to plain
write + fdatasync of the same bytes. The first round warms up Java and the memory and is discarded.
"""

import contextlib
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.kafka import charts, load, raw_disk
from benchmarks.kafka.load import Shape
from benchmarks.kafka.subjects import SUBJECTS, Subject
from benchmarks.report import RESULTS, machine, quantiles_ms, today
from peers import Unavailable

ROUNDS = 3
WARM_UP_ROUNDS = 1
LATENCY_SAMPLES = 1000
RAM_DISK = Path("/dev/shm")  # a RAM disk is intended here
PLAIN = "plain write + fdatasync"

Samples = dict[str, dict[str, list[float]]]
"""Measure, then subject, then one value per round."""


def shapes(quick: bool) -> list[Shape]:
    scale = 10 if quick else 1
    return [
        Shape(1000, 1, 400_000 // scale),
        Shape(1000, 16, 400_000 // scale),
        Shape(100, 1, 1_500_000 // scale),
        Shape(100, 16, 1_500_000 // scale),
    ]


def run(*, quick: bool = False, only: str | None = None) -> None:
    """Writes results/kafka.json and the page with charts generated from it, unless `only` is set."""
    rounds = 1 + WARM_UP_ROUNDS if quick else ROUNDS + WARM_UP_ROUNDS
    found: dict[str, Any] = {
        "machine": machine(),
        "date": today(),
        "command": "make bench PART=kafka" + (" (quick)" if quick else ""),
        "rounds": rounds - WARM_UP_ROUNDS,
        "places": {},
    }
    for place, parent in (("RAM disk", RAM_DISK), ("disk", Path.cwd())):
        if only is None or only in place:
            print(f"== on the {place}", flush=True)
            found["places"][place] = _measure(parent, rounds, shapes(quick), quick)
    if only is None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "kafka.json").write_text(json.dumps(found, indent=1) + "\n")
        charts.write_page(found)


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(parent: Path, rounds: int, wanted: list[Shape], quick: bool) -> dict[str, Any]:
    with _folder(parent) as folder, contextlib.ExitStack() as running:
        subjects = _start(folder, running)
        idle = {each.name: each.resident_bytes() / 1e6 for each in subjects}
        started = {each.name: each.started_s for each in subjects}
        samples: Samples = {}
        for number in range(rounds):
            keep = number >= WARM_UP_ROUNDS
            _round(folder, subjects, wanted, quick, samples if keep else {}, number)
        loaded = {each.name: each.resident_bytes() / 1e6 for each in subjects}
    return {
        "start_s": started,
        "resident_idle_mb": idle,
        "resident_loaded_mb": loaded,
        "samples": samples,
        "medians": {
            measure: {name: statistics.median(values) for name, values in sides.items()}
            for measure, sides in samples.items()
        },
    }


def _start(folder: Path, running: contextlib.ExitStack) -> list[Subject]:
    subjects = []
    for name, launch in SUBJECTS.items():
        try:
            subjects.append(running.enter_context(launch(folder / name.replace(", ", "-"))))
        except Unavailable as error:
            print(f"   {name} is left out: {error}", flush=True)
    return subjects


def _round(
    folder: Path, subjects: list[Subject], wanted: list[Shape], quick: bool, samples: Samples, number: int
) -> None:
    """Run every measure of every subject once; the order of the subjects rotates from round to round."""
    turn = number % len(subjects)
    order = subjects[turn:] + subjects[:turn]
    for shape in wanted:
        _note(samples, f"produce {shape.name}, MB/s", PLAIN, raw_disk.write_and_sync(folder, shape.megabytes))
        for subject in order:
            _one_shape(subject, shape, samples)
    count = LATENCY_SAMPLES // 10 if quick else LATENCY_SAMPLES
    _note_latency(samples, "acknowledgement", PLAIN, raw_disk.sync_latencies(folder, count))
    for measure, function in (("acknowledgement", load.acknowledgements), ("end to end", load.end_to_end)):
        for subject in order:
            _note_latency(samples, measure, subject.name, _on_fresh_topic(subject, function, count))


def _one_shape(subject: Subject, shape: Shape, samples: Samples) -> None:
    with load.fresh_topic(subject, shape.partitions) as topic:
        for verb, function in (("produce", load.produce), ("consume", load.consume)):
            measured = function(subject, topic, shape)
            _note(samples, f"{verb} {shape.name}, MB/s", subject.name, measured.megabytes_per_s)
            _note(samples, f"{verb} {shape.name}, CPU s/GB", subject.name, measured.cpu_s_per_gb)


def _on_fresh_topic(
    subject: Subject, function: Callable[[Subject, str, int], list[float]], count: int
) -> list[float]:
    with load.fresh_topic(subject, 1) as topic:
        return function(subject, topic, count)


def _note(samples: Samples, measure: str, name: str, value: float) -> None:
    print(f"   {measure:<42} {name:<24} {value:10.2f}", flush=True)
    samples.setdefault(measure, {}).setdefault(name, []).append(value)


def _note_latency(samples: Samples, measure: str, name: str, seconds: list[float]) -> None:
    p50, p99 = quantiles_ms(seconds)
    _note(samples, f"{measure}, p50 ms", name, p50)
    _note(samples, f"{measure}, p99 ms", name, p99)
