"""Members of groups: consumers of this library share partitions, beside each other and beside Kafka's."""

import asyncio
from collections import Counter

import confluent_kafka
import pytest
from tests.unit.client.conftest import Setting

from millpond.client import consumer as consumer_module
from millpond.client import group_membership, topic_reader
from millpond.client.membership_state import REBALANCE_TIMEOUT_S, MembershipState
from millpond.groups import LeaveRequest
from millpond.model.errors import (
    GroupError,
    GroupFull,
    InvalidRequest,
    Stopping,
    TopicReplaced,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from millpond.testing import SimulatedClock, running_broker

PARTITIONS = 4
LONGEST_S = 60
"""Only what hangs takes so long."""
KAFKA_POLL_S = 0.05


@pytest.fixture(autouse=True)
def frequent_heartbeats(monkeypatch):
    monkeypatch.setattr(group_membership, "HEARTBEAT_S", 0.02)


@pytest.fixture
async def topic(setting):
    await setting.create("t", PARTITIONS)
    return "t"


def values(polled):
    return [message.value for message in polled.messages]


def partitions(*consumers):
    return [set(each.assignment["t"]) for each in consumers]


async def fill(setting, start, count):
    async with setting.producer("t") as producer:
        for number in range(start, start + count):
            await producer.send(b"%d" % number, partition=number % PARTITIONS)


async def until(condition, *consumers):
    """Let the consumers poll at one time until it is so. Returns the values of their messages."""
    found = []
    async with asyncio.timeout(LONGEST_S):
        while not condition():
            for polled in await asyncio.gather(*(each.poll(wait=0.05) for each in consumers)):
                found += values(polled)
    return found


async def shared(*consumers):
    """Returns when each of them has an equal share."""
    even = PARTITIONS // len(consumers)
    return await until(lambda: all(len(each) == even for each in partitions(*consumers)), *consumers)


async def drain(count, *consumers):
    found = []
    async with asyncio.timeout(LONGEST_S):
        while len(found) < count:
            for polled in await asyncio.gather(*(each.poll(wait=0.05) for each in consumers)):
                found += values(polled)
    return sorted(int(each) for each in found)


async def positions_kept(setting, group="g"):
    async with setting.admin() as admin:
        found = await admin.describe_group(group)
    return {each.partition: each.read_from for each in found.positions}


# -- sharing ---------------------------------------------------------------------------------------------------------


async def test_members_share_the_partitions_and_read_each_message_once(setting, topic):
    await fill(setting, 0, 40)
    async with setting.consumer(topic, group="g") as first:
        assert await drain(40, first) == list(range(40))
        assert partitions(first) == [set(range(PARTITIONS))]
        async with setting.consumer(topic, group="g") as second:
            assert await shared(first, second) == [], "the positions were handed over"
            assert set.union(*partitions(first, second)) == set(range(PARTITIONS))
            await fill(setting, 40, 40)
            assert await drain(40, first, second) == list(range(40, 80))
        await fill(setting, 80, 40)
        assert await drain(40, first) == list(range(80, 120)), "what left is taken over"
        assert partitions(first) == [set(range(PARTITIONS))]
    assert await positions_kept(setting) == dict.fromkeys(range(PARTITIONS), 31)


async def test_a_member_that_waits_for_messages_gives_up_what_another_one_gets(setting, topic):
    async with setting.consumer(topic, group="g") as first, setting.consumer(topic, group="g") as second:
        await first.poll()
        waiting = asyncio.ensure_future(first.poll(wait=LONGEST_S))
        await until(lambda: len(second.assignment["t"]) == 2, second)
        [mine] = partitions(second)
        [other, *_] = set(range(PARTITIONS)) - mine
        await setting.produce("t", b"x", partition=other)
        assert values(await waiting) == [b"x"]


async def test_a_change_of_the_assignment_ends_the_wait_of_a_poll(setting, topic, monkeypatch):
    monkeypatch.setattr(consumer_module, "ROUND_S_MAX", 1e5)
    monkeypatch.setattr(topic_reader, "METADATA_REFRESH_S", 1e5)
    async with setting.consumer(topic, group="g") as first, setting.consumer(topic, group="g") as second:
        await first.poll()
        waiting = [asyncio.ensure_future(each.poll(wait=1e5)) for each in (first, second)]
        async with asyncio.timeout(LONGEST_S):
            while [len(each) for each in partitions(first, second)] != [2, 2]:
                await asyncio.sleep(0.01)
        for partition in range(PARTITIONS):
            await setting.produce("t", b"x", partition=partition)
        await asyncio.gather(*waiting)


async def test_a_share_of_one_partition_has_a_position_by_partition(setting):
    await setting.create("t", 2)
    async with setting.consumer("t", group="g") as first, setting.consumer("t", group="g") as second:
        await until(lambda: len(first.assignment["t"]) == len(second.assignment["t"]) == 1, first, second)
        [number] = first.assignment["t"]
        assert first.read_from == {number: 1}, "a number would be a position in every partition"


async def test_a_member_without_partitions_waits_for_some(setting):
    await setting.produce("t", b"a")
    async with setting.consumer("t", group="g") as first, setting.consumer("t", group="g") as second:
        assert values(await first.poll()) == [b"a"]
        assert await second.poll(wait=0.05) == ([], {})
        assert (second.read_from, await second.positions(), second.assignment) == ({}, {}, {"t": []})
        waiting = asyncio.ensure_future(second.poll(wait=LONGEST_S))
        await first.close()
        await setting.produce("t", b"b")
        assert values(await waiting) == [b"b"]
        assert second.read_from == 3


async def test_a_dead_member_loses_its_partitions_when_its_session_expires(setting, topic):
    await fill(setting, 0, 8)
    dead = setting.consumer(topic, group="g")
    assert len(values(await dead.poll())) == 8
    async with setting.consumer(topic, group="g") as alive:
        assert values(await alive.poll()) == []
        await setting.crash(dead)
        assert await drain(8, alive) == list(range(8)), "they were not processed"


async def test_several_topics_are_shared_by_the_same_members(setting):
    await setting.create("t", PARTITIONS)
    await setting.create("u", 2)
    async with setting.consumer(["t", "u"], group="g") as both, setting.consumer("t", group="g") as one:
        await both.poll()
        await until(lambda: one.assignment["t"], both, one)
        assert sorted(both.assignment["t"] + one.assignment["t"]) == list(range(PARTITIONS))
        assert both.assignment["u"] == [0, 1]
        assert set(both.read_from) == {"t", "u"}


async def test_partitions_that_are_added_are_read_from_their_first_message_on(setting, topic, loop_time):
    async with setting.consumer(topic, group="g", read_from="latest") as consumer, setting.admin() as admin:
        assert values(await consumer.poll()) == []
        await admin.alter_topic("t", partitions=PARTITIONS + 1)
        await setting.produce("t", b"new", partition=PARTITIONS)
        loop_time.advance(5)
        assert values(await consumer.poll(wait=LONGEST_S)) == [b"new"]


# -- heartbeats beside polls -----------------------------------------------------------------------------------------


class Held:
    """Calls of a method that end when they may."""

    def __init__(self, monkeypatch, target, name):
        self.began, self.may_end = asyncio.Event(), asyncio.Event()
        method = getattr(target, name)

        async def hold(*arguments):
            found = await method(*arguments)
            self.began.set()
            await self.may_end.wait()
            return found

        monkeypatch.setattr(target, name, hold)


@pytest.fixture
def heartbeats(monkeypatch):
    """How many responses each member has received, by its id."""
    found = Counter()
    accept = MembershipState.accept

    def counted(self, *arguments):
        accept(self, *arguments)
        found[self.member_id] += 1

    monkeypatch.setattr(MembershipState, "accept", counted)
    return found


async def test_what_is_revoked_while_it_is_taken_over_stays_with_its_member(
    setting, topic, monkeypatch, heartbeats
):
    await fill(setting, 0, 40)
    async with setting.consumer(topic, group="g") as first, setting.consumer(topic, group="g") as second:
        held = Held(monkeypatch, first._readers[0], "take_over")
        polling = asyncio.ensure_future(first.poll())
        await held.began.wait()
        state = first._member._membership
        read = await until(lambda: len(state.assigned) == PARTITIONS / 2, second)
        later = heartbeats[state.member_id] + 3
        read += await until(lambda: heartbeats[state.member_id] > later, second)
        assert (read, partitions(second)) == ([], [set()]), "the first one could read them at any moment"
        held.may_end.set()
        read = [int(each) for each in values(await polling)]
        read += await drain(40 - len(read), first, second)
        assert sorted(read) == list(range(40))
        await shared(first, second)
    assert await positions_kept(setting) == dict.fromkeys(range(PARTITIONS), 11)


async def test_a_take_over_that_fails_is_tried_again_and_revoked_meanwhile(setting, topic, monkeypatch):
    await fill(setting, 0, 8)
    async with setting.consumer(topic, group="g") as first, setting.consumer(topic, group="g") as second:
        reader, state = first._readers[0], first._member._membership
        with monkeypatch.context() as patched:

            async def fail(*_):
                raise Unavailable(reason="away")

            patched.setattr(reader, "take_over", fail)
            with pytest.raises(Unavailable):
                await first.poll()
            assert (len(state.assigned), len(state.owned)) == (PARTITIONS, 0)
            read = await until(lambda: second.assignment["t"], second)
        read = [int(each) for each in read]
        read += await drain(8 - len(read), first, second)
        assert sorted(read) == list(range(8))


# -- positions -------------------------------------------------------------------------------------------------------


async def test_messages_of_a_revoked_partition_are_never_returned(setting, topic):
    """They were fetched by a poll that returned the first one only."""
    await fill(setting, 0, 40)
    async with setting.consumer(topic, group="g") as first, setting.consumer(topic, group="g") as second:
        read = [int(value) for value in values(await first.poll(messages_max=1))]
        while not second.assignment["t"]:
            read += [int(each) for each in values(await first.poll(messages_max=1))]
            read += [int(each) for each in values(await second.poll())]
        read += await drain(40 - len(read), first, second)
        assert sorted(read) == list(range(40))


async def test_a_poll_commits_before_it_gives_up(setting, topic):
    await fill(setting, 0, 40)
    async with setting.consumer(topic, group="g") as first, setting.consumer(topic, group="g") as second:
        assert len(values(await first.poll())) == 40
        await second.poll()
        assert set((await positions_kept(setting)).values()) == {None}, "nothing was processed yet"
        await first.poll()
        assert await shared(first, second) == []
        assert await positions_kept(setting) == dict.fromkeys(range(PARTITIONS), 11)


async def test_a_seek_moves_the_assigned_partitions_only(setting, topic):
    await fill(setting, 0, 8)
    async with setting.consumer(topic, group="g") as first, setting.consumer(topic, group="g") as second:
        await drain(8, first)
        await shared(first, second)
        await first.seek(1)
        assert await drain(4, first) == [
            each for each in range(8) if each % PARTITIONS in first.assignment["t"]
        ]
        await first.seek(dict.fromkeys(range(PARTITIONS), 2))
        assert set(await first.positions()) == set(first.assignment["t"])
        assert await second.positions() == dict.fromkeys(second.assignment["t"], 3)
        with pytest.raises(UnknownPartition):
            await first.seek({PARTITIONS: 1})


async def test_positions_and_a_seek_join_before_the_first_poll(setting):
    await setting.produce("t", b"a", b"b")
    async with setting.consumer("t", group="g") as consumer:
        assert (consumer.read_from, consumer.assignment) == (None, {"t": []})
        assert await consumer.positions() == {0: 1}
        assert consumer.assignment == {"t": [0]}
    async with setting.consumer("t", group="g") as consumer:
        await consumer.seek(2)
        assert values(await consumer.poll()) == [b"b"]


async def test_the_first_position_of_a_group_stays_where_it_was_found(setting):
    """`latest` would be another one when the next member asks."""
    await setting.produce("t", b"old")
    crashed = setting.consumer("t", group="g", read_from="latest")
    assert values(await crashed.poll()) == []
    await setting.produce("t", b"a")
    await setting.crash(crashed)
    async with setting.consumer("t", group="g", read_from="latest") as consumer:
        assert values(await consumer.poll()) == [b"a"]


async def test_an_iteration_goes_on_after_a_rebalance(setting, topic):
    await fill(setting, 0, 8)
    async with setting.consumer(topic, group="g") as first:
        messages = aiter(first)
        read = {int((await anext(messages)).value) for _ in range(8)}
        async with setting.consumer(topic, group="g") as second:
            waiting = asyncio.ensure_future(anext(messages))
            await until(lambda: len(second.assignment["t"]) == 2, second)
            [other, *_] = set(range(PARTITIONS)) - set(second.assignment["t"])
            await setting.produce("t", b"8", partition=other)
            assert int((await waiting).value) == 8
    assert read == set(range(8))


async def more_heartbeats(heartbeats, consumer):
    """Returns when the consumer has sent some, or is no member any more."""
    member = consumer._member
    later = heartbeats[member._membership.member_id] + 2
    async with asyncio.timeout(LONGEST_S):
        while heartbeats[member._membership.member_id] < later and not member._heartbeats.done():
            await asyncio.sleep(0.01)


async def test_an_iteration_shows_that_the_application_is_alive_and_commits(
    setting, topic, loop_time, heartbeats
):
    """A message takes minutes, and a poll brings many of them."""
    await fill(setting, 0, 8)
    async with setting.consumer(topic, group="g") as consumer:
        read = []
        async for message in consumer:
            kept = await positions_kept(setting)
            assert sum((at or 1) - 1 for at in kept.values()) == len(read), "what was processed"
            read.append(int(message.value))
            if len(read) == 8:
                break
            loop_time.advance(REBALANCE_TIMEOUT_S * 0.7)
            await more_heartbeats(heartbeats, consumer)
            assert consumer._member.is_joined
    assert sorted(read) == list(range(8))


async def test_an_iteration_gives_up_what_is_revoked_with_its_next_message(setting, topic, heartbeats):
    await fill(setting, 0, 40)
    async with setting.consumer(topic, group="g") as first, setting.consumer(topic, group="g") as second:
        messages = aiter(first)
        read = [int((await anext(messages)).value)]
        assert await second.poll() == ([], {})
        async with asyncio.timeout(LONGEST_S):
            await first._member.changed.wait()
        read.append(int((await anext(messages)).value))
        assert len(first.assignment["t"]) == PARTITIONS / 2
        read += map(int, await until(lambda: len(second.assignment["t"]) == PARTITIONS / 2, second))
        await messages.aclose()
        read += await drain(40 - len(read), first, second)
        assert sorted(read) == list(range(40))


# -- what is lost ----------------------------------------------------------------------------------------------------


async def remove(setting, consumer):
    """As an administrator does."""
    [error] = await setting.broker.groups.leave("g", [LeaveRequest(consumer._member._membership.member_id)])
    assert error is None


async def test_a_member_that_lost_its_partitions_commits_nothing_and_joins_again(setting):
    await setting.produce("t", b"a", b"b")
    async with setting.consumer("t", group="g") as consumer:
        assert values(await consumer.poll(messages_max=1)) == [b"a"]
        await remove(setting, consumer)
        with pytest.raises(GroupError):
            await consumer.commit()
        assert values(await consumer.poll()) == [b"a", b"b"], "another member could have read them"
        await consumer.commit()
    assert await positions_kept(setting) == {0: 3}


async def test_a_poll_that_waits_joins_again_when_its_member_is_lost(setting):
    await setting.produce("t", b"a")
    async with setting.consumer("t", group="g") as consumer:
        await consumer.poll()
        await consumer.poll()
        waiting = asyncio.ensure_future(consumer.poll(wait=LONGEST_S))
        await remove(setting, consumer)
        await setting.produce("t", b"b")
        assert values(await waiting) == [b"b"]


async def test_messages_that_arrive_after_a_loss_are_not_returned(setting, monkeypatch):
    await setting.produce("t", b"a")
    async with setting.consumer("t", group="g") as consumer:
        await consumer.positions()
        [reader] = consumer._readers
        poll_owner, polls = reader.poll_owner, []

        async def lose_once(*arguments):
            polls.append(await poll_owner(*arguments))
            if len(polls) == 1:
                await remove(setting, consumer)
                await consumer._member._send_heartbeat()
            return polls[-1]

        monkeypatch.setattr(reader, "poll_owner", lose_once)
        assert values(await consumer.poll()) == [b"a"]
        assert len(polls) == 2, "after it has joined again"
        await consumer.commit()


async def test_closing_after_a_loss_is_no_error(setting):
    await setting.produce("t", b"a")
    async with setting.consumer("t", group="g") as consumer:
        await consumer.poll()
        await remove(setting, consumer)
    assert await positions_kept(setting) == {}


async def test_a_member_of_another_epoch_is_fenced_and_joins_again(setting):
    await setting.produce("t", b"a")
    async with setting.consumer("t", group="g") as consumer:
        await consumer.poll()
        consumer._member._membership.epoch += 5
        assert values(await consumer.poll()) == [b"a"]


async def test_a_consumer_that_does_not_poll_leaves_and_joins_again(setting, loop_time):
    await setting.produce("t", b"a", b"b")
    async with setting.consumer("t", group="g") as idle, setting.consumer("t", group="g") as other:
        assert values(await idle.poll(messages_max=1)) == [b"a"]
        loop_time.advance(REBALANCE_TIMEOUT_S)
        assert values(await other.poll(wait=LONGEST_S)) == [b"a", b"b"]
        await asyncio.wait([idle._member._heartbeats], timeout=LONGEST_S)
        assert not idle._member.is_joined
        assert await idle.poll() == ([], {})
        async with setting.admin() as admin:
            assert len((await admin.describe_group("g")).members) == 2


async def test_an_error_of_a_heartbeat_is_raised_once_by_a_poll(setting, monkeypatch):
    await setting.produce("t", b"a")
    async with setting.consumer("t", group="g") as consumer:
        await consumer.poll()
        member = consumer._member

        async def refuse(*_):
            raise InvalidRequest(reason="no")

        with monkeypatch.context() as patched:
            patched.setattr(member._coordinator, "call", refuse)
            await asyncio.wait([member._heartbeats], timeout=LONGEST_S)
        with pytest.raises(InvalidRequest, match="no"):
            await consumer.poll()
        assert values(await consumer.poll()) == [b"a"]


async def test_heartbeats_go_on_after_an_error_that_nobody_expects(setting, monkeypatch, heartbeats, caplog):
    await setting.produce("t", b"a")
    async with setting.consumer("t", group="g") as consumer:
        await consumer.poll()
        member = consumer._member
        failed = asyncio.Event()

        async def fail(*_):
            failed.set()
            raise ZeroDivisionError

        with monkeypatch.context() as patched:
            patched.setattr(member._coordinator, "call", fail)
            await asyncio.wait_for(failed.wait(), LONGEST_S)
        await more_heartbeats(heartbeats, consumer)
        assert not member._heartbeats.done()
        assert "unexpected error in group heartbeat" in caplog.text
        member._heartbeats.cancel()
        await consumer.poll()
        await more_heartbeats(heartbeats, consumer)
        assert not member._heartbeats.done(), "a poll has begun them again"


async def test_a_group_that_is_full_refuses_a_member(setting, monkeypatch):
    await setting.create("t")
    async with setting.consumer("t", group="g") as consumer:

        async def full(*_, **__):
            raise GroupFull(group="g", limit=1)

        monkeypatch.setattr(setting.broker.groups, "consumer_heartbeat", full)
        with pytest.raises(GroupFull):
            await consumer.poll()


async def test_a_closed_consumer_is_no_member(setting):
    await setting.produce("t", b"a")
    consumer = setting.consumer("t", group="g")
    await consumer.poll()
    waiting = asyncio.ensure_future(consumer.poll(wait=LONGEST_S))
    await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(Stopping):
        await waiting
    async with setting.admin() as admin:
        assert (await admin.describe_group("g")).members == []


# -- topics ----------------------------------------------------------------------------------------------------------


async def test_a_poll_that_gives_up_a_deleted_topic_reports_it(setting):
    await setting.produce("t", b"a")
    async with setting.consumer("t", group="g") as consumer, setting.admin() as admin:
        await consumer.poll()
        await admin.delete_topic("t")
        await consumer._member._send_heartbeat()
        with pytest.raises(UnknownTopic):
            await consumer.poll()
        assert consumer.assignment == {"t": []}


async def test_a_strict_member_reports_a_topic_that_was_created_again_until_it_seeks(setting):
    await setting.produce("t", b"old", b"old")
    async with setting.consumer("t", group="g", strict=True) as consumer, setting.admin() as admin:
        await consumer.poll()
        await admin.delete_topic("t")
        await setting.produce("t", b"a", b"b")
        for _ in range(3):
            with pytest.raises(TopicReplaced):
                await consumer.poll(wait=1.0)
        await consumer.seek(2)
        assert values(await consumer.poll(wait=LONGEST_S)) == [b"b"]


# -- beside Kafka's consumers ----------------------------------------------------------------------------------------


class KafkaConsumer:
    """librdkafka's, polled in a thread."""

    def __init__(self, address, **config):
        settings = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
        self._consumer = confluent_kafka.Consumer(settings | config)
        self._consumer.subscribe(["t"])

    def _poll(self):
        message = self._consumer.poll(KAFKA_POLL_S)
        assert message is None or message.error() is None, message.error()
        return [] if message is None else [message.value()]

    async def read(self):
        return await asyncio.to_thread(self._poll)

    async def numbers(self):
        assigned = await asyncio.to_thread(self._consumer.assignment)
        return {each.partition for each in assigned}

    async def close(self):
        await asyncio.to_thread(self._consumer.close)


@pytest.fixture
async def quick_setting():
    """With heartbeats of Kafka's consumers every 50 ms."""
    clock = SimulatedClock()
    quick = {"group_consumer_heartbeat_interval": 50, "group_consumer_heartbeat_interval_min": 50}
    async with running_broker(
        grpc=True, kafka=True, clock=clock, group_initial_rebalance_delay=0, **quick
    ) as broker:
        setting = Setting(broker, clock)
        await setting.create("t", PARTITIONS)
        yield setting


@pytest.mark.parametrize(
    "protocol",
    [
        {"group.protocol": "consumer"},
        {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 50},
        {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 50},
    ],
    ids=["consumer", "classic-cooperative", "classic-eager"],
)
@pytest.mark.parametrize("is_first", [True, False], ids=["joins first", "joins second"])
async def test_a_kafka_consumer_and_one_of_ours_share_a_group(quick_setting, protocol, is_first):
    setting = quick_setting
    kafka = KafkaConsumer(setting.broker.listeners["kafka"], **protocol)
    ours = setting.consumer("t", group="g")
    found = []

    async def read_both():
        polled, read = await asyncio.gather(ours.poll(wait=0.05), kafka.read())
        found.extend([*values(polled), *read])

    try:
        async with asyncio.timeout(LONGEST_S):
            while is_first and not await kafka.numbers():
                await kafka.read()
            while not len(await kafka.numbers()) == len(ours.assignment["t"]) == PARTITIONS // 2:
                await read_both()
            assert found == []
            await fill(setting, 0, 40)
            while len(found) < 40:
                await read_both()
        assert sorted(map(int, found)) == list(range(40))
        async with setting.admin() as admin:
            described = await admin.describe_group("g")
        assert described.group.type == "consumer"
        assert sorted(len(each.assigned["t"]) for each in described.members) == [2, 2]
    finally:  # in this order: without ours, a classic member's generation could end before it commits
        await kafka.close()
        await ours.close()
    assert await positions_kept(setting) == dict.fromkeys(range(PARTITIONS), 11)
