"""Start-up time and resident memory of `millpond serve`."""

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

from benchmarks.engine.setup import broker, folder, random_batches
from benchmarks.report import Report

STARTS = 7
IDLE_S = 2.0


async def measure(report: Report, *, quick: bool) -> None:
    starts, idle = [], []
    for _ in range(2 if quick else STARTS):
        with folder("disk") as path:
            seconds, rss = await _serve(path)
        starts.append(seconds)
        idle.append(rss)
    report.section(
        "Start and memory", "`millpond serve` on an empty directory; then the engine after 400 MB of appends."
    )
    with folder("ram") as path:
        busy = await _after_work(path)
    report.table(
        ("start to ready, median", "idle memory", "engine process after 400 MB"),
        [(f"{statistics.median(starts) * 1000:.0f} ms", f"{max(idle):.0f} MB", f"{busy:.0f} MB")],
    )


async def _serve(path: Path) -> tuple[float, float]:
    """(seconds from exec to the line that reports ready, resident MB two seconds later)."""
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "millpond",
        "serve",
        "--json",
        "--data-dir",
        str(path),
        *(
            part
            for interface in ("kafka", "grpc", "http")
            for part in ("--set", f"{interface}_listen=127.0.0.1:0")
        ),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    json.loads(await process.stdout.readline())
    seconds = time.perf_counter() - started
    await asyncio.sleep(IDLE_S)
    rss = _resident_mb(process.pid)
    process.terminate()
    await process.wait()
    return seconds, rss


async def _after_work(path: Path) -> float:
    async with broker(path) as (running, topic_partition):
        batches = random_batches(100_000, 1_000, 40)
        for _ in range(100):
            await asyncio.gather(*[await running.log.submit(topic_partition, batch) for batch in batches])
        return _resident_mb("self")


def _resident_mb(process: int | str) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * 4096 / 1e6
