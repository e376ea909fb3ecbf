"""DescribeTopicPartitions: pages, cursors and the rights of topics."""

import pytest

from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.metadata import MetadataRequest
from millpond.protocol.messages.topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
    PartitionCursor,
)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def page(interface, names=(), *, limit=2000, cursor=None):
    """([(topic, error, partitions)], next cursor)"""
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and PartitionCursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = await interface.send(request, 0)
    found = [
        (topic.name, topic.error_code, [each.partition_index for each in topic.partitions])
        for topic in answer.topics
    ]
    after = answer.next_cursor
    return found, after and (after.topic_name, after.partition_index)


@pytest.fixture
async def interface(serving):
    interface = await serving()
    for name, partitions in (("a", 3), ("b", 2), ("c", 1)):
        await interface.topic(name, partitions)
    return interface


INTERNAL = ("__consumer_offsets", 0, list(range(50)))
ALL = [("a", 0, [0, 1, 2]), ("b", 0, [0, 1]), ("c", 0, [0])]


async def test_no_names_are_all_topics(interface):
    assert await page(interface) == ([INTERNAL, *ALL], None)


async def test_topics_are_described_once_and_in_order(interface):
    assert await page(interface, ["c", "a", "c"]) == ([ALL[0], ALL[2]], None)


async def test_a_topic_is_described_as_in_metadata(interface):
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsTopic(name="a")])
    [told] = (await interface.send(request, 0)).topics
    asked = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    _, known, *_ = (await interface.send(asked, 12)).topics
    assert (told.name, told.topic_id, told.is_internal) == (known.name, known.topic_id, False)
    assert told.topic_authorized_operations == known.topic_authorized_operations > 0
    for part, same in zip(told.partitions, known.partitions, strict=True):
        assert (part.leader_id, part.leader_epoch) == (same.leader_id, same.leader_epoch)
        assert part.replica_nodes == part.isr_nodes == same.replica_nodes
        assert (part.eligible_leader_replicas, part.last_known_elr, part.offline_replicas) == ([], [], [])


async def test_what_does_not_exist_has_an_error(interface):
    found, after = await page(interface, ["b", "nothing", "a/b"])
    assert found == [("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, []), ALL[1], ("nothing", UNKNOWN, [])]
    assert after is None


@pytest.mark.parametrize("limit", range(1, 8))
@pytest.mark.parametrize("names", [(), ("a", "b", "c")])
async def test_pages_together_are_everything_once(interface, names, limit):
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        found, cursor = await page(interface, names, limit=limit, cursor=cursor)
        seen += [(name, number) for name, code, numbers in found for number in numbers if not code]
        assert sum(len(numbers) for _, _, numbers in found) <= limit
        pages += 1
    expected = ALL if names else [INTERNAL, *ALL]
    assert seen == [(name, number) for name, _, numbers in expected for number in numbers]
    assert pages == -(-len(seen) // limit)


async def test_a_limit_below_one_is_one_and_above_2000_is_2000(interface):
    for limit in (0, -1, -(2**31)):
        assert await page(interface, ["a"], limit=limit) == ([("a", 0, [0])], ("a", 1))
    await interface.topic("wide", 2_100)
    found, after = await page(interface, ["wide"], limit=2**31 - 1)
    assert (len(found[0][2]), after) == (2_000, ("wide", 2_000))
    found, after = await page(interface, ["wide"], cursor=after)
    assert (found, after) == ([("wide", 0, list(range(2_000, 2_100)))], None)


async def test_a_cursor_is_where_the_page_begins(interface):
    assert await page(interface, cursor=("b", 1)) == ([("b", 0, [1]), ALL[2]], None)
    assert await page(interface, ["a", "c"], cursor=("b", 1)) == ([("b", 0, [1]), ALL[2]], None)
    assert await page(interface, cursor=("aa", 7)) == (ALL[1:], None)


async def test_a_cursor_behind_the_last_partition_finds_none_of_it(interface):
    for number in (3, 2**31 - 1):
        assert await page(interface, ["a"], cursor=("a", number)) == ([("a", 0, [])], None)
    assert await page(interface, cursor=("zzz", 0)) == ([], None)
    assert await page(interface, ["a"], cursor=("zzz", 0)) == ([("zzz", UNKNOWN, [])], None)


async def test_a_negative_cursor_is_refused(interface):
    found, after = await page(interface, ["a", "b"], cursor=("a", -1))
    assert found == [(name, ErrorCode.INVALID_REQUEST, []) for name in ("a", "b")]
    assert after is None
    assert await page(interface, cursor=("a", -(2**31))) == ([], None)


async def test_a_failed_topic_has_no_id(interface):
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsTopic(name="nothing")])
    [told] = (await interface.send(request, 0)).topics
    assert told.topic_id == NO_UUID
