"""Part `reads`: how fast a reader behind the tail is served, without the cost of a client library.

Each broker stores the same batches. A raw client (`raw.py`) then reads them from the start, one fetch after the other,
beside the same from the tail cache, from Apache Kafka, and by plain system calls. Rounds take turns; the first one
warms up Java and is discarded.
"""

import contextlib
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.engine.setup import folder
from benchmarks.kafka.load import fresh_topic
from benchmarks.kafka.subjects import SUBJECTS, Subject, millpond
from benchmarks.reads import plain, raw
from benchmarks.report import Report, quantiles_ms
from peers import Unavailable

ROUNDS: Final = 3
WARM_UP_ROUNDS: Final = 1
READINGS: Final = 3
"""How often a topic is read; the first time is not counted, for no subject."""
REQUESTS: Final = 600
"""What is read is several times what the read cache holds."""
NEWEST: Final = 100
"""Requests that are not read, because the tail cache has them."""
PLACES: Final = {"RAM disk": "ram", "disk": "disk"}
STORE: Final = "millpond"
TAIL: Final = "millpond, tail cache"
PLAIN: Final = "plain preadv + crc32c + send"
WHOLE_IN_TAIL: Final = ("tail_bytes_max=1GiB",)

Figures = dict[str, dict[str, list[float]]]
"""Measure, then subject, then one value per round."""


def loads() -> list[raw.Load]:
    return [raw.Load(1000, 1, REQUESTS), raw.Load(1000, 16, REQUESTS)]


def run(*, quick: bool = False, only: str | None = None) -> None:
    """Writes results/reads.md, unless `only` or `quick` is set."""
    report = Report("Reads", "make bench PART=reads" + (" (quick)" if quick else ""))
    report.line(
        "A raw client reads what is no longer in the tail cache: up to 1 MiB of each partition in each fetch, one "
        "fetch after the other. Both brokers store the same batches, which no codec can compress. `CPU` is that of the "
        f"broker. Medians of {1 if quick else ROUNDS} rounds in turns."
    )
    for place in PLACES:
        if only is None or only in place:
            _table(report, place, _measure(place, quick=quick))
    if only is None and not quick:
        report.write("reads")


def _measure(place: str, *, quick: bool) -> Figures:
    found: Figures = {}
    with folder(PLACES[place]) as path, contextlib.ExitStack() as running:
        subjects = _start(path, running)
        for number in range(WARM_UP_ROUNDS + (1 if quick else ROUNDS)):
            kept = found if number >= WARM_UP_ROUNDS else {}
            for load in loads():
                batches = load.batches()
                turn = number % len(subjects)
                for subject in subjects[turn:] + subjects[:turn]:
                    _read(kept, subject, load, batches, REQUESTS - NEWEST)
            _note(kept, "1000 B, 1 partition, MB/s", PLAIN, _plain(path, REQUESTS))
    return found


def _start(path: Path, running: contextlib.ExitStack) -> list[Subject]:
    launchers = {
        STORE: millpond,
        TAIL: lambda folder: _renamed(folder, TAIL),
        "kafka": SUBJECTS["kafka"],
    }
    subjects = []
    for name, launch in launchers.items():
        try:
            subjects.append(running.enter_context(launch(path / name.replace(", ", "-").replace(" ", "-"))))
        except Unavailable as error:
            print(f"   {name} is left out: {error}", flush=True)
    return subjects


@contextmanager
def _renamed(folder: Path, name: str) -> Iterator[Subject]:
    with millpond(folder, settings=WHOLE_IN_TAIL) as subject:
        yield Subject(name, subject.address, subject.pid, subject.started_s)


def _read(found: Figures, subject: Subject, load: raw.Load, batches: list[bytes], requests: int) -> None:
    with (
        fresh_topic(subject, load.partitions) as topic,
        contextlib.closing(raw.RawClient(subject.address)) as client,
    ):
        raw.fill(client, topic, load, batches)
        raw.read(client, topic, load, requests)
        for _ in range(READINGS - 1):
            cpu_s = subject.cpu_s()
            reading = raw.read(client, topic, load, requests)
            cpu_s = subject.cpu_s() - cpu_s
            p50, p99 = quantiles_ms(reading.fetches)
            _note(found, f"{load.name}, MB/s", subject.name, reading.megabytes_per_s)
            _note(found, f"{load.name}, CPU s/GB", subject.name, cpu_s / reading.size * 1e9)
            _note(found, f"{load.name}, p50 of a fetch, ms", subject.name, p50)
            _note(found, f"{load.name}, p99 of a fetch, ms", subject.name, p99)


def _plain(path: Path, megabytes: int) -> float:
    file = path / "plain"
    with file.open("wb") as opened:
        for batch in raw.Load(1000, 1, 1).batches() * (megabytes // raw.PREPARED + 1):
            opened.write(batch)
    try:
        return plain.read_check_send(file, megabytes)
    finally:
        file.unlink()


def _note(found: Figures, measure: str, name: str, value: float) -> None:
    print(f"   {measure:<40} {name:<32} {value:10.2f}", flush=True)
    found.setdefault(measure, {}).setdefault(name, []).append(value)


def _table(report: Report, place: str, found: Figures) -> None:
    names = list(dict.fromkeys(name for sides in found.values() for name in sides))
    rows = [
        [measure, *(f"{statistics.median(sides[name]):,.2f}" if name in sides else "" for name in names)]
        for measure, sides in found.items()
    ]
    report.section(f"On the {place}")
    report.table(["measure", *names], rows)
