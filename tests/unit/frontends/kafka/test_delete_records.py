"""DeleteRecords: the start of the log moves, and only forwards."""

import pytest

from millpond.protocol import ErrorCode
from millpond.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

LATEST = DeleteRecordsRequest.versions.last
VERSIONS = (DeleteRecordsRequest.versions.first, LATEST)


async def delete(interface, offset, name="orders", partition=0, version=LATEST):
    part = DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = [DeleteRecordsTopic(name=name, partitions=[part])]
    [topic] = (await interface.send(DeleteRecordsRequest(topics=topics, timeout_ms=1), version)).topics
    [result] = topic.partitions
    assert (topic.name, result.partition_index) == (name, partition)
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", VERSIONS)
async def test_everything_below_the_offset_is_forgotten(interface, version):
    await interface.topic()
    await interface.fill(count=5)
    assert await delete(interface, 3, version=version) == (0, 3)
    assert [record.value for record in await interface.broker.read("orders", 3)] == [b"3", b"4"]
    assert interface.log.partition(interface.log.topics.partition("orders", 0)).log_start == 3


async def test_minus_one_forgets_everything(interface):
    await interface.topic()
    await interface.fill(count=5)
    assert await delete(interface, -1) == (0, 5)


async def test_the_start_never_goes_back(interface):
    await interface.topic()
    await interface.fill(count=5)
    await delete(interface, 3)
    assert await delete(interface, 1) == (0, 3)


@pytest.mark.parametrize("offset", [6, 2**63 - 1, -2])
async def test_an_offset_outside_the_log_is_refused(interface, offset):
    await interface.topic()
    await interface.fill(count=5)
    assert await delete(interface, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@pytest.mark.parametrize(("name", "partition"), [("nothing", 0), ("orders", 1), ("orders", -1)])
async def test_an_unknown_partition_is_refused(interface, name, partition):
    await interface.topic()
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete(interface, 0, name=name, partition=partition) == unknown


async def test_a_topic_that_is_only_compacted_refuses(interface):
    await interface.topic(cleanup_policy="compact")
    assert await delete(interface, 0) == (ErrorCode.POLICY_VIOLATION, -1)
