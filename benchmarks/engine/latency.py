"""One durable append at a time, alternating with one bare SQLite FULL commit; and inline compared with file."""

import time
from pathlib import Path

import apsw

from benchmarks.engine.setup import broker, folder, random_batches
from benchmarks.report import Report, quantiles_ms
from millpond import Broker, TopicPartition

SAMPLES = 2_000
SIZES = (200, 1_000, 4_000, 16_000, 64_000, 256_000)
GIB = 2**30


async def measure(report: Report, *, quick: bool) -> None:
    samples = SAMPLES // 10 if quick else SAMPLES
    report.section(
        "Latency of a single durable append",
        f"One append in flight, {samples} samples each, turn by turn with one SQLite FULL commit that updates one row.",
    )
    rows = []
    for place in ("disk", "ram"):
        with folder(place) as path:
            ours, bare = await _against_sqlite(path, samples)
        (p50, p99), (bare50, bare99) = quantiles_ms(ours), quantiles_ms(bare)
        rows.append((place, f"{p50:.3f} / {p99:.3f}", f"{bare50:.3f} / {bare99:.3f}", f"{p50 / bare50:.2f}"))
    report.table(("place", "append 1 kB, p50 / p99 ms", "bare commit, p50 / p99 ms", "ratio of p50"), rows)
    report.section(
        "Inline against file",
        "The same append with its bytes in the catalog's commit, and with its bytes in a file and its row in the "
        "catalog; p50 / p99 in ms, turn by turn, on the disk.",
    )
    with folder("disk") as path:
        report.table(("bytes", "inline", "file"), await _inline_against_file(path, samples // 4))


async def _against_sqlite(path: Path, samples: int) -> tuple[list[float], list[float]]:
    bare = _bare_sqlite(path / "bare.db")
    [batch] = random_batches(1_000, 1_000, 1)
    ours: list[float] = []
    theirs: list[float] = []
    async with broker(path / "ours", inline_bytes_per_second=GIB) as (running, topic_partition):
        for number in range(samples + 50):
            ours.append(await _timed_append(running, topic_partition, batch))
            started = time.perf_counter()
            bare.execute("UPDATE one SET value = ?", (number,))
            theirs.append(time.perf_counter() - started)
    bare.close()
    return ours[50:], theirs[50:]


async def _inline_against_file(path: Path, samples: int) -> list[tuple[object, ...]]:
    rows = []
    inline_settings = {"inline_bytes_max": GIB, "inline_bytes_per_second": GIB}
    async with (
        broker(path / "inline", **inline_settings) as (inline, inline_where),
        broker(path / "file", inline_bytes_max=0) as (file, file_where),
    ):
        for size in SIZES:
            [batch] = random_batches(size, size, 1)
            in_catalog: list[float] = []
            in_file: list[float] = []
            for _ in range(samples):
                in_catalog.append(await _timed_append(inline, inline_where, batch))
                in_file.append(await _timed_append(file, file_where, batch))
            rows.append((size, _shown(in_catalog), _shown(in_file)))
    return rows


async def _timed_append(running: Broker, topic_partition: TopicPartition, batch: bytes) -> float:
    started = time.perf_counter()
    await running.log.append(topic_partition, batch)
    return time.perf_counter() - started


def _shown(samples: list[float]) -> str:
    p50, p99 = quantiles_ms(samples)
    return f"{p50:.3f} / {p99:.3f}"


def _bare_sqlite(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute("CREATE TABLE one (value)")
    connection.execute("INSERT INTO one VALUES (0)")
    return connection
