"""ListOffsets: where a log begins and ends, and which offset a time has."""

import itertools

from tests.quirks.client import EARLIEST, LATEST, MAX_TIMESTAMP, batch_of

from millpond.protocol import ErrorCode
from millpond.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millpond.records import Record, build_batch

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -4, -5, -6
NEWEST_VERSION = 11
NOT_FOUND = (ErrorCode.NONE, -1, -1, -1)
SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}


async def timed(client, *timestamps):
    """A topic with a batch for each timestamp; the leader epoch."""
    await client.topic()
    for timestamp in timestamps:
        await client.produce("orders", batch_of(b"a", now_ms=timestamp))
    return (await client.metadata("orders")).topics[0].partitions[0].leader_epoch


async def at(client, timestamp, version=NEWEST_VERSION, **rest):
    told = await client.list_offset("orders", timestamp, version=version, **rest)
    return ErrorCode(told.error_code), told.offset, told.timestamp, told.leader_epoch


async def test_specials_are_answered_without_a_timestamp(client):
    """Java's admin and Spark ask for first and last offsets this way, and librdkafka for its lag."""
    epoch = await timed(client, 1_000, 3_000, 2_000)
    assert await at(client, EARLIEST) == (ErrorCode.NONE, 0, -1, epoch)
    assert await at(client, LATEST) == (ErrorCode.NONE, 3, -1, epoch)
    assert await at(client, EARLIEST_LOCAL) == (ErrorCode.NONE, 0, -1, epoch)


async def test_the_tier_that_does_not_exist_has_no_offsets(client):
    """Without tiered storage Kafka answers both with nothing, not with an error: `kafka-get-offsets` asks."""
    await timed(client, 1_000)
    assert await at(client, LATEST_TIERED) == NOT_FOUND
    assert await at(client, EARLIEST_PENDING) == NOT_FOUND


async def test_a_special_is_unsupported_before_the_version_that_brought_it(client):
    """The code is the partition's own. A broker that takes it for a time answers with the first record instead."""
    await timed(client, 1_000)
    for special, version in itertools.product(SINCE, range(1, NEWEST_VERSION + 1)):
        code = ErrorCode.NONE if version >= SINCE[special] else ErrorCode.UNSUPPORTED_VERSION
        assert (await at(client, special, version))[0] == code, (special, version)


async def test_other_negative_times_are_unsupported(client):
    """They are the specials of tomorrow."""
    await timed(client, 1_000)
    for special, version in itertools.product((-7, -100, -(2**63)), (1, 7, NEWEST_VERSION)):
        assert await at(client, special, version) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


async def test_a_time_has_the_first_offset_at_or_after_it(client):
    """By offset, not by time: records may be out of order, and the first that qualifies counts."""
    epoch = await timed(client, 1_000, 3_000, 2_000, 4_000)
    found = {time: (await at(client, time))[1:] for time in (0, 1_000, 1_001, 2_000, 3_000, 3_001, 4_000)}
    assert found == {
        0: (0, 1_000, epoch),
        1_000: (0, 1_000, epoch),
        1_001: (1, 3_000, epoch),
        2_000: (1, 3_000, epoch),
        3_000: (1, 3_000, epoch),
        3_001: (3, 4_000, epoch),
        4_000: (3, 4_000, epoch),
    }


async def test_a_time_after_the_last_record_has_no_offset(client):
    """-1 without an error. Spark and `seek by time` depend on it; the end of the log would be a lie."""
    await timed(client, 1_000)
    for version in range(1, NEWEST_VERSION + 1):
        assert await at(client, 1_001, version) == NOT_FOUND


async def test_a_time_inside_a_batch_is_found_to_the_record(client):
    """The batch knows only its newest time: a broker that stops there answers with records that are too old."""
    await client.topic()
    batch = build_batch([Record(b"x", timestamp=1_000 + later) for later in (0, 50, 20, 90)])
    await client.produce("orders", batch)
    found = {later: (await at(client, 1_000 + later))[1:3] for later in (10, 50, 60, 91)}
    assert found == {10: (1, 1_050), 50: (1, 1_050), 60: (3, 1_090), 91: (-1, -1)}


async def test_the_newest_timestamp_is_that_of_a_record_with_its_offset(client):
    """Kafka before 3.8 answered with the last offset of the batch. Of records with the same time the first counts."""
    await client.topic()
    assert await at(client, MAX_TIMESTAMP) == NOT_FOUND
    for times in ((1_000, 5_000, 2_000), (5_000,), (3_000,)):
        await client.produce("orders", build_batch([Record(b"x", timestamp=each) for each in times]))
    assert (await at(client, MAX_TIMESTAMP))[:3] == (ErrorCode.NONE, 1, 5_000)


async def test_an_empty_log_begins_and_ends_at_zero(client):
    """Both with a leader epoch, or librdkafka takes the offset for one it cannot check."""
    epoch = await timed(client)
    assert await at(client, EARLIEST) == await at(client, LATEST) == (ErrorCode.NONE, 0, -1, epoch)


async def test_a_partition_that_is_asked_for_twice_is_refused_once(client):
    """With two questions in one request nobody could tell the answers apart; Kafka answers with one error."""
    await client.topic(partitions=2)
    wanted = [
        ListOffsetsPartition(partition_index=number, timestamp=time)
        for number, time in ((0, LATEST), (1, LATEST), (0, EARLIEST))
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=wanted)])
    (topic,) = (await client.ask(request, 7)).topics
    told = {each.partition_index: ErrorCode(each.error_code) for each in topic.partitions}
    assert told == {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.NONE}
    assert len(topic.partitions) == 2


async def test_unknown_topics_and_partitions_have_their_own_code(client):
    """The rest of the request is answered."""
    await client.topic()
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in numbers],
        )
        for name, numbers in (("orders", (0, 9, -1)), ("nowhere", (0,)))
    ]
    answer = await client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7)
    codes = [[each.error_code for each in topic.partitions] for topic in answer.topics]
    assert codes == [[0, 3, 3], [3]]
