"""ConsumerGroupHeartbeat and ConsumerGroupDescribe over the wire, and what they mean for the other APIs of groups."""

import pytest
from tests.unit.frontends.kafka.test_group_admin import delete, describe, listed
from tests.unit.frontends.kafka.test_group_membership import joined, sync
from tests.unit.frontends.kafka.wire import Client

from millpond.groups.consumer_protocol import write_assignment
from millpond.model.acls import ResourceType
from millpond.protocol import ErrorCode
from millpond.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from millpond.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from millpond.protocol.messages.groups import JoinGroupRequestProtocol
from millpond.security.rights import SUPPORTED

SUBSCRIPTION = b"\x00\x03\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"
"""What a classic consumer of `orders` says when it joins."""


async def heartbeat(interface, epoch, *, version=1, member_id="m1", owned=None, **fields):
    request = {"group_id": "readers", "member_id": member_id, "member_epoch": epoch}
    if epoch == 0:
        request |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"]}
        owned = owned or {}
    if owned is not None:
        request["topic_partitions"] = [
            HeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in owned.items()
        ]
    return await interface.send(ConsumerGroupHeartbeatRequest(**(request | fields)), version)


async def described(interface, *groups, version=1, **fields):
    request = ConsumerGroupDescribeRequest(group_ids=list(groups), **fields)
    return (await interface.send(request, version)).groups


def assigned(response):
    return {bytes(each.topic_id): each.partitions for each in response.assignment.topic_partitions}


async def commit(interface, epoch, *, version=9, member_id="m1", partition=0):
    part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id="readers",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[part])],
    )
    return (await interface.send(request, version)).topics[0].partitions[0].error_code


async def fetch(interface, epoch, *, member_id="m1"):
    asked = OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    group = OffsetFetchRequestGroup(
        group_id="readers", member_id=member_id, member_epoch=epoch, topics=[asked]
    )
    return (await interface.send(OffsetFetchRequest(groups=[group]), 9)).groups[0]


@pytest.mark.parametrize("version", range(2))
async def test_a_member_joins_and_receives_its_assignment(interface, version):
    topic = await interface.topic()
    response = await heartbeat(interface, 0, version=version)
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "m1", 1)
    assert response.heartbeat_interval_ms == 5_000
    assert list(assigned(response)) == [topic.id]
    silent = await heartbeat(interface, 1, version=version)
    assert (silent.error_code, silent.member_epoch, silent.assignment) == (0, 1, None)
    left = await heartbeat(interface, -1, version=version)
    assert (left.error_code, left.member_epoch) == (0, -1)


async def test_a_member_without_an_id_gets_one_in_version_0_only(interface):
    await interface.topic()
    created = await heartbeat(interface, 0, version=0, member_id="")
    assert created.error_code == 0
    assert created.member_id.startswith("wire-")
    refused = await heartbeat(interface, 0, version=1, member_id="")
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message == "The request is not valid: the member id is empty."


async def test_a_regular_expression_subscribes_to_topics(interface):
    topic = await interface.topic()
    response = await heartbeat(
        interface, 0, subscribed_topic_names=None, subscribed_topic_regex="ord.*", member_id="r1"
    )
    assert list(assigned(response)) == [topic.id]
    invalid = await heartbeat(
        interface, 0, subscribed_topic_names=None, subscribed_topic_regex="(?=x)", member_id="r2"
    )
    assert invalid.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_member_that_connects_again_receives_its_assignment(interface):
    """Clients connect again after a timeout. librdkafka then repeats a heartbeat as it was; if the response that is
    lost asked it to give up partitions, its epoch says nothing, and it would keep them until its rebalance timeout
    ends."""
    topic = await interface.topic(partitions=2)
    await heartbeat(interface, 0)
    await heartbeat(interface, 0, member_id="m2")
    lost = await heartbeat(interface, 1)
    assert (lost.member_epoch, assigned(lost)) == (1, {topic.id: [0]})
    async with Client(interface.broker.kafka.listener) as again:
        repeated = await heartbeat(again, 1)
        assert (repeated.member_epoch, repeated.assignment) == (1, lost.assignment)
        assert (await heartbeat(again, 1)).assignment is None
        assert (await heartbeat(again, 1, owned={topic.id: [0]})).member_epoch == 2
    late = await heartbeat(interface, 2)
    assert late.assignment == lost.assignment


async def test_a_heartbeat_is_repeated_as_it_was_after_the_response_with_a_new_epoch_is_lost(interface):
    await interface.topic(partitions=2)
    await heartbeat(interface, 0)
    await interface.log.add_partitions("orders", 3)
    lost = await heartbeat(interface, 1)
    assert lost.member_epoch == 2
    async with Client(interface.broker.kafka.listener) as again:
        repeated = await heartbeat(again, 1)
        assert (repeated.member_epoch, repeated.assignment) == (2, lost.assignment)
        assert (await heartbeat(again, 1)).error_code == ErrorCode.FENCED_MEMBER_EPOCH


async def test_refusals_say_why(interface):
    await interface.topic()
    unknown = await heartbeat(interface, 7)
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await heartbeat(interface, 0)
    fenced = await heartbeat(interface, 9)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    other = await heartbeat(interface, 0, member_id="m2", server_assignor="sticky")
    assert other.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform" in other.error_message
    nameless = await heartbeat(interface, 0, group_id="")
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


async def test_a_group_is_described_with_its_members(interface):
    await interface.topic()
    await heartbeat(interface, 0, instance_id="i1", rack_id="r1")
    [group] = await described(interface, "readers", include_authorized_operations=True)
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    assert group.authorized_operations == SUPPORTED[ResourceType.GROUP]
    [member] = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m1", "i1", "r1")
    assert (member.client_id, member.client_host, member.member_type) == ("wire", "/127.0.0.1", 1)
    assert member.subscribed_topic_names == ["orders"]
    [topic] = member.assignment.topic_partitions
    assert topic.topic_name == "orders"
    assert member.target_assignment == member.assignment
    [old] = await described(interface, "readers", version=0)
    assert old.members[0].member_type == -1


async def test_a_group_of_the_other_protocol_is_described_by_the_other_api(interface):
    await interface.topic()
    await heartbeat(interface, 0)
    await joined(interface, group_id="workers", protocol_type="connect")
    consumer, classic, absent = await described(interface, "readers", "workers", "absent")
    assert consumer.error_code == 0
    assert classic.error_code == absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    readers, workers = await describe(interface, "readers", "workers")
    assert (readers.error_code, readers.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert workers.error_code == 0


async def test_groups_are_listed_by_type(interface):
    await interface.topic()
    await heartbeat(interface, 0)
    await joined(interface, group_id="workers", protocol_type="connect")
    everything = await listed(interface)
    assert {name: each.group_type for name, each in everything.items()} == {
        "readers": "consumer",
        "workers": "classic",
    }
    assert everything["readers"].protocol_type == "consumer"
    assert set(await listed(interface, types_filter=["Consumer"])) == {"readers"}
    assert set(await listed(interface, types_filter=["classic"])) == {"workers"}
    assert await listed(interface, types_filter=["share"]) == {}


async def test_a_member_commits_and_reads_offsets_in_its_epoch(interface):
    await interface.topic()
    await heartbeat(interface, 0)
    assert await commit(interface, 1) == 0
    assert (await fetch(interface, 1)).error_code == 0
    assert (await fetch(interface, -1, member_id=None)).error_code == 0  # an administrator
    assert await commit(interface, 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert await commit(interface, 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert await commit(interface, 1, member_id="absent") == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await fetch(interface, 2)).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert (await fetch(interface, 1, member_id="absent")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_with_members_is_not_deleted(interface):
    await interface.topic()
    await heartbeat(interface, 0)
    assert await delete(interface, "readers") == {"readers": ErrorCode.NON_EMPTY_GROUP}
    await heartbeat(interface, -1)
    assert await delete(interface, "readers") == {"readers": 0}


async def test_members_of_both_protocols_share_a_group(interface):
    """The classic member joins a step at a time, and keeps its partitions until it has given them up."""
    topic = await interface.topic()
    protocols = [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
    old = await joined(interface, protocols=protocols)
    work = {old.member_id: write_assignment([("orders", number) for number in range(topic.partitions)])}
    await sync(interface, old.member_id, work=work)
    response = await heartbeat(interface, 0)
    assert (response.error_code, assigned(response)) == (0, {})
    [group] = await described(interface, "readers")
    assert {each.member_id: each.member_type for each in group.members} == {"m1": 1, old.member_id: 0}
