"""OffsetForLeaderEpoch: no epoch ends before the log does."""

import pytest

from millpond.protocol import ErrorCode
from millpond.protocol.messages.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LATEST = OffsetForLeaderEpochRequest.versions.last
VERSIONS = (OffsetForLeaderEpochRequest.versions.first, LATEST)


async def end_of(interface, epoch, current=-1, name="orders", partition=0, version=LATEST):
    part = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    topics = [OffsetForLeaderTopic(topic=name, partitions=[part])]
    [topic] = (await interface.send(OffsetForLeaderEpochRequest(topics=topics), version)).topics
    [end] = topic.partitions
    assert (topic.topic, end.partition) == (name, partition)
    return end.error_code, end.leader_epoch, end.end_offset


async def filled(interface):
    await interface.topic()
    await interface.fill(count=5)
    return interface.log.partition(interface.log.topics.partition("orders", 0)).epoch


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_current_epoch_ends_where_the_log_does(interface, version):
    epoch = await filled(interface)
    assert await end_of(interface, epoch, current=epoch, version=version) == (0, epoch, 5)


async def test_so_does_an_older_one(interface):
    epoch = await filled(interface)
    assert await end_of(interface, epoch - 1) == (0, epoch - 1, 5)


@pytest.mark.parametrize("ahead", [1, 100])
async def test_an_epoch_not_reached_yet_has_no_end(interface, ahead):
    assert await end_of(interface, await filled(interface) + ahead) == (0, -1, -1)


async def test_no_epoch_has_no_end(interface):
    await filled(interface)
    assert await end_of(interface, -1) == (0, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_client_that_knows_another_epoch_must_look_again(interface, version):
    epoch = await filled(interface)
    stale = (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    ahead = (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert await end_of(interface, epoch, current=epoch - 1, version=version) == stale
    assert await end_of(interface, epoch, current=epoch + 1, version=version) == ahead


@pytest.mark.parametrize(("name", "partition"), [("nothing", 0), ("orders", 1), ("orders", -1)])
async def test_an_unknown_partition_is_refused(interface, name, partition):
    await filled(interface)
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert await end_of(interface, 0, name=name, partition=partition) == unknown
