"""The file store by itself, alternating with plain write + fdatasync of the same bytes in the same sizes."""

import os
import time
from pathlib import Path

from benchmarks.engine.setup import PlainFile, folder
from benchmarks.report import Report
from millpond.model.ids import new_session
from millpond.objects.file_store import FileStore

SIZES = (16_000, 100_000, 1_000_000, 8_000_000)
BYTES_EACH = 200_000_000
APPENDS_MAX = 1_500


async def measure(report: Report, *, quick: bool) -> None:
    report.section(
        "The file store by itself",
        "One append after the other, each durable when it returns; MB/s, turn by turn with the baseline.",
    )
    rows = []
    for place in ("disk", "ram"):
        for size in SIZES:
            with folder(place) as path:
                ours, plain = _case(path, size, quick)
            rows.append((place, size, f"{ours:.0f}", f"{plain:.0f}", f"{ours / plain:.2f}"))
    report.table(("place", "append bytes", "file store MB/s", "plain MB/s", "ratio"), rows)


def _case(path: Path, size: int, quick: bool) -> tuple[float, float]:
    store = FileStore(path / "store", new_session())
    plain = PlainFile(path)
    appends = min(BYTES_EACH // size, APPENDS_MAX) // (10 if quick else 1)
    data = [os.urandom(size) for _ in range(4)]
    ours = theirs = 0.0
    for number in range(appends):
        part = [data[number % len(data)]]
        started = time.perf_counter()
        store.append(part)
        middle = time.perf_counter()
        plain.append(part)
        ours, theirs = ours + middle - started, theirs + time.perf_counter() - middle
    store.close()
    plain.close()
    return appends * size / ours / 1e6, appends * size / theirs / 1e6
