"""Members of share groups in a cluster: their coordinator moves, or dies, and topics come from other brokers."""

import asyncio

import pytest
from tests.cluster.near import SECONDS_MAX, near_brokers
from tests.cluster.over_postgres import cluster, until
from tests.cluster.test_group_members import die, group_of, leave

from millpond.groups import ShareHeartbeat
from millpond.model.config_changes import setting
from millpond.model.errors import NotCoordinator
from millpond.model.share_groups import ShareGroupConfig
from millpond.security import OPEN_ACCESS


@pytest.fixture
async def near(tmp_path):
    async with near_brokers(tmp_path, 2) as near:
        await near.brokers[0].log.create_topic("orders", 4)
        await near.settled()
        yield near


def beat(broker, group, member, epoch=0, topics=("orders",)):
    names = topics if epoch == 0 else None
    return broker.share_groups.heartbeat(group, ShareHeartbeat(member, epoch, "c", "/h", topic_names=names))


async def until_coordinated(request):
    """What a client does: it looks for the coordinator until there is one."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                return await request()
            except NotCoordinator:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("end", [leave, die])
async def test_members_of_a_share_group_go_on_when_their_coordinator_ends(near, end):
    staying, ending = near.brokers
    group = group_of(ending)
    first = await beat(ending, group, "a")
    second = await beat(ending, group, "b")
    with pytest.raises(NotCoordinator):
        await beat(staying, group, "a", 1)
    before = await ending.share_groups.positions(group)
    await end(near, ending)
    silent = await until_coordinated(lambda: beat(staying, group, "b", second.member_epoch))
    assert (silent.member_epoch, silent.assignment) == (2, None)
    changed = await beat(staying, group, "a", first.member_epoch)
    assert changed.member_epoch == 2
    assert sorted([*changed.assignment, *second.assignment]) == list(first.assignment)
    [(topic, stored)] = await staying.queues.all()
    assert (topic, stored.share_group) == ("orders", group)
    after = await staying.share_groups.positions(group)
    assert {number: each.start_offset for number, each in after["orders"].positions.items()} == {
        number: each.start_offset for number, each in before["orders"].positions.items()
    }


async def test_a_topic_that_another_broker_has_just_created_is_joined(near):
    one, other = near.brokers
    group = group_of(one)
    created = await other.log.create_topic("new", 2)
    joined = await beat(one, group, "a", topics=("new",))
    assert [each.topic_id for each in joined.assignment] == [created.id] * 2


async def test_brokers_that_create_a_subscription_at_the_same_time_create_one(near):
    """A coordinator that does not know yet that it has lost its group, and its successor."""
    topics = [await near.brokers[0].log.create_topic(f"t{number}", 1) for number in range(20)]
    await near.settled()
    config = ShareGroupConfig(start="earliest")
    await asyncio.gather(
        *(
            broker.queues.of_share_groups.ensure("workers", topics[:: 1 if turn else -1], config)
            for turn, broker in enumerate(near.brokers * 3)
        )
    )
    assert len(await near.brokers[0].queues.all()) == 20


async def test_brokers_over_postgres_create_one_subscription(databases, tmp_path):
    """There transactions of several brokers run at the same time, and a unique index decides."""
    config = ShareGroupConfig(start="earliest")
    async with cluster([databases.new_url()] * 2, tmp_path.as_uri()) as brokers:
        topics = [await brokers[0].log.create_topic(f"t{number}", 1) for number in range(10)]
        await until(lambda: all(brokers[1].log.topics.knows(topic.name) for topic in topics))
        for number in range(10):
            ensure = [each.queues.of_share_groups.ensure for each in brokers]
            group = f"workers-{number}"
            await asyncio.gather(ensure[0](group, topics, config), ensure[1](group, topics, config))
        assert len(await brokers[0].queues.all()) == 100


async def test_the_config_of_a_group_applies_on_every_broker(near):
    one, other = near.brokers
    group = group_of(other)
    plan = setting({"share.heartbeat.interval.ms": "6000", "share.auto.offset.reset": "earliest"})
    await one.parts.config_administration.alter_group(OPEN_ACCESS, group, plan)
    async with asyncio.timeout(SECONDS_MAX):
        while other.configs.group_config(group).share.start != "earliest":
            await asyncio.sleep(0.01)
    assert (await beat(other, group, "a")).heartbeat_interval_ms == 6_000
