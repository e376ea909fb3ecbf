"""Times as librdkafka sends them: no timestamp, old and current ones in one batch. The header's newest time then is 0,
or that of one record; what expires and what a time finds follows the records."""

import asyncio
import time

import confluent_kafka
import pytest
from tests.clients.patience import SECONDS_MAX

from millpond.log import FetchRequest
from millpond.records import NO_TIMESTAMP, iter_records, walk
from millpond.testing import SimulatedClock, running_broker

MIB = 1024 * 1024
HOUR = 3_600_000
DAY = 24 * HOUR
YEAR_2023 = 1_680_000_000_000


class Times:
    """A broker in this process whose clock the test moves, and one topic that is kept for a day."""

    def __init__(self, broker, clock, topic_partition):
        self.broker, self.clock, self.topic_partition = broker, clock, topic_partition

    async def send(self, *times, **config):
        """One message for each time, in one batch if the config does not say otherwise. All must be delivered."""
        await asyncio.to_thread(self._send, times, config)

    def _send(self, times, config):
        wait_for_flush = {"linger.ms": 60_000, "batch.num.messages": 100_000}
        address = self.broker.listeners["kafka"]
        producer = confluent_kafka.Producer({"bootstrap.servers": address, **wait_for_flush, **config})
        outcomes = []
        for number, timestamp in enumerate(times):
            producer.produce(
                "orders",
                b"%d" % number,
                partition=0,
                timestamp=timestamp,
                on_delivery=lambda error, _: outcomes.append(error),
            )
        producer.flush(SECONDS_MAX)
        assert outcomes == [None] * len(times)

    async def stored(self, offset=0):
        found = []
        while True:
            request = FetchRequest(self.topic_partition, offset, MIB)
            [result] = await self.broker.log.fetch([request], bytes_max=MIB)
            if not result.batches:
                return found
            found += result.batches
            offset = result.next_offset

    async def expire(self, after_ms):
        self.clock.advance(after_ms)
        await self.broker.maintenance.retention.run_once()
        return self.broker.log.partition(self.topic_partition).log_start

    async def offset_at(self, timestamp):
        found = await self.broker.log.offset_at(self.topic_partition, timestamp)
        return found and found.offset


@pytest.fixture
async def times():
    clock = SimulatedClock()
    async with running_broker(kafka=True, clock=clock) as broker:
        topic = await broker.log.create_topic("orders", 1, {"retention.ms": str(DAY)})
        yield Times(broker, clock, broker.log.topics.partition(topic.name, 0))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_messages_without_a_timestamp_have_the_age_of_their_append(times, codec):
    appended = times.clock.now_ms()
    await times.send(*[NO_TIMESTAMP] * 3, **{"compression.type": codec})
    batches = await times.stored()  # usually one: librdkafka decides
    records = [each for data in batches for each in iter_records(data, decompressed_bytes_max=MIB)]
    assert [record.timestamp for record in records] == [-1] * 3
    assert {header.max_timestamp for data in batches for _, header in walk(data)} == {appended}
    assert await times.offset_at(0) is None
    assert await times.expire(DAY) == 0
    assert await times.expire(HOUR) == 3


async def test_one_old_message_takes_no_current_one_along(times):
    now = times.clock.now_ms()
    await times.send(YEAR_2023, now, NO_TIMESTAMP, now - 1)
    assert await times.offset_at(YEAR_2023 + 1) == 1
    for _ in range(10):
        assert await times.expire(HOUR) == 0
    assert await times.expire(15 * HOUR) == 4


async def test_old_and_current_batches_of_an_idempotent_producer_with_five_in_flight_stay_in_order(times):
    """Every second batch has to be looked into, and is large enough to be so on a thread."""
    now = int(time.time() * 1000)
    sent = [YEAR_2023 if number // 600 % 2 else now for number in range(24_000)]
    await times.send(
        *sent,
        **{
            "enable.idempotence": True,
            "max.in.flight": 5,
            "linger.ms": 0,
            "batch.num.messages": 600,
            "queue.buffering.max.messages": 1_000_000,
        },
    )
    batches = await times.stored()
    records = [r for data in batches for r in iter_records(data, decompressed_bytes_max=MIB)]
    assert [int(record.value) for record in records] == list(range(len(sent)))
    assert [record.timestamp for record in records] == sent
