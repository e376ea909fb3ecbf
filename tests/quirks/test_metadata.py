"""Metadata: where clients learn whom to talk to, and which topics there are."""

import contextlib

import pytest
from tests.quirks.client import Client

from millpond.model.errors import InvalidSettings
from millpond.protocol import ErrorCode
from millpond.protocol.messages.cluster import DescribeClusterRequest
from millpond.protocol.messages.groups import FindCoordinatorRequest
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.testing import running_broker

UNKNOWN_ID = bytes(range(1, 17))
GROUP, TRANSACTION = 0, 1


def asked(*names, **rest):
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **rest)


# -- topics that are made by asking ---------------------------------------------------------------------------


async def test_before_v4_asking_for_a_topic_makes_it(client):
    """There was no flag yet, and old producers rely on it; about a hundred of librdkafka's own tests failed against
    Tansu until it did so."""
    for version in range(4):
        answer = await client.ask(asked(f"fresh{version}"), version)
        assert [each.error_code for each in answer.topics] == [ErrorCode.NONE]
        assert len(answer.topics[0].partitions) == 1


async def test_from_v4_the_client_says_whether_a_topic_may_be_made(client):
    """Consumers and administrators look without making anything: otherwise a mistyped name becomes a topic."""
    for version in range(4, 14):
        for create, code in ((False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (True, ErrorCode.NONE)):
            request = asked(f"fresh{version}", allow_auto_topic_creation=create)
            assert (await client.ask(request, version)).topics[0].error_code == code


async def test_a_broker_that_must_not_make_topics_makes_none():
    """`auto.create.topics.enable=false` outweighs what any client says."""
    async with running_broker(kafka=True, auto_create_topics=False) as broker, Client(broker) as client:
        for version in (1, 12):
            answer = await client.ask(asked("fresh"), version)
            assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("create", [True, False])
async def test_names_that_no_topic_can_have_are_invalid_and_not_unknown(client, create):
    """A client asks again for what is unknown, for ever; an invalid name it reports at once."""
    names = ["a/b", "", "..", ".", "a b", "a" * 250, "ü"]
    rows = (await client.metadata(*names, create=create)).topics
    assert [row.name for row in rows] == names
    assert {row.error_code for row in rows} == {ErrorCode.INVALID_TOPIC_EXCEPTION}


# -- which topics ---------------------------------------------------------------------------------------------


async def test_null_asks_for_all_topics_and_an_empty_list_for_none_but_in_v0(client):
    """In v0 there was no null, and empty meant all; clients that mixed them up loaded every topic of a cluster."""
    await client.topic()
    told = {
        version: len((await client.ask(MetadataRequest(topics=topics), version)).topics)
        for version, topics in ((0, []), (1, []), (12, []))
    }
    assert told == {0: 2, 1: 0, 12: 0}  # `__consumer_offsets` is the other one
    for version in (1, 9, 12):
        answer = await client.ask(MetadataRequest(topics=None), version)
        assert [each.name for each in answer.topics] == ["__consumer_offsets", "orders"]


async def test_a_topic_that_is_asked_for_twice_is_answered_once(client):
    """Clients put the answer into a table by name. Kafka answers with one row, also for what does not exist."""
    await client.topic()
    answer = await client.metadata("orders", "nowhere", "orders", "nowhere")
    assert [each.name for each in answer.topics] == ["orders", "nowhere"]


async def test_topics_can_be_asked_for_by_id_from_v12(client):
    """Java consumers look an id up when a fetch by id failed; they expect null for the name of an unknown one."""
    await client.topic()
    known = await client.topic_id()

    async def by_id(topic_id, version, name=None):
        topics = [MetadataRequestTopic(topic_id=topic_id, name=name)]
        (answer,) = (await client.ask(MetadataRequest(topics=topics), version)).topics
        return ErrorCode(answer.error_code), answer.name

    assert await by_id(known, 12) == (ErrorCode.NONE, "orders")
    assert await by_id(known, 12, "orders") == (ErrorCode.NONE, "orders")
    assert await by_id(UNKNOWN_ID, 12) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert (await by_id(bytes(16), 12))[0] == ErrorCode.INVALID_REQUEST
    for version in (10, 11):
        assert await by_id(known, version, "orders") == (ErrorCode.INVALID_REQUEST, "orders")
        assert await by_id(known, version) == (ErrorCode.INVALID_REQUEST, "")


async def test_topic_ids_are_told_from_v10_and_stay_the_same(client):
    """A zero id makes librdkafka fetch by name; one that changes makes it start over."""
    await client.topic()
    first, second = await client.topic_id(), await client.topic_id()
    assert first == second != bytes(16)
    old = await client.metadata("orders", version=9)
    assert old.topics[0].topic_id == bytes(16)


# -- brokers --------------------------------------------------------------------------------------------------


async def test_the_controller_and_every_leader_is_a_broker_that_is_listed(client):
    """Java's admin client waits in vain for a controller that is not among the brokers."""
    await client.topic()
    for version in range(14):
        answer = await client.metadata("orders", version=version)
        nodes = {each.node_id for each in answer.brokers}
        part = answer.topics[0].partitions[0]
        assert {part.leader_id, *part.replica_nodes, *part.isr_nodes} == nodes
        assert part.offline_replicas == []
        assert version < 1 or answer.controller_id in nodes
        assert version < 2 or answer.cluster_id


async def test_there_is_one_node_id_for_one_address_wherever_it_is_told(client):
    """KafkaJS and kafka-go keep one connection for each id, and break when two ids share an address."""
    metadata = await client.metadata()
    ((node_id, host, port),) = [(each.node_id, each.host, each.port) for each in metadata.brokers]
    cluster = await client.ask(DescribeClusterRequest(), 1)
    assert [(each.broker_id, each.host, each.port) for each in cluster.brokers] == [(node_id, host, port)]
    assert cluster.controller_id == metadata.controller_id == node_id
    assert cluster.cluster_id == metadata.cluster_id
    for key_type in (GROUP, TRANSACTION):
        old = await client.ask(FindCoordinatorRequest(key="g", key_type=key_type), 3)
        assert (old.error_code, old.node_id, old.host, old.port) == (ErrorCode.NONE, node_id, host, port)
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g", "h"])
        found = (await client.ask(request, 4)).coordinators
        assert [(each.key, each.node_id, each.host, each.port) for each in found] == [
            ("g", node_id, host, port),
            ("h", node_id, host, port),
        ]


async def test_a_kind_of_coordinator_that_does_not_exist_is_an_invalid_request(client):
    """Type 2 came with share groups, which are not spoken here: it must not be taken for a group."""
    request = FindCoordinatorRequest(key="g", key_type=2, coordinator_keys=["g"])
    for version in range(1, 7):
        answer = await client.ask(request, version)
        row = answer if version < 4 else answer.coordinators[0]
        assert (row.error_code, row.node_id, row.host, row.port) == (ErrorCode.INVALID_REQUEST, -1, "", -1)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
async def test_nobody_is_ever_told_to_connect_to_all_addresses(listen):
    """0.0.0.0 is a place to listen, not one to go to: a client on another machine would talk to itself. Kafka does
    not even start with it; either is fine."""
    with contextlib.suppress(InvalidSettings):
        async with running_broker(kafka=True, kafka_listen=listen, insecure=True) as broker:
            assert broker.kafka_node is not None
            assert broker.kafka_node.host not in ("0.0.0.0", "::", "")


async def test_the_advertised_address_is_told_everywhere():
    """Behind a proxy or in a container clients reach another address than the one that is listened on."""
    async with running_broker(kafka=True, kafka_advertise="kafka.example:19092") as broker:
        assert broker.kafka_node == (1, "kafka.example", 19092)


async def test_allowed_operations_are_told_only_when_asked_for(client):
    """Unasked they are the smallest number there is; 0 would mean that nothing is allowed."""
    await client.topic()
    asking = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    unknown = -(2**31)
    for version in range(8, 11):
        plain = await client.ask(asked("orders"), version)
        told = await client.ask(asked("orders", **asking), version)
        assert plain.cluster_authorized_operations == unknown
        assert plain.topics[0].topic_authorized_operations == unknown
        assert told.cluster_authorized_operations > 0
        assert told.topics[0].topic_authorized_operations > 0


async def test_a_cluster_is_described_as_brokers_only(client):
    """From v1 an administrator may ask for controllers instead, and is told that it came to the wrong place."""
    described = await client.ask(DescribeClusterRequest(), 2)
    assert (described.error_code, described.endpoint_type) == (ErrorCode.NONE, 1)
    assert [each.is_fenced for each in described.brokers] == [False]
    for kind, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        refused = await client.ask(DescribeClusterRequest(endpoint_type=kind), 1)
        assert (refused.error_code, refused.brokers) == (code, [])
