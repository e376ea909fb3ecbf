"""A running log with the few sentences that its tests keep saying."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial

import pytest

from millpond.broker import Broker
from millpond.catalog import appends
from millpond.catalog.sqlite import SqliteDatabase
from millpond.log import FetchRequest
from millpond.log.limits import LogLimits
from millpond.model.errors import StoreUnavailable
from millpond.model.ids import TopicPartition
from millpond.records import Record, build_batch, iter_records
from millpond.settings import Settings
from millpond.testing import Faults, FaultyStore, Hold, SimulatedClock
from millpond.testing.faults import Fault

MIB = 1024 * 1024
HOUR_MS = 3_600_000
"""No lease is renewed while a test counts commits, or fails them one by one."""


class Uploading(FaultyStore):
    """Any store, taken for one whose appends are uploads."""

    appends_are_uploads = True


def batch(*values, at=None, producer=None, **named):
    """One batch; `producer` is (id, epoch, first sequence)."""
    if producer is not None:
        named.update(producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
    records = [value if isinstance(value, Record) else Record(value) for value in values]
    return build_batch(records, now_ms=1_000 if at is None else at, **named)


async def reached(hold):
    """Waits until the held call has arrived."""
    await asyncio.to_thread(hold.wait_reached)


def hold_and_fail(faults):
    """The next append waits, and fails when it is released."""
    hold = Hold()
    error = StoreUnavailable(reason="the connection was lost")
    faults._add("append", Fault(hold_before=hold, before=error), 1)
    return hold


class Engine:
    """One broker, its topic "orders", and its faults."""

    def __init__(self, broker, faults, clock):
        self.broker, self.faults, self.clock = broker, faults, clock
        self.log = broker.log

    async def topic(self, partitions=1, name="orders", **overrides):
        self.topic_id = (await self.log.create_topic(name, partitions, overrides)).id
        return self

    def topic_partition(self, partition=0):
        return TopicPartition(self.topic_id, partition)

    def partition(self, number=0):
        return self.log.partition(self.topic_partition(number))

    async def append(self, *values, partition=0, **named):
        return await self.log.append(
            self.topic_partition(partition), batch(*values, at=self.clock.now_ms(), **named)
        )

    async def submit(self, *values, partition=0, **named):
        return await self.log.submit(
            self.topic_partition(partition), batch(*values, at=self.clock.now_ms(), **named)
        )

    async def fetch(self, offset=0, *, partition=0, room=MIB, **named):
        request = FetchRequest(self.topic_partition(partition), offset, room)
        return (await self.log.fetch([request], bytes_max=room, **named))[0]

    async def values(self, offset=0, *, partition=0, **named):
        """All values from an offset on."""
        found = []
        while (result := await self.fetch(offset, partition=partition, **named)).batches or result.error:
            if result.error is not None:
                raise result.error
            records = [r for data in result.batches for r in iter_records(data, decompressed_bytes_max=MIB)]
            found += [record.value for record in records if record.offset >= offset]
            offset = result.next_offset
        return found

    def values_in(self, data):
        return [record.value for record in iter_records(data, decompressed_bytes_max=MIB)]

    def append_from_another_broker(self, *values, partition=0):
        """As another process does: through a connection of its own."""
        data = batch(*values, at=self.clock.now_ms())
        times = self.clock.now_ms(), self.clock.now_ms()
        share = appends.AppendShare(
            self.topic_partition(partition), appends.FOREIGN, 0, len(data), len(values), *times, inline=data
        )
        other = SqliteDatabase(self.broker.settings.data_dir / "catalog.db")
        with other.write() as tx:
            [placed] = appends.append(tx, [share], None, now_ms=self.clock.now_ms())
        other.close()
        return placed

    def rows(self, sql, *parameters):
        with self.broker.database.read() as tx:
            return tx.rows(sql, parameters)


@pytest.fixture(scope="session")
def make_batch():
    return batch


@pytest.fixture
async def start():
    """Starts engines, and stops them when the test is over. `uploads` makes appends uploads."""
    async with AsyncExitStack() as stack:

        async def started(folder=None, *, uploads=False, partitions=1, clock=None, topic=True, **chosen):
            places = (
                {"catalog": "memory://", "storage": "memory://"} if folder is None else {"data_dir": folder}
            )
            faults, clock = Faults(), clock or SimulatedClock()
            wrapper = Uploading if uploads else FaultyStore
            broker = Broker(
                Settings(**{"lease": HOUR_MS, "disk_reserve": 0, **places, **chosen}),
                clock=clock,
                wrap_store=lambda store: wrapper(store, faults),
                maintain=False,
            )
            await stack.enter_async_context(broker)
            engine = Engine(broker, faults, clock)
            return await engine.topic(partitions) if topic else engine

        yield started


@pytest.fixture
async def engine(start):
    return await start()


@pytest.fixture
def limited(monkeypatch):
    """Limits of the log that no setting names, for engines that are started afterwards."""

    def chosen(**limits):
        monkeypatch.setattr("millpond.settings.LogLimits", partial(LogLimits, **limits))

    return chosen


@pytest.fixture(autouse=True)
def without_read_timeout(no_read_timeout):
    """Tests say what one fetch brings."""


@pytest.fixture
def eventually():
    async def wait_until(condition, seconds=60):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.002)

    return wait_until


@pytest.fixture
def no_thread(monkeypatch):
    """From here on nothing may leave the event loop to read or to look into a batch."""

    def forbid(engine):
        def refuse(*_):
            raise AssertionError("a read left the event loop")

        for pool in (engine.log._threads._pool, engine.log._threads._batch_pool):
            monkeypatch.setattr(pool, "submit", refuse)

    return forbid
