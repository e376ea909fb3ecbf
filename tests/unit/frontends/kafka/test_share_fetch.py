"""ShareFetch and ShareAcknowledge over the wire: what a member of a share group receives, and what its
acknowledgements do."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from tests.unit.frontends.kafka.sharing import (
    ACCEPT,
    FINAL,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Sharing,
    ack,
    share,
)
from tests.unit.frontends.kafka.wire import ANSWER_SECONDS_MAX

from millpond.frontends.kafka import turns
from millpond.frontends.kafka.handlers.share_fetch import LOCK_PARTS
from millpond.frontends.kafka.share_batches import SMALL_BYTES, batches_of
from millpond.frontends.kafka.share_delivery import RANGES_MAX
from millpond.model.errors import NotOwner
from millpond.model.group_configs import GroupConfig
from millpond.model.ids import TopicPartition
from millpond.model.share_groups import ShareGroupConfig
from millpond.protocol import ErrorCode
from millpond.protocol.messages import share_fetch as wire
from millpond.queues import MemberName, QueueDelivery
from millpond.records import Record, build_batch, iter_records, read_header

NONE, INVALID_REQUEST = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
INVALID_RECORD_STATE = ErrorCode.INVALID_RECORD_STATE
HOUR_MS = 3_600_000
RENEWAL = {"is_renew_ack": True, "max_bytes": 0, "min_bytes": 0, "max_records": 0}


@pytest.fixture
async def sharing(interface):
    async with AsyncExitStack() as stack:
        topic = await interface.topic(partitions=2)
        await share(interface.log)
        yield Sharing(interface, stack, topic)


@pytest.fixture
def configure(sharing, monkeypatch):
    """Give all groups these configs."""

    def apply(**values):
        config = GroupConfig(share=ShareGroupConfig(**values))
        monkeypatch.setattr(sharing.interface.broker.configs, "group_config", lambda group: config)

    return apply


async def append(sharing, *batches, partition=0):
    return await sharing.interface.log.append(TopicPartition(sharing.topic.id, partition), b"".join(batches))


@pytest.mark.parametrize("version", [1, 2])
async def test_messages_are_acquired_once_and_counted_from_one(sharing, version):
    await sharing.interface.fill(count=3)
    first, second = await sharing.member("m1", version), await sharing.member("m2", version)
    part = await first.until()
    assert part.messages == {0: (b"0", 1), 1: (b"1", 1), 2: (b"2", 1)}
    assert part.ranges == [(0, 2, 1)]
    assert first.response.acquisition_lock_timeout_ms == 30_000
    assert (await second.fetch())[0].messages == {}
    assert (await first.fetch([ack(0, 2)]))[0].ack_error == NONE
    assert await second.fetch(partitions=()) == {}


async def test_each_type_of_acknowledgement(sharing):
    await sharing.interface.fill(count=4)
    member = await sharing.member()
    await member.take()
    part = await member.until([ack(0, 3, ACCEPT, RELEASE, REJECT, GAP)])
    assert part.ack_error == NONE
    assert part.messages == {1: (b"1", 2)}
    status = await sharing.interface.broker.queues.describe("orders", "share.workers")
    assert (status.partitions[0].floor, status.partitions[0].settled_above_floor) == (1, 2)
    await sharing.interface.broker.queues.dead_letters.move_all()
    [dead] = await sharing.interface.broker.read("orders.share.workers.dead13")
    headers = dict(dead.headers)
    assert (dead.value, headers["__dlq.errors.offset"], headers["__dlq.errors.group"]) == (
        b"2",
        b"2",
        b"workers",
    )
    assert headers["__dlq.errors.message"] == b"rejected by the consumer"
    assert headers["__dlq.errors.delivery.count"] == b"1"


# Sessions


async def test_the_epochs_of_a_session(sharing):
    member = await sharing.member()

    async def error(call):
        await call
        return member.response.error_code

    assert await error(member.fetch(epoch=1)) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert await error(member.acknowledge([], epoch=FINAL)) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert await error(member.fetch([ack(0)], epoch=0)) == INVALID_REQUEST
    assert await error(member.fetch()) == NONE
    assert await error(member.fetch(epoch=2)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert await error(member.acknowledge([], epoch=0)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert await error(member.acknowledge([])) == NONE
    assert await error(member.fetch()) == NONE
    assert await error(member.fetch(epoch=FINAL)) == NONE
    assert await error(member.fetch(epoch=3)) == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize("named", [{"group_id": None}, {"member_id": ""}, {"member_id": "m" * 37}])
async def test_a_member_needs_a_group_and_an_id(sharing, named):
    member = await sharing.member()
    member.named |= named
    await member.fetch()
    assert member.response.error_code == INVALID_REQUEST
    await member.acknowledge([ack(0)], epoch=1)
    assert member.response.error_code == INVALID_REQUEST


async def test_a_session_that_is_replaced_keeps_locks(sharing):
    await sharing.interface.fill(count=2)
    member = await sharing.member()
    assert sorted(await member.take()) == [0, 1]
    member.epoch = 0
    assert (await member.fetch())[0].messages == {}
    assert await member.acknowledge([ack(0, 1)]) == {0: NONE}


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_partitions_are_asked_in_turns(sharing, monkeypatch, is_replaced):
    """After one of them, something else runs; it may replace the session, which ends the request."""
    for partition in range(2):
        await sharing.interface.fill(count=2, partition=partition)
    member = await sharing.member()
    await member.fetch(max_records=0, partitions=(0, 1))
    await are_ready(sharing, member)
    consumers, services = (
        sharing.interface.broker.share_consumers,
        sharing.interface.broker.interfaces.kafka.services,
    )
    name, acquire, seen = MemberName(**member.named), consumers.acquire, []

    def something_else():
        seen.append("something else")
        if is_replaced:
            services.share_sessions.fetch(name, 0, (), (), member, acknowledges=False)

    def acquire_and_look(name, partition, *limits):
        seen.append(partition.partition)
        if len(seen) == 1:
            asyncio.get_running_loop().call_soon(something_else)
        return acquire(name, partition, *limits)

    monkeypatch.setattr(turns, "ENTRIES_PER_TURN", 1)
    monkeypatch.setattr(consumers, "acquire", acquire_and_look)
    found = await member.fetch(partitions=())
    assert seen == [0, "something else", 1][: 2 if is_replaced else 3]
    assert list(found) == ([] if is_replaced else [0, 1])
    assert leased(sharing) == (0 if is_replaced else 4)


@pytest.mark.parametrize("has_some", [False, True])
async def test_a_request_of_a_session_that_is_replaced_takes_nothing(sharing, has_some):
    former, again = await sharing.member(), await sharing.member()
    await former.fetch()
    waiting = asyncio.create_task(former.fetch(partitions=(), max_wait_ms=60_000, min_bytes=1 << 20))
    if has_some:
        await sharing.interface.fill(count=1)
    await until(lambda: is_waiting(sharing, former) and leased(sharing) == has_some)
    await again.fetch(max_records=0)
    if not has_some:
        await sharing.interface.fill(count=1)
    assert await again.take(partitions=()) == {0: (b"0", 1)}
    assert await waiting == {}
    assert await again.acknowledge([ack(0)]) == {0: NONE}


def is_waiting(sharing, member):
    found = sharing.interface.broker.share_consumers._members.get(MemberName(**member.named))
    return found is not None and bool(found.waiting)


def queue_of(sharing):
    """Of partition 0."""
    [active] = sharing.interface.broker.queues._active_subscriptions.all()
    return active.queues.get(0)


def leased(sharing):
    [active] = sharing.interface.broker.queues._active_subscriptions.all()
    return sum(queue.dispatcher.leased for queue in active.open_queues())


async def until(condition):
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("closes_by", ["fetch", "acknowledge"])
async def test_closing_a_session_takes_acknowledgements_and_releases_the_rest(sharing, closes_by):
    await sharing.interface.fill(count=3)
    member, other = await sharing.member(), await sharing.member("m2")
    await member.take()
    if closes_by == "fetch":
        found = await member.fetch([ack(0)], partitions=(), epoch=FINAL)
        assert (found[0].ack_error, found[0].messages) == (NONE, {})
    else:
        assert await member.acknowledge([ack(0)], epoch=FINAL) == {0: NONE}
    assert await other.take() == {1: (b"1", 2), 2: (b"2", 2)}


async def test_a_lost_connection_releases_locks_and_the_delivery_counts(sharing):
    await sharing.interface.fill(count=1)
    member, other = await sharing.member(), await sharing.member("m2")
    await member.take()
    assert (await other.fetch())[0].messages == {}
    waiting = asyncio.create_task(other.take())
    member.client._writer.transport.abort()
    assert await waiting == {0: (b"0", 2)}


async def test_a_connection_ends_only_the_sessions_that_it_opened(sharing):
    await sharing.interface.fill(count=1)
    former, again, other = await sharing.member(), await sharing.member(), await sharing.member("m2")
    await former.fetch(partitions=())
    await again.take()
    former.client._writer.transport.abort()
    sessions = sharing.interface.broker.interfaces.kafka.services.share_sessions
    await other.fetch()
    assert len(sessions) == 2
    assert await again.acknowledge([ack(0)]) == {0: NONE}


async def test_partitions_are_added_and_forgotten_and_locks_stay(sharing):
    for partition in range(2):
        await sharing.interface.fill(count=1, partition=partition)
    member = await sharing.member()
    assert list(await member.take()) == [0]
    assert list(await member.fetch(partitions=())) == []
    found = await member.fetch(partitions=(1,), forget=(0,), max_wait_ms=10_000)
    assert list(found) == [1]
    assert list(found[1].messages) == [0]
    await sharing.interface.fill(count=1)
    assert list(await member.fetch(partitions=())) == []
    found = await member.fetch({0: [ack(0)], 1: [ack(0)]}, partitions=(), max_wait_ms=10_000)
    assert {number: part.ack_error for number, part in found.items()} == {0: NONE, 1: NONE}
    assert list(found[0].messages) == [1]  # an acknowledgement adds its partition again


@pytest.mark.parametrize("limits", [{"max_records": 0}, {"max_bytes": 0}, RENEWAL])
async def test_a_partition_that_a_request_without_messages_adds_again_is_fetched(sharing, limits):
    member = await sharing.member()
    await member.fetch(partitions=(0, 1))
    await member.fetch(partitions=(), forget=(0,))
    await member.fetch(partitions=(0,), **limits)
    await sharing.interface.fill(count=1)
    found = await member.fetch(partitions=(), max_wait_ms=60_000)
    assert found[0].messages == {0: (b"0", 1)}


async def test_a_topic_that_is_listed_twice_is_merged(sharing):
    await sharing.interface.fill(count=2)
    member = await sharing.member()
    await member.take()

    topics = [
        wire.ShareFetchTopic(
            topic_id=sharing.topic.id,
            partitions=[wire.ShareFetchPartition(partition_index=number, acknowledgement_batches=acks)],
        )
        for number, acks in ((0, []), (1, []), (0, [ack(0, 1)]))
    ]
    found = await member.fetch(topics=topics)
    assert found[0].ack_error == NONE
    status = await sharing.interface.broker.queues.describe("orders", "share.workers")
    assert status.partitions[0].floor == 2


# Acknowledgements


async def test_acknowledgements_of_a_partition_count_together_or_not_at_all(sharing):
    await sharing.interface.fill(count=4)
    member, other = await sharing.member(), await sharing.member("m2")
    await member.take(max_records=2)
    await other.take(max_records=1)
    assert await member.acknowledge([ack(0, 2)]) == {0: INVALID_RECORD_STATE}
    assert await member.acknowledge([ack(0), ack(2)]) == {0: INVALID_RECORD_STATE}
    assert await member.acknowledge([ack(0), ack(1, 3)]) == {0: INVALID_RECORD_STATE}
    assert await member.acknowledge([ack(0, 1), ack(4)]) == {0: INVALID_REQUEST}
    assert await member.acknowledge([ack(0, 1)]) == {0: NONE}
    assert await member.acknowledge([ack(0, 1)]) == {0: NONE}  # below the start
    assert await other.acknowledge([ack(0, 2)]) == {0: NONE}


@pytest.mark.parametrize(
    "acks",
    [
        [ack(1), ack(0)],
        [ack(0, 1), ack(1)],
        [ack(1, 0)],
        [ack(-1)],
        [ack(0, 2, ACCEPT, ACCEPT)],
        [ack(0, 0, 5)],
        [ack(0, 0, -1)],
        [ack(0, 0, RENEW)],
        [ack(0, 1 << 62)],
        [wire.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[])],
    ],
)
async def test_malformed_acknowledgements_change_nothing(sharing, acks):
    await sharing.interface.fill(count=3)
    member = await sharing.member()
    await member.take()
    found = await member.fetch(acks)
    assert (found[0].ack_error, found[0].error) == (INVALID_REQUEST, NONE)
    assert await member.acknowledge([ack(0, 2)]) == {0: NONE}


async def test_an_acknowledgement_is_answered_when_it_is_durable(sharing):
    await sharing.interface.fill(count=2)
    member = await sharing.member()
    await member.take()
    await member.acknowledge([ack(0)])
    queues = sharing.interface.broker.queues
    found = await queues.find("orders", "share.workers")
    assert (await queues.floors(found))["", 0] == 1


async def test_locks_are_renewed_by_requests_that_fetch_nothing(sharing):
    await sharing.interface.fill(count=2)
    member = await sharing.member()
    await member.take(max_records=1)
    found = await member.fetch([ack(0, 0, RENEW)], max_wait_ms=0, **RENEWAL)
    assert (found[0].ack_error, found[0].messages) == (NONE, {})
    assert await member.acknowledge([ack(0, 0, RENEW)], renew=True) == {0: NONE}
    assert member.response.acquisition_lock_timeout_ms == 30_000
    await member.fetch([ack(0, 0, RENEW)], is_renew_ack=True)
    assert member.response.error_code == INVALID_REQUEST
    assert await member.acknowledge([ack(0)]) == {0: NONE}


async def test_renewal_may_be_switched_off(sharing, configure):
    configure(renew_allowed=False, record_lock_ms=20_000)
    await sharing.interface.fill(count=1)
    member = await sharing.member()
    await member.take()
    assert await member.acknowledge([ack(0, 0, RENEW)], renew=True) == {0: INVALID_RECORD_STATE}
    assert member.response.acquisition_lock_timeout_ms == 20_000


async def test_version_1_cannot_renew(sharing):
    await sharing.interface.fill(count=1)
    member = await sharing.member(version=1)
    await member.take()
    assert await member.acknowledge([ack(0, 0, RENEW)]) == {0: INVALID_REQUEST}


# Partitions that cannot be read


async def test_partitions_that_cannot_be_read(sharing):
    member = await sharing.member()
    found = await member.fetch(partitions=(2,))
    assert found[2].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    member.topic_id = b"\7" * 16
    found = await member.fetch()
    assert found[0].error == ErrorCode.UNKNOWN_TOPIC_ID
    assert await member.acknowledge([ack(0)]) == {0: ErrorCode.UNKNOWN_TOPIC_ID}


async def test_a_group_without_state_in_the_topic(sharing):
    member = await sharing.member(group="strangers")
    assert (await member.fetch())[0].error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await member.acknowledge([ack(0)]) == {0: INVALID_RECORD_STATE}
    await sharing.interface.fill(count=1)
    await share(sharing.interface.log, group="strangers")
    assert await member.take() == {0: (b"0", 1)}


async def test_a_partition_with_too_many_consumers_is_asked_for_again(sharing, monkeypatch):
    queues = sharing.interface.broker.queues
    monkeypatch.setattr(queues, "_limits", replace(queues._limits, consumers_max=1))
    member, other = await sharing.member(), await sharing.member("m2")
    await member.fetch()
    found = await other.fetch()
    assert found[0].error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "it has 1 consumers" in found[0].part.error_message
    waiting = asyncio.create_task(other.fetch(max_wait_ms=30_000))
    for _ in range(5):
        await member.fetch()
    assert not waiting.done(), "clients ask again at once"
    waiting.cancel()


async def test_a_group_that_loses_its_state_and_gets_another(sharing):
    await sharing.interface.fill(count=1)
    member = await sharing.member()
    await member.take()
    queues = sharing.interface.broker.queues
    await queues.of_share_groups.delete(await queues.find("orders", "share.workers"))
    assert (await member.fetch())[0].error == ErrorCode.UNKNOWN_SERVER_ERROR
    await share(sharing.interface.log)
    assert await member.take() == {0: (b"0", 1)}


# Limits, waiting, and batches


async def test_the_limits_of_a_fetch_are_for_all_partitions_together(sharing):
    for partition in range(2):
        await sharing.interface.fill(count=5, partition=partition)
    member = await sharing.member()
    await member.fetch(partitions=(0, 1))

    async def count(**limits):
        found = await member.fetch(max_wait_ms=10_000, **limits)
        return sum(len(part.messages) for part in found.values())

    assert await count(max_records=3) == 3
    assert await count(max_bytes=1) == 1
    assert await count(max_records=0) == 0
    assert await count(max_bytes=0) == 0


@pytest.mark.parametrize("acknowledges", [False, True])
async def test_each_partition_has_its_turn(sharing, acknowledges):
    """Also if every second epoch is that of an acknowledgement."""
    await sharing.interface.fill(count=50)
    await sharing.interface.fill(count=2, partition=1)
    member = await sharing.member()
    await member.fetch(partitions=(0, 1), max_records=0)
    await are_ready(sharing, member)
    firsts = []
    for _ in range(4):
        found = await member.fetch(partitions=(), max_records=1, max_wait_ms=10_000)
        firsts += [number for number, part in found.items() if part.messages]
        if acknowledges:
            await member.acknowledge({})
    assert firsts == [0, 1, 0, 1]


async def are_ready(sharing, member, partitions=(0, 1)):
    """Each of these partitions has two messages that can be acquired at once."""
    consumers = sharing.interface.broker.share_consumers
    name = MemberName(**member.named)
    for number in partitions:
        partition = TopicPartition(sharing.topic.id, number)
        await consumers.attach(name, [partition])
        found = []
        with consumers.waiting(name, [partition]) as available:
            while len(found) < 2:
                found += consumers.acquire(name, partition, 2 - len(found), 1 << 20).deliveries
                if len(found) < 2:
                    await available.wait()
        consumers.restore(name, partition, found)


async def test_a_fetch_waits_for_messages_and_for_locks_that_end(sharing):
    member, other = await sharing.member(), await sharing.member("m2")
    waiting = asyncio.create_task(member.take(max_wait_ms=60_000))
    await other.fetch(partitions=(1,))
    await sharing.interface.fill(count=1)
    assert await waiting == {0: (b"0", 1)}
    waiting = asyncio.create_task(other.take(max_wait_ms=60_000))
    assert await member.acknowledge([ack(0, 0, RELEASE)]) == {0: NONE}
    assert await waiting == {0: (b"0", 2)}


async def test_a_fetch_waits_for_more_only_a_part_of_the_time_of_its_locks(sharing, loop_time):
    member = await sharing.member()
    await member.fetch()
    waiting = asyncio.create_task(member.fetch(partitions=(), max_wait_ms=300_000, min_bytes=1 << 20))
    await sharing.interface.fill(count=2)
    await until(lambda: leased(sharing) == 2)
    loop_time.advance(member.response.acquisition_lock_timeout_ms / 1000 / LOCK_PARTS)
    assert (await waiting)[0].ranges == [(0, 1, 1)]


@pytest.mark.parametrize("ends_by", ["release", "restart"])
async def test_a_response_names_only_locks_that_have_not_ended(sharing, loop_time, ends_by):
    """The request has acquired the messages, and acquires them again before it is answered."""
    await sharing.interface.fill(count=2)
    member, twin = await sharing.member(), await sharing.member()
    await member.fetch(max_records=0)
    await are_ready(sharing, member, partitions=(0,))
    waiting = asyncio.create_task(member.fetch(partitions=(), max_wait_ms=300_000, min_bytes=1 << 20))
    await until(lambda: is_waiting(sharing, member) and leased(sharing) == 2)
    queue = queue_of(sharing)
    if ends_by == "release":
        token = queue.dispatcher.token_of(0)
        assert await twin.acknowledge([ack(0, 0, RELEASE)], epoch=2) == {0: NONE}
        await until(lambda: leased(sharing) == 2 and queue.dispatcher.token_of(0) != token)
    else:
        queue.close(NotOwner())
        await until(lambda: queue_of(sharing) not in (None, queue) and leased(sharing) == 2)
    loop_time.advance(member.response.acquisition_lock_timeout_ms / 1000 / LOCK_PARTS)
    expected = [(0, 0, 2), (1, 1, 1)] if ends_by == "release" else [(0, 1, 1)]
    assert (await waiting)[0].ranges == expected


async def test_a_response_is_without_a_partition_whose_locks_have_ended(sharing, loop_time):
    await sharing.interface.fill(count=2)
    member, twin = await sharing.member(), await sharing.member()
    await member.fetch(max_records=0)
    await are_ready(sharing, member, partitions=(0,))
    waiting = asyncio.create_task(member.fetch(partitions=(), max_wait_ms=300_000, min_bytes=1 << 20))
    await until(lambda: is_waiting(sharing, member) and leased(sharing) == 2)
    assert await twin.acknowledge([ack(0, 1)], epoch=2) == {0: NONE}
    loop_time.advance(member.response.acquisition_lock_timeout_ms / 1000 / LOCK_PARTS)
    assert await waiting == {}


async def test_messages_in_flight_are_bounded(sharing, configure):
    configure(partition_locks_max=3)
    await sharing.interface.fill(count=5)
    member, other = await sharing.member(), await sharing.member("m2")
    assert sorted(await member.take()) == [0, 1, 2]
    assert (await other.fetch())[0].messages == {}
    assert await member.acknowledge([ack(1, 2)]) == {0: NONE}
    assert sorted(await other.take()) == [3, 4]  # one message that is stuck does not hold up the others


async def test_ranges_are_split_where_counts_differ_and_where_offsets_are_missing(sharing):
    await sharing.interface.fill(count=6)
    member = await sharing.member()
    await member.take()
    await member.acknowledge([ack(0, 1, RELEASE), ack(3, 4, RELEASE)])
    await member.take(max_records=1)
    await member.acknowledge([ack(0, 0, RELEASE)])
    assert (await member.until()).ranges == [(0, 0, 3), (1, 1, 2), (3, 4, 2)]


async def test_messages_that_are_deleted_after_they_were_read_ahead_are_skipped(sharing):
    await sharing.interface.fill(count=5)
    member = await sharing.member()
    assert list(await member.take(max_records=1)) == [0]
    await sharing.interface.log.delete_records(TopicPartition(sharing.topic.id, 0), 3)
    part = await member.until(partitions=())
    assert (part.error, part.ranges) == (NONE, [(3, 4, 1)])


async def test_messages_that_are_deleted_after_they_were_acquired_are_lost_without_an_error(sharing):
    for _ in range(3):
        await sharing.interface.fill(count=2)
    topic_partition = TopicPartition(sharing.topic.id, 0)
    await sharing.interface.log.delete_records(topic_partition, 4)
    acquired = [QueueDelivery(offset, "m1", 0, offset + 1) for offset in (1, 3, 4, 5)]
    found = await batches_of(sharing.interface.log, topic_partition, acquired)
    assert (found.lost, found.error) == (acquired[:2], None)
    offsets = [
        each.offset for one in found.buffers for each in iter_records(one, decompressed_bytes_max=1 << 20)
    ]
    assert offsets == [4, 5]
    found = await batches_of(sharing.interface.log, topic_partition, acquired[:2])
    assert (found.buffers, found.lost, found.error) == ([], acquired[:2], None)


async def test_a_batch_is_passed_through_if_most_of_it_is_acquired(sharing):
    value = b"x" * SMALL_BYTES
    records = [Record(value, headers=(("number", b"%d" % number),), timestamp=1_000) for number in range(6)]
    await append(sharing, build_batch(records))
    member = await sharing.member()
    part = await member.until(max_records=3)
    assert (sorted(part.messages), part.sent) == ([0, 1, 2], [0, 1, 2, 3, 4, 5])
    part = await member.until(max_records=2)
    assert (sorted(part.messages), part.sent) == ([3, 4], [3, 4])
    [batch] = part.part.records
    assert read_header(batch).leader_epoch >= 0
    assert part.values == [value, value]


# Transactions, keys, and group configs


async def test_messages_of_a_key_follow_each_other(sharing, configure):
    configure(key_order=True)
    records = [Record(b"1", b"a"), Record(b"2", b"a"), Record(b"3", b"b")]
    await append(sharing, build_batch(records, now_ms=1_000))
    member = await sharing.member()
    assert sorted(await member.take()) == [0, 2]
    assert sorted(await member.take([ack(0)])) == [1]


async def test_a_session_that_is_replaced_leaves_the_keys_of_other_partitions(sharing, configure):
    configure(key_order=True, record_lock_ms=HOUR_MS)
    member, other = await sharing.member(), await sharing.member("m2")
    await member.fetch(partitions=(0, 1))
    await other.fetch(partitions=(0, 1))
    member.epoch = 0
    await member.fetch(partitions=(1,))
    keys = [b"%d" % number for number in range(20)]
    await append(sharing, build_batch([Record(key, key) for key in keys], now_ms=1_000))
    found = {}
    while len(found) < len(keys):
        found |= await other.take(partitions=())
    assert sorted(found) == list(range(20))
    assert await other.acknowledge([ack(0, 19)]) == {0: NONE}
    member.epoch = 0
    await member.fetch(partitions=(0, 1))
    await append(sharing, build_batch([Record(key, key) for key in keys], now_ms=1_000))
    assert await member.take(partitions=())  # it owns keys again


async def test_too_many_ranges_of_a_partition_are_refused(sharing):
    await sharing.interface.fill(count=1)
    member = await sharing.member()
    await member.take()
    acks = [ack(offset) for offset in range(RANGES_MAX + 1)]
    assert await member.acknowledge({0: acks, 1: []}) == {0: INVALID_REQUEST, 1: NONE}
    assert await member.acknowledge([ack(0)]) == {0: NONE}
