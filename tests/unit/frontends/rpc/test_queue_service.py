"""The `Queue` service: subscriptions, and what a consumer's stream carries."""

import asyncio
from dataclasses import replace

import grpc
import pytest
from tests.unit.frontends.rpc.consuming import (
    OK,
    STALE,
    UNKNOWN,
    WAIT_SECONDS_MAX,
    Consuming,
    message,
    produce,
    subscription,
    values,
)
from tests.unit.frontends.rpc.wire import details_of, serving

from millpond.frontends.rpc.subscribe_stream import ByteWindow
from millpond.settings import Settings
from millpond.stubs import admin_pb2, log_pb2
from millpond.stubs import queue_pb2 as pb


@pytest.fixture
async def wire():
    async with serving() as (_, wire):
        await produce(wire, message(b"0"))
        yield wire


async def described(wire, name="s"):
    request = pb.DescribeSubscriptionRequest(topic="t", name=name)
    return await wire("Queue.DescribeSubscription", request)


async def until(is_true):
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not await is_true():
            await asyncio.sleep(0.01)


def reason_of(error):
    return details_of(error)[1].reason


# -- subscriptions ---------------------------------------------------------------------------------------------------


async def test_a_subscription_is_made_altered_listed_and_deleted(wire):
    create = pb.CreateSubscriptionRequest(
        topic="t", name="s", config={"mode": "key_shared", "ack_timeout_ms": "5s"}
    )
    made = await wire("Queue.CreateSubscription", create)
    assert (made.topic, made.name, made.config["mode"], made.config["ack_timeout_ms"]) == (
        "t",
        "s",
        "key_shared",
        "5000",
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await wire("Queue.CreateSubscription", create)
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    alter = pb.AlterSubscriptionRequest(topic="t", name="s", config={"attempts_max": "9"})
    assert (await wire("Queue.AlterSubscription", alter)).config["attempts_max"] == "9"
    for request in (pb.ListSubscriptionsRequest(), pb.ListSubscriptionsRequest(topic="t")):
        [listed] = (await wire("Queue.ListSubscriptions", request)).subscriptions
        assert (listed.topic, listed.name, listed.config["attempts_max"]) == ("t", "s", "9")
    await wire("Queue.DeleteSubscription", pb.DeleteSubscriptionRequest(topic="t", name="s"))
    assert not (await wire("Queue.ListSubscriptions", pb.ListSubscriptionsRequest(topic="t"))).subscriptions


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (pb.Start(at=pb.Start.EARLIEST), 1),
        (pb.Start(at=pb.Start.LATEST), 4),
        (pb.Start(at=pb.Start.NUMBER, value=3), 3),
        (pb.Start(at=pb.Start.TIME, value=2_000), 2),
    ],
)
async def test_a_subscription_begins_where_it_is_told(start, expected):
    async with serving() as (_, wire):
        messages = [log_pb2.NewMessage(value=b"v", timestamp_ms=at) for at in (1_000, 2_000, 3_000)]
        await produce(wire, *messages)
        await wire("Queue.CreateSubscription", pb.CreateSubscriptionRequest(topic="t", name="s", start=start))
        assert (await described(wire)).partitions[0].floor == expected


@pytest.mark.parametrize(
    "start", [pb.Start(at=pb.Start.NUMBER), pb.Start(at=pb.Start.TIME, value=-1), pb.Start(at=9)]
)
async def test_a_place_that_makes_no_sense_is_refused(wire, start):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await wire("Queue.CreateSubscription", pb.CreateSubscriptionRequest(topic="t", name="s", start=start))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_description_says_how_it_stands_and_why_keys_do_not_move(wire):
    await produce(wire, *[message(b"%d" % number, key=b"k") for number in range(3)])
    await subscription(wire, mode="key_shared")
    consumer = await Consuming.attached(wire, credit=10)
    assert len(await consumer.deliveries(2)) == 2, "the one without a key, and the first of the key"
    found = await described(wire)
    [partition], [consuming] = found.partitions, found.consumers
    assert (partition.floor, partition.next, partition.backlog, partition.leased) == (1, 5, 4, 2)
    assert (partition.keys[0].why, partition.keys[0].waiting, partition.keys[0].consumer) == (
        "leased",
        2,
        "c",
    )
    assert (consuming.name, consuming.credit, consuming.leased) == ("c", 8, 2)
    assert found.dead_letter_topic == "t.s.dead"


async def test_a_blocked_message_is_let_go(wire):
    await subscription(wire, attempts_max=1, on_exhausted="block")
    consumer = await Consuming.attached(wire, credit=10)
    [first] = await consumer.deliveries(1)
    assert await consumer.answer(nacks=[first.ack_id]) == [OK]
    freed = await wire("Queue.Unblock", pb.UnblockRequest(topic="t", name="s"))
    assert freed.unblocked == 1
    [again] = await consumer.deliveries(1)
    assert (again.number, again.retry_count) == (1, 0)


async def test_each_nack_has_its_own_reason_and_all_are_described(wire):
    await produce(wire, message(b"1"), message(b"2"))
    await subscription(wire, backoff_ms=600_000)
    consumer = await Consuming.attached(wire, credit=10)
    held = await consumer.deliveries(3)
    said = {"nacks": [each.ack_id for each in held], "nack_reasons": ["one", "x" * 1_000, ""]}
    assert await consumer.answer(**said) == [OK] * 3
    [partition] = (await described(wire)).partitions
    assert [(each.number, each.attempts, each.why) for each in partition.failing] == [
        (number, 1, "delayed") for number in (1, 2, 3)
    ]
    assert [list(each.reasons) for each in partition.failing] == [
        ["one"],
        ["x" * 497 + "…"],
        ["no reason given"],
    ]
    assert partition.failing[0].until_ms > 0
    asked = pb.DescribeSubscriptionRequest(topic="t", name="s", failing_max=1)
    [partition] = (await wire("Queue.DescribeSubscription", asked)).partitions
    assert [each.number for each in partition.failing] == [1]


async def test_reasons_that_do_not_fit_the_nacks_are_refused(wire):
    await subscription(wire)
    consumer = await Consuming.attached(wire, credit=10)
    [held] = await consumer.deliveries(1)
    await consumer.say(answers=pb.Answers(request=1, nacks=[held.ack_id], nack_reasons=["one", "two"]))
    refused = await consumer.refusal()
    assert (refused.code(), "2 reasons for 1 nacks" in refused.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        True,
    )


async def test_dead_letters_are_sent_back(wire):
    await subscription(wire, attempts_max=1, backoff_ms=0)
    consumer = await Consuming.attached(wire, credit=10)
    [first] = await consumer.deliveries(1)
    assert await consumer.answer(nacks=[first.ack_id]) == [OK]
    redrive = pb.RedriveDeadLettersRequest(topic="t", name="s")

    async def is_redriven():
        return (await wire("Queue.RedriveDeadLetters", redrive)).redriven == 1

    await until(is_redriven)
    [again] = await consumer.deliveries(1)
    assert (again.number, again.value, again.retry_count, len(again.headers)) == (2, b"0", 0, 0)


async def test_a_reset_goes_on_from_the_new_place_with_the_consumers_there_are(wire):
    await subscription(wire)
    consumer = await Consuming.attached(wire, credit=10)
    [first] = await consumer.deliveries(1)
    assert await consumer.answer(acks=[first.ack_id]) == [OK]
    await wire("Queue.ResetSubscription", pb.ResetSubscriptionRequest(topic="t", name="s"))
    lost = await consumer.hear("lost")
    assert (lost.partition, lost.error.reason, lost.error.retriable) == (0, "SUBSCRIPTION_REPLACED", True)
    [again] = await consumer.deliveries(1)
    assert again.number == 1
    assert await consumer.answer(acks=[first.ack_id]) == [STALE]
    assert await consumer.answer(acks=[again.ack_id]) == [OK]


# -- deliveries ------------------------------------------------------------------------------------------------------


async def test_a_delivery_has_everything_about_its_message_but_what_is_the_brokers(wire):
    sent = message(
        b"body", key=b"", given=b"\xff", millpond_attempts=b"7", millpond_delay=b"0", millpond_payload=b"ref"
    )
    await produce(wire, sent)
    await subscription(wire)
    consumer = await Consuming.attached(wire, credit=10)
    _, second = await consumer.deliveries(2)
    assert (second.number, second.key, second.HasField("key"), second.value) == (2, b"", True, b"body")
    assert [(header.name, header.value) for header in second.headers] == [
        ("given", b"\xff"),
        ("millpond-payload", b"ref"),
    ]
    assert (second.retry_count, second.value_omitted, second.timestamp_ms > 0) == (0, False, True)


async def test_retries_are_counted_by_the_broker(wire):
    await subscription(wire, backoff_ms=0)
    consumer = await Consuming.attached(wire, credit=10)
    for count in range(3):
        [found] = await consumer.deliveries(1)
        assert found.retry_count == count
        assert await consumer.answer(nacks=[found.ack_id], nack_delay_ms=0) == [OK]


@pytest.mark.parametrize(
    ("fields", "comes"), [({}, True), ({"value_bytes_max": 99}, False), ({"metadata_only": True}, False)]
)
async def test_large_values_are_left_out_if_asked(wire, fields, comes):
    await produce(wire, message(b"x" * 100), message(b""), log_pb2.NewMessage(key=b"no value"))
    await subscription(wire)
    consumer = await Consuming.attached(wire, credit=10, **fields)
    _, large, empty, none = await consumer.deliveries(4)
    assert (large.HasField("value"), large.value_omitted) == (comes, not comes)
    assert (none.HasField("value"), none.value_omitted) == (False, False)
    assert empty.HasField("value") or fields.get("metadata_only")


async def test_nothing_comes_without_credit_and_no_more_than_was_granted(wire):
    await produce(wire, *[message(b"%d" % number) for number in range(1, 10)])
    await subscription(wire)
    consumer = await Consuming.attached(wire)
    assert await consumer.answer(acks=[b"nothing"]) == [UNKNOWN], "and still nothing has come"
    await consumer.say(credit=pb.Credit(messages=3))
    await consumer.deliveries(3)
    assert await consumer.answer(acks=[b"nothing"]) == [UNKNOWN]
    await consumer.say(credit=pb.Credit(messages=1))
    assert values(await consumer.deliveries(1)) == [b"3"]


async def test_bytes_are_counted_if_the_consumer_counts_them_and_what_is_left_out_is_not(wire):
    await produce(wire, *[message(b"x" * 100) for _ in range(9)])
    await subscription(wire)
    frugal = await Consuming.attached(wire, credit=100, bytes_credit=102)
    await frugal.deliveries(3)  # 1, 100, and the one that begins within the last byte
    assert await frugal.answer(acks=[b"nothing"]) == [UNKNOWN]
    await subscription(wire, "light")
    light = await Consuming.attached(wire, "light", credit=100, bytes_credit=102, metadata_only=True)
    await light.deliveries(10)


async def test_one_response_carries_many_deliveries_but_not_all(wire):
    await produce(wire, *[message(b"x") for _ in range(1_199)])
    await subscription(wire)
    consumer = await Consuming.attached(wire, credit=2_000)
    sizes = []
    while sum(sizes) < 1_200:
        sizes.append(len((await consumer.hear("deliveries")).deliveries))
    assert max(sizes) == 500


async def test_a_paused_consumer_gets_nothing_until_it_goes_on(wire):
    await subscription(wire)
    consumer = await Consuming.attached(wire)
    await consumer.say(flow=pb.Flow(paused=True))
    await consumer.say(credit=pb.Credit(messages=10))
    assert await consumer.answer(acks=[b"nothing"]) == [UNKNOWN]
    await consumer.say(flow=pb.Flow(paused=False))
    await consumer.deliveries(1)


async def test_a_consumer_is_told_who_owns_the_topic_and_how_it_is_delivered(wire):
    await subscription(wire, mode="failover", key_window=3)
    consumer = await Consuming.attached(wire)
    described = await wire("Admin.DescribeTopic", admin_pb2.DescribeTopicRequest(name="t"))
    assert list(consumer.attached_as.brokers) == [described.partitions[0].owner]
    assert (consumer.attached_as.config["mode"], consumer.attached_as.config["key_window"]) == (
        "failover",
        "3",
    )


# -- answers ---------------------------------------------------------------------------------------------------------


async def test_results_come_in_the_order_of_acks_nacks_and_extends(wire):
    await produce(wire, *[message(b"%d" % number) for number in range(1, 4)])
    await subscription(wire)
    consumer = await Consuming.attached(wire, credit=10)
    one, two, three, four = (each.ack_id for each in await consumer.deliveries(4))
    answers = await consumer.answer(
        acks=[b"x", one], nacks=[two, b""], extends=[b"y", three], extend_ms=60_000
    )
    assert answers == [UNKNOWN, OK, OK, UNKNOWN, UNKNOWN, OK]
    assert await consumer.answer(acks=[one, four, two]) == [STALE, OK, OK], (
        "a refusal may be taken back in time"
    )


async def test_a_cumulative_ack_stands_for_all_before_it(wire):
    await produce(wire, *[message(b"%d" % number) for number in range(1, 4)])
    await subscription(wire, mode="exclusive")
    consumer = await Consuming.attached(wire, credit=10)
    ids = [each.ack_id for each in await consumer.deliveries(4)]
    assert await consumer.answer(acks=[ids[2]], cumulative=True) == [OK]
    assert await consumer.answer(acks=ids) == [STALE, STALE, STALE, OK]
    assert (await described(wire)).partitions[0].floor == 5


async def test_what_was_answered_ok_is_there_after_a_restart(tmp_path):
    async with serving(tmp_path) as (broker, wire):
        await produce(wire, message(b"a"), message(b"b"))
        await subscription(wire)
        consumer = await Consuming.attached(wire, credit=10)
        first, _ = await consumer.deliveries(2)
        assert await consumer.answer(acks=[first.ack_id]) == [OK]
        await broker.stop()
    async with serving(tmp_path) as (_, wire):
        consumer = await Consuming.attached(wire, credit=10)
        [left] = await consumer.deliveries(1)
        assert (left.value, left.retry_count) == (b"b", 0), "a broker that stops charges nobody"


async def test_a_refused_message_of_a_key_revokes_those_behind_it_before_its_result(wire):
    await produce(wire, *[message(b"%d" % number, key=b"k") for number in range(3)])
    await subscription(wire, mode="key_shared", key_window=10, backoff_ms=0)
    consumer = await Consuming.attached(wire, credit=4)
    _, *of_key = await consumer.deliveries(4)
    await consumer.say(answers=pb.Answers(request=9, nacks=[of_key[0].ack_id]))
    kind, revoked = await consumer.hear_next()
    assert (kind, sorted(revoked.ack_ids)) == ("revoked", sorted(each.ack_id for each in of_key[1:]))
    assert (await consumer.hear("results")).answers == [OK]


async def test_one_request_may_say_everything(wire):
    await produce(wire, message(b"1"))
    await subscription(wire)
    consumer = await Consuming.attached(wire, credit=1)
    [first] = await consumer.deliveries(1)
    await consumer.say(flow=pb.Flow(paused=True))
    answers = pb.Answers(request=1, acks=[first.ack_id])
    await consumer.say(flow=pb.Flow(paused=False), credit=pb.Credit(messages=1), answers=answers)
    assert (await consumer.hear("results")).answers == [OK]
    [second] = await consumer.deliveries(1)
    assert second.value == b"1"


@pytest.mark.parametrize("what", [{"credit": pb.Credit(messages=1)}, {"detach": pb.Detach()}])
async def test_who_attaches_says_nothing_else(wire, what):
    await subscription(wire)
    consumer = Consuming(wire)
    await consumer.say(attach=pb.Attach(topic="t", subscription="s", consumer="c"), **what)
    assert (await consumer.refusal()).code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_acks_and_messages_are_committed_together_or_not_at_all(wire):
    await subscription(wire)
    consumer = await Consuming.attached(wire, credit=10)
    [first] = await consumer.deliveries(1)
    new = pb.Appended(topic="out", message=message(b"made of it"))
    named = {"topic": "t", "subscription": "s", "consumer": "c", "messages": [new]}
    refused = await wire("Queue.Commit", pb.CommitRequest(**named, acks=[first.ack_id, b"x"]))
    assert (refused.answers, refused.numbers) == ([OK, UNKNOWN], [])
    done = await wire("Queue.Commit", pb.CommitRequest(**named, acks=[first.ack_id]))
    assert (done.answers, done.numbers, done.partitions) == ([OK], [1], [0])
    assert values((await wire.poll("out")).messages) == [b"made of it"]
    assert await consumer.answer(acks=[first.ack_id]) == [STALE]
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await wire("Queue.Commit", pb.CommitRequest(**{**named, "consumer": "nobody"}, acks=[first.ack_id]))
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


# -- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [1, 2])
async def test_who_detaches_is_charged_nothing_and_gets_its_results_first(wire, frames):
    await produce(wire, message(b"1"))
    await subscription(wire)
    leaving = await Consuming.attached(wire, consumer="leaving", credit=10)
    first, _ = await leaving.deliveries(2)
    answers = pb.Answers(request=1, acks=[first.ack_id])
    if frames == 1:
        await leaving.say(answers=answers, detach=pb.Detach())
    else:
        await leaving.say(answers=answers)
        await leaving.say(detach=pb.Detach())
    assert (await leaving.hear("results")).answers == [OK]
    assert await leaving.stream.read() is grpc.aio.EOF
    assert await leaving.stream.code() is grpc.StatusCode.OK
    staying = await Consuming.attached(wire, consumer="staying", credit=10)
    [second] = await staying.deliveries(1)
    assert (second.number, second.retry_count) == (2, 0)


@pytest.mark.parametrize("how", ["cancelled", "half closed"])
async def test_who_breaks_off_is_charged(wire, how):
    await subscription(wire)
    broken = await Consuming.attached(wire, consumer="broken", credit=10)
    await broken.deliveries(1)
    if how == "cancelled":
        broken.break_off()
    else:
        await broken.stream.done_writing()
        assert await broken.stream.read() is grpc.aio.EOF
    staying = await Consuming.attached(wire, consumer="staying", credit=10)
    [again] = await staying.deliveries(1)
    assert (again.number, again.retry_count) == (1, 1)


async def test_a_consumer_that_comes_back_replaces_itself(wire):
    await subscription(wire)
    before = await Consuming.attached(wire, credit=10)
    await before.deliveries(1)
    after = await Consuming.attached(wire, credit=10)
    assert reason_of(await before.refusal()) == "SUBSCRIPTION_REPLACED"
    await after.deliveries(1)


async def test_when_the_broker_stops_consumers_leave_in_order(tmp_path):
    async with serving(tmp_path) as (broker, wire):
        await produce(wire, message(b"a"))
        await subscription(wire)
        consumer = await Consuming.attached(wire, credit=10)
        await consumer.deliveries(1)
        stopping = asyncio.ensure_future(broker.stop())
        error = await consumer.refusal()
        assert (error.code(), reason_of(error)) == (grpc.StatusCode.UNAVAILABLE, "STOPPING")
        await stopping


# -- consumers that do not read ----------------------------------------------------------------------------------------


def test_no_more_is_on_its_way_than_the_window_whatever_was_granted():
    window = ByteWindow(100)
    assert (window.next_grant(), window.next_grant()) == (100, 0), "one that does not count bytes"
    window.mark_read(window.dispatched(40))
    assert window.next_grant() == 60
    window = ByteWindow(100)
    window.grant(150)
    assert window.next_grant() == 100
    window.mark_read(window.dispatched(0))
    assert window.next_grant() == 50
    window.refund(20)
    window.mark_read(window.dispatched(0))
    assert (window.next_grant(), window.next_grant()) == (20, 0)


async def test_a_consumer_that_takes_nothing_is_disconnected_and_its_messages_go_to_others(monkeypatch):
    """The window keeps the broker's memory bounded meanwhile."""
    short = replace(Settings().rpc_limits(), write_ms_max=300, unread_bytes_max=2**20)
    monkeypatch.setattr(Settings, "rpc_limits", lambda _: short)
    async with serving() as (broker, wire):
        for _ in range(8):
            await produce(wire, *[message(bytes(100_000)) for _ in range(20)])
        await subscription(wire, backoff_ms=0)
        silent = await Consuming.attached(wire, consumer="silent", credit=1_000)

        async def is_gone():
            return not (await described(wire)).consumers

        await until(is_gone)
        broker.rpc._queue._limits = replace(short, write_ms_max=30_000)  # one that reads may still be slow
        reader = await Consuming.attached(wire, consumer="reader", credit=1_000)
        found = await reader.deliveries(160)
        assert sorted(each.number for each in found) == list(range(1, 161))
        taken = [each.number for each in found if each.retry_count]
        assert 0 < len(taken) < 160, "only what was on its way is charged"
        assert reason_of(await silent.refusal()) == "TIMED_OUT"


async def test_one_that_does_not_take_its_results_is_not_listened_to(monkeypatch):
    few = replace(Settings().rpc_limits(), acks_in_progress_max=3)
    monkeypatch.setattr(Settings, "rpc_limits", lambda _: few)
    async with serving() as (broker, wire):
        await produce(wire, message(b"a"))
        await subscription(wire)
        flooding = await Consuming.attached(wire)
        [stream] = broker.rpc._queue._streams
        for number in range(5_000):
            await flooding.say(answers=pb.Answers(request=number, acks=[b"x"]))
            assert len(stream._results) <= 3
        numbers = [(await flooding.hear("results")).request for _ in range(5_000)]
        assert numbers == list(range(5_000))


async def test_a_consumer_that_takes_nothing_does_not_keep_a_broker_from_stopping(monkeypatch):
    patient = replace(Settings().rpc_limits(), drain_ms=600_000)
    monkeypatch.setattr(Settings, "rpc_limits", lambda _: patient)
    async with asyncio.timeout(WAIT_SECONDS_MAX), serving() as (broker, wire):
        await produce(wire, *[message(bytes(100_000)) for _ in range(20)])
        await subscription(wire)
        silent = await Consuming.attached(wire, consumer="silent", credit=1_000)

        async def is_stuck():
            return (await described(wire)).partitions[0].leased > 1

        await until(is_stuck)
        await broker.stop()
        assert silent.stream is not None, "it was there all the time"
