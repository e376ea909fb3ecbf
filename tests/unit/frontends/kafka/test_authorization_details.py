"""What a client without rights must not learn, and how the rights that it has are reported."""

from contextlib import AsyncExitStack

import pytest
from tests.unit.frontends.kafka import authorization_cases as cases
from tests.unit.frontends.kafka.secured import SETTINGS, Cluster, allow

from millpond.frontends.kafka import rights as r
from millpond.model.acls import CLUSTER_NAME, AclOperation, Permission, ResourceType
from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.cluster import DescribeClusterRequest
from millpond.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from millpond.protocol.messages.group_admin import DescribeGroupsRequest
from millpond.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from millpond.protocol.messages.metadata import OPERATIONS_UNKNOWN, MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.share_groups import ShareGroupDescribeRequest
from millpond.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from millpond.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from millpond.testing import running_broker

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
async def stack():
    async with AsyncExitStack() as closing:
        yield closing


@pytest.fixture
async def cluster(stack):
    broker = await stack.enter_async_context(running_broker(kafka=True, **SETTINGS))
    made = Cluster(broker)
    await made.user()
    made.topic = await broker.log.create_topic(cases.TOPIC, 1, {})
    return made


@pytest.fixture
async def client(cluster, stack):
    return await cluster.connected(stack)


def bits(*operations):
    return sum(1 << operation for operation in operations)


async def test_a_topic_that_is_forbidden_looks_like_one_that_does_not_exist(client):
    known = await client.send(cases.metadata_of(cases.TOPIC), 12)
    unknown = await client.send(cases.metadata_of("nothing"), 12)
    known.topics[0].name = "nothing"
    assert known.topics == unknown.topics
    assert (known.topics[0].error_code, known.topics[0].topic_id) == (DENIED, NO_UUID)
    assert known.topics[0].partitions == []


async def test_an_id_does_not_reveal_the_name(client, cluster):
    found = (await client.send(cases.metadata_of(None, cluster.topic.id), 12)).topics[0]
    assert (found.error_code, found.name, found.topic_id) == (DENIED, None, cluster.topic.id)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=cluster.topic.id)], timeout_ms=1_000)
    (result,) = (await client.send(request, 6)).responses
    assert (result.error_code, result.name) == (DENIED, None)
    assert cases.TOPIC not in result.error_message


@pytest.mark.parametrize(
    ("heartbeat", "describe"),
    [
        (cases.consumer_heartbeat, ConsumerGroupDescribeRequest),
        (cases.share_heartbeat, ShareGroupDescribeRequest),
    ],
)
async def test_a_description_does_not_name_topics_that_the_client_may_not_describe(
    client, cluster, heartbeat, describe
):
    request = heartbeat(cases.Ids(cluster.topic.id, 1), cases.GROUP)
    await cluster.set_acls(
        allow(r.READ_GROUP, cases.GROUP),
        allow(r.DESCRIBE_GROUP, cases.GROUP),
        allow(r.DESCRIBE_TOPIC, cases.TOPIC),
    )
    assert (await client.send(request, 1)).error_code == 0
    await cluster.set_acls(allow(r.DESCRIBE_GROUP, cases.GROUP))
    (group,) = (await client.send(describe(group_ids=[cases.GROUP]), 1)).groups
    assert (group.error_code, group.members) == (DENIED, [])
    assert cases.TOPIC not in group.error_message


async def test_no_topic_is_looked_up_in_the_catalog_for_a_client_that_may_not_use_it(
    client, cluster, monkeypatch
):
    asked = []

    async def catch_up():
        asked.append(1)

    monkeypatch.setattr(cluster.broker.log, "catch_up", catch_up)
    await client.send(cases.metadata_of("nothing"), 12)
    assert not asked
    await cluster.grant(r.DESCRIBE_TOPIC)
    await client.send(cases.metadata_of("nothing"), 12)
    assert asked


async def test_revoked_rights_end_with_the_next_request_of_a_connection(client, cluster):
    ids = cases.Ids(cluster.topic.id, 9)
    await cluster.grant(r.WRITE_TOPIC)
    assert (await client.send(cases.produced(ids), 9)).responses[0].partition_responses[0].error_code == 0
    await cluster.set_acls()
    refused = (await client.send(cases.produced(ids), 9)).responses[0].partition_responses[0]
    assert refused.error_code == DENIED


async def test_a_denial_wins_over_a_permission(client, cluster):
    permitted = allow(r.WRITE_TOPIC, "*")
    await cluster.set_acls(permitted, permitted._replace(name=cases.TOPIC, permission=Permission.DENY))
    response = await client.send(cases.produced(cases.Ids(cluster.topic.id, 9)), 9)
    assert response.responses[0].partition_responses[0].error_code == DENIED


async def test_other_topics_of_a_produce_are_appended(client, cluster):
    await cluster.broker.log.create_topic("open", 1, {})
    await cluster.grant(r.WRITE_TOPIC, names={ResourceType.TOPIC: "open"})
    request = cases.produced(cases.Ids(cluster.topic.id, 9))
    request.topic_data.append(cases.produced(cases.Ids(cluster.topic.id, 9)).topic_data[0])
    request.topic_data[1].name = "open"
    forbidden, appended = (await client.send(request, 9)).responses
    assert forbidden.partition_responses[0].error_code == DENIED
    assert (appended.partition_responses[0].error_code, appended.partition_responses[0].base_offset) == (0, 0)


@pytest.mark.parametrize("version", [7, 9])
async def test_offsets_of_all_topics_are_those_of_topics_that_the_client_may_describe(
    client, cluster, version
):
    await cluster.grant(r.READ_GROUP, r.READ_TOPIC)
    commit = cases.offset_commit(cases.Ids(cluster.topic.id, 8))
    await client.send(commit, 8)
    asked = OffsetFetchRequestGroup(group_id=commit.group_id, topics=None)
    request = OffsetFetchRequest(group_id=commit.group_id, topics=None, groups=[asked])

    async def topics():
        response = await client.send(request, version)
        return [each.name for each in (response.groups[0] if version >= 8 else response).topics]

    assert await topics() == [cases.TOPIC]
    await cluster.grant(r.READ_GROUP)
    assert await topics() == []


async def test_a_follower_is_refused_whatever_it_may_read(client, cluster):
    await cluster.grant(r.READ_TOPIC, r.CLUSTER_ACTION)
    request = cases.fetched(cases.Ids(cluster.topic.id, 15))
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=request.topics,
        replica_state=ReplicaState(replica_id=1, replica_epoch=0),
    )
    part = (await client.send(request, 15)).responses[0].partitions[0]
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_partitions_are_added_to_a_transaction_all_or_none(client, cluster):
    await cluster.broker.log.create_topic("open", 1, {})
    names = {ResourceType.TOPIC: "open"}
    await cluster.grant(r.WRITE_TOPIC, r.WRITE_TRANSACTIONAL_ID, names=names)
    producer = await client.send(cases.init_producer_id("x-1"), 4)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x-1",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (cases.TOPIC, "open")
        ],
    )
    results = (await client.send(request, 3)).results_by_topic_v3_and_below
    found = [each.results_by_partition[0].partition_error_code for each in results]
    assert found == [DENIED, ErrorCode.OPERATION_NOT_ATTEMPTED]


# -- authorized operations


async def test_operations_on_a_topic_are_those_that_are_allowed(client, cluster):
    await cluster.grant(r.WRITE_TOPIC)
    asked = [MetadataRequestTopic(name=cases.TOPIC)]
    request = MetadataRequest(topics=asked, include_topic_authorized_operations=True)
    found = (await client.send(request, 8)).topics[0].topic_authorized_operations
    assert found == bits(AclOperation.WRITE, AclOperation.DESCRIBE)
    await cluster.set_acls()
    refused = (await client.send(request, 8)).topics[0]
    assert refused.topic_authorized_operations == OPERATIONS_UNKNOWN


async def test_operations_on_a_group_are_those_that_are_allowed(client, cluster):
    await cluster.grant(r.READ_GROUP)
    request = DescribeGroupsRequest(groups=["g-1"], include_authorized_operations=True)
    found = (await client.send(request, 5)).groups[0].authorized_operations
    assert found == bits(AclOperation.READ, AclOperation.DESCRIBE)
    await cluster.set_acls()
    refused = (await client.send(request, 5)).groups[0]
    assert (refused.error_code, refused.authorized_operations) == (
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        OPERATIONS_UNKNOWN,
    )


@pytest.mark.parametrize("is_asked", [True, False])
async def test_operations_on_the_cluster_are_none_without_describe(client, cluster, is_asked):
    describe = DescribeClusterRequest(include_cluster_authorized_operations=is_asked)
    metadata = MetadataRequest(topics=[], include_cluster_authorized_operations=is_asked)

    async def operations():
        first = await client.send(describe, 1)
        second = await client.send(metadata, 9)
        assert first.cluster_authorized_operations == second.cluster_authorized_operations
        return first.cluster_authorized_operations

    await cluster.grant(r.CREATE_CLUSTER)
    assert await operations() == (0 if is_asked else OPERATIONS_UNKNOWN)
    await cluster.grant(r.CREATE_CLUSTER, r.ALTER_CLUSTER)
    everything = bits(AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE)
    assert await operations() == (everything if is_asked else OPERATIONS_UNKNOWN)


async def test_denials_are_in_the_audit_log_once(client, cluster, caplog):
    with caplog.at_level("INFO", logger="millpond.security.audit"):
        for _ in range(2):
            await client.send(cases.metadata_of(cases.TOPIC), 12)
    denied = [each for each in caplog.records if each.message == "access denied"]
    assert [each.principal for each in denied] == ["User:alice"]
    assert cases.TOPIC in denied[0].reason
    assert CLUSTER_NAME not in denied[0].reason


async def test_a_fetch_that_waits_returns_nothing_of_a_topic_whose_right_has_ended(
    client, cluster, monkeypatch
):
    await cluster.grant(r.READ_TOPIC)
    fetch, waits = cluster.broker.log.fetch, []

    async def revoked_while_it_waits(*arguments, **named):
        results = await fetch(*arguments, **named)
        waits.append(named["wait_ms"])
        if len(waits) == 1:
            await cluster.set_acls()
        return results

    monkeypatch.setattr(cluster.broker.log, "fetch", revoked_while_it_waits)
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    request = FetchRequest(
        max_wait_ms=1, min_bytes=0, topics=[FetchTopic(topic=cases.TOPIC, partitions=[part])]
    )
    (topic,) = (await client.send(request, 12)).responses
    assert [each.error_code for each in topic.partitions] == [DENIED]
    assert waits == [1, 0]


async def test_a_connection_that_is_closing_can_be_aborted(client, cluster):
    """Its client may never read the rest of a response."""
    (connection,) = cluster.broker.kafka._connections
    transport, calls = connection._transport, []

    class Closing:
        is_closing = staticmethod(lambda: True)
        abort = staticmethod(lambda: calls.append("abort"))

    connection._transport = Closing()
    connection.abort("it is idle")
    connection._transport = transport
    assert calls == ["abort"]
