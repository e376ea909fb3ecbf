"""Topics to read from, made by a real broker."""

from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from millpond.records import Codec, Record, build_batch
from millpond.testing import running_broker

__all__ = ["abort", "append", "append_in_transaction", "commit", "fill", "merge", "running_broker", "serving"]


@asynccontextmanager
async def serving(path: Path, **settings):
    """A broker on `path` without ports: enough to append, merge and expire."""
    async with running_broker(path, **settings) as broker:
        yield broker


async def append(broker, topic: str, partition: int, records: Sequence[Record], **batch) -> int:
    """One batch into one partition; returns its first offset. `batch` is for `build_batch`."""
    batch.setdefault("compression", Codec.NONE)
    data = build_batch(records, now_ms=broker.clock.now_ms(), **batch)
    topic_partition = broker.log.topics.partition(topic, partition)
    return (await broker.log.append(topic_partition, data)).base_offset


async def fill(
    broker, topic: str, partitions: int, count: int, *, per_batch: int = 100, **config: str
) -> None:
    """A topic with `count` records in each partition: key k<n>, value v<partition>-<n>, timestamp 1000 + n."""
    await broker.log.create_topic(topic, partitions, config)
    for partition in range(partitions):
        for start in range(0, count, per_batch):
            numbers = range(start, min(start + per_batch, count))
            records = [Record(b"v%d-%d" % (partition, n), b"k%d" % n, timestamp=1_000 + n) for n in numbers]
            await append(broker, topic, partition, records)


async def append_in_transaction(
    broker, transactional_id: str, topic: str, partition: int, values: Sequence[bytes]
):
    """One batch in a transaction that is left open; returns its producer, for `commit` or `abort`."""
    producer = await broker.transactions.begin_producer(transactional_id, 60_000)
    await broker.transactions.add_partitions(producer, [broker.log.topics.partition(topic, partition)])
    await append(
        broker,
        topic,
        partition,
        [Record(value) for value in values],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )
    return producer


async def commit(broker, producer) -> None:
    await broker.transactions.end(producer, commit=True, bump_epoch=False)


async def abort(broker, producer) -> None:
    await broker.transactions.end(producer, commit=False, bump_epoch=False)


async def merge(broker) -> int:
    """Merge what is small, now; returns the number of extents that went."""
    return await broker.maintenance.merging.run_once()
