"""The cost of one append as a topic grows to ten million messages. It must not grow with the topic."""

import asyncio
import statistics
import time

from benchmarks.engine.setup import broker, folder, random_batches
from benchmarks.report import Report
from millpond import Broker, TopicPartition

MARKS = (1_000, 100_000, 1_000_000, 10_000_000)
SAMPLES = 2_000
WARM_UP = 200


async def measure(report: Report, *, quick: bool) -> None:
    report.section(
        "Cost per append as the topic grows",
        f"One topic on a RAM disk (so that the code is measured, not the disk), with the maintenance that keeps rows "
        f"few. At each mark {SAMPLES} single durable appends of 1 kB: median wall time and CPU of the process.",
    )
    marks = MARKS[:-1] if quick else MARKS
    rows: list[tuple[str, float, float]] = []
    with folder("ram") as path:
        async with broker(path, inline_bytes_per_second=2**30) as (running, topic_partition):
            filler = random_batches(100_000, 100, 20)
            [single] = random_batches(1_000, 1_000, 1)
            for mark in marks:
                await _grow_to(running, topic_partition, mark, filler)
                rows.append((f"{mark:,}", *await _cost(running, topic_partition, single)))
    first = rows[0][1]
    report.table(
        ("messages", "median µs", "CPU µs", "against the first"),
        [(name, f"{wall:.0f}", f"{cpu:.0f}", f"{wall / first:.2f}") for name, wall, cpu in rows],
    )


async def _grow_to(
    running: Broker, topic_partition: TopicPartition, messages: int, filler: list[bytes]
) -> None:
    number = 0
    while running.log.partition(topic_partition).end_offset < messages:
        answers = [await running.log.submit(topic_partition, filler[number % len(filler)]) for _ in range(20)]
        await asyncio.gather(*answers)
        number += 1
        if number % 50 == 0:
            await running.maintenance.merging.run_once()
    await running.maintenance.merging.run_once()


async def _cost(running: Broker, topic_partition: TopicPartition, batch: bytes) -> tuple[float, float]:
    for _ in range(WARM_UP):
        await running.log.append(topic_partition, batch)
    walls = []
    cpu = time.process_time()
    for _ in range(SAMPLES):
        started = time.perf_counter()
        await running.log.append(topic_partition, batch)
        walls.append(time.perf_counter() - started)
    return statistics.median(walls) * 1e6, (time.process_time() - cpu) / SAMPLES * 1e6
