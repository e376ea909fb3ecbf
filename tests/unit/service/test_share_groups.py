"""Share groups' subscriptions: when they are created, where they begin, and what administrators do with them."""

import asyncio
import contextlib

import pytest

from millpond.groups import ShareHeartbeat
from millpond.model.config_changes import setting
from millpond.model.errors import (
    CatalogUnavailable,
    GroupNotEmpty,
    InvalidSubscription,
    SubscriptionExists,
    UnknownGroup,
)
from millpond.model.ids import check_topic_name
from millpond.model.share_group_configs import DEAD_LETTER_TOPIC, DELIVERY_COUNT_LIMIT, KEY_ORDER
from millpond.model.share_groups import ShareGroupConfig, subscription_name
from millpond.model.subscriptions import SubscriptionMode
from millpond.queues import ShareSubscriptions, StartAt, SubscriptionStart
from millpond.security import OPEN_ACCESS
from millpond.service import ShareGroups
from millpond.testing import running_broker

GROUP = "workers"
NAME = subscription_name(GROUP)
EARLIEST = ShareGroupConfig(start="earliest")


@pytest.fixture
async def broker():
    async with running_broker() as broker:
        yield broker


@pytest.fixture
def shared(broker):
    return broker.share_groups


def beat(shared, epoch=0, *, member_id="m1", topics=("t",), group_id=GROUP):
    names = topics if epoch == 0 else None
    return shared.heartbeat(group_id, ShareHeartbeat(member_id, epoch, "c", "/h", topic_names=names))


def starts(found, topic="t"):
    return {number: each.start_offset for number, each in found[topic].positions.items()}


class HeldSubscriptions(ShareSubscriptions):
    """Creating and finding subscriptions can be held up, and creating them refused."""

    def __init__(self, real):
        self.__dict__ = dict(real.__dict__)
        self.may_create = asyncio.Event()
        self.may_create.set()
        self.may_find = asyncio.Event()
        self.may_find.set()
        self.error = None
        self.waiting = self.finding = 0

    async def ensure(self, *arguments):
        self.waiting += 1
        await self.may_create.wait()
        if self.error is not None:
            raise self.error
        await super().ensure(*arguments)

    async def of_group(self, group_id):
        self.finding += 1
        await self.may_find.wait()
        return await super().of_group(group_id)


@pytest.fixture
def held(broker):
    subscriptions = HeldSubscriptions(broker.queues.of_share_groups)
    return ShareGroups(broker.log, broker.groups, subscriptions, broker.configs.group_config), subscriptions


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_member_learns_its_assignment_when_its_topics_have_subscriptions(broker, held):
    await broker.log.create_topic("t", 2)
    shared, subscriptions = held
    subscriptions.may_create.clear()
    joining = asyncio.create_task(beat(shared))
    await until(lambda: subscriptions.waiting)
    assert not joining.done()
    assert await broker.queues.all() == []
    subscriptions.may_create.set()
    assert len((await joining).assignment) == 2
    [(topic, stored)] = await broker.queues.all()
    assert (topic, stored.name, stored.share_group) == ("t", NAME, GROUP)


async def test_a_heartbeat_that_changes_nothing_does_not_look_for_subscriptions(broker, held):
    await broker.log.create_topic("t", 2)
    shared, subscriptions = held
    await beat(shared)
    assert (await beat(shared, 1)).assignment is None
    assert subscriptions.waiting == 1


async def test_a_member_gets_its_assignment_after_an_error(broker, held):
    await broker.log.create_topic("t", 1)
    shared, subscriptions = held
    subscriptions.error = CatalogUnavailable(reason="away")
    with pytest.raises(CatalogUnavailable):
        await beat(shared)
    subscriptions.error = None
    again = await beat(shared)
    assert (again.member_epoch, len(again.assignment)) == (1, 1)
    await broker.log.add_partitions("t", 2)
    subscriptions.error = CatalogUnavailable(reason="away")
    with pytest.raises(CatalogUnavailable):
        await beat(shared, 1)
    subscriptions.error = None
    repeated = await beat(shared, 1)
    assert (repeated.member_epoch, len(repeated.assignment)) == (2, 2)


async def test_a_topic_that_is_created_later_gets_its_subscription_then(broker, shared):
    assert (await beat(shared, topics=("t", "later"))).assignment == ()
    assert await broker.queues.all() == []
    await broker.log.create_topic("later", 1)
    assert len((await beat(shared, 1)).assignment) == 1
    assert [topic for topic, _ in await broker.queues.all()] == ["later"]


async def test_many_members_and_coordinators_create_one_subscription(broker):
    topics = [await broker.log.create_topic(f"t{number}", 1) for number in range(150)]
    ensure = broker.queues.of_share_groups.ensure
    await asyncio.gather(*(ensure(GROUP, topics, EARLIEST) for _ in range(5)))
    assert len(await broker.queues.all()) == 150


async def test_positions_begin_where_the_config_says_and_later_partitions_at_their_start(broker, shared):
    topic = await broker.log.create_topic("t", 1)
    await broker.produce("t", b"a", b"b")
    await broker.queues.of_share_groups.ensure("first", [topic], EARLIEST)
    await broker.queues.of_share_groups.ensure("last", [topic], ShareGroupConfig())
    await broker.log.add_partitions("t", 2)
    await broker.produce("t", b"c", partition=1)
    await broker.queues.of_share_groups.ensure("last", [topic], ShareGroupConfig())
    assert starts(await shared.positions("first")) == {0: 0, 1: 0}
    assert starts(await shared.positions("last")) == {0: 2, 1: 0}
    assert [each.lag for each in (await shared.positions("last"))["t"].positions.values()] == [0, 1]


async def test_positions_are_moved_partition_by_partition(broker, shared):
    await broker.log.create_topic("t", 3)
    for partition in range(3):
        await broker.produce("t", b"a", b"b", b"c", partition=partition)
    moved = await shared.move(GROUP, {"t": {0: 1}})
    assert moved == {"t": {0}}
    assert starts(await shared.positions(GROUP)) == {0: 1, 1: 3, 2: 3}
    await shared.move(GROUP, {"t": {1: -5, 2: 99}})
    assert starts(await shared.positions(GROUP, ["t"])) == {0: 1, 1: 0, 2: 3}


async def test_a_group_with_members_keeps_its_positions(broker, shared):
    await broker.log.create_topic("t", 1)
    await beat(shared)
    for refused in (
        shared.move(GROUP, {"t": {0: 0}}),
        shared.forget(GROUP, ["t"]),
        shared.delete_group(GROUP),
    ):
        with pytest.raises(GroupNotEmpty):
            await refused
    assert len(await broker.queues.all()) == 1


async def test_a_group_whose_deletion_is_refused_keeps_its_positions(broker, shared, monkeypatch):
    """A member joins just before the group is deleted."""
    await broker.log.create_topic("t", 1)
    await broker.produce("t", b"a", b"b")
    await shared.move(GROUP, {"t": {0: 1}})
    delete_group = broker.groups.delete_group

    async def joined_before(group_id):
        await beat(shared, member_id="m2")
        await delete_group(group_id)

    monkeypatch.setattr(shared, "_lock", lambda _: contextlib.AsyncExitStack())
    monkeypatch.setattr(broker.groups, "delete_group", joined_before)
    with pytest.raises(GroupNotEmpty):
        await shared.delete_group(GROUP)
    assert starts(await shared.positions(GROUP)) == {0: 1}


async def test_a_member_that_joins_while_its_group_is_deleted_has_a_subscription(broker, held):
    """The group had no members when it was deleted. Its positions are gone, and it begins again."""
    await broker.log.create_topic("t", 1)
    shared, subscriptions = held
    await beat(shared)
    await beat(shared, -1)
    subscriptions.may_find.clear()
    deleting = asyncio.create_task(shared.delete_group(GROUP))
    await until(lambda: subscriptions.finding)
    joining = asyncio.create_task(beat(shared, member_id="m2"))
    groups = broker.groups._loaded_groups._groups
    await until(lambda: GROUP in groups and groups[GROUP].group.member_count)
    subscriptions.may_find.set()
    await deleting
    assert len((await joining).assignment) == 1
    assert [stored.share_group for _, stored in await broker.queues.all()] == [GROUP]


async def test_subscriptions_of_a_group_that_is_gone_can_be_deleted(broker, shared):
    """A broker was killed after it had deleted the group, or a version that does not know share groups has done so."""
    topic = await broker.log.create_topic("t", 1)
    await broker.queues.of_share_groups.ensure(GROUP, [topic], EARLIEST)
    await shared.delete_group(GROUP)
    assert await broker.queues.all() == []
    with pytest.raises(UnknownGroup):
        await shared.delete_group(GROUP)


async def test_a_deleted_topic_leaves_nothing_behind(broker, shared):
    await broker.log.create_topic("t", 1)
    await beat(shared)
    await broker.log.delete_topic("t")
    assert await shared.positions(GROUP) == {}
    await broker.log.create_topic("t", 1)
    assert len((await beat(shared, 1)).assignment) == 1
    assert starts(await shared.positions(GROUP)) == {0: 0}


async def test_users_do_not_create_alter_or_delete_subscriptions_of_share_groups(broker, shared):
    await broker.log.create_topic("t", 1)
    await beat(shared)
    for name in (NAME, "share.", "share.other"):
        with pytest.raises(InvalidSubscription, match="those of share groups"):
            await broker.queues.create("t", name)
    with pytest.raises(InvalidSubscription, match="share group 'workers' decides"):
        await broker.queues.alter("t", NAME, {"attempts_max": 2})
    with pytest.raises(InvalidSubscription, match="share group 'workers' decides"):
        await broker.queues.delete("t", NAME)
    assert (await broker.queues.describe("t", NAME)).subscription.share_group == GROUP
    await broker.queues.reset("t", NAME, SubscriptionStart(StartAt.EARLIEST))


async def test_a_subscription_of_a_user_is_not_taken(broker, shared):
    topic = await broker.log.create_topic("t", 1)
    await broker.queues.of_share_groups.ensure("other", [topic], EARLIEST)

    def rename(tx):
        tx.rows("UPDATE subscriptions SET name = ?", (NAME,))

    await broker.log.write(rename)
    with pytest.raises(SubscriptionExists, match="does not belong to share group 'workers'"):
        await beat(shared)


async def test_the_config_of_a_group_is_that_of_its_subscriptions(broker, shared):
    await broker.log.create_topic("t", 1)
    await beat(shared)
    [(_, before)] = await broker.queues.all()
    assert (before.config.mode, before.config.attempts_max) == (SubscriptionMode.SHARED, 5)
    await beat(shared, -1)
    plan = setting({KEY_ORDER: "true", DELIVERY_COUNT_LIMIT: "2", DEAD_LETTER_TOPIC: "failed"})
    await broker.parts.config_administration.alter_group(OPEN_ACCESS, GROUP, plan)
    [(_, after)] = await broker.queues.all()
    assert (after.config.mode, after.config.attempts_max) == (SubscriptionMode.KEY_SHARED, 2)
    assert (await broker.queues.describe("t", NAME)).dead_letter_topic == "failed"


async def test_dead_letters_of_any_topic_have_a_topic(broker, shared):
    """One of its own: a group may name the topic that it reads, and default names may be too long."""
    await broker.log.create_topic("t", 1)
    await broker.log.create_topic("x" * 249, 1)
    plan = setting({DEAD_LETTER_TOPIC: "t"})
    await broker.parts.config_administration.alter_group(OPEN_ACCESS, "own", plan)
    names = set()
    for group_id, topic in (
        ("own", "t"),
        (GROUP, "t"),
        ("own", "x" * 249),
        (GROUP, "x" * 249),
        ("ü", "x" * 249),
    ):
        await beat(shared, group_id=group_id, topics=(topic,), member_id=topic[:9])
        described = await broker.queues.describe(topic, subscription_name(group_id))
        assert check_topic_name(described.dead_letter_topic) != topic
        names.add(described.dead_letter_topic)
    assert names >= {"t", "t.share.own.dead9", "t.share.workers.dead13"}
    assert len(names) == 5


async def test_any_group_id_has_its_subscriptions(broker, shared):
    await broker.log.create_topic("t", 1)
    for group_id in ("a b", "ü" * 90, "x" * 900, ".x", "a/b"):
        assert len((await beat(shared, group_id=group_id)).assignment) == 1
        assert starts(await shared.positions(group_id)) == {0: 0}
    assert len(await broker.queues.all()) == 5


async def test_administrators_see_members_positions_and_lag(broker, shared):
    await broker.log.create_topic("t", 2)
    await beat(shared)
    await broker.produce("t", b"a", b"b")
    found = await broker.administration.describe_group(GROUP, OPEN_ACCESS)
    assert (found.type, found.epoch, found.lag, found.group.state) == ("share", 1, 2, "Stable")
    assert found.assigned == {"m1": {"t": [0, 1]}}
    assert [(each.topic, each.partition, each.offset, each.lag) for each in found.partitions] == [
        ("t", 0, 0, 2),
        ("t", 1, 0, 0),
    ]
    [listed] = await broker.administration.groups(OPEN_ACCESS)
    assert (listed.group_id, listed.type, listed.state) == (GROUP, "share", "Stable")
    await beat(shared, -1)
    await broker.administration.delete_group(GROUP)
    assert await broker.queues.all() == []
