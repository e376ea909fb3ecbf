"""CreatePartitions: a row for each topic, whatever became of it."""

import pytest

from millpond.protocol import ErrorCode
from millpond.protocol.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

LATEST = CreatePartitionsRequest.versions.last
VERSIONS = (CreatePartitionsRequest.versions.first, LATEST)


def asked(name, count, assigned=None):
    assignments = None if assigned is None else [CreatePartitionsAssignment(broker_ids=[1])] * assigned
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


async def add(interface, *topics, version=LATEST, validate_only=False):
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=1, validate_only=validate_only)
    return (await interface.send(request, version)).results


@pytest.mark.parametrize("version", VERSIONS)
async def test_partitions_are_added(interface, version):
    await interface.topic("orders", 2)
    [grown] = await add(interface, asked("orders", 5), version=version)
    assert (grown.name, grown.error_code, grown.error_message) == ("orders", 0, None)
    assert interface.log.topics.named("orders").partitions == 5
    await interface.fill("orders", partition=4)


async def test_an_assignment_for_each_new_partition_is_taken(interface):
    await interface.topic("orders", 2)
    [grown] = await add(interface, asked("orders", 5, assigned=3))
    assert grown.error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_validate_only_adds_nothing(interface, version):
    await interface.topic("orders", 2)
    [checked] = await add(interface, asked("orders", 5), version=version, validate_only=True)
    assert checked.error_code == 0
    assert interface.log.topics.named("orders").partitions == 2


REFUSED = {
    "unknown": (asked("nothing", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "the same": (asked("orders", 2), ErrorCode.INVALID_PARTITIONS),
    "fewer": (asked("orders", 1), ErrorCode.INVALID_PARTITIONS),
    "negative": (asked("orders", -1), ErrorCode.INVALID_PARTITIONS),
    "too many": (asked("orders", 2**31 - 1), ErrorCode.INVALID_PARTITIONS),
    "assigned too few": (asked("orders", 5, assigned=2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
}


@pytest.mark.parametrize("validate_only", [False, True], ids=["added", "validated"])
@pytest.mark.parametrize(("topic", "code"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_says_why_and_every_topic_gets_a_row(interface, topic, code, validate_only):
    await interface.topic("orders", 2)
    await interface.topic("other")
    refused, other = await add(interface, topic, asked("other", 2), validate_only=validate_only)
    assert refused.error_code == code
    assert refused.error_message
    assert other.error_code == 0
    assert interface.log.topics.named("orders").partitions == 2


async def test_a_topic_named_twice_is_refused_once(interface):
    await interface.topic("orders")
    [refused] = await add(interface, asked("orders", 2), asked("orders", 3))
    assert (refused.name, refused.error_code) == ("orders", ErrorCode.INVALID_REQUEST)
    assert interface.log.topics.named("orders").partitions == 1
