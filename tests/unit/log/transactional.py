"""A transactional producer through the engine, and what readers of committed messages see."""

from millpond.log import TransactionLimits, Transactions
from millpond.records import read_header


def coordinator(engine, **limits):
    broker = engine.broker
    return Transactions(
        broker.log,
        broker.session,
        broker.owned_shards.epoch_of,
        clock=engine.clock,
        limits=TransactionLimits(**limits),
    )


class Client:
    """A transactional producer as a Kafka client library is one: it numbers its batches."""

    def __init__(self, engine, coordinator, producer):
        self.engine, self.coordinator, self.producer = engine, coordinator, producer
        self.sequences = {}

    @classmethod
    async def begin(cls, engine, name="pay", *, timeout_ms=60_000, known=None, by=None):
        by = by or coordinator(engine)
        return cls(engine, by, await by.begin_producer(name, timeout_ms, known))

    async def add(self, *partitions):
        topic_partitions = [self.engine.topic_partition(number) for number in partitions or (0,)]
        await self.coordinator.add_partitions(self.producer, topic_partitions)
        return self

    async def submit(self, *values, partition=0):
        first = self.sequences.get(partition, 0)
        future = await self.engine.submit(
            *values, partition=partition, producer=(*self.producer.identity, first), transactional=True
        )
        self.sequences[partition] = first + len(values)
        return future

    async def send(self, *values, partition=0):
        return await (await self.submit(*values, partition=partition))

    async def end(self, *, commit=True, bump_epoch=False):
        fresh = await self.coordinator.end(self.producer, commit=commit, bump_epoch=bump_epoch)
        if fresh != self.producer:
            self.producer, self.sequences = fresh, {}


async def committed(engine, partition=0):
    """What a client with isolation.level=read_committed shows: it skips what the aborted list names."""
    found, offset = [], 0
    while (result := await engine.fetch(offset, partition=partition, read_committed=True)).batches:
        assert result.error is None
        aborting = sorted(result.aborted, key=lambda each: each.first_offset)
        skipped = set()
        for data in result.batches:
            header = read_header(data)
            while aborting and aborting[0].first_offset <= header.base_offset:
                skipped.add(aborting.pop(0).producer_id)
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                found += engine.values_in(data)
        offset = result.next_offset
    return found


def stable(result):
    return result.last_stable_offset, result.end_offset
