"""DescribeCluster and DescribeLogDirs: the broker and its bytes, as administrators see them."""

import pytest

from millpond.protocol import ErrorCode
from millpond.protocol.messages.cluster import (
    DescribableLogDirTopic,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
)
from millpond.protocol.messages.metadata import OPERATIONS_UNKNOWN, MetadataRequest

VERSIONS = (DescribeClusterRequest.versions.first, DescribeClusterRequest.versions.last)
DIRS_LATEST = DescribeLogDirsRequest.versions.last
DIRS_VERSIONS = (DescribeLogDirsRequest.versions.first, DIRS_LATEST)
CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = (
    *(5, 7, 8, 9, 10, 11),
    12,
)


@pytest.mark.parametrize("version", VERSIONS)
async def test_one_broker_which_is_also_the_controller(interface, version):
    told = await interface.send(DescribeClusterRequest(), version)
    known = await interface.send(MetadataRequest(topics=[]), 12)
    node = interface.broker.kafka_node
    assert (told.error_code, told.cluster_id, told.controller_id) == (0, known.cluster_id, node.id)
    assert [(each.broker_id, each.host, each.port) for each in told.brokers] == [node]
    assert told.cluster_authorized_operations == OPERATIONS_UNKNOWN


@pytest.mark.parametrize("version", VERSIONS)
async def test_everything_is_allowed(interface, version):
    told = await interface.send(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    allowed = {bit for bit in range(32) if told.cluster_authorized_operations >> bit & 1}
    assert allowed == {
        *(CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)
    }


async def test_metadata_tells_the_same_when_asked(interface):
    await interface.topic()
    asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    told = await interface.send(MetadataRequest(topics=None, **asked), 10)
    silent = await interface.send(MetadataRequest(topics=None), 10)
    assert told.cluster_authorized_operations > 0
    assert told.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert silent.cluster_authorized_operations == OPERATIONS_UNKNOWN
    assert silent.topics[0].topic_authorized_operations == OPERATIONS_UNKNOWN


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_there_are_no_other_endpoints(interface, endpoint, code):
    told = await interface.send(DescribeClusterRequest(endpoint_type=endpoint), 1)
    assert (told.error_code, told.brokers) == (code, [])
    assert told.error_message


async def dirs(interface, topics=None, version=DIRS_LATEST):
    answer = await interface.send(DescribeLogDirsRequest(topics=topics), version)
    [found] = answer.results
    assert (answer.error_code, found.error_code, found.log_dir) == (0, 0, "object-store")
    assert (found.total_bytes, found.usable_bytes) == (-1, -1)
    return {
        topic.name: {part.partition_index: part.partition_size for part in topic.partitions}
        for topic in found.topics
    }


@pytest.mark.parametrize("version", DIRS_VERSIONS)
async def test_all_partitions_have_a_size(interface, version):
    await interface.topic("a", 2)
    await interface.topic("b")
    await interface.fill("a", partition=1)
    found = await dirs(interface, version=version)
    assert {name: set(sizes) for name, sizes in found.items()} == {"a": {0, 1}, "b": {0}}
    assert found["a"][0] == found["b"][0] == 0
    assert found["a"][1] > 60


@pytest.mark.parametrize("version", DIRS_VERSIONS)
async def test_only_what_is_asked_for_and_exists(interface, version):
    await interface.topic("a", 3)
    await interface.topic("b")
    asked = [
        DescribableLogDirTopic(topic="a", partitions=[2, 7]),
        DescribableLogDirTopic(topic="nothing", partitions=[0]),
    ]
    assert await dirs(interface, asked, version) == {"a": {2: 0}}


async def test_no_topics_are_no_sizes(interface):
    await interface.topic()
    assert await dirs(interface, []) == {}
