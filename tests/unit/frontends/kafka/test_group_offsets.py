"""OffsetCommit, OffsetFetch and OffsetDelete over the wire, in every version."""

import pytest
from tests.unit.frontends.kafka.test_group_membership import joined, sync

from millpond.catalog import transactions
from millpond.catalog.groups import GroupOffset
from millpond.model.errors import CatalogUnavailable
from millpond.protocol import ErrorCode
from millpond.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

COMMIT, FETCH = 10, 10
NONE = (-1, -1, "", 0)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def named(interface, name):
    """A topic's two names; of an unknown one, an id that nobody has."""
    known = {topic.name: topic.id for topic in interface.log.topics.all()}
    return known.get(name, b"\xff" * 16)


async def commit(interface, *parts, version=COMMIT, group_id="readers", member=("", -1), metadata="note"):
    """Parts are (topic, partition, offset); returns their codes in the same order."""
    topics = []
    for name, number, offset in parts:
        part = OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata=metadata
        )
        if version >= 6:
            part.committed_leader_epoch = 3
        place = {"topic_id": named(interface, name)} if version >= 10 else {"name": name}
        topics.append(OffsetCommitRequestTopic(partitions=[part], **place))
    member_id, generation = member
    request = OffsetCommitRequest(
        group_id=group_id, member_id=member_id, generation_id_or_member_epoch=generation, topics=topics
    )
    answer = await interface.send(request, version)
    assert [(t.name, t.topic_id) for t in answer.topics] == [(t.name, t.topic_id) for t in topics]
    return [topic.partitions[0].error_code for topic in answer.topics]


async def fetch(interface, asked, *, version=FETCH, group_id="readers", stable=False):
    """Asked is {topic: partitions} or None; returns the code of the group and {(topic, partition): answer}."""
    names = {topic.id: topic.name for topic in interface.log.topics.all()}
    fields = {"require_stable": stable} if version >= 7 else {}
    if version >= 8:
        by_id = version >= 10
        topics = asked and [
            OffsetFetchRequestTopics(
                partition_indexes=numbers, **({"topic_id": named(interface, n)} if by_id else {"name": n})
            )
            for n, numbers in asked.items()
        ]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        [answer] = (await interface.send(OffsetFetchRequest(groups=[group], **fields), version)).groups
        assert answer.group_id == group_id
        said = [
            (names.get(bytes(each.topic_id), "?") if by_id else each.name, each) for each in answer.topics
        ]
    else:
        topics = asked and [OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in asked.items()]
        answer = await interface.send(OffsetFetchRequest(group_id=group_id, topics=topics, **fields), version)
        said = [(each.name, each) for each in answer.topics]
    return answer.error_code if version >= 2 else 0, {
        (name, part.partition_index): (
            part.committed_offset,
            part.committed_leader_epoch,
            part.metadata,
            part.error_code,
        )
        for name, topic in said
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", range(2, 11))
async def test_offsets_are_committed_in_every_version(interface, version):
    await interface.topic(partitions=2)
    parts = [("orders", 0, 5), ("orders", 2, 5), ("nothing", 0, 5), ("orders", 1, 7)]
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN
    assert await commit(interface, *parts, version=version) == [0, UNKNOWN, gone, 0]
    epoch = 3 if version >= 6 else -1
    _, found = await fetch(interface, {"orders": [0, 1]})
    assert found == {("orders", 0): (5, epoch, "note", 0), ("orders", 1): (7, epoch, "note", 0)}


@pytest.mark.parametrize("version", range(1, 11))
async def test_offsets_are_fetched_in_every_version(interface, version):
    await interface.topic(partitions=2)
    await commit(interface, ("orders", 1, 7))
    epoch = 3 if version >= 5 else -1
    code, found = await fetch(interface, {"orders": [0, 1, 9]}, version=version)
    assert code == 0
    assert found == {("orders", 0): NONE, ("orders", 1): (7, epoch, "note", 0), ("orders", 9): NONE}
    _, found = await fetch(interface, {"nothing": [0]}, version=version)
    expected = (
        {("?", 0): (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)} if version >= 10 else {("nothing", 0): NONE}
    )
    assert found == expected
    assert await fetch(interface, {"orders": [0]}, version=version, group_id="nobody") == (
        0,
        {("orders", 0): NONE},
    )


@pytest.mark.parametrize("version", range(2, 11))
async def test_null_topics_ask_for_all(interface, version):
    await interface.topic(partitions=2)
    await interface.topic("parcels")
    assert await fetch(interface, None, version=version) == (0, {})
    await commit(interface, ("orders", 1, 7), ("parcels", 0, 1), ("orders", 0, 2))
    code, found = await fetch(interface, None, version=version)
    assert code == 0
    assert {place: answer[0] for place, answer in found.items()} == {
        ("orders", 0): 2,
        ("orders", 1): 7,
        ("parcels", 0): 1,
    }
    await interface.log.delete_topic("parcels")
    _, found = await fetch(interface, None, version=version)
    assert set(found) == {("orders", 0), ("orders", 1)}


@pytest.mark.parametrize("version", range(7, 11))
async def test_offsets_in_a_transaction_are_unstable(interface, version):
    topic = await interface.topic(partitions=2)
    await commit(interface, ("orders", 0, 1), ("orders", 1, 1))
    topic_partition = interface.log.topics.partition(topic.name, 0)
    with interface.broker.database.write() as tx:
        producer = transactions.begin_producer(tx, "pay", 60_000, now_ms=0).producer
        transactions.add_offsets(
            tx, producer, "readers", [GroupOffset(topic_partition, 9)], now_ms=0, opens=True
        )
    for asked in ({"orders": [0, 1]}, None):
        _, found = await fetch(interface, asked, version=version, stable=True)
        assert found[("orders", 0)] == (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert found[("orders", 1)] == (1, 3, "note", 0)
        _, found = await fetch(interface, asked, version=version)
        assert found[("orders", 0)] == (1, 3, "note", 0)


async def test_only_members_commit_to_a_group_that_has_some(interface):
    await interface.topic()
    member_id = (await joined(interface)).member_id
    part = ("orders", 0, 1)
    assert await commit(interface, part, member=(member_id, 1)) == [ErrorCode.REBALANCE_IN_PROGRESS]
    await sync(interface, member_id)
    assert await commit(interface, part, member=(member_id, 1)) == [0]
    assert await commit(interface, part, member=(member_id, 2)) == [ErrorCode.ILLEGAL_GENERATION]
    assert await commit(interface, part, ("nothing", 0, 1)) == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
async def test_a_member_of_no_group_commits_nothing(interface, version, code):
    await interface.topic()
    assert await commit(interface, ("orders", 0, 1), version=version, member=("ghost", 1)) == [code]


async def test_notes_may_be_missing_and_must_not_be_long(interface):
    await interface.topic(partitions=2)
    assert await commit(interface, ("orders", 0, 1), metadata=None) == [0]
    assert await commit(interface, ("orders", 1, 1), metadata="x" * 4_097) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]
    assert await fetch(interface, None) == (0, {("orders", 0): (1, 3, "", 0)})


async def test_a_consumer_without_a_group_may_keep_offsets(interface):
    await interface.topic()
    assert await commit(interface, ("orders", 0, 4), group_id="") == [0]
    assert await fetch(interface, {"orders": [0]}, group_id="") == (0, {("orders", 0): (4, 3, "note", 0)})


async def away(*_):
    raise CatalogUnavailable(reason="away")


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
async def test_a_catalog_that_is_away_is_a_passing_trouble_of_the_coordinator(
    interface, version, monkeypatch
):
    await interface.topic()
    monkeypatch.setattr(interface.log, "read", away)
    part = ("orders", 0, 1)
    assert await commit(interface, part, group_id="g") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    code, found = await fetch(interface, {"orders": [0]}, version=version)
    if version == 1:
        assert found == {("orders", 0): (-1, -1, "", ErrorCode.NOT_COORDINATOR)}
    else:
        assert (code, found) == (ErrorCode.NOT_COORDINATOR, {})


# -- deleting --------------------------------------------------------------------------------------------------


async def delete(interface, asked, group_id="readers"):
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        )
        for name, numbers in asked.items()
    ]
    answer = await interface.send(OffsetDeleteRequest(group_id=group_id, topics=topics), 0)
    return answer.error_code, {
        (topic.name, part.partition_index): part.error_code
        for topic in answer.topics
        for part in topic.partitions
    }


async def test_offsets_are_deleted_one_by_one(interface):
    await interface.topic(partitions=2)
    await commit(interface, ("orders", 0, 1), ("orders", 1, 1))
    code, codes = await delete(interface, {"orders": [0, 5], "nothing": [0]})
    assert code == 0
    assert codes == {("orders", 0): 0, ("orders", 5): UNKNOWN, ("nothing", 0): UNKNOWN}
    assert set((await fetch(interface, None))[1]) == {("orders", 1)}


async def test_offsets_that_are_in_use_are_kept(interface):
    await interface.topic()
    member_id = (await joined(interface)).member_id
    await sync(interface, member_id)
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert await delete(interface, {"orders": [0]}) == (0, {("orders", 0): subscribed})


async def test_groups_that_cannot_have_offsets_deleted(interface):
    await interface.topic()
    assert await delete(interface, {"orders": [0]}, "nobody") == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    assert await delete(interface, {"orders": [0]}, "") == (ErrorCode.INVALID_GROUP_ID, {})
    await joined(interface, group_id="workers", protocol_type="connect")
    assert await delete(interface, {"orders": [0]}, "workers") == (ErrorCode.NON_EMPTY_GROUP, {})
