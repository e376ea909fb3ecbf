"""Topics and groups as administrators see them."""

import pytest
from tests.shards import take_all_shards

from millpond.model.errors import (
    InvalidConfig,
    InvalidPartitionCount,
    InvalidRequest,
    NotCoordinator,
    NotOwner,
    StoreUnavailable,
    TopicExists,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)
from millpond.model.ids import TopicPartition
from millpond.security import OPEN_ACCESS
from millpond.service import Administration, GroupPartition, Owners
from millpond.testing import running_broker


@pytest.fixture
async def broker():
    async with running_broker(grpc=True) as broker:
        yield broker


@pytest.fixture
def admin(broker):
    return broker.administration


async def test_create_describe_and_delete(broker, admin):
    await admin.create_topic("t", 3, {"retention.ms": "1000"}, access=OPEN_ACCESS)
    await broker.produce("t", b"a", b"b", partition=1)
    described = await admin.describe_topic("t")
    assert [(each.partition, each.log_start, each.end_offset) for each in described.partitions] == [
        (0, 0, 0),
        (1, 0, 2),
        (2, 0, 0),
    ]
    assert described.partitions[1].size_bytes > described.partitions[0].size_bytes == 0
    assert {each.owner["grpc"] for each in described.partitions} == {broker.listeners["grpc"]}
    assert described.configs["retention.ms"].value == "1000"
    with pytest.raises(TopicExists):
        await admin.create_topic("t", access=OPEN_ACCESS)
    assert [topic.name for topic in admin.topics(OPEN_ACCESS)] == ["t"]
    await admin.delete_topic("t", access=OPEN_ACCESS)
    assert admin.topics(OPEN_ACCESS) == []
    with pytest.raises(UnknownTopic):
        await admin.describe_topic("t")
    with pytest.raises(UnknownTopic):
        await admin.delete_topic("t", access=OPEN_ACCESS)


async def test_alter_partitions_and_configs(admin):
    await admin.create_topic("t", 2, {"retention.ms": "1000"}, access=OPEN_ACCESS)
    changes = {"max.message.bytes": "5000"}
    assert (await admin.alter_topic("t", count=4, changes=changes, access=OPEN_ACCESS)).partitions == 4
    topic = await admin.alter_topic("t", changes={"retention.ms": None}, access=OPEN_ACCESS)
    assert topic.overrides == {"max.message.bytes": "5000"}
    assert (await admin.alter_topic("t", count=4, access=OPEN_ACCESS)).partitions == 4
    with pytest.raises(InvalidPartitionCount, match="taken away"):
        await admin.alter_topic("t", count=3, access=OPEN_ACCESS)
    with pytest.raises(InvalidConfig):
        await admin.alter_topic("t", count=9, changes={"retention.ms": "soon"}, access=OPEN_ACCESS)
    assert admin.topic("t").partitions == 4, "nothing of a refused change was made"


async def test_delete_records(broker, admin):
    await broker.produce("t", b"a", b"b", b"c")
    assert await admin.delete_records("t", 0, 2, access=OPEN_ACCESS) == 2
    assert await admin.delete_records("t", 0, 1, access=OPEN_ACCESS) == 2
    assert await admin.delete_records("t", 0, -1, access=OPEN_ACCESS) == 3
    assert (await admin.describe_topic("t")).partitions[0].end_offset == 3
    with pytest.raises(UnknownPartition):
        await admin.delete_records("t", 1, 0, access=OPEN_ACCESS)


async def test_the_lag_of_a_group(broker, admin):
    await admin.create_topic("t", 2, access=OPEN_ACCESS)
    for partition in (0, 1):
        await broker.produce("t", *[b"x"] * 10, partition=partition)
    await admin.commit("g", "t", {0: 4, 1: 10})
    described = await admin.describe_group("g", OPEN_ACCESS)
    assert [(each.partition, each.offset, each.lag) for each in described.partitions] == [
        (0, 4, 6),
        (1, 10, 0),
    ]
    assert described.lag == 6
    await admin.delete_records("t", 0, 7, access=OPEN_ACCESS)
    assert (await admin.describe_group("g", OPEN_ACCESS)).lag == 3, "what has gone cannot be read"
    assert [each.group_id for each in await admin.groups(OPEN_ACCESS)] == ["g"]


def test_lag_is_never_negative():
    assert GroupPartition("t", 0, offset=9, log_start=0, end_offset=5, metadata="").lag == 0


async def test_commits_are_checked(admin):
    await admin.create_topic("t", access=OPEN_ACCESS)
    with pytest.raises(InvalidRequest, match="name"):
        await admin.commit("", "t", {0: 1})
    with pytest.raises(InvalidRequest):
        await admin.commit("g", "t", {0: -1})
    with pytest.raises(UnknownPartition):
        await admin.commit("g", "t", {5: 1})
    with pytest.raises(UnknownTopic):
        await admin.commit("g", "u", {0: 1})
    with pytest.raises(UnknownGroup):
        await admin.describe_group("g", OPEN_ACCESS)


async def test_a_deleted_topic_has_no_lag(broker, admin):
    await broker.produce("t", b"x")
    await broker.produce("u", b"x")
    await admin.commit("g", "t", {0: 0})
    await admin.commit("g", "u", {0: 0})
    await admin.delete_topic("t", access=OPEN_ACCESS)
    assert [each.topic for each in (await admin.describe_group("g", OPEN_ACCESS)).partitions] == ["u"]


async def test_delete_group(broker, admin):
    await broker.produce("t", b"x")
    await admin.commit("g", "t", {0: 1})
    await admin.delete_group("g")
    with pytest.raises(UnknownGroup):
        await admin.describe_group("g", OPEN_ACCESS)


async def test_offset_at(broker, admin):
    await broker.produce("t", b"x", b"y")
    assert await admin.offset_at("t", 0, 0) == 0
    assert await admin.offset_at("t", 0, 1 << 60) == 2


async def test_owners_are_named_to_whom_asked_the_wrong_broker(broker, tmp_path):
    await broker.produce("t", b"x")
    owners, topic_partition = Owners(broker.topology, "another"), broker.log.topics.partition("t", 0)
    explained = owners.explain(NotOwner(), topic_partition)
    assert explained.facts["owner_grpc"] == broker.listeners["grpc"]
    other = StoreUnavailable(reason="")
    assert owners.explain(other, topic_partition) is other
    unknown = owners.explain(NotOwner(), TopicPartition(topic_partition.topic_id, 9))
    assert (type(unknown), unknown.facts) == (NotOwner, {})


async def test_nobody_is_sent_to_the_broker_that_was_asked(broker):
    await broker.produce("t", b"x")
    owners, topic_partition = Owners(broker.topology, broker.session), broker.log.topics.partition("t", 0)
    assert owners.explain(NotOwner(), topic_partition).facts == {}


async def test_who_asks_the_wrong_coordinator_is_told_the_right_one(broker):
    admin = Administration(
        broker.log,
        broker.groups,
        broker.share_groups,
        Owners(broker.topology, "another"),
        broker.topic_changes,
        broker.config_administration.broker,
    )
    await broker.produce("t", b"x")
    take_all_shards(broker)
    try:
        for asking in (admin.commit("g", "t", {0: 1}), admin.delete_group("g")):
            with pytest.raises(NotCoordinator) as refused:
                await asking
            assert refused.value.facts["owner_grpc"] == broker.listeners["grpc"]
    finally:
        broker.owned_shards.apply()
