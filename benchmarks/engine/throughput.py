"""Append and fetch in MB/s, compared with plain write + fdatasync of the same bytes, in interleaved rounds.

The disk here allows bursts and then throttles, so rounds of Millpond and of the baseline alternate. The
baseline has two sizes: as large as our flushes (8 MiB, the harder one), and one fdatasync for each batch.
"""

import asyncio
import itertools
import os
import resource
import time
from pathlib import Path

from benchmarks.engine.setup import PlainFile, broker, folder, random_batches
from benchmarks.report import Report
from millpond import Broker, FetchRequest, TopicPartition

RECORD_BYTES = (100, 1_000)
BATCH_BYTES = (16_000, 100_000, 1_000_000)
ROUND_BYTES = 48_000_000
ROUNDS = 5
FLUSH_BYTES = 8 * 2**20
FETCH_BYTES = 2**20


async def measure(report: Report, *, quick: bool) -> None:
    report.section(
        "Throughput",
        "Durable append and fetch through the engine's async API, one partition, against plain write + fdatasync of "
        "the same random bytes in the same run, turn by turn. `ratio` is ours to the baseline with writes as large "
        "as our flushes; `to batch-sized` is ours to one fdatasync per batch. CPU is of the whole process; the "
        "engine copies each batch once (what arrives from a socket is stamped in place and not copied). `tail` is "
        "read from memory, `store` from files after a restart, CRC checked.",
    )
    header = (
        "place", "record", "batch", "append MB/s", "plain MB/s", "ratio", "to batch-sized", "CPU µs/batch",
        "fetch tail MB/s", "fetch store MB/s",
    )  # fmt: skip
    cases = itertools.product(("disk", "ram", "memory"), RECORD_BYTES, BATCH_BYTES)
    report.table(header, [await _case(*case, 1 if quick else ROUNDS) for case in cases])


async def _case(place: str, record_bytes: int, batch_bytes: int, rounds: int) -> tuple[object, ...]:
    if place == "memory":
        async with broker(None) as (running, topic_partition):
            batches = random_batches(batch_bytes, record_bytes, ROUND_BYTES // batch_bytes)
            seconds, cpu, count = await _rounds(running, topic_partition, batches, rounds)
            tail = await _fetch_newest(running, topic_partition)
        rate = _rate(batches, rounds, seconds)
        return (
            place,
            record_bytes,
            batch_bytes,
            f"{rate:.0f}",
            "",
            "",
            "",
            f"{cpu / count * 1e6:.0f}",
            f"{tail:.0f}",
            "",
        )
    with folder(place) as path:
        return await _case_on_files(place, path, record_bytes, batch_bytes, rounds)


async def _case_on_files(
    place: str, path: Path, record_bytes: int, batch_bytes: int, rounds: int
) -> tuple[object, ...]:
    batches = random_batches(batch_bytes, record_bytes, ROUND_BYTES // batch_bytes)
    plain_large, plain_small = PlainFile(_made(path / "large")), PlainFile(_made(path / "small"))
    ours = large = small = cpu = 0.0
    async with broker(path / "ours") as (running, topic_partition):
        await _rounds(running, topic_partition, batches[:50], 1)
        for _ in range(rounds):
            seconds, spent, _ = await _rounds(running, topic_partition, batches, 1)
            ours, cpu = ours + seconds, cpu + spent
            large += await asyncio.to_thread(_plain, plain_large, batches, FLUSH_BYTES)
            small += await asyncio.to_thread(_plain, plain_small, batches, 1)
        tail = await _fetch_newest(running, topic_partition)
    plain_large.close()
    plain_small.close()
    async with _again(path / "ours") as (running, topic_partition):
        cold = await _fetch_all(running, topic_partition)
    rate = _rate(batches, rounds, ours)
    large_rate, small_rate = _rate(batches, rounds, large), _rate(batches, rounds, small)
    return (
        place, record_bytes, batch_bytes, f"{rate:.0f}", f"{large_rate:.0f}", f"{rate / large_rate:.2f}",
        f"{rate / small_rate:.1f}", f"{cpu / rounds / len(batches) * 1e6:.0f}", f"{tail:.0f}", f"{cold:.0f}",
    )  # fmt: skip


async def _rounds(
    running: Broker, topic_partition: TopicPartition, batches: list[bytes], rounds: int
) -> tuple[float, float, int]:
    """(wall seconds, CPU seconds, batches)."""
    started, cpu = time.perf_counter(), _cpu()
    for _ in range(rounds):
        answers = [await running.log.submit(topic_partition, batch) for batch in batches]
        await asyncio.gather(*answers)
    return time.perf_counter() - started, _cpu() - cpu, rounds * len(batches)


def _plain(plain: PlainFile, batches: list[bytes], write_bytes: int) -> float:
    started = time.perf_counter()
    group: list[bytes] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += len(batch)
        if size >= write_bytes:
            plain.append(group)
            group, size = [], 0
    if group:
        plain.append(group)
    return time.perf_counter() - started


async def _fetch_newest(running: Broker, topic_partition: TopicPartition) -> float:
    partition = running.log.partition(topic_partition)
    start = partition.tail.start
    return await _fetch_all(running, topic_partition, start or 0)


async def _fetch_all(running: Broker, topic_partition: TopicPartition, offset: int = 0) -> float:
    """MB/s from `offset` to the end."""
    end = running.log.partition(topic_partition).end_offset
    offset = max(offset, running.log.partition(topic_partition).log_start)
    started, size = time.perf_counter(), 0
    while offset < end:
        request = FetchRequest(topic_partition, offset, FETCH_BYTES)
        [result] = await running.log.fetch([request], bytes_max=FETCH_BYTES)
        offset, size = result.next_offset, size + result.size
    return size / (time.perf_counter() - started) / 1e6


class _again:  # noqa: N801  # reads as a word where it is used
    """The same directory, opened by a new broker."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __aenter__(self) -> tuple[Broker, TopicPartition]:
        from millpond import Settings

        self._broker = Broker(Settings(data_dir=self._path), maintain=False)
        await self._broker.start()
        return self._broker, self._broker.log.topics.partition("bench", 0)

    async def __aexit__(self, *_: object) -> None:
        await self._broker.stop()


def _made(path: Path) -> Path:
    os.makedirs(path)
    return path


def _rate(batches: list[bytes], rounds: int, seconds: float) -> float:
    return sum(map(len, batches)) * rounds / seconds / 1e6


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
