"""Polls: bounded by messages, bytes and time, always with progress, and fair to every partition."""

import asyncio

import pytest

from millpond.model.errors import InvalidRequest, OffsetOutOfRange, Stopping, UnknownPartition, UnknownTopic
from millpond.reading.visible import visible_from
from millpond.records import Codec, Record, build_batch, iter_records
from millpond.records.batch import seal
from millpond.security import OPEN_ACCESS
from millpond.service import PollRequest
from millpond.testing import running_broker


@pytest.fixture
async def broker():
    async with running_broker() as broker:
        yield broker


@pytest.fixture(params=["messages", "batches"])
def poll(request, broker):
    """Both forms; what comes out is (partition, offset)."""

    async def messages(**named):
        polled = await broker.poller.poll(PollRequest("t", **named))
        return [(partition, record.offset) for partition, record in polled.records], polled.read_positions

    async def batches(**named):
        polled = await broker.poller.poll_batches(PollRequest("t", **named))
        return [
            (partition, int.from_bytes(data[:8], "big")) for partition, data in polled.batches
        ], polled.read_positions

    return messages if request.param == "messages" else batches


async def fill(broker, partitions=1, each=10, size=10):
    await broker.log.create_topic("t", partitions)
    for number in range(each):
        for partition in range(partitions):
            await broker.produce("t", b"%d" % number + b"x" * size, partition=partition)


def ends(standings):
    return {each.partition: each.next_offset for each in standings}


async def test_everything_from_the_oldest(broker, poll):
    await fill(broker, partitions=3)
    found, standings = await poll()
    assert sorted(found) == [(partition, offset) for partition in range(3) for offset in range(10)]
    assert ends(standings) == {0: 10, 1: 10, 2: 10}
    assert {(each.log_start, each.end_offset) for each in standings} == {(0, 10)}


async def test_only_the_partitions_and_offsets_asked_for(broker, poll):
    await fill(broker, partitions=3)
    found, standings = await poll(positions={1: 7, 2: 9})
    assert sorted(found) == [(1, 7), (1, 8), (1, 9), (2, 9)]
    assert ends(standings) == {1: 10, 2: 10}


async def test_no_more_messages_than_asked_for(broker):
    await fill(broker, partitions=2)
    polled = await broker.poller.poll(PollRequest("t", messages_max=13))
    assert len(polled.records) == 13
    last = {}
    for partition, record in polled.records:
        last[partition] = record.offset + 1
    assert ends(polled.read_positions) == {**ends(polled.read_positions), **last}
    assert sum(ends(polled.read_positions).values()) == 13


async def test_no_more_bytes_than_asked_for_but_at_least_one_message(broker):
    await fill(broker, each=10, size=1_000)
    sizes = []
    for bytes_max in (1, 1_500, 3_300):
        polled = await broker.poller.poll(PollRequest("t", bytes_max=bytes_max))
        sizes.append(len(polled.records))
    assert sizes == [1, 1, 3]


async def test_limits_of_the_service_hold_whatever_is_asked(broker):
    broker.poller._limits = type(broker.poller._limits)(poll_messages_max=3)
    await fill(broker)
    assert len((await broker.poller.poll(PollRequest("t", messages_max=1_000_000))).records) == 3


async def test_no_partition_starves_behind_a_long_one(broker, poll):
    """Each poll has room for one partition's batch only: in as many polls as there are partitions each had its turn."""
    await fill(broker, partitions=5, each=20, size=1_000)
    positions, served = dict.fromkeys(range(5), 0), set()
    for _ in range(5):
        found, standings = await poll(positions=positions, bytes_max=1)
        served |= {partition for partition, _ in found}
        positions = ends(standings)
    assert served == set(range(5))


async def test_a_position_outside_goes_on_at_the_nearest_message(broker, poll):
    await fill(broker)
    await broker.administration.delete_records("t", 0, 4, access=OPEN_ACCESS)
    found, standings = await poll(positions={0: 1})
    assert found[0] == (0, 4)
    assert ends(standings) == {0: 10}
    assert await poll(positions={0: 99}) == ([], [standings[0].__class__(0, 99, 4, 10)])


async def test_strict_refuses_a_position_outside(broker, poll):
    await fill(broker)
    await broker.administration.delete_records("t", 0, 4, access=OPEN_ACCESS)
    for offset in (3, 11):
        with pytest.raises(OffsetOutOfRange):
            await poll(positions={0: offset}, strict=True)
    assert (await poll(positions={0: 10}, strict=True))[0] == []
    assert (await poll(positions={0: -1}, strict=True))[0][0] == (0, 4), "the oldest is always there"


async def test_mistakes(broker, poll):
    with pytest.raises(UnknownTopic):
        await poll()
    await fill(broker, each=1)
    with pytest.raises(UnknownPartition):
        await poll(positions={1: 0})
    with pytest.raises(InvalidRequest):
        await poll(positions={0: -2})


async def test_a_position_inside_a_batch(broker):
    await broker.produce("t", b"a", b"b", b"c")
    polled = await broker.poller.poll(PollRequest("t", positions={0: 1}))
    assert [record.value for _, record in polled.records] == [b"b", b"c"]


async def test_positions_in_the_gaps_of_a_batch(broker):
    """Offsets 0, 4 and 9 are left of 0 to 11, as compaction would leave them."""
    from millpond.log import FetchResult
    from millpond.service.limits import ServiceLimits
    from millpond.service.polling import _decode

    topic_partition = (await broker.log.create_topic("t", 1)).id
    data = build_batch([Record(b"x", offset=offset) for offset in (0, 4, 9)], now_ms=1, last_offset=11)
    place = broker.log.topics.partition("t", 0)
    assert place.topic_id == topic_partition
    result = FetchResult(place, [data], 12, 0, 12, 12)
    for start, messages, found, following in (
        (0, 10, [0, 4, 9], 12),
        (1, 10, [4, 9], 12),
        (5, 1, [9], 12),
        (0, 2, [0, 4], 9),
        (10, 10, [], 12),
    ):
        polled = _decode(PollRequest("t", messages_max=messages), {0: start}, [result], ServiceLimits())
        assert [record.offset for _, record in polled.records] == found
        assert ends(polled.read_positions) == {0: following}


async def test_a_poll_waits_for_a_message(broker, poll):
    await fill(broker, partitions=2, each=1)
    waiting = asyncio.ensure_future(poll(positions={0: 1, 1: 1}, wait_ms=30_000))
    while not broker.poller._waiting:
        await asyncio.sleep(0)
    await broker.produce("t", b"new", partition=1)
    assert (await waiting)[0] == [(1, 1)]


async def test_a_poll_that_waits_in_vain_returns_where_it_stands(broker, poll):
    await fill(broker, each=1)
    found, standings = await poll(positions={0: 1}, wait_ms=20)
    assert (found, ends(standings)) == ([], {0: 1})


async def test_stop_sends_away_who_waits_and_who_comes_later(broker, poll):
    await fill(broker, each=1)
    waiting = asyncio.ensure_future(poll(positions={0: 1}, wait_ms=30_000))
    while not broker.poller._waiting:
        await asyncio.sleep(0)
    broker.poller.stop()
    with pytest.raises(Stopping):
        await waiting
    with pytest.raises(Stopping):
        await poll(positions={0: 0})
    assert not broker.poller._waiting


async def test_a_poll_that_is_cancelled_leaves_nothing_behind(broker, poll):
    await fill(broker, each=1)
    waiting = asyncio.ensure_future(poll(positions={0: 1}, wait_ms=30_000))
    while not broker.log.waiters._watches:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert not broker.poller._waiting
    assert not broker.log.waiters._watches


async def test_a_position_in_what_compaction_took_from_a_batch_goes_on_behind_it(broker, poll):
    """Of the first batch only its first record is left: below the position."""
    policy = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    await broker.log.create_topic("t", 1, policy)
    topic_partition = broker.log.topics.partition("t", 0)
    for codec in (Codec.NONE, Codec.ZSTD):
        batch = build_batch([Record(b"1", key) for key in (b"%d" % codec, b"b", b"c")], compression=codec)
        await broker.log.append(topic_partition, batch)
    for key in (b"b", b"c"):
        await broker.log.append(topic_partition, build_batch([Record(b"2", key)]))
    assert await broker.maintenance.compaction.run_once() == 4
    for position, first in ((0, 0), (1, 3), (2, 3), (3, 3), (4, 6), (5, 6)):
        found, standings = await poll(positions={0: position}, bytes_max=1, messages_max=1)
        assert found == [(0, first)]
        assert ends(standings)[0] > max(position, first)


async def test_a_batch_that_cannot_be_decoded_here_is_given_to_who_wants_whole_ones(broker):
    broken = bytearray(build_batch([Record(b"\0" * 50)], compression=Codec.ZSTD, last_offset=3))
    broken[70:75] = b"?????"
    seal(broken, 0, len(broken))
    assert not list(visible_from([broken], (), 4))
    [batch] = visible_from([broken], (), 2)
    assert await broker.poller._reaches(batch, 2)


@pytest.mark.parametrize("positions", [{}, {0: 1}, {0: 3}])
async def test_what_was_deleted_from_the_middle_of_a_batch_is_not_given(broker, positions):
    await broker.log.create_topic("t")
    topic_partition = broker.log.topics.partition("t", 0)
    await broker.log.append(topic_partition, build_batch([Record(b"%d" % n) for n in range(5)]))
    await broker.log.delete_records(topic_partition, 3)
    polled = await broker.poller.poll(PollRequest("t", positions))
    assert [record.offset for _, record in polled.records] == [3, 4]
    whole = await broker.poller.poll_batches(PollRequest("t", positions))
    assert [list(iter_records(data, decompressed_bytes_max=99))[-1].offset for _, data in whole.batches] == [
        4
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_many_records_are_not_decoded_on_the_event_loop(broker, codec, monkeypatch):
    on_threads, run = [], broker.poller._workers.run

    async def noted(work, *, slow=False):
        on_threads.append(slow)
        return await run(work, slow=slow)

    monkeypatch.setattr(broker.poller._workers, "run", noted)
    await broker.log.create_topic("t")
    topic_partition = broker.log.topics.partition("t", 0)
    for count in (2_000, 25_000):
        batch = build_batch([Record(b"")] * count, compression=codec, now_ms=broker.clock.now_ms())
        await broker.log.append(topic_partition, batch)
    await broker.poller.poll(PollRequest("t", {0: 0}, bytes_max=100))
    await broker.poller.poll(PollRequest("t", {0: 2_000}, bytes_max=100))
    assert on_threads == [False, True]


async def test_the_error_for_an_unknown_topic_names_it(broker):
    with pytest.raises(UnknownTopic, match="'nothing'"):
        await broker.poller.poll(PollRequest("nothing"))
