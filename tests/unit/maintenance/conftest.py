"""A running broker whose maintenance happens when the test says so."""

from contextlib import AsyncExitStack

import pytest

from millpond.log import FetchRequest
from millpond.model.ids import TopicPartition
from millpond.records import Record, build_batch, iter_records
from millpond.testing import Faults, SimulatedClock, running_broker

MIB = 1024 * 1024
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
"""No lease is renewed while a test counts commits."""


class Kept:
    """A broker with a topic "orders" and its upkeep."""

    def __init__(self, broker, faults, clock):
        self.broker, self.faults, self.clock = broker, faults, clock
        self.log, self.upkeep, self.store = broker.log, broker.maintenance, broker.store

    async def topic(self, name="orders", partitions=1, **overrides):
        self.topic_id = (await self.log.create_topic(name, partitions, overrides)).id
        return self

    def topic_partition(self, partition=0):
        return TopicPartition(self.topic_id, partition)

    def partition(self, number=0):
        return self.log.partition(self.topic_partition(number))

    async def append(self, *values, at=None, partition=0, **named):
        now = self.clock.now_ms() if at is None else at
        data = build_batch([Record(value) for value in values], now_ms=now, **named)
        return await self.log.append(self.topic_partition(partition), data)

    async def append_together(self, *times, size=1):
        """One extent of many batches, one record each, with these times."""
        batches = [build_batch([Record(b"%d:" % t + b"x" * size, timestamp=t)]) for t in times]
        return await self.log.append(self.topic_partition(), b"".join(batches))

    async def values(self, offset=None, partition=0):
        topic_partition = self.topic_partition(partition)
        offset = self.partition(partition).log_start if offset is None else offset
        found = []
        while True:
            [result] = await self.log.fetch([FetchRequest(topic_partition, offset, MIB)], bytes_max=MIB)
            assert result.error is None
            if not result.batches:
                return found
            records = [r for d in result.batches for r in iter_records(d, decompressed_bytes_max=MIB)]
            found += [record.value for record in records if record.offset >= offset]
            offset = result.next_offset

    async def expire(self, after_ms=0):
        self.clock.advance(after_ms)
        return await self.upkeep.retention.run_once()

    def rows(self, sql, *parameters):
        with self.broker.database.read() as tx:
            return tx.rows(sql, parameters)

    def extents(self):
        return self.rows("SELECT count(*) FROM extents")[0][0]

    def objects(self):
        return list(self.store.list(""))


@pytest.fixture
async def start():
    async with AsyncExitStack() as stack:

        async def started(folder=None, *, clock=None, topic=None, **settings):
            faults, clock = Faults(), clock or SimulatedClock(START_MS)
            broker = await stack.enter_async_context(
                running_broker(folder, clock=clock, faults=faults, **{"lease": HOUR_MS, **settings})
            )
            kept = Kept(broker, faults, clock)
            if topic is not False:
                await kept.topic(**(topic or {}))
            return kept

        yield started
