"""The whole engine against a list in memory: whatever is done to a real broker on a real directory, every retained
offset holds what the model says, and nothing else does.

Limits are made small, so that few kilobytes reach every path: inline and file flushes, sparse indexes, merged
segments, evicted tails, cold caches.
"""

import asyncio
import contextlib
import random
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millpond.broker import Broker
from millpond.catalog import appends
from millpond.catalog.sqlite import SqliteDatabase
from millpond.log import FetchRequest, record_deletion
from millpond.maintenance import merging, retention
from millpond.model.errors import OffsetOutOfRange, OutOfOrderSequence
from millpond.model.ids import TopicPartition
from millpond.records import Codec, Record, build_batch, iter_records, walk
from millpond.rewriting import merging as plans
from millpond.segments import index
from millpond.settings import Settings
from millpond.testing import SimulatedClock

KIB = 1024
START_MS = 1_700_000_000_000
RETENTION_MS = 120_000
PARTITIONS = 2
ALL = 64 * 1024 * KIB

SMALL = (
    mock.patch.object(plans, "FAN_IN", 3),
    mock.patch.object(plans, "LARGE_BYTES", 24 * KIB),
    mock.patch.object(plans, "SEGMENT_BYTES_MAX", 48 * KIB),
    mock.patch.object(plans, "TIERS", (1 * KIB, 8 * KIB)),
    mock.patch.object(merging, "LARGE_BYTES", 24 * KIB),
    mock.patch.object(merging, "EXTENTS_PER_PAGE", 12),
    mock.patch.object(retention, "EXTENTS_PER_PAGE", 4),
    mock.patch.object(record_deletion, "REMOVED_PER_STEP", 3),
    mock.patch.object(index.build_index, "__defaults__", (2 * KIB,)),
    mock.patch("millpond.log.buffer.INDEX_EVERY_BYTES", 2 * KIB),
    mock.patch("millpond.reading.plan.GAP_BYTES_MAX", 4 * KIB),
)


@dataclass
class Batch:
    """What the model keeps of a batch: its records, the size of its bytes, and where it lies."""

    values: list[bytes]
    times: list[int]
    size: int
    data: bytes
    base: int = -1

    @property
    def end(self):
        return self.base + len(self.values)

    @property
    def newest(self):
        return max(self.times)


@dataclass
class Partition:
    """A log as a list. `sent` holds each idempotent producer's batches as (first sequence, last sequence, batch)."""

    start: int = 0
    end: int = 0
    batches: list[Batch] = field(default_factory=list)
    sent: dict[int, list[tuple[int, int, Batch]]] = field(default_factory=dict)

    def append(self, batch):
        batch.base, self.end = self.end, self.end + len(batch.values)
        self.batches.append(batch)

    def forget_below(self, offset):
        self.start = max(self.start, offset)
        self.batches = [batch for batch in self.batches if batch.end > self.start]

    def records(self):
        """(offset, value, timestamp) of everything retained."""
        for batch in self.batches:
            for delta, (value, time) in enumerate(zip(batch.values, batch.times, strict=True)):
                if batch.base + delta >= self.start:
                    yield batch.base + delta, value, time

    def at_or_after(self, time):
        return next(((offset, t) for offset, _, t in self.records() if t >= time), None)

    def newest(self):
        found = [(t, -offset) for offset, _, t in self.records()]
        return (-max(found)[1], max(found)[0]) if found else None

    def expire(self, cutoff):
        line = next((batch.base for batch in self.batches if batch.newest >= cutoff), self.end)
        self.forget_below(max(line, self.start))


SIZES = st.sampled_from([1, 10, 100, 700, 2_500, 9_000])
PARTITION = st.integers(0, PARTITIONS - 1)
CODEC = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])


class EngineMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.stack = contextlib.ExitStack()
        for patch in SMALL:
            self.stack.enter_context(patch)
        self.folder = Path(tempfile.mkdtemp(prefix="millpond-model-"))
        self.clock = SimulatedClock(START_MS)
        self.runner = asyncio.Runner()
        self.random = random.Random(7)
        self.counter = 0
        self.foreign = None
        self.broker = None
        self.run(self.start())
        self.foreign = SqliteDatabase(self.folder / "catalog.db")
        self.make_topic()

    def run(self, coroutine):
        return self.runner.run(asyncio.wait_for(coroutine, 20))

    async def start(self):
        self.broker = Broker(
            Settings(
                data_dir=self.folder,
                inline_bytes_max=2 * KIB,
                tail_bytes_max=6 * KIB,
                cache_bytes_max=12 * KIB,
                garbage_grace=0,
                retention=RETENTION_MS,
                disk_reserve=0,
                retention_grace=0,
            ),
            clock=self.clock,
            maintain=False,
        )
        await self.broker.start()

    def make_topic(self):
        topic = self.run(self.broker.log.create_topic("orders", PARTITIONS))
        self.topic_id = topic.id
        self.model = [Partition() for _ in range(PARTITIONS)]

    def topic_partition(self, number):
        return TopicPartition(self.topic_id, number)

    def new_batch(self, count, size, codec, spread_ms, **producer):
        """Values that no other record has, half of each value not compressible."""
        values = []
        for _ in range(count):
            self.counter += 1
            values.append(
                b"%d:" % self.counter + self.random.randbytes(size // 2) + b"x" * (size - size // 2)
            )
        now = self.clock.now_ms()
        times = [now - self.random.randrange(spread_ms + 1) for _ in values]
        records = [Record(value, timestamp=time) for value, time in zip(values, times, strict=True)]
        data = build_batch(records, compression=codec, **producer)
        return Batch(values, times, len(data), data)

    async def append(self, number, *batches):
        data = bytearray().join(batch.data for batch in batches)
        return await self.broker.log.append(self.topic_partition(number), data)

    # -- what may happen --------------------------------------------------------------------------------------

    @rule(
        number=PARTITION,
        shapes=st.lists(st.tuples(st.integers(1, 4), SIZES, CODEC), min_size=1, max_size=4),
        spread_ms=st.sampled_from([0, 0, 5_000, 100_000]),
        together=st.booleans(),
    )
    def append_plain(self, number, shapes, spread_ms, together):
        """Several batches: in one request, or in several that are under way at once."""
        batches = [self.new_batch(*shape, spread_ms) for shape in shapes]
        for batch in batches:
            self.model[number].append(batch)

        async def act():
            if together:
                return [(await self.append(number, *batches)).base_offset]
            waiting = [
                await self.broker.log.submit(self.topic_partition(number), bytearray(batch.data))
                for batch in batches
            ]
            return [answer.base_offset for answer in await asyncio.gather(*waiting)]

        assert self.run(act()) == [batch.base for batch in batches[: 1 if together else None]]

    @rule(
        number=PARTITION,
        producer=st.integers(1, 2),
        shapes=st.lists(st.tuples(st.integers(1, 3), SIZES), min_size=1, max_size=7),
        repeats=st.sets(st.integers(0, 6), max_size=3),
    )
    def append_idempotent(self, number, producer, shapes, repeats):
        """The producer's next batches, all under way at once, some of the last five sent twice."""
        sent = self.model[number].sent.setdefault(producer, [])
        batches = []
        for count, size in shapes:
            first = sent[-1][1] + 1 if sent else 0
            batch = self.new_batch(
                count, size, Codec.NONE, 0, producer_id=producer, producer_epoch=0, base_sequence=first
            )
            self.model[number].append(batch)
            sent.append((first, first + count - 1, batch))
            batches.append(batch)
        batches += [batches[-5:][n] for n in sorted(repeats) if n < len(batches[-5:])]

        async def act():
            waiting = [
                await self.broker.log.submit(self.topic_partition(number), bytearray(batch.data))
                for batch in batches
            ]
            return [answer.base_offset for answer in await asyncio.gather(*waiting)]

        assert self.run(act()) == [batch.base for batch in batches]

    @rule(number=PARTITION, producer=st.integers(1, 2), back=st.integers(1, 7))
    def append_again(self, number, producer, back):
        """One of the last five is a repeat and gets its own offset; an older one is refused."""
        sent = self.model[number].sent.get(producer, [])
        if len(sent) < back:
            return
        batch = sent[-back][2]
        if back <= 5:
            assert self.run(self.append(number, batch)).base_offset == batch.base
        else:
            with pytest.raises(OutOfOrderSequence):
                self.run(self.append(number, batch))

    @rule(number=PARTITION, producer=st.integers(1, 2))
    def append_with_gap(self, number, producer):
        sent = self.model[number].sent.get(producer)
        if not sent:
            return
        batch = self.new_batch(
            1, 10, Codec.NONE, 0, producer_id=producer, producer_epoch=0, base_sequence=sent[-1][1] + 2
        )
        with pytest.raises(OutOfOrderSequence):
            self.run(self.append(number, batch))

    @rule(number=PARTITION, size=SIZES, then_own=st.booleans(), first_own=st.booleans())
    def append_from_another_broker(self, number, size, then_own, first_own):
        """Another process appends; between two of our own appends, we have not even heard of it."""
        if first_own:
            self.append_plain_quietly(number)
        batch = self.new_batch(2, size, Codec.NONE, 0)
        times = min(batch.times), max(batch.times)
        share = appends.AppendShare(
            self.topic_partition(number), appends.FOREIGN, 0, batch.size, 2, *times, inline=batch.data
        )
        with self.foreign.write() as tx:
            [placed] = appends.append(tx, [share], None, now_ms=self.clock.now_ms())
        self.model[number].append(batch)
        assert placed.base_offset == batch.base
        if then_own:
            self.append_plain_quietly(number)
        self.check_a_read(number, batch.base)
        self.run(self.broker.log.refresh())

    @rule(
        number=PARTITION,
        at=st.floats(0, 1),
        room=st.sampled_from([1, 500, 3_000, 20_000, ALL]),
        boundary=st.booleans(),
    )
    def fetch(self, number, at, room, boundary):
        model = self.model[number]
        offset = model.start + round(at * (model.end - model.start))
        if boundary and model.batches:
            offset = max(model.start, model.batches[round(at * (len(model.batches) - 1))].base)
        result = self.fetched(number, offset, room)
        if offset == model.end:
            assert not result.batches
            assert result.next_offset == offset
            return
        got = [(h.base_offset, h.next_offset) for data in result.batches for _, h in walk(data)]
        wanted = [(batch.base, batch.end) for batch in model.batches if batch.end > offset]
        assert got
        assert got == wanted[: len(got)]
        assert result.next_offset == got[-1][1]
        assert len(got) == 1 or result.size <= room

    @rule(number=PARTITION, below=st.booleans(), by=st.integers(1, 3))
    def fetch_outside(self, number, below, by):
        model = self.model[number]
        offset = model.start - by if below else model.end + by
        error = self.fetched(number, offset, 1).error
        assert isinstance(error, OffsetOutOfRange)
        assert (error.facts["log_start"], error.facts["end_offset"]) == (model.start, model.end)

    @rule(ahead_ms=st.sampled_from([1, 5_000, 40_000]))
    def time_passes(self, ahead_ms):
        self.clock.advance(ahead_ms)

    @rule(ahead_ms=st.sampled_from([30_001, 90_000, 150_000]))
    def expire(self, ahead_ms):
        self.clock.advance(ahead_ms)
        self.run(self.broker.maintenance.retention.run_once())
        for model in self.model:
            model.expire(self.clock.now_ms() - RETENTION_MS)

    @rule(number=PARTITION, at=st.floats(0, 1), everything=st.booleans())
    def delete_records(self, number, at, everything):
        model = self.model[number]
        offset = -1 if everything and at > 0.8 else round(at * model.end)
        assert self.run(self.broker.log.delete_records(self.topic_partition(number), offset)) == max(
            model.start, model.end if offset == -1 else offset
        )
        model.forget_below(model.end if offset == -1 else offset)

    @rule(number=PARTITION)
    def delete_too_many_records(self, number):
        with pytest.raises(OffsetOutOfRange):
            self.run(self.broker.log.delete_records(self.topic_partition(number), self.model[number].end + 1))

    @rule()
    def merge(self):
        self.run(self.broker.maintenance.merging.run_once())

    @rule()
    def collect(self):
        self.run(self.broker.maintenance.garbage.run_once())

    @rule(number=PARTITION)
    def merge_and_collect_under_a_reader(self, number):
        """Readers, a merge and the collector at once: nobody is in anybody's way."""

        async def act():
            upkeep = self.broker.maintenance
            reads = [self.read_all(number) for _ in range(3)]
            *found, _, _ = await asyncio.gather(*reads, upkeep.merging.run_once(), upkeep.garbage.run_once())
            return found

        for found in self.run(act()):
            assert found == [(offset, value) for offset, value, _ in self.model[number].records()]

    @rule()
    def restart(self):
        self.run(self.broker.stop())
        self.run(self.start())

    @rule(number=PARTITION, shapes=st.lists(st.tuples(st.integers(1, 2), SIZES), max_size=4))
    def crash(self, number, shapes):
        """Abandon the broker with requests under way. What it acknowledged is there; of the rest, a prefix."""
        batches = [self.new_batch(count, size, Codec.NONE, 0) for count, size in shapes]

        async def act():
            old = self.broker
            answers = [await old.log.submit(self.topic_partition(number), bytearray(b.data)) for b in batches]
            await self.abandon_and_start(old)
            await asyncio.wait_for(asyncio.gather(*answers, return_exceptions=True), 5)
            return [not answer.exception() for answer in answers]

        acknowledged = self.run(act())
        end = self.broker.log.partition(self.topic_partition(number)).end_offset
        while batches and self.model[number].end < end:
            self.model[number].append(batches.pop(0))
            acknowledged.pop(0)
        assert self.model[number].end == end
        assert not any(acknowledged)

    @rule()
    def delete_and_create_again(self):
        if self.model[0].end <= 5:  # no precondition: how much a crash leaves differs from run to run
            return
        old = self.topic_partition(0)
        self.run(self.broker.log.delete_topic("orders"))
        self.make_topic()
        assert old not in [partition.topic_partition for partition in self.broker.log.partitions()]

    # -- what always holds ------------------------------------------------------------------------------------

    @invariant()
    def the_log_is_what_the_model_says(self):
        for number, model in enumerate(self.model):
            partition = self.broker.log.partition(self.topic_partition(number))
            assert (partition.log_start, partition.end_offset) == (model.start, model.end)
            found = self.run(self.read_all(number))
            assert found == [(offset, value) for offset, value, _ in model.records()]

    @invariant()
    def times_are_found(self):
        for number, model in enumerate(self.model):
            times = sorted({time for _, _, time in model.records()})
            wanted = (
                {times[0] - 1, times[0], times[len(times) // 2], times[-1], times[-1] + 1} if times else {0}
            )
            for time in wanted:
                found = self.run(self.broker.log.offset_at(self.topic_partition(number), time))
                assert (found and (found.offset, found.timestamp)) == model.at_or_after(time), time
            newest = self.run(self.broker.log.newest_offset(self.topic_partition(number)))
            assert (newest and (newest.offset, newest.timestamp)) == model.newest()

    # -- how -------------------------------------------------------------------------------------------------

    def append_plain_quietly(self, number):
        batch = self.new_batch(1, 50, Codec.NONE, 0)
        self.model[number].append(batch)
        assert self.run(self.append(number, batch)).base_offset == batch.base

    def check_a_read(self, number, offset):
        """Heard of or not: what is handed out from here on skips nothing."""
        known = self.broker.log.partition(self.topic_partition(number)).end_offset
        if not self.model[number].start <= offset <= known:
            return
        result = self.fetched(number, offset, ALL)
        bases = [header.base_offset for data in result.batches for _, header in walk(data)]
        wanted = [batch.base for batch in self.model[number].batches if batch.end > offset]
        assert bases == wanted[: len(bases)]

    def fetched(self, number, offset, room):
        request = FetchRequest(self.topic_partition(number), offset, room)
        return self.run(self.broker.log.fetch([request], bytes_max=room))[0]

    async def read_all(self, number):
        topic_partition = self.topic_partition(number)
        offset, found = self.broker.log.partition(topic_partition).log_start, []
        while True:
            [result] = await self.broker.log.fetch(
                [FetchRequest(topic_partition, offset, ALL)], bytes_max=ALL
            )
            assert result.error is None
            if not result.batches:
                return found
            records = (r for data in result.batches for r in iter_records(data, decompressed_bytes_max=ALL))
            found += [(record.offset, record.value) for record in records if record.offset >= offset]
            offset = result.next_offset

    async def abandon_and_start(self, old):
        """As after a kill: no drain, no farewell, and the lock is free."""
        old._services.cancel()
        await asyncio.wait([old._services])
        old._unlock()
        await self.start()
        await old.log.writer.stop()
        old.log._threads._pool.shutdown()
        old.log._threads._batch_pool.shutdown()
        old.store.close()
        old.database.close()

    def teardown(self):
        try:
            self.nothing_is_left_over()
        finally:
            self.run(self.broker.stop())
            self.foreign.close()
            self.runner.close()
            self.stack.close()
            shutil.rmtree(self.folder)

    def nothing_is_left_over(self):
        """When everybody is gone and the collector has been round, the store holds what the catalog knows."""
        self.run(self.broker.stop())
        self.run(self.start())
        self.clock.advance(1)
        self.run(self.broker.maintenance.garbage.run_once())
        with self.foreign.read() as tx:
            rows = tx.rows("SELECT key, extents FROM objects")
            held = tx.rows("SELECT count(*) FROM extents e WHERE e.topic_id NOT IN (SELECT id FROM topics)")
        assert sorted(self.broker.store.list("")) == sorted(key for key, _ in rows)
        assert all(extents > 0 for _, extents in rows)
        assert held == [(0,)]


DEFAULTS = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class TestEngine(EngineMachine.TestCase):
    settings = DEFAULTS


@pytest.mark.long
class TestEngineLonger(EngineMachine.TestCase):
    settings = settings(DEFAULTS, max_examples=1_000, stateful_step_count=60)
