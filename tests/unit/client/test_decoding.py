"""Batches that cannot be decoded: what comes before them is not lost, and what comes behind can be reached."""

import struct

import pytest

from millpond.client.decoding import decode
from millpond.model.clock import SystemClock
from millpond.model.errors import InvalidRequest, UnknownPartition, UnreadableBatch
from millpond.records import HEADER_SIZE, Codec, Record, build_batch, crc32c

CRC_AT, CRC_FROM = 17, 21
FACTS = ("partition", "offset", "next_offset")


def batch(first, count, compression=Codec.NONE):
    """It is current: a broker looks into what is old."""
    records = [Record(b"%d" % (first + delta)) for delta in range(count)]
    data = bytearray(build_batch(records, compression=compression, now_ms=SystemClock().now_ms()))
    data[:8] = struct.pack(">q", first)
    return bytes(data)


def unreadable(first, count):
    """Its checksum is right: whoever made it made it wrong."""
    data = bytearray(batch(first, count, Codec.ZSTD))
    data[HEADER_SIZE:] = b"\xff" * (len(data) - HEADER_SIZE)
    data[CRC_AT:CRC_FROM] = struct.pack(">I", crc32c(bytes(data[CRC_FROM:])))
    return bytes(data)


def facts(error):
    return tuple(error.facts[name] for name in FACTS)


def values(polled):
    return [message.value for message in polled.messages]


# -- the pure part ---------------------------------------------------------------------------------------------------


def test_all_is_well():
    messages, error = decode(batch(0, 3) + batch(3, 2), "t", 1, 3, 6)
    assert [(each.number, each.partition) for each in messages] == [(3, 1), (4, 1), (5, 1)]
    assert error is None


def test_what_is_before_the_batch_is_read_and_what_is_behind_is_not():
    messages, error = decode(batch(0, 3) + unreadable(3, 4) + batch(7, 1), "t", 0, 1, 9)
    assert [each.number for each in messages] == [1, 2, 3]
    assert facts(error) == (0, 3, 7)


def test_a_batch_is_read_whole_or_not_at_all():
    """The last of its records says that it is longer than what is left."""
    data = bytearray(batch(0, 3))
    data[-8] = 0x7E
    messages, error = decode(bytes(data), "t", 0, 1, 4)
    assert (messages, facts(error)) == ([], (0, 0, 3))


@pytest.mark.parametrize("wrong", [b"\x00" * 10, b"\x00" * 80])
def test_a_header_that_says_nothing_is_passed_over_to_where_the_broker_goes_on(wrong):
    messages, error = decode(batch(0, 3) + wrong, "t", 0, 1, 21)
    assert len(messages) == 3
    assert facts(error) == (0, 3, 20)


# -- consumers -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def damaged(setting):
    """Numbers 1 to 3, a batch of 4 that nobody can read, and number 8."""
    await setting.create("t")
    topic_partition = setting.broker.log.topics.partition("t", 0)
    for data in (batch(0, 3), unreadable(0, 4), batch(7, 1)):
        await setting.broker.log.append(topic_partition, data)
    return setting


async def test_messages_before_it_then_an_error_then_what_follows(damaged):
    async with damaged.consumer("t") as consumer:
        assert values(await consumer.poll(messages_max=2)) == [b"0", b"1"]
        assert values(await consumer.poll()) == [b"2"]
        for _ in range(2):
            with pytest.raises(UnreadableBatch) as caught:
                await consumer.poll(wait=30.0)
            assert facts(caught.value) == (0, 3, 7)
            assert consumer.read_from == 4
        await consumer.seek(caught.value.facts["next_offset"] + 1)
        assert values(await consumer.poll()) == [b"7"]


async def test_the_position_stays_before_it(damaged, tmp_path):
    for before in ([b"1", b"2"], []):
        async with damaged.consumer("t", read_from=2, position_file=tmp_path / "at") as consumer:
            if before:
                assert values(await consumer.poll()) == before
            with pytest.raises(UnreadableBatch):
                await consumer.poll()


async def test_other_partitions_go_on(damaged):
    async with damaged.admin() as admin:
        await admin.alter_topic("t", partitions=2)
    async with damaged.consumer("t", read_from={0: 4}) as consumer:
        for value in (b"x", b"y"):
            await damaged.produce("t", value, partition=1)
            assert values(await consumer.poll()) == [value]
            with pytest.raises(UnreadableBatch) as caught:
                await consumer.poll()
        await consumer.seek({caught.value.facts["partition"]: caught.value.facts["next_offset"] + 1})
        assert await consumer.positions() == {0: 8, 1: 3}, "the other one stays where it is"
        assert values(await consumer.poll()) == [b"7"]


# -- seek ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read_from", "found"),
    [(2, [2, 3]), ("earliest", [1, 2, 3]), ("latest", []), ({0: 3}, [3]), ({}, [2, 3])],
)
async def test_seek_takes_the_forms_of_read_from(setting, read_from, found):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.consumer("t") as consumer:
        await consumer.poll(messages_max=1)
        await consumer.seek(read_from)
        assert [message.number for message in (await consumer.poll()).messages] == found
    async with setting.consumer("t", read_from=2) as consumer:
        await consumer.seek(read_from)
        assert [message.number for message in (await consumer.poll()).messages] == found, "before a poll, too"


async def test_seek_refuses_what_is_not_there(setting):
    await setting.produce("t", b"a")
    async with setting.consumer("t") as consumer:
        with pytest.raises(InvalidRequest):
            await consumer.seek(0)
        with pytest.raises(UnknownPartition):
            await consumer.seek({1: 1})


async def test_where_a_seek_went_is_kept(setting, tmp_path):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.consumer("t", position_file=tmp_path / "at") as consumer:
        await consumer.poll()
        await consumer.seek(2)
    async with setting.consumer("t", position_file=tmp_path / "at") as consumer:
        assert values(await consumer.poll()) == [b"b", b"c"]
