"""The log's threads: reads of the store and of the catalog do not wait for each other."""

import asyncio

from tests.unit.log.conftest import reached

from millpond.log import FetchRequest

HANG_S = 20  # below the time for which a store is held


async def test_slow_reads_of_the_store_hold_up_no_coordinator(start):
    engine = await start(partitions=4, inline_bytes_max=1, tail_bytes_max=1)
    log, topic_partitions = engine.log, [engine.topic_partition(number) for number in range(4)]
    for number in range(4):
        await engine.append(b"x" * 100, partition=number)
    holds = [engine.faults.hold("read") for _ in topic_partitions]
    reads = [
        asyncio.create_task(log.fetch([FetchRequest(topic_partition, 0, 1000)], bytes_max=1000))
        for topic_partition in topic_partitions
    ]
    for hold in holds:
        await reached(hold)
    async with asyncio.timeout(HANG_S):
        await engine.broker.groups.committed_offsets("g")
        await log.last_stable_offset(topic_partitions[0])
        await log.create_topic("new")
        await engine.append(b"i", partition=1, producer=(77, 0, 0))
    for hold in holds:
        hold.release()
    await asyncio.gather(*reads)
