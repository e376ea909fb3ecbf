"""The APIs of share groups' members and positions over the wire, and what share groups mean for the other APIs of
groups."""

import pytest
from tests.unit.frontends.kafka.test_consumer_groups import commit, fetch
from tests.unit.frontends.kafka.test_consumer_groups import heartbeat as consumer_heartbeat
from tests.unit.frontends.kafka.test_group_admin import delete, describe, listed
from tests.unit.frontends.kafka.test_group_membership import join

from millpond.model.ids import TopicPartition
from millpond.model.share_groups import subscription_name
from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from millpond.records import Record, build_batch

GROUP = "workers"


async def heartbeat(interface, epoch, *, member_id="m1", group_id=GROUP, **fields):
    if epoch == 0:
        fields = {"subscribed_topic_names": ["orders"], **fields}
    request = ShareGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch, **fields)
    return await interface.send(request, 1)


async def described(interface, *groups):
    return (await interface.send(ShareGroupDescribeRequest(group_ids=list(groups)), 1)).groups


async def offsets(interface, topics, *, version=1, group_id=GROUP):
    asked = None
    if topics is not None:
        asked = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in topics.items()
        ]
    group = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=asked)
    return (await interface.send(DescribeShareGroupOffsetsRequest(groups=[group]), version)).groups[0]


def starts(group):
    return {
        topic.topic_name: [(each.partition_index, each.start_offset, each.lag) for each in topic.partitions]
        for topic in group.topics
    }


async def move(interface, topics, group_id=GROUP):
    asked = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
                for number, offset in numbers.items()
            ],
        )
        for name, numbers in topics.items()
    ]
    return await interface.send(AlterShareGroupOffsetsRequest(group_id=group_id, topics=asked), 0)


async def forget(interface, *names, group_id=GROUP):
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    return await interface.send(DeleteShareGroupOffsetsRequest(group_id=group_id, topics=topics), 0)


def assigned(response):
    return {bytes(each.topic_id): each.partitions for each in response.assignment.topic_partitions}


async def write(interface, topic, partition, count, *, age_ms=0):
    batch = build_batch([Record(b"v")] * count, now_ms=interface.broker.clock.now_ms() - age_ms)
    await interface.log.append(TopicPartition(topic.id, partition), batch)


async def test_a_member_joins_and_receives_its_assignment_at_once(interface):
    topic = await interface.topic(partitions=2)
    first = await heartbeat(interface, 0)
    assert (first.error_code, first.member_id, first.member_epoch) == (0, "m1", 1)
    assert first.heartbeat_interval_ms == 5_000
    assert assigned(first) == {topic.id: [0, 1]}
    silent = await heartbeat(interface, 1)
    assert (silent.error_code, silent.member_epoch, silent.assignment) == (0, 1, None)
    second = await heartbeat(interface, 0, member_id="m2")
    assert assigned(second) == {topic.id: [1]}
    changed = await heartbeat(interface, 1)
    assert (changed.member_epoch, assigned(changed)) == (2, {topic.id: [0]})
    left = await heartbeat(interface, -1)
    assert (left.error_code, left.member_epoch) == (0, -1)


async def test_refusals_say_why(interface):
    await interface.topic()
    unknown = await heartbeat(interface, 7)
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await heartbeat(interface, 0)
    fenced = await heartbeat(interface, 9)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    for invalid in (
        {"member_id": ""},
        {"member_id": "m" * 37},
        {"subscribed_topic_names": []},
        {"rack_id": ""},
    ):
        assert (await heartbeat(interface, 0, **invalid)).error_code == ErrorCode.INVALID_REQUEST, invalid
    assert (await heartbeat(interface, -2)).error_code == ErrorCode.INVALID_REQUEST
    assert (await heartbeat(interface, 0, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID


async def test_a_share_group_can_be_described(interface):
    topic = await interface.topic(partitions=2)
    await heartbeat(interface, 0, rack_id="r1")
    [group, missing] = await described(interface, GROUP, "nothing")
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert group.assignor_name == "simple"
    [member] = group.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("m1", "r1", 1)
    assert member.subscribed_topic_names == ["orders"]
    [found] = member.assignment.topic_partitions
    assert (bytes(found.topic_id), found.topic_name, found.partitions) == (topic.id, "orders", [0, 1])
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_other_apis_know_share_groups(interface):
    await interface.topic()
    await heartbeat(interface, 0)
    one = (await listed(interface, types_filter=["share"]))[GROUP]
    assert (one.group_id, one.protocol_type, one.group_state, one.group_type) == (
        GROUP,
        "share",
        "Stable",
        "share",
    )
    assert await listed(interface, types_filter=["consumer", "classic"]) == {}
    [dead] = await describe(interface, GROUP, version=5)
    assert (dead.error_code, dead.group_state) == (0, "Dead")
    [unknown] = await describe(interface, GROUP, version=6)
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_groups_do_not_become_share_groups_nor_these_others(interface):
    await interface.topic()
    await heartbeat(interface, 0, group_id="readers")
    await heartbeat(interface, -1, group_id="readers")
    for epoch in (0, 1, -1):
        refused = await consumer_heartbeat(interface, epoch)
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert await commit(interface, -1, member_id="") == ErrorCode.GROUP_ID_NOT_FOUND
    fetched = await fetch(interface, -1, member_id="")
    assert (fetched.error_code, fetched.topics[0].partitions[0].committed_offset) == (0, -1)
    assert (await heartbeat(interface, 0, group_id="readers")).error_code == 0


async def test_a_classic_member_cannot_join_a_share_group(interface):
    await interface.topic()
    await heartbeat(interface, 0, group_id="readers")
    assert (await join(interface)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_a_group_of_consumers_stays_one_without_members(interface):
    await interface.topic()
    await consumer_heartbeat(interface, 0)
    await consumer_heartbeat(interface, -1)
    for epoch in (0, 1, -1):
        refused = await heartbeat(interface, epoch, group_id="readers")
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND, epoch
    with_offsets = await move(interface, {"orders": {0: 0}}, group_id="readers")
    assert with_offsets.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await offsets(interface, None, group_id="readers")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_that_has_only_offsets_does_not_become_a_share_group(interface):
    await interface.topic()
    assert await commit(interface, -1, member_id="") == 0
    assert (await heartbeat(interface, 0, group_id="readers")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", range(2))
async def test_positions_begin_at_the_end_unless_configured(interface, version):
    topic = await interface.topic(partitions=2)
    await write(interface, topic, 0, 3)
    none = await offsets(interface, {"orders": [0, 1], "nothing": [0]}, version=version)
    assert starts(none) == {"orders": [(0, -1, -1), (1, -1, -1)], "nothing": [(0, -1, -1)]}
    await heartbeat(interface, 0)
    await write(interface, topic, 0, 2)
    lag = 2 if version else -1
    found = await offsets(interface, {"orders": [0]}, version=version)
    assert (starts(found), bytes(found.topics[0].topic_id)) == ({"orders": [(0, 3, lag)]}, topic.id)
    everything = await offsets(interface, None, version=version)
    assert starts(everything) == {"orders": [(0, 3, lag), (1, 0, 0 if version else -1)]}


async def test_positions_are_moved_and_forgotten_while_there_are_no_members(interface):
    topic = await interface.topic(partitions=2)
    await write(interface, topic, 0, 5)
    moved = await move(interface, {"orders": {0: 2, 7: 0}, "nothing": {0: 0}})
    assert moved.error_code == 0
    outcomes = {each.topic_name: [part.error_code for part in each.partitions] for each in moved.responses}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcomes == {"orders": [0, unknown], "nothing": [unknown]}
    assert starts(await offsets(interface, None)) == {"orders": [(0, 2, 3), (1, 0, 0)]}
    [group] = await described(interface, GROUP)
    assert (group.error_code, group.group_state) == (0, "Empty")
    assert (await move(interface, {"orders": {0: 99}})).error_code == 0
    assert starts(await offsets(interface, {"orders": [0]})) == {"orders": [(0, 5, 0)]}
    await heartbeat(interface, 0)
    assert (await move(interface, {"orders": {0: 0}})).error_code == ErrorCode.NON_EMPTY_GROUP
    assert (await forget(interface, "orders")).error_code == ErrorCode.NON_EMPTY_GROUP
    await heartbeat(interface, -1)
    forgotten = await forget(interface, "orders", "nothing")
    assert [each.error_code for each in forgotten.responses] == [0, unknown]
    assert bytes(forgotten.responses[0].topic_id) == topic.id
    assert bytes(forgotten.responses[1].topic_id) == NO_UUID
    assert starts(await offsets(interface, None)) == {}
    assert (await forget(interface, "orders", group_id="none")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_deleted_share_group_has_no_positions(interface):
    await interface.topic()
    await heartbeat(interface, 0)
    assert await delete(interface, GROUP) == {GROUP: ErrorCode.NON_EMPTY_GROUP}
    assert starts(await offsets(interface, None)) == {"orders": [(0, 0, 0)]}
    await heartbeat(interface, -1)
    assert await delete(interface, GROUP) == {GROUP: 0}
    assert await interface.broker.queues.all() == []
    assert await delete(interface, GROUP) == {GROUP: ErrorCode.GROUP_ID_NOT_FOUND}
    assert await listed(interface) == {}


async def test_a_subscription_of_a_user_is_in_the_way(interface):
    """One that an older version has created: now the name is reserved."""
    topic = await interface.topic()
    name = subscription_name(GROUP)

    def create(tx):
        from millpond.catalog import subscriptions
        from millpond.model.subscriptions import SubscriptionConfig

        subscriptions.create(tx, topic.id, name, SubscriptionConfig(), {0: 0}, topic="orders", now_ms=0)

    await interface.log.write(create)
    refused = await heartbeat(interface, 0)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "does not belong to share group 'workers'" in refused.error_message
    await interface.broker.queues.delete("orders", name)
    assert (await heartbeat(interface, 0)).error_code == 0
