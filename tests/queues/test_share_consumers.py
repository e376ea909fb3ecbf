"""Members of share groups through a whole broker, with its clock: locks that end, limits, restarts, isolation, keys."""

import asyncio

import pytest
from tests.queues.conftest import HOUR_MS, WAIT_SECONDS_MAX, queue_of

from millpond.catalog import subscriptions as catalog
from millpond.model.errors import NotOwner
from millpond.model.group_configs import GroupConfig
from millpond.model.share_groups import ShareGroupConfig, ShareIsolation, subscription_name
from millpond.model.subscriptions import DELIVER_AT, SubscriptionConfig
from millpond.queues import AckRange, AckRefusal, MemberName, QueueDelivery
from millpond.queues.share_acks import AckType
from millpond.records import Record, build_batch

GROUP = "workers"
NAME = subscription_name(GROUP)
LOCK_S = 30


class Sharer:
    """A member that asks until it gets something."""

    def __init__(self, stage, member="m1", group=GROUP):
        self.stage, self.name = stage, MemberName(group, member)

    @property
    def consumers(self):
        return self.stage.broker.share_consumers

    async def take(self, count=1, most=100, partition=0):
        """At least `count` messages: how often each was delivered, by offset."""
        found = {}
        topic_partition = self.stage.topic_partition(partition=partition)
        assert not await self.consumers.attach(self.name, [topic_partition])
        with self.consumers.waiting(self.name, [topic_partition]) as available:
            while len(found) < count:
                available.clear()
                acquired = self.consumers.acquire(self.name, topic_partition, most - len(found), 1 << 20)
                found |= {each.offset: each.attempts + 1 for each in acquired.deliveries}
                if len(found) < count:
                    await available.wait()
        return found

    async def nothing(self):
        topic_partition = self.stage.topic_partition()
        await self.consumers.attach(self.name, [topic_partition])
        for _ in range(2):
            assert self.consumers.acquire(self.name, topic_partition, 100, 1 << 20).deliveries == []
            await self.stage.settle()

    async def say(self, kind, first, last=None, partition=0):
        """The refusal, or None when it is durable."""
        ranges = [AckRange(first, first if last is None else last, [kind])]
        result = self.consumers.acknowledge(
            self.name, self.stage.topic_partition(partition=partition), ranges
        )
        return result if isinstance(result, AckRefusal) else await result


async def share(stage, group=GROUP, topic="orders"):
    known = stage.broker.log.topics.named(topic)
    floors = dict.fromkeys(range(known.partitions), 0)
    name = subscription_name(group)

    def create(tx):
        catalog.create(
            tx, known.id, name, SubscriptionConfig(), floors, topic=topic, now_ms=1, share_group=group
        )

    await stage.broker.log.write(create)


@pytest.fixture
def configure(stage, monkeypatch):
    def apply(**values):
        config = GroupConfig(share=ShareGroupConfig(**values))
        monkeypatch.setattr(stage.broker.configs, "group_config", lambda group: config)

    return apply


@pytest.fixture
async def shared(stage):
    await share(stage)
    return stage


async def test_a_lock_ends_with_its_time(shared):
    await shared.publish(b"1", b"2")
    first, second = Sharer(shared), Sharer(shared, "m2")
    assert await first.take(2) == {0: 1, 1: 1}
    await shared.advance_time(LOCK_S - 1)
    await second.nothing()
    assert await first.say(AckType.RENEW, 1) is None
    await shared.advance_time(2)
    assert await second.take() == {0: 2}
    assert await first.say(AckType.ACCEPT, 0) is AckRefusal.NOT_ACQUIRED
    assert await first.say(AckType.ACCEPT, 0, 1) is AckRefusal.NOT_ACQUIRED
    assert await first.say(AckType.ACCEPT, 1) is None
    assert await second.say(AckType.ACCEPT, 0) is None
    assert await shared.floor(NAME) == 2


async def both_wait(shared):
    """Two members that wait for messages, and who gets the first one."""
    waiting = {name: asyncio.create_task(Sharer(shared, name).take()) for name in ("m1", "m2")}
    await shared.settle()
    assert all(member.waiting for member in shared.broker.share_consumers._members.values())
    await shared.publish(b"1")
    await asyncio.wait(waiting.values(), return_when=asyncio.FIRST_COMPLETED)
    [served] = [name for name, task in waiting.items() if task.done()]
    assert await waiting.pop(served) == {0: 1}
    await shared.settle()
    [other] = waiting.values()
    return other


async def test_who_still_waits_gets_the_next_message(shared):
    other = await both_wait(shared)
    await shared.publish(b"2")
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert await other == {1: 1}


async def test_who_waits_gets_a_message_when_its_lock_ends(shared):
    other = await both_wait(shared)
    await shared.advance_time(LOCK_S + 1)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert await other == {0: 2}


async def test_a_message_is_delivered_as_often_as_the_limit_says(shared, configure):
    configure(delivery_count_limit=3)
    await shared.publish(b"1", b"2")
    member = Sharer(shared)
    for count, end in enumerate(("release", "lock", "leave"), start=1):
        assert (await member.take())[0] == count
        if end == "release":
            assert await member.say(AckType.ACCEPT, 1) is None
            assert await member.say(AckType.RELEASE, 0) is None
        elif end == "lock":
            await shared.advance_time(LOCK_S + 1)
        else:
            member.consumers.release(member.name)
    await shared.settle()
    await member.nothing()
    await shared.broker.queues.dead_letters.move_all()
    [letter] = await shared.broker.read("orders.share.workers.dead13")
    headers = dict(letter.headers)
    assert (letter.value, headers["__dlq.errors.delivery.count"]) == (b"1", b"3")
    assert headers["millpond-reasons"] == b'["released by the consumer", "ack timeout", "connection lost"]'


async def test_counts_and_settled_messages_survive_a_restart(shared):
    await shared.publish(b"1", b"2", b"3")
    member = Sharer(shared)
    await member.take(3)
    assert await member.say(AckType.RELEASE, 0) is None
    assert await member.say(AckType.ACCEPT, 1) is None
    await shared.restart()
    assert await Sharer(shared).take(2) == {0: 2, 2: 1}


async def test_another_owner_of_the_state_fences_the_former_one(shared):
    """As when this broker was paused: its acknowledgements do not count, and it serves the new state afterwards."""
    await shared.publish(b"1")
    member = Sharer(shared)
    await member.take()
    found = await shared.broker.queues.find("orders", NAME)
    key = catalog.StateKey(found.id, "", 0)
    session = shared.broker.session
    await shared.broker.log.write(lambda tx: catalog.take(tx, found, key, owner=session, topic="orders"))
    with pytest.raises(NotOwner):
        await member.say(AckType.ACCEPT, 0)
    await shared.settle()
    assert await shared.floor(NAME) == 0
    assert await Sharer(shared, "m2").take() == {0: 1}


async def test_what_was_acquired_before_a_queue_restarts_is_not_acquired_any_more(shared):
    """The queue has read nothing again yet; the offsets are known to the log all the same."""
    await shared.publish(b"1", b"2", b"3")
    member = Sharer(shared)
    await member.take(3)
    former = queue_of(shared)
    former.close(NotOwner())
    await shared.advance_time(2)
    assert queue_of(shared) is not former
    assert shared.dispatcher().frontier == 0
    assert await member.say(AckType.ACCEPT, 0, 2) is AckRefusal.NOT_ACQUIRED
    assert await member.say(AckType.ACCEPT, 0, 3) is AckRefusal.MALFORMED


@pytest.mark.parametrize("isolation", list(ShareIsolation))
async def test_isolation(shared, configure, isolation):
    configure(isolation=isolation)
    transactions, part = shared.broker.transactions, shared.topic_partition()
    offsets = {}
    for name in ("aborted", "committed", "open"):
        producer = await transactions.begin_producer(name, 60_000)
        await transactions.add_partitions(producer, [part])
        batch = build_batch(
            [Record(name.encode())],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
            now_ms=1_000,
        )
        offsets[name] = (await shared.broker.log.append(part, batch)).base_offset
        if name != "open":
            await transactions.end(producer, commit=name == "committed", bump_epoch=False)
    member = Sharer(shared)
    visible = ["committed"] if isolation is ShareIsolation.READ_COMMITTED else list(offsets)
    assert await member.take(len(visible)) == {offsets[name]: 1 for name in visible}
    await member.nothing()


async def test_delivery_times_and_addresses_apply_to_share_groups(shared):
    await shared.publish(b"now")
    later = shared.clock.now_ms() + 10_000
    await shared.publish(b"later", headers=((DELIVER_AT, b"%d" % later),))
    member = Sharer(shared)
    assert await member.take() == {0: 1}
    await member.nothing()
    await shared.advance_time(11)
    assert await member.take() == {1: 1}
    await share(shared, "others")
    assert await member.say(AckType.REJECT, 0, 1) is None
    await shared.broker.queues.dead_letters.move_all()
    assert await shared.broker.queues.redrive("orders", NAME) == 2
    other = Sharer(shared, group="others")
    assert await member.take(2) == {2: 1, 3: 1}
    assert await other.take(2) == {0: 1, 1: 1}
    await other.nothing()


async def test_altered_configs_of_the_group_apply_to_its_members(shared, configure):
    await shared.publish(b"1", b"2", b"3", b"4")
    member = Sharer(shared)
    configure(partition_locks_max=1)
    assert await member.take() == {0: 1}
    configure(partition_locks_max=3, record_lock_ms=15_000)
    await shared.advance_time(2)
    assert await member.take(2) == {1: 1, 2: 1}
    await shared.advance_time(16)
    assert (await member.take(2))[1] == 2
    configure(key_order=True)
    await shared.advance_time(2)
    await shared.settle()
    assert shared.dispatcher().config.strict


async def test_messages_of_a_key_wait_until_the_one_before_is_durable(shared, configure):
    configure(key_order=True)
    await shared.publish(b"1", b"2", key=b"a")
    await shared.publish(b"3", key=b"b")
    member = Sharer(shared)
    assert await member.take(2) == {0: 1, 2: 1}
    await member.nothing()
    assert await member.say(AckType.RELEASE, 0) is None
    assert await member.take() == {0: 2}
    assert await member.say(AckType.ACCEPT, 0) is None
    assert await member.take() == {1: 1}


async def test_a_member_that_forgets_a_partition_has_none_of_its_keys(shared, configure):
    configure(key_order=True)
    keys = [b"%d" % number for number in range(8)]
    first, second = Sharer(shared), Sharer(shared, "m2")
    await first.nothing()
    await second.nothing()
    for key in keys:
        await shared.publish(key, key=key)
    await shared.settle()
    mine = await first.take()
    assert 0 < len(mine) < 8
    first.consumers.pause(first.name, [shared.topic_partition()])
    assert len(await second.take(8 - len(mine))) == 8 - len(mine)
    first.consumers.resume(first.name, [shared.topic_partition()])
    assert all([await first.say(AckType.ACCEPT, offset) is None for offset in mine])


async def test_a_member_stays_away_from_a_partition_that_it_forgot_when_its_queue_restarts(shared, configure):
    configure(key_order=True, record_lock_ms=HOUR_MS)
    part, first, second = shared.topic_partition(), Sharer(shared), Sharer(shared, "m2")
    await first.nothing()
    await second.nothing()
    first.consumers.pause(first.name, [part])
    await restart_queue(shared)
    for number in range(8):
        await shared.publish(b"x", key=b"%d" % number)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert sorted(await second.take(8)) == list(range(8))
    first.consumers.resume(first.name, [part])
    await first.consumers.attach(first.name, [part])
    assert not shared.dispatcher().consumers.by_name["m1"].paused


async def restart_queue(stage):
    """As when the partition moves away and comes back."""
    [active], former = stage.broker.queues._active_subscriptions.all(), queue_of(stage)
    former.close(NotOwner())
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while active.queues.get(0) in (None, former):
            await stage.settle()


async def test_deliveries_end_when_the_queue_restarts_even_if_their_tokens_recur(shared):
    await shared.publish(b"1")
    part, first, second = shared.topic_partition(), Sharer(shared), Sharer(shared, "m2")
    await first.take()
    await second.nothing()
    await restart_queue(shared)
    await second.take()
    consumers, epoch = shared.broker.share_consumers, shared.dispatcher().epoch
    delivery = QueueDelivery(0, "m1", 0, shared.dispatcher().token_of(0))
    assert consumers.still_held(second.name, part, epoch, [delivery]) == [delivery]
    assert consumers.still_held(first.name, part, epoch - 1, [delivery]) == []


async def test_what_is_held_in_memory_is_bounded(shared, configure):
    configure(partition_locks_max=10)
    for _ in range(30):
        await shared.publish(*[b"x"] * 100)
    member = Sharer(shared)
    assert len(await member.take(10)) == 10
    await shared.settle()
    [active] = shared.broker.queues._active_subscriptions.all()
    assert not active.queues[0]._read_ahead.held
    assert shared.dispatcher().tracked <= 3_000
    member.consumers.release(member.name)
    assert not member.consumers._members
    for _ in range(5):
        await shared.advance_time(2)
    assert not shared.broker.queues._active_subscriptions.all()
