"""`__consumer_offsets`: Kafka clients see an internal topic without records, which cannot be written or changed."""

import asyncio

import pytest
from tests.unit.frontends.kafka import wire as wire_client
from tests.unit.frontends.kafka.test_create_topics import asked as new_topic
from tests.unit.frontends.kafka.test_create_topics import create

from millpond.frontends.kafka.internal_topics import CONSUMER_OFFSETS_TOPIC
from millpond.model.errors import InvalidTopicName
from millpond.model.ids import RESERVED_TOPICS, check_new_topic_name
from millpond.protocol import ErrorCode
from millpond.protocol.messages import fetch as wire
from millpond.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millpond.protocol.messages.topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from millpond.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)
from millpond.records import Record, build_batch

NAME, ID = CONSUMER_OFFSETS_TOPIC.name, CONSUMER_OFFSETS_TOPIC.id
INVALID = ErrorCode.INVALID_TOPIC_EXCEPTION
LATEST, EARLIEST, NEWEST = -1, -2, -3
TOPIC_CONFIGS = 2
WAIT_MS = 60_000


@pytest.fixture
async def interface(serving):
    return await serving()


async def metadata(interface, *topics, version=12):
    asked = [MetadataRequestTopic(**topic) for topic in topics] if topics else None
    return (await interface.send(MetadataRequest(topics=asked), version)).topics


async def fetched(interface, partition=0, offset=0, version=12):
    part = wire.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=100)
    topic = wire.FetchTopic(topic=NAME, topic_id=ID, partitions=[part])
    request = wire.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=100, topics=[topic])
    [found] = (await interface.send(request, version)).responses
    return found.partitions[0]


async def test_metadata_lists_it_as_internal(interface):
    await interface.topic("zebras")
    found, other = await metadata(interface)
    assert (found.name, found.topic_id, found.is_internal) == (NAME, ID, True)
    assert (other.name, other.is_internal) == ("zebras", False)
    [leader] = {(part.error_code, part.leader_id) for part in found.partitions}
    assert leader == (0, other.partitions[0].leader_id)
    assert [part.partition_index for part in found.partitions] == list(range(50))


@pytest.mark.parametrize("asked", [{"name": NAME}, {"name": None, "topic_id": ID}])
async def test_metadata_describes_it_by_name_and_by_id(interface, asked):
    [found] = await metadata(interface, asked)
    assert (found.error_code, found.name, found.is_internal, len(found.partitions)) == (0, NAME, True, 50)


async def test_it_is_described_a_page_at_a_time(interface):
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsTopic(name=NAME)], response_partition_limit=30
    )
    found = await interface.send(request, 0)
    assert (found.topics[0].is_internal, len(found.topics[0].partitions)) == (True, 30)
    assert (found.next_cursor.topic_name, found.next_cursor.partition_index) == (NAME, 30)


async def test_its_configs_say_that_it_is_compacted(interface):
    resource = DescribeConfigsResource(
        resource_type=TOPIC_CONFIGS, resource_name=NAME, configuration_keys=["cleanup.policy"]
    )
    [found] = (await interface.send(DescribeConfigsRequest(resources=[resource]), 4)).results
    assert [(each.name, each.value) for each in found.configs] == [("cleanup.policy", "compact")]


@pytest.mark.parametrize(("time", "offset"), [(LATEST, 0), (EARLIEST, 0), (NEWEST, -1), (0, -1)])
async def test_it_has_no_offsets(interface, time, offset):
    parts = [ListOffsetsPartition(partition_index=number, timestamp=time) for number in (49, 50)]
    topic = ListOffsetsTopic(name=NAME, partitions=parts)
    [found] = (await interface.send(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)).topics
    known, unknown = found.partitions
    assert (known.error_code, known.offset) == (0, offset)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [12, 13])
async def test_a_reader_finds_no_records(interface, version):
    found = await fetched(interface, 49, version=version)
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 0, 0)
    assert not b"".join(found.records)


async def test_a_reader_with_a_wrong_position_is_refused(interface):
    assert (await fetched(interface, 0, offset=1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await fetched(interface, 50)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_reader_of_it_and_of_others_waits(serving, interface):
    """If its partitions ended the wait, a client would ask again at once, for ever."""
    await interface.topic()
    part = wire.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topics = [wire.FetchTopic(topic=name, partitions=[part]) for name in (NAME, "orders")]
    request = wire.FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=1_000, topics=topics)
    reading = asyncio.create_task(interface.send(request, 12))
    async with wire_client.Client(interface.broker.kafka.listener) as other:
        await other.send(MetadataRequest(topics=[]), 12)
    await interface.fill(count=1)
    internal, orders = (await reading).responses
    assert not b"".join(internal.partitions[0].records)
    assert b"".join(orders.partitions[0].records)


@pytest.mark.parametrize("version", [9, 13])
async def test_it_cannot_be_written(interface, version):
    part = PartitionProduceData(index=0, records=build_batch([Record(timestamp=1, key=None, value=b"v")]))
    topic = TopicProduceData(name=NAME, topic_id=ID, partition_data=[part])
    response = await interface.send(ProduceRequest(acks=-1, timeout_ms=0, topic_data=[topic]), version)
    assert response.responses[0].partition_responses[0].error_code == INVALID


async def test_it_cannot_be_changed(interface):
    resource = IncrementalAlterConfigsResource(
        resource_type=TOPIC_CONFIGS,
        resource_name=NAME,
        configs=[IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="1")],
    )
    altered = await interface.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert altered.responses[0].error_code == INVALID
    deleted = await interface.send(DeleteTopicsRequest(topic_names=[NAME], timeout_ms=0), 5)
    assert deleted.responses[0].error_code == INVALID
    topics = [CreatePartitionsTopic(name=NAME, count=60, assignments=None)]
    grown = await interface.send(CreatePartitionsRequest(topics=topics, timeout_ms=0), 3)
    assert grown.results[0].error_code == INVALID
    cleared = DeleteRecordsTopic(name=NAME, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
    response = await interface.send(DeleteRecordsRequest(topics=[cleared], timeout_ms=0), 2)
    assert response.topics[0].partitions[0].error_code == INVALID
    [found] = await metadata(interface, {"name": NAME})
    assert len(found.partitions) == 50


@pytest.mark.parametrize("name", sorted(RESERVED_TOPICS))
async def test_names_of_kafkas_internal_topics_are_reserved(interface, name):
    assert (await create(interface, new_topic(name)))[0].error_code == INVALID
    with pytest.raises(InvalidTopicName, match="reserved"):
        check_new_topic_name(name)
