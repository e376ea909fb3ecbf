"""CreateTopics: what is made, what is refused, and what the answer says in each version."""

import pytest

from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

LATEST = CreateTopicsRequest.versions.last
VERSIONS = (CreateTopicsRequest.versions.first, LATEST)


def asked(name="orders", partitions=1, replicas=1, assignments=(), **configs):
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in assignments
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


async def create(interface, *topics, version=LATEST, validate_only=False):
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return (await interface.send(request, version)).topics


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_is_made(interface, version):
    [made] = await create(interface, asked(partitions=3, retention_ms="5000"), version=version)
    topic = interface.log.topics.named("orders")
    assert (made.name, made.error_code, made.error_message) == ("orders", 0, None)
    assert (topic.partitions, topic.overrides) == (3, {"retention.ms": "5000"})


async def test_the_answer_tells_id_counts_and_all_configs_with_their_sources(serving):
    interface = await serving(max_message_bytes=5000)
    [made] = await create(interface, asked(partitions=3, replicas=2, retention_ms="5000"))
    configs = {each.name: (each.value, each.config_source) for each in made.configs}
    assert made.topic_id == interface.log.topics.named("orders").id
    assert (made.num_partitions, made.replication_factor) == (3, 1)
    assert configs["retention.ms"] == ("5000", 1)
    assert configs["max.message.bytes"] == ("5000", 4)
    assert configs["cleanup.policy"] == ("delete", 5)


async def test_minus_one_partition_is_the_brokers_default(serving):
    interface = await serving(default_partitions=4)
    [made] = await create(interface, asked(partitions=-1, replicas=-1))
    assert made.num_partitions == 4
    assert interface.log.topics.named("orders").partitions == 4


async def test_a_manual_assignment_says_how_many_partitions_there_are(interface):
    [made] = await create(interface, asked(partitions=-1, replicas=-1, assignments=[(1, [1]), (0, [1, 2])]))
    assert (made.error_code, made.num_partitions) == (0, 2)


@pytest.mark.parametrize("version", VERSIONS)
async def test_validate_only_makes_nothing(interface, version):
    [made] = await create(interface, asked(partitions=3), version=version, validate_only=True)
    assert made.error_code == 0
    assert made.topic_id == NO_UUID
    assert interface.log.topics.all() == []


async def test_validate_only_tells_what_would_have_been_made(interface):
    [made] = await create(interface, asked(partitions=3, retention_ms="7"), validate_only=True)
    assert made.num_partitions == 3
    assert {each.name: each.value for each in made.configs}["retention.ms"] == "7"


REFUSED = {
    "no replicas": (asked(replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "negative replicas": (asked(replicas=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
    "no partitions": (asked(partitions=0), ErrorCode.INVALID_PARTITIONS),
    "negative partitions": (asked(partitions=-2), ErrorCode.INVALID_PARTITIONS),
    "too many partitions": (asked(partitions=2**31 - 1), ErrorCode.INVALID_PARTITIONS),
    "gaps": (asked("a", -1, -1, [(0, [1]), (2, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "not from 0": (asked("a", -1, -1, [(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "twice": (asked("a", -1, -1, [(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "nobody": (asked("a", -1, -1, [(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assigned and counted": (asked("a", 1, -1, [(0, [1])]), ErrorCode.INVALID_REQUEST),
    "assigned and replicated": (asked("a", -1, 1, [(0, [1])]), ErrorCode.INVALID_REQUEST),
    "null config": (asked(retention_ms=None), ErrorCode.INVALID_CONFIG),
    "unknown config": (asked(retention_weeks="1"), ErrorCode.INVALID_CONFIG),
    "impossible config": (asked(retention_ms="soon"), ErrorCode.INVALID_CONFIG),
    "empty name": (asked(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "dot": (asked("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "dots": (asked(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "illegal name": (asked("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "long name": (asked("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
}


@pytest.mark.parametrize("validate_only", [False, True], ids=["made", "validated"])
@pytest.mark.parametrize(("topic", "code"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_says_why_and_leaves_the_others_alone(interface, topic, code, validate_only):
    refused, other = await create(interface, topic, asked("other"), validate_only=validate_only)
    assert refused.error_code == code
    assert refused.error_message
    assert refused.name == topic.name
    assert other.error_code == 0
    assert [each.name for each in interface.log.topics.all()] == ([] if validate_only else ["other"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("validate_only", [False, True], ids=["made", "validated"])
async def test_a_topic_that_exists_is_refused(interface, version, validate_only):
    await interface.topic("or.ders")
    [refused] = await create(interface, asked("or.ders"), version=version, validate_only=validate_only)
    assert refused.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert refused.error_message == "Topic 'or.ders' already exists."


@pytest.mark.parametrize(("first", "second"), [("a.b_c", "a_b.c"), ("a_b", "a.b"), ("a.b", "a_b")])
async def test_names_that_differ_only_in_dots_and_underscores_collide(interface, first, second):
    await interface.topic(first)
    [refused] = await create(interface, asked(second))
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert first in refused.error_message


async def test_a_name_that_is_asked_for_twice_is_refused_once(interface):
    results = await create(interface, asked("a"), asked("b"), asked("a"))
    assert [(each.name, each.error_code) for each in results] == [("a", ErrorCode.INVALID_REQUEST), ("b", 0)]
    assert [each.name for each in interface.log.topics.all()] == ["b"]


async def test_nor_are_they_made_by_asking_for_them(interface):
    await interface.topic("a.b")
    topics = [MetadataRequestTopic(name=name) for name in ("a_b", "a.b", "c")]
    told = await interface.send(MetadataRequest(topics=topics), 12)
    assert [each.error_code for each in told.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0, 0]
    assert [each.name for each in interface.log.topics.all()] == ["a.b", "c"]


async def test_a_name_is_free_for_its_neighbours_when_the_topic_is_gone(interface):
    await interface.topic("a.b")
    await interface.log.delete_topic("a.b")
    [made] = await create(interface, asked("a_b"))
    assert made.error_code == 0


async def test_a_topic_that_takes_payloads_bears_the_brokers_time(interface):
    for validate_only in (True, False):
        [made] = await create(interface, asked("films", payload="reference"), validate_only=validate_only)
        told = {each.name: each.value for each in made.configs}
        assert (made.error_code, told["payload"]) == (0, "reference")
        assert told["message.timestamp.type"] == "LogAppendTime"
    wrong = asked("wrong", payload="reference", message_timestamp_type="CreateTime")
    [refused] = await create(interface, wrong, validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
