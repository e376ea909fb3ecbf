"""Committed offsets: where consumers go on."""

import pytest
from tests.quirks.member import GROUP, Member
from tests.shards import take_all_shards

from millpond.protocol import ErrorCode
from millpond.protocol.messages.group_admin import DeleteGroupsRequest
from millpond.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

NOTHING = (ErrorCode.NONE, -1, -1, "")


@pytest.fixture
async def member(broker):
    """Nobody yet: a consumer that assigns itself its partitions."""
    async with Member(broker) as connected:
        await connected.topic(partitions=2)
        yield connected


def told(row):
    return ErrorCode(row.error_code), row.committed_offset, row.committed_leader_epoch, row.metadata


async def fetch_old(member, version, topics=("orders",)):
    rows = topics and [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in topics]
    return await member.ask(OffsetFetchRequest(group_id=GROUP, topics=rows), version)


async def test_an_offset_that_was_never_committed_is_minus_one_without_an_error(member):
    """Clients begin by `auto.offset.reset` then; any error, or a 0, starts them in the wrong place. Metadata is empty
    text, although it could be null."""
    for version in range(1, 8):
        answer = await fetch_old(member, version)
        assert answer.error_code == ErrorCode.NONE
        assert [told(row) for row in answer.topics[0].partitions] == [NOTHING]


async def test_what_was_never_committed_is_the_same_in_the_form_for_many_groups(member):
    """Even if the group, the topic or the partition does not exist."""
    assert told(await member.committed()) == NOTHING
    assert told(await member.committed("nowhere")) == NOTHING
    assert [told(row) for row in await member.committed("orders", 0, 9)] == [NOTHING, NOTHING]


async def test_null_topics_ask_for_all_from_v2(member):
    """Consoles and `kafka-consumer-groups` list a group that way. What has no offset is not in it."""
    assert (await fetch_old(member, 2, None)).topics == []
    await member.commit(7, metadata="note")
    for version in range(2, 8):
        (topic,) = (await fetch_old(member, version, None)).topics
        rows = [(row.partition_index, *told(row)) for row in topic.partitions]
        assert rows == [(0, ErrorCode.NONE, 7, -1, "note")]


async def test_offsets_come_back_as_they_were_committed(member):
    """Metadata is the client's own: Kafka Streams keeps its time in it, and null is taken as empty. The leader epoch
    lets a consumer see whether the log was cut."""
    assert await member.commit(3, metadata="note ü", leader_epoch=4) == ErrorCode.NONE
    assert told(await member.committed()) == (ErrorCode.NONE, 3, 4, "note ü")
    assert await member.commit(4, metadata=None) == ErrorCode.NONE
    assert told(await member.committed()) == (ErrorCode.NONE, 4, -1, "")


async def test_commits_without_membership_are_taken_in_every_version(member):
    """Consumers that assign themselves their partitions, and administrators who move offsets, have generation -1."""
    for version in range(2, 10):
        assert await member.commit(version, version=version) == ErrorCode.NONE
        assert (await member.committed()).committed_offset == version


async def test_who_says_a_generation_must_be_in_it(member):
    """A member of a group that has been forgotten must join again, not write into the void. Which code a group that
    does not exist has changed with v9."""
    stranger = {"generation_id_or_member_epoch": 5, "member_id": "nobody"}
    assert await member.commit(1, version=8, **stranger) == ErrorCode.ILLEGAL_GENERATION
    assert await member.commit(1, version=9, **stranger) == ErrorCode.GROUP_ID_NOT_FOUND
    assert await member.commit(1) == ErrorCode.NONE
    assert await member.commit(2, **stranger) == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await member.committed()).committed_offset == 1


async def test_too_much_metadata_is_refused_for_its_partition(member):
    """4096 bytes, as Kafka's `offset.metadata.max.bytes`."""
    assert await member.commit(1, metadata="x" * 4096) == ErrorCode.NONE
    assert await member.commit(2, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert (await member.committed()).committed_offset == 1


async def test_commits_to_what_does_not_exist_are_refused(member):
    """A group would otherwise wait for a topic that nobody made."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await member.commit(1, topic="nowhere") == unknown
    assert await member.commit(1, partition=9) == unknown


async def test_many_groups_are_answered_each_with_its_own(member):
    """Java's admin client asks for all groups at once from v8; one that is unknown must not spoil the others."""
    await member.commit(5)
    wanted = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    groups = [
        OffsetFetchRequestGroup(group_id=GROUP, topics=wanted),
        OffsetFetchRequestGroup(group_id="nobody", topics=wanted),
        OffsetFetchRequestGroup(group_id="nobody, all", topics=None),
    ]
    answer = await member.ask(OffsetFetchRequest(groups=groups), 8)
    assert [(each.group_id, each.error_code) for each in answer.groups] == [
        (GROUP, ErrorCode.NONE),
        ("nobody", ErrorCode.NONE),
        ("nobody, all", ErrorCode.NONE),
    ]
    offsets = [[told(row) for topic in each.topics for row in topic.partitions] for each in answer.groups]
    assert offsets == [[(ErrorCode.NONE, 5, -1, "")], [NOTHING], []]


async def test_an_error_of_a_group_stands_where_each_version_has_room_for_it(member):
    """In v1 with each partition, up to v7 once, from v8 with its group. Written elsewhere, clients take "no offset" for
    the answer and begin anew at the start of their topics."""
    await member.commit(5)
    take_all_shards(member.broker)  # another broker has taken its groups over
    wrong = ErrorCode.NOT_COORDINATOR
    old = await fetch_old(member, 1)
    assert [told(row)[:2] for row in old.topics[0].partitions] == [(wrong, -1)]
    for version in range(2, 8):
        assert (await fetch_old(member, version)).error_code == wrong
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (GROUP, "other")]
    answer = await member.ask(OffsetFetchRequest(groups=groups), 8)
    rows = [(each.group_id, each.error_code, each.topics) for each in answer.groups]
    assert rows == [(GROUP, wrong, []), ("other", wrong, [])]


async def test_topics_go_by_id_in_v10(member):
    """KIP-516 reached offsets last. An unknown id has its own code."""
    await member.commit(5)
    known, unknown = await member.topic_id(), bytes(range(1, 17))
    wanted = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (known, unknown)]
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=wanted)]
    (group,) = (await member.ask(OffsetFetchRequest(groups=groups), 10)).groups
    found = {bytes(topic.topic_id): told(topic.partitions[0])[:2] for topic in group.topics}
    assert found == {known: (ErrorCode.NONE, 5), unknown: (ErrorCode.UNKNOWN_TOPIC_ID, -1)}


async def test_offsets_stay_when_the_members_leave(member):
    """And go with the group when it is deleted, which needs that nobody is in it."""
    await member.lead()
    await member.commit(5)
    deleting = DeleteGroupsRequest(groups_names=[GROUP])
    assert (await member.ask(deleting, 2)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await member.leave()
    assert (await member.committed()).committed_offset == 5
    assert (await member.ask(deleting, 2)).results[0].error_code == ErrorCode.NONE
    assert (await member.ask(deleting, 2)).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert told(await member.committed()) == NOTHING


async def test_offsets_of_a_topic_that_is_read_are_not_deleted(member):
    """Its members would only commit them again. Others may go."""
    await member.topic("unread")
    await member.lead()
    for topic in ("orders", "unread"):
        assert await member.commit(5, topic=topic) == ErrorCode.NONE

    async def deleted(group, topic):
        parts = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=parts)]
        answer = await member.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
        rows = [row.error_code for each in answer.topics for row in each.partitions]
        return ErrorCode(answer.error_code), rows

    assert await deleted(GROUP, "orders") == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    assert await deleted(GROUP, "unread") == (ErrorCode.NONE, [ErrorCode.NONE])
    assert await deleted("nobody", "orders") == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert told(await member.committed("unread")) == NOTHING
    assert (await member.committed()).committed_offset == 5


async def test_a_deleted_topic_takes_its_offsets_along(member):
    """Made again under the same name it starts at 0: old offsets would skip its first records."""
    await member.commit(5)
    await member.broker.log.delete_topic("orders")
    await member.topic()
    assert told(await member.committed()) == NOTHING
