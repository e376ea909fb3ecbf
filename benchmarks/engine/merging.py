"""The effect of merging on the number of rows and files, and its cost."""

import asyncio
import time
from pathlib import Path

from benchmarks.engine.setup import folder, random_batches
from benchmarks.report import Report
from millpond import Broker, Settings, TopicPartition
from millpond.catalog import extents, objects

FLUSHES = 3_000
PARTITIONS = 8


async def measure(report: Report, *, quick: bool) -> None:
    flushes = FLUSHES // 10 if quick else FLUSHES
    report.section(
        "Rows and files before and after merging",
        f"{flushes} flushes of single appends over {PARTITIONS} partitions: 1 kB ones ride in the catalog, 40 kB ones "
        "go to journal files. `collected` is after the garbage collector has run.",
    )
    rows = []
    for size in (1_000, 40_000):
        with folder("ram") as path:
            rows.extend(await _case(path, size, flushes))
    report.table(("flush", "when", "extents", "bytes in catalog", "objects", "files", "seconds"), rows)


async def _case(path: Path, size: int, flushes: int) -> list[tuple[object, ...]]:
    [batch] = random_batches(size, min(size, 1_000), 1)
    rows = []
    async with Broker(Settings(data_dir=path, garbage_grace=0), maintain=False) as running:
        topic = await running.log.create_topic("bench", PARTITIONS)
        started = time.perf_counter()
        for number in range(flushes):
            await running.log.append(TopicPartition(topic.id, number % PARTITIONS), batch)
        rows.append((size, "before", *await _counts(running, path), f"{time.perf_counter() - started:.1f}"))
        started = time.perf_counter()
        while await running.maintenance.merging.run_once():
            pass
        rows.append((size, "merged", *await _counts(running, path), f"{time.perf_counter() - started:.1f}"))
    async with Broker(Settings(data_dir=path, garbage_grace=0), maintain=False) as running:
        started = time.perf_counter()
        await asyncio.sleep(0.01)
        await running.maintenance.garbage.run_once()
        rows.append(
            (size, "collected", *await _counts(running, path), f"{time.perf_counter() - started:.1f}")
        )
    return rows


async def _counts(running: Broker, path: Path) -> tuple[int, int, int, int]:
    rows = await running.log.read(extents.totals)
    known = await running.log.read(objects.totals)
    files = sum(1 for each in (path / "objects").rglob("*") if each.is_file())
    return rows.extents, rows.inline_bytes, sum(count for count, _ in known.values()), files
