"""Numbered values through whichever broker owns a partition, and the check that each was stored once and in order."""

import asyncio
import itertools
import random
import time
from contextlib import suppress

from millpond import Record, TopicPartition
from millpond.model.errors import MillpondError, NotOwner
from millpond.records import build_batch

NAMES = itertools.count(1)
PAUSE_S = 0.01
ANSWER_SECONDS_MAX = 90


class Sender:
    """Sends one value after the other to one partition, each again until it is acknowledged. The idempotent one must
    be stored once; the other one at least once."""

    def __init__(self, partition, *, idempotent=True, pace_s=0.005, size=0):
        self.name = next(NAMES)
        self.partition = partition
        self.acknowledged = {}
        self.latencies = []
        self.refusals = []
        self.stopped = False
        self._idempotent = idempotent
        self._pace_s = pace_s
        self._size = size
        self._random = random.Random(self.name)

    async def run(self, brokers, topic_id, count=None):
        """Until so many are acknowledged, or until it is stopped."""
        topic_partition = TopicPartition(topic_id, self.partition)
        for sequence in itertools.count():
            if self.stopped or sequence == count:
                return
            started = time.perf_counter()
            offset = await self._insist(brokers, topic_partition, self._batch(sequence))
            self.latencies.append((started, time.perf_counter()))
            self.acknowledged[sequence] = offset
            await asyncio.sleep(self._random.uniform(0, 2 * self._pace_s))

    def _batch(self, sequence):
        value = b"%d:%d:" % (self.name, sequence)
        record = Record(value + self._random.randbytes(self._size))
        now_ms = time.time_ns() // 1_000_000
        if not self._idempotent:
            return build_batch([record], now_ms=now_ms)
        return build_batch(
            [record], producer_id=1_000 + self.name, producer_epoch=0, base_sequence=sequence, now_ms=now_ms
        )

    async def _insist(self, brokers, topic_partition, batch):
        for broker in itertools.cycle(brokers):
            if self.stopped:
                raise asyncio.CancelledError
            try:
                return (await broker.log.append(topic_partition, bytes(batch))).base_offset
            except NotOwner:
                self.refusals.append("NotOwner")
            except MillpondError as error:
                if not error.retriable:
                    raise
                self.refusals.append(type(error).__name__)
            await asyncio.sleep(PAUSE_S)
        raise AssertionError

    @property
    def longest_gap_s(self):
        """The longest time without an acknowledgement while one was wanted."""
        return max((end - start for start, end in self.latencies), default=0.0)


async def send_all(senders, brokers, topic_id, count):
    runs = [each.run(brokers, topic_id, count) for each in senders]
    await asyncio.wait_for(asyncio.gather(*runs), ANSWER_SECONDS_MAX)


class Running:
    """Senders that go on while something happens."""

    def __init__(self, senders, brokers, topic_id):
        self._senders = senders
        self._tasks = [asyncio.create_task(each.run(brokers, topic_id)) for each in senders]

    async def acknowledged(self, more):
        """Until each has got so many more answers."""
        wanted = [len(each.acknowledged) + more for each in self._senders]
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            while any(len(each.acknowledged) < n for each, n in zip(self._senders, wanted, strict=True)):
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(PAUSE_S)

    async def stop(self):
        for each in self._senders:
            each.stopped = True
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await asyncio.wait_for(task, ANSWER_SECONDS_MAX)


async def read_all(brokers, name, partition):
    """Every record of a partition, from whoever owns it."""
    offset, records = 0, []
    for broker in itertools.cycle(brokers):
        try:
            more = await broker.read(name, offset, partition=partition)
        except MillpondError as error:
            if not error.retriable and not isinstance(error, NotOwner):
                raise
            await asyncio.sleep(PAUSE_S)
            continue
        if not more:
            return records
        records += more
        offset = more[-1].offset + 1
    raise AssertionError


async def check(brokers, name, senders):
    """Offsets without gaps, each acknowledged value where it was said to be, an idempotent one nowhere else, and
    in order. Returns (acknowledged, stored without an answer, doubled)."""
    stored = doubled = 0
    for partition in sorted({each.partition for each in senders}):
        records = await read_all(brokers, name, partition)
        assert [record.offset for record in records] == list(range(len(records))), "offsets have gaps"
        stored += len(records)
        for each in senders:
            if each.partition == partition:
                doubled += _check_one(each, records)
    acknowledged = sum(len(each.acknowledged) for each in senders)
    return acknowledged, stored - acknowledged, doubled


def _check_one(sender, records):
    found = {}
    mine = b"%d:" % sender.name
    for record in records:
        if record.value.startswith(mine):
            found.setdefault(int(record.value.split(b":")[1]), []).append(record.offset)
    for sequence, offset in sender.acknowledged.items():
        assert offset in found.get(sequence, []), f"{sequence} was acknowledged at {offset} and is not there"
    firsts = [offsets[0] for _, offsets in sorted(found.items())]
    assert firsts == sorted(firsts), "values are out of order"
    doubled = sum(len(offsets) - 1 for offsets in found.values())
    if sender._idempotent:
        assert doubled == 0, f"{doubled} values of an idempotent producer were stored twice"
    return doubled
