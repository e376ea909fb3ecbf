"""Payloads go with their messages, and those that never got one go by age; what a message refers to stays."""

import asyncio
import contextlib
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.maintenance import payloads as collecting
from millpond.maintenance.clock_guard import JUMP_MS
from millpond.maintenance.payloads import UNCOMMITTED_MS_MAX, PayloadCollector
from millpond.model.errors import InvalidPayload, StoreUnavailable
from millpond.model.payloads import AHEAD_MS_MAX, HEADER, Reference, new_payload_id
from millpond.records import Codec, Record, build_batch
from millpond.security import OPEN_ACCESS
from millpond.segments.keys import PAYLOADS, payload_key
from millpond.testing import SimulatedClock, running_broker

HOUR = 3_600_000
DAY = 24 * HOUR
REFERENCE = {"payload": "reference"}
FOR_EVER = {**REFERENCE, "retention.ms": "-1"}


class Films:
    """A broker with a topic of payloads, whose clients do one thing after another."""

    def __init__(self, kept):
        self.kept, self.broker, self.clock = kept, kept.broker, kept.clock

    def new_id(self, ahead_ms=0):
        return new_payload_id(self.clock.now_ms() + ahead_ms)

    async def upload(self, topic="films", ahead_ms=0):
        async def body():
            yield b"body"

        payload_id = self.new_id(ahead_ms)
        await self.broker.payloads.store(topic, str(payload_id), body())
        return payload_id

    async def publish(self, payload_id, topic="films", partition=0):
        record = Record(b"", headers=((HEADER, str(Reference(payload_id, 4, 1)).encode()),))
        await self.broker.messages.produce(topic, [record], partition, access=OPEN_ACCESS)

    async def send(self, topic="films", partition=0):
        payload_id = await self.upload(topic)
        await self.publish(payload_id, topic, partition)
        return payload_id

    async def collect(self, after_ms=0):
        self.clock.advance(after_ms)
        await self.kept.upkeep.retention.run_once()
        return await self.kept.upkeep.payloads.run_once()

    def stored(self):
        return [key.rpartition("/")[2] for key in self.broker.store.list(PAYLOADS)]

    def holds(self, *ids):
        return sorted(map(str, ids)) == sorted(self.stored())


@pytest.fixture
def films(start):
    async def started(partitions=1, configs=None, **named):
        kept = await start(topic=False, **named)
        await kept.broker.log.create_topic("films", partitions, configs or REFERENCE)
        return Films(kept)

    return started


# -- without a message --------------------------------------------------------------------------------------------


async def test_an_upload_without_a_message_is_collected_when_it_is_old(films):
    pond = await films()
    orphan, sent = await pond.upload(), await pond.send()
    assert await pond.collect(DAY) == 0
    assert pond.holds(orphan, sent)
    assert await pond.collect(6 * HOUR) == 1
    assert pond.holds(sent)


async def test_what_is_collected_could_get_no_message_any_more(films):
    pond = await films(configs=FOR_EVER)
    first, second = await pond.upload(), await pond.upload()
    assert await pond.collect(DAY // 2) == 0
    await pond.publish(first)
    pond.clock.advance(1)
    with pytest.raises(InvalidPayload):
        await pond.publish(second)
    assert await pond.collect(DAY) == 1
    assert pond.holds(first)


async def test_an_empty_topic_has_only_orphans(films):
    pond = await films()
    await pond.upload()
    assert await pond.collect(DAY - 1) == 0
    assert await pond.collect(6 * HOUR) == 1


@pytest.mark.parametrize("ahead_ms", [AHEAD_MS_MAX, 0])
async def test_a_message_is_found_wherever_it_may_be(films, ahead_ms):
    """Early, by a client whose clock runs ahead, or as late as can be; in any partition."""
    pond = await films(partitions=3, configs=FOR_EVER)
    first = await pond.upload(ahead_ms=ahead_ms)
    await pond.publish(first, partition=2)
    late = await pond.upload(ahead_ms=ahead_ms)
    pond.clock.advance(DAY // 2 + ahead_ms)
    await pond.publish(late, partition=1)
    for _ in range(4):
        await pond.collect(DAY)
    assert pond.holds(first, late)


async def test_compressed_and_merged_messages_are_read_too(films):
    pond = await films(configs=FOR_EVER)
    ids = [await pond.upload() for _ in range(3)]
    orphan = await pond.upload()
    topic_partition = pond.broker.log.topics.partition("films", 0)
    records = [Record(b"", headers=((HEADER, str(Reference(each, 4, 1)).encode()),)) for each in ids]
    for record in records[:2]:
        await pond.broker.log.append(topic_partition, build_batch([record], compression=Codec.ZSTD))
    await pond.broker.log.append(topic_partition, build_batch(records[2:]))
    await pond.kept.upkeep.merging.run_once()
    assert await pond.collect(2 * DAY) == 1
    assert pond.holds(*ids), orphan


async def test_nothing_goes_if_messages_cannot_be_read(films, monkeypatch):
    pond = await films(configs=FOR_EVER)
    orphan = await pond.upload()
    topic_partition = pond.broker.log.topics.partition("films", 0)
    large = build_batch([Record(bytes(100_000))], compression=Codec.GZIP)
    await pond.broker.log.append(topic_partition, large)
    monkeypatch.setattr(collecting, "DECOMPRESSED_BYTES_MAX", 1000)
    assert await pond.collect(2 * DAY) == 0
    assert pond.holds(orphan)
    monkeypatch.setattr(collecting, "DECOMPRESSED_BYTES_MAX", 1_000_000)
    assert await pond.collect(DAY) == 1


async def test_many_go_in_steps(films, monkeypatch):
    for name, value in {
        "KEYS_PER_STEP": 3,
        "DELETED_PER_STEP": 2,
        "SPANS_PER_LOOK": 1,
        "READ_BYTES": 100,
    }.items():
        monkeypatch.setattr(collecting, name, value)
    pond = await films(partitions=2, configs=FOR_EVER)
    kept = [await pond.send(partition=number % 2) for number in range(5)]
    for _ in range(8):
        await pond.upload()
    kept += [await pond.send(partition=number % 2) for number in range(5)]
    assert await pond.collect(2 * DAY) == 8
    assert pond.holds(*kept)


async def test_a_large_extent_is_read_to_its_end(films, monkeypatch):
    monkeypatch.setattr(collecting, "READ_BYTES", 100)
    pond = await films(configs=FOR_EVER)
    last, _ = await pond.upload(), await pond.upload()
    headers = ((HEADER, str(Reference(last, 4, 1)).encode()),)
    records = [*(Record(bytes(70_000)) for _ in range(4)), Record(b"", headers=headers)]
    topic_partition = pond.broker.log.topics.partition("films", 0)
    await pond.broker.log.append(topic_partition, b"".join(build_batch([record]) for record in records))
    assert pond.kept.extents() == 1
    assert await pond.collect(2 * DAY) == 1
    assert pond.holds(last)


async def test_what_others_put_there_is_left_alone(films):
    pond = await films()
    pond.broker.store.put("payloads/readme", [b"not ours"])
    topic_id = pond.broker.log.topics.named("films").id
    pond.broker.store.put(f"payloads/{topic_id.hex()}/notes", [b"not ours"])
    await pond.collect(30 * DAY)
    assert pond.stored() == ["notes", "readme"]


async def test_a_topic_is_not_held_to_account_for_another(films):
    pond = await films(configs=FOR_EVER)
    await pond.broker.log.create_topic("others", 1, FOR_EVER)
    theirs = await pond.upload("others")
    await pond.publish(theirs, "films")  # refers to a body that films has not got
    assert await pond.collect(2 * DAY) == 1
    assert pond.stored() == []


# -- with their messages --------------------------------------------------------------------------------------------


async def test_payloads_go_with_their_messages(films):
    pond = await films(configs={**REFERENCE, "retention.ms": str(3 * DAY)})
    first = await pond.send()
    pond.clock.advance(DAY)
    second = await pond.send()
    await pond.collect(2 * DAY)
    assert pond.holds(first, second)
    await pond.collect(HOUR)
    assert pond.holds(second)
    await pond.collect(DAY)
    assert pond.stored() == []


async def test_the_line_runs_half_the_age_before_the_oldest_message(films):
    pond = await films(configs=FOR_EVER)
    orphan = await pond.upload()
    pond.clock.advance(DAY // 2 + UNCOMMITTED_MS_MAX)
    await pond.send()
    collector = new_collector(pond)
    assert await collector.expire() == 0
    pond.clock.advance(1)
    topic_partition = pond.broker.log.topics.partition("films", 0)
    await pond.broker.log.delete_records(topic_partition, -1)
    newest = await pond.send()
    assert await collector.expire() == 1
    assert str(orphan) not in pond.stored()
    assert str(newest) in pond.stored()


async def test_retention_by_size_in_one_partition_beside_an_idle_one(films):
    """The oldest message stays for ever; what went before the others is found by sweeping."""
    pond = await films(partitions=2, configs=FOR_EVER)
    idle = await pond.send(partition=1)
    busy = [await pond.send(partition=0) for _ in range(3)]
    await pond.collect(2 * DAY)
    assert pond.holds(idle, *busy)
    topic_partition = pond.broker.log.topics.partition("films", 0)
    await pond.broker.log.delete_records(topic_partition, 2)
    await pond.collect(DAY)
    assert pond.holds(idle, busy[2])


async def test_nothing_is_listed_again_before_the_oldest_message_changes(films):
    pond = await films(configs=FOR_EVER)
    await pond.send()
    await pond.collect()
    pond.kept.faults.fail_before("list")
    assert await pond.collect(HOUR) == 0
    with pytest.raises(StoreUnavailable):
        await pond.collect(DAY)


async def test_a_deleted_topic_loses_all_of_them(films):
    pond = await films(configs=FOR_EVER)
    await pond.broker.log.create_topic("others", 1, FOR_EVER)
    await pond.send()
    await pond.upload()
    theirs = await pond.send("others")
    await pond.broker.log.delete_topic("films")
    assert (
        await pond.collect() == 0
    )  # that is for the garbage collection, which knows the topic's name no more
    await pond.kept.upkeep.garbage.run_once()
    assert pond.holds(theirs)


async def test_what_arrives_after_its_topic_is_gone_is_found(films):
    """A signed URL outlives the topic."""
    pond = await films(configs=FOR_EVER)
    topic_id = pond.broker.log.topics.named("films").id
    await pond.broker.log.delete_topic("films")
    await pond.kept.upkeep.garbage.run_once()
    pond.broker.store.put(payload_key(topic_id, pond.new_id()), [b"late"])
    assert await pond.collect() == 1
    assert pond.stored() == []


async def test_garbage_that_fails_is_tried_again(films):
    pond = await films()
    await pond.upload()
    await pond.broker.log.delete_topic("films")
    pond.kept.faults.fail_before("delete")
    with pytest.raises(StoreUnavailable):
        await pond.kept.upkeep.garbage.run_once()
    await pond.kept.upkeep.garbage.run_once()
    assert pond.stored() == []


# -- the clock and the store ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_ms", [100 * DAY, -100 * DAY])
async def test_nothing_goes_while_the_clock_is_not_to_be_trusted(films, by_ms):
    pond = await films(configs={**REFERENCE, "retention.ms": str(DAY)})
    sent, orphan = await pond.send(), await pond.upload()
    pond.clock.jump(by_ms)
    assert await pond.collect() == 0
    assert await pond.collect(10 * DAY) == 0
    assert pond.holds(sent, orphan)
    pond.clock.jump(-by_ms)
    assert await pond.collect() == 2


async def test_a_jump_in_the_middle_of_a_sweep_ends_it(films, monkeypatch):
    monkeypatch.setattr(collecting, "DELETED_PER_STEP", 1)
    pond = await films(configs=FOR_EVER)
    for _ in range(3):
        await pond.upload()
    slow = pond.kept.faults.hold("delete", applied=True)
    pond.clock.advance(2 * DAY)
    sweeping = asyncio.create_task(pond.kept.upkeep.payloads.run_once())
    await asyncio.to_thread(slow.wait_reached)
    pond.clock.jump(JUMP_MS + 1)
    slow.release()
    assert await sweeping == 1
    assert len(pond.stored()) == 2


async def test_a_sweep_that_fails_begins_anew(films):
    pond = await films(configs=FOR_EVER)
    sent, _ = await pond.send(), await pond.upload()
    pond.kept.faults.fail_before("delete")
    with pytest.raises(StoreUnavailable):
        await pond.collect(2 * DAY)
    assert await pond.collect() == 1
    assert pond.holds(sent)


async def test_only_one_of_several_brokers_looks_after_a_topic(films):
    pond = await films()
    await pond.upload()
    collector = new_collector(pond)
    pond.broker.log.partition(pond.broker.log.topics.partition("films", 0)).fenced = True
    pond.clock.advance(2 * DAY)
    assert await collector.run_once() == 0
    assert len(pond.stored()) == 1


def new_collector(pond):
    broker = pond.broker
    return PayloadCollector(
        broker.log.upkeep,
        broker.store,
        broker.clock,
        broker.maintenance.guard,
        age_ms=DAY,
        bytes_per_second=2**30,
    )


# -- anything at any time -------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upload"), st.integers(-30, 30)),
        st.tuples(st.just("publish"), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.sampled_from([HOUR, 5 * HOUR, 11 * HOUR, 13 * HOUR, DAY])),
        st.tuples(st.just("delete"), st.integers(0, 3)),
        st.tuples(st.just("collect"), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(1, 3))
async def test_what_a_message_refers_to_stays_and_everything_else_goes_in_the_end(steps, partitions):
    clock = SimulatedClock(1_700_000_000_000)
    async with running_broker(clock=clock) as broker:
        await broker.log.create_topic("films", partitions, FOR_EVER)
        pond = Films(Standing(broker, clock))
        uploaded, turn = [], itertools.count()
        for step, value in steps:
            if step == "upload":
                uploaded.append(await pond.upload(ahead_ms=value * 60_000))
            elif step == "publish" and uploaded:
                with contextlib.suppress(InvalidPayload):
                    number = next(turn) % partitions
                    await pond.publish(uploaded[value % len(uploaded)], partition=number)
            elif step == "wait":
                clock.advance(value)
            elif step == "delete":
                topic_partition = broker.log.topics.partition("films", value % partitions)
                end = broker.log.partition(topic_partition).end_offset
                await broker.log.delete_records(topic_partition, min(value, end))
            else:
                await broker.maintenance.payloads.run_once()
                assert await referred(broker, partitions) <= set(pond.stored())
        clock.advance(3 * DAY)
        await new_collector(pond).run_once()
        assert set(pond.stored()) == await referred(broker, partitions)


class Standing:
    """As much of `Kept` as is needed here."""

    def __init__(self, broker, clock):
        self.broker, self.clock, self.upkeep = broker, clock, broker.maintenance


async def referred(broker, partitions):
    found = set()
    for number in range(partitions):
        log_start = broker.log.partition(broker.log.topics.partition("films", number)).log_start
        for record in await broker.read("films", log_start, partition=number):
            found |= {value.decode().partition(";")[0] for name, value in record.headers if name == HEADER}
    return found
