"""Retention and offsets by time against a naive reading of every record, whatever the headers of batches claim.

The model keeps what was sent. A batch is as old as its newest record, and a record without a time as its append. A
header within `TRUSTED_AGE_MS` of the append is believed, which is the one thing that the model takes from the engine;
that this expires nothing more than that span too early is asserted of the model itself.
"""

import asyncio
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batches import batch_with_header

from millpond.log.admission import TRUSTED_AGE_MS
from millpond.records import Codec, Record
from millpond.testing import SimulatedClock, running_broker

START_MS = 1_700_000_000_000
MINUTE = 60_000
RETENTION_MS = 60 * MINUTE
YEAR = 365 * 24 * 60 * MINUTE
SETTLED_MS = 10 * MINUTE
"""After the last append: by then age alone decides what has expired."""
FAR_AHEAD = 2**60

ages = st.one_of(
    st.integers(-5 * MINUTE, 2 * MINUTE),
    st.integers(30 * MINUTE, 90 * MINUTE),
    st.sampled_from([0, TRUSTED_AGE_MS, TRUSTED_AGE_MS + 1, YEAR]),
    st.none(),
)
"""How long before its append a record is dated; None is no time."""
claims = st.one_of(
    st.none(),
    st.sampled_from([-1, 0, FAR_AHEAD]),
    st.sampled_from(["append", "trusted", "untrusted", "ahead", "year"]),
)
"""Of a header: the truth, or something else."""
CLAIMED_AGES = {
    "append": 0,
    "trusted": TRUSTED_AGE_MS,
    "untrusted": TRUSTED_AGE_MS + 1,
    "ahead": -5 * MINUTE,
    "year": YEAR,
}

shapes = st.fixed_dictionaries(
    {
        "ages": st.lists(ages, min_size=1, max_size=4),
        "base": claims,
        "newest": claims,
        "codec": st.sampled_from(Codec),
        "size": st.sampled_from([1, 1, 30_000]),
    }
)
appends = st.lists(
    st.tuples(st.lists(shapes, min_size=1, max_size=3), st.sampled_from([0, MINUTE, 20 * MINUTE])),
    min_size=1,
    max_size=9,
)


@dataclass(frozen=True)
class Sent:
    """One batch as it was sent, and when."""

    times: list[int]
    data: bytes
    believed: int | None
    appended_ms: int
    append_time: bool

    @property
    def as_read(self):
        return [self.appended_ms] * len(self.times) if self.append_time else self.times

    @property
    def true_newest(self):
        return max(self.appended_ms if time < 0 else time for time in self.as_read)

    @property
    def newest(self):
        return self.true_newest if self.believed is None else self.believed


def sent(shape, now_ms, append_time):
    times = [-1 if age is None else now_ms - age for age in shape["ages"]]
    records = [Record(b"v" * shape["size"], timestamp=time) for time in times]
    base = claimed(shape["base"], times[0], now_ms)
    newest = claimed(shape["newest"], max(times), now_ms)
    data = batch_with_header(records, base=base, newest=newest, codec=shape["codec"])
    is_believed = base <= newest and abs(newest - now_ms) <= TRUSTED_AGE_MS and not append_time
    return Sent(times, data, newest if is_believed else None, now_ms, append_time)


def sent_together(shapes, now_ms, append_time):
    """Batches of one request: if one of them is looked into, all are."""
    batches = [sent(shape, now_ms, append_time) for shape in shapes]
    if any(batch.believed is None for batch in batches):
        return [replace(batch, believed=None) for batch in batches]
    return batches


def claimed(claim, truth, now_ms):
    if claim is None:
        return truth
    return claim if isinstance(claim, int) else now_ms - CLAIMED_AGES[claim]


def with_offsets(batches):
    offset = 0
    for batch in batches:
        yield offset, batch
        offset += len(batch.times)


def naive_log_start(batches, cutoff_ms):
    end = 0
    for base, batch in with_offsets(batches):
        if batch.newest >= cutoff_ms:
            return base
        end = base + len(batch.times)
    return end


def naive_offset_at(batches, log_start, timestamp):
    for base, batch in with_offsets(batches):
        for delta, time in enumerate(batch.as_read):
            if base + delta >= log_start and time >= timestamp and batch.newest >= timestamp:
                return base + delta, time
    return None


def naive_newest(batches, log_start):
    found = [
        (time, -base - delta)
        for base, batch in with_offsets(batches)
        for delta, time in enumerate(batch.as_read)
        if base + delta >= log_start
    ]
    return (-max(found)[1], max(found)[0]) if found else None


@settings(max_examples=40, deadline=None)
@given(history=appends, append_time=st.booleans(), merge=st.booleans())
def test_what_expires_and_what_a_time_finds(history, append_time, merge):
    asyncio.run(check(history, append_time, merge))


async def check(history, append_time, merge):
    clock = SimulatedClock(START_MS)
    async with running_broker(clock=clock, inline_bytes_max=1_000) as broker:
        overrides = {"retention.ms": str(RETENTION_MS), "message.timestamp.after.max.ms": str(2**61)}
        if append_time:
            overrides["message.timestamp.type"] = "LogAppendTime"
        topic = await broker.log.create_topic("orders", 1, overrides)
        topic_partition = broker.log.topics.partition(topic.name, 0)
        batches = []
        for together, pause_ms in history:
            append = sent_together(together, clock.now_ms(), append_time)
            await broker.log.append(topic_partition, b"".join(batch.data for batch in append))
            batches += append
            clock.advance(pause_ms)
        for batch in batches:
            assert batch.newest >= min(batch.true_newest, batch.appended_ms) - TRUSTED_AGE_MS
        if merge:
            await broker.maintenance.merging.run_once()
        await check_times(broker, topic_partition, batches)
        clock.advance(SETTLED_MS)
        for step_ms in (0, MINUTE, 15 * MINUTE, 30 * MINUTE, RETENTION_MS):
            clock.advance(step_ms)
            await broker.maintenance.retention.run_once()
            log_start = naive_log_start(batches, clock.now_ms() - RETENTION_MS)
            assert broker.log.partition(topic_partition).log_start == log_start
        assert log_start == sum(len(batch.times) for batch in batches)


async def check_times(broker, topic_partition, batches):
    asked = {time + more for batch in batches for time in batch.as_read for more in (0, 1)}
    asked |= {batch.newest for batch in batches}
    for timestamp in sorted(asked):
        found = await broker.log.offset_at(topic_partition, timestamp)
        assert (found and (found.offset, found.timestamp)) == naive_offset_at(batches, 0, timestamp), (
            timestamp
        )
    if all(batch.newest >= max(batch.as_read) for batch in batches):
        found = await broker.log.newest_offset(topic_partition)
        assert (found and (found.offset, found.timestamp)) == naive_newest(batches, 0)
