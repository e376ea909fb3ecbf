"""The engine inside this process: prints append and fetch rates and the latency of an append as JSON. It must run with
the code of other versions, so it uses only what they have had for long."""

import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path

import uvloop

from millpond import Broker, FetchRequest, Settings, TopicPartition
from millpond.records import Record, build_batch

BATCHES, BATCH_RECORDS, RECORD_BYTES = 1_200, 100, 1_000
IN_FLIGHT = 16
SMALL_APPENDS = 3_000
FETCH_BYTES = 2**20


async def measure(folder: Path) -> dict[str, float]:
    now_ms = time.time_ns() // 1_000_000
    batches = [
        build_batch([Record(value=os.urandom(RECORD_BYTES)) for _ in range(BATCH_RECORDS)], now_ms=now_ms)
        for _ in range(50)
    ]
    total_mb = BATCHES * len(batches[0]) / 1e6
    async with Broker(Settings(data_dir=folder), maintain=False) as broker:
        topic = await broker.log.create_topic("bench")
        partition = TopicPartition(topic.id, 0)
        began = time.perf_counter()
        await _append_all(broker, partition, batches)
        appended_s = time.perf_counter() - began
        latencies = [await _timed_append(broker, partition, now_ms) for _ in range(SMALL_APPENDS)]
    async with Broker(Settings(data_dir=folder), maintain=False) as broker:
        began = time.perf_counter()
        await _fetch_all(broker, partition)
        fetched_s = time.perf_counter() - began
    return {
        "append, MB/s": total_mb / appended_s,
        "small append, p50 ms": statistics.median(latencies) * 1000,
        "fetch from the store, MB/s": total_mb / fetched_s,
    }


async def _append_all(broker: Broker, partition: TopicPartition, batches: list[bytes]) -> None:
    numbers = iter(range(BATCHES))

    async def one_after_another() -> None:
        for number in numbers:
            await broker.log.append(partition, bytearray(batches[number % len(batches)]))

    await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))


async def _timed_append(broker: Broker, partition: TopicPartition, now_ms: int) -> float:
    batch = bytearray(build_batch([Record(value=b"small")], now_ms=now_ms))
    began = time.perf_counter()
    await broker.log.append(partition, batch)
    return time.perf_counter() - began


async def _fetch_all(broker: Broker, partition: TopicPartition) -> None:
    offset, end = 0, BATCHES * BATCH_RECORDS
    while offset < end:
        [result] = await broker.log.fetch(
            [FetchRequest(partition, offset, FETCH_BYTES)], bytes_max=FETCH_BYTES
        )
        offset = result.next_offset


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(Path(sys.argv[1])))))
