"""A producer on an event loop: what it sends where, what it refuses, how much it holds, how it ends."""

import asyncio
import gc
import random
import socket
import warnings
from itertools import pairwise
from types import SimpleNamespace

import pytest

from millpond import AsyncProducer
from millpond.client.lane import SEQUENCE_END
from millpond.client.sender import Sender
from millpond.model.errors import (
    Defect,
    InvalidArgument,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopicName,
    RecordTooLarge,
    Stopping,
    TimedOut,
    UnknownPartition,
    UnknownTopic,
    Unreachable,
)
from millpond.model.partitioning import murmur2, partition_of
from millpond.testing import Faults, SimulatedClock, running_broker

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # it reads its schemas by importlib.resources.read_text
    from kafka.partitioner.default import DefaultPartitioner
    from kafka.partitioner.default import murmur2 as kafkas_murmur2

NOBODY = "127.0.0.1:1"


def is_ours(task):
    """Whether it runs the client library's code."""
    return "millpond/client" in getattr(getattr(task.get_coro(), "cr_code", None), "co_filename", "")


async def stored(setting, topic):
    async with setting.consumer(topic) as consumer:
        found = []
        while messages := (await consumer.poll()).messages:
            found += messages
        return found


@pytest.fixture
async def silent():
    """Something that takes connections and never says a word."""

    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
async def holding():
    """A broker whose store takes nothing until told."""
    faults = Faults()
    async with running_broker(grpc=True, faults=faults, inline_bytes_max=0) as broker:
        yield broker.listeners["grpc"], faults


# -- what goes where -------------------------------------------------------------------------------------------------


def test_keys_go_where_kafkas_clients_send_them():
    dice = random.Random(1)
    for size in range(200):
        key = dice.randbytes(size % 41)
        assert murmur2(key) == kafkas_murmur2(key) & 0xFFFFFFFF
        for partitions in (1, 2, 3, 7, 100):
            numbers = set(range(partitions))
            cluster = SimpleNamespace(
                topics=lambda: {"t"},
                partitions_for_topic=lambda _, found=numbers: found,
                available_partitions_for_topic=lambda _, found=numbers: found,
            )
            theirs = DefaultPartitioner().partition("t", key, key, None, None, cluster)
            assert partition_of(key, partitions) == theirs


async def test_messages_come_out_as_they_went_in(setting):
    async with setting.producer("t") as producer:
        assert (
            await producer.send(b"v", key=b"k", headers={"h": b"1", "n": None}, timestamp_ms=7)
        ).number == 1
        assert (await producer.send(None, key=b"k", headers=[("h", b"1"), ("h", b"2")])).number == 2
        assert (await producer.send(b"")).number == 3
    first, second, third = await stored(setting, "t")
    assert (first.value, first.key, first.timestamp_ms) == (b"v", b"k", 7)
    assert first.headers == (("h", b"1"), ("n", None))
    assert (second.value, second.headers) == (None, (("h", b"1"), ("h", b"2")))
    assert (third.value, third.key) == (b"", None)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_compression_kinds(setting, compression):
    values = [b"%d " % number * 50 for number in range(200)]
    async with setting.producer("t", compression=compression) as producer:
        placed = await producer.send_many(values)
    assert [each.number for each in placed] == list(range(1, 201))
    assert [message.value for message in await stored(setting, "t")] == values


async def test_incompressible_messages_that_fill_a_batch_are_not_refused(setting):
    """Compressing makes such a batch larger than the limit; then it is sent in halves."""
    await setting.create("t", max_message_bytes="20000")
    values = [random.Random(number).randbytes(900) for number in range(200)]
    for compression in ("gzip", "snappy", "lz4", "zstd"):
        async with setting.producer("t", compression=compression) as producer:
            await producer.send_many(values)
    assert [message.value for message in await stored(setting, "t")] == values * 4


async def test_a_hundred_partitions(setting):
    await setting.create("t", 100)
    async with setting.producer("t") as producer:
        for _ in range(100):
            await producer.send(b"x")
        placed = await asyncio.gather(*[await producer.submit(b"x", key=b"%d" % n) for n in range(1_000)])
    found = await stored(setting, "t")
    assert len(found) == 1_100
    assert {m.partition for m in found if m.key is None} == set(range(100)), "single ones go in turn"
    assert [each.partition for each in placed] == [partition_of(b"%d" % n, 100) for n in range(1_000)]


async def test_messages_without_a_key_go_in_runs(setting):
    await setting.create("t", 4)
    async with setting.producer("t") as producer:
        placed = await producer.send_many([b"x" * 100] * 2_000)
    turns = sum(a.partition != b.partition for a, b in pairwise(placed))
    assert {each.partition for each in placed} == {0, 1, 2, 3}
    assert turns < 100


async def test_the_order_of_submits_is_the_order_of_numbers(setting):
    async with setting.producer("t", batch_bytes=500) as producer:
        futures = [await producer.submit(b"%d" % number) for number in range(3_000)]
        assert [(await future).number for future in futures] == list(range(1, 3_001))
    assert [int(m.value) for m in await stored(setting, "t")] == list(range(3_000))


async def test_sequences_wrap(setting):
    async with setting.producer("t", batch_bytes=300) as producer:
        await producer.in_topic("t").ready()
        lane = producer.in_topic("t")._lanes[0]
        take, lane.set_identity = lane.set_identity, None

        def take_near_the_end(identity):
            take(identity)
            lane._sequence = SEQUENCE_END - 20

        lane.set_identity = take_near_the_end
        placed = await producer.send_many([b"%d" % number for number in range(200)])
    assert [each.number for each in placed] == list(range(1, 201))
    assert lane._identity.epoch == 0
    assert lane._sequence == 180


# -- what is refused -------------------------------------------------------------------------------------------------


async def test_what_is_too_large_is_refused_alone(setting):
    async with setting.producer("t") as producer:
        before = await producer.submit(b"before")
        wrong = await producer.submit(b"x" * 2_000_000)
        after = await producer.submit(b"after")
        assert [(await before).number, (await after).number] == [1, 2]
        with pytest.raises(RecordTooLarge):
            await wrong


async def test_the_rest_of_many_is_sent_although_one_is_refused(setting):
    async with setting.producer("t") as producer:
        with pytest.raises(RecordTooLarge):
            await producer.send_many([b"a", b"x" * 2_000_000, b"b"])
    assert [message.value for message in await stored(setting, "t")] == [b"a", b"b"]


async def test_a_submit_that_finds_no_broker_returns_its_error_with_the_future():
    async with AsyncProducer("t", address=NOBODY, timeout=0.2) as producer:
        future = await producer.submit(b"x")
        with pytest.raises(Unreachable):
            await future


async def test_what_became_too_large_while_the_producer_was_open_is_refused_alone(setting):
    async with setting.producer("t") as producer, setting.admin() as admin:
        await producer.send(b"first")
        await admin.alter_topic("t", configs={"max.message.bytes": "1000"})
        sizes = [10, 10, 5_000, 10, 10, 10, 10, 800, 800, 10]
        outcomes = await asyncio.gather(
            *[await producer.submit(b"x" * size) for size in sizes], return_exceptions=True
        )
    assert [isinstance(each, RecordTooLarge) for each in outcomes] == [size == 5_000 for size in sizes]
    assert [len(m.value) for m in await stored(setting, "t")] == [
        5,
        *(size for size in sizes if size != 5_000),
    ]


async def test_a_timestamp_the_topic_does_not_take_is_refused_alone(setting):
    """The broker looks at a batch as a whole; halves tell which message it was."""
    far = setting.clock.now_ms() + 30 * 86_400_000
    async with setting.producer("t") as producer:
        times = [None, None, far, None, None]
        futures = [await producer.submit(b"x", timestamp_ms=at) for at in times]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [isinstance(each, InvalidTimestamp) for each in outcomes] == [at == far for at in times]


async def test_mistakes_are_refused_where_they_are_made(setting):
    async with setting.producer("t") as producer:
        with pytest.raises(TypeError, match="encode"):
            await producer.send("text")
        with pytest.raises(UnknownPartition):
            await producer.send(b"x", partition=1)
        with pytest.raises(UnknownPartition):
            await producer.send(b"x", partition=-1)
        with pytest.raises(InvalidRecord):
            await producer.send(b"x", timestamp_ms=-5)
        assert (await producer.send(b"x")).number == 1
    with pytest.raises(InvalidTopicName):
        setting.producer("no/slash")
    with pytest.raises(ValueError, match="compression"):
        AsyncProducer("t", compression="rar")
    with pytest.raises(ValueError, match="timeout"):
        AsyncProducer("t", timeout=0)


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        ({"value": bytes(2_000_000)}, RecordTooLarge),
        ({"value": b"x", "partition": 1}, UnknownPartition),
        ({"value": b"x", "timestamp_ms": 2**50}, InvalidTimestamp),
        ({"value": "text"}, TypeError),
    ],
)
async def test_a_refused_message_creates_no_topic(setting, refused, error):
    async with setting.producer("t") as producer, setting.admin() as admin:
        with pytest.raises(error):
            await producer.send(**refused)
        assert await admin.list_topics() == []
        assert (await producer.send(b"x")).number == 1
        assert [topic.name for topic in await admin.list_topics()] == ["t"]


async def test_a_new_topic_has_the_brokers_partitions_and_its_keys_their_places():
    async with running_broker(grpc=True, default_partitions=5) as broker:
        async with AsyncProducer("t", address=broker.listeners["grpc"]) as producer:
            keys = [b"%d" % number for number in range(20)]
            placed = [await (await producer.submit(b"x", key=key)) for key in keys]
        assert [each.partition for each in placed] == [partition_of(key, 5) for key in keys]
        assert broker.log.topics.named("t").partitions == 5


async def test_without_auto_creation_the_topic_is_unknown():
    async with running_broker(grpc=True, auto_create_topics=False) as broker:
        async with AsyncProducer("t", address=broker.listeners["grpc"]) as producer:
            with pytest.raises(UnknownTopic):
                await producer.send(b"x")
        assert broker.log.topics.all() == []


# -- how much is held ------------------------------------------------------------------------------------------------


async def test_a_stalled_broker_makes_submit_wait(holding):
    address, faults = holding
    async with AsyncProducer("t", address=address, buffer_bytes_max=10_000) as producer:
        await producer.send(b"x")
        held = faults.hold("append")
        submits = [asyncio.ensure_future(producer.submit(b"x" * 1_000)) for _ in range(50)]
        await asyncio.to_thread(held.wait_reached)
        assert sum(submit.done() for submit in submits) < 50
        assert producer._buffer.held_bytes <= 10_000 + 1_036
        held.release()
        assert len({(await (await submit)).number for submit in submits}) == 50


async def test_futures_cancelled_by_the_caller_do_not_disturb_their_neighbours(holding):
    address, faults = holding
    async with AsyncProducer("t", address=address) as producer:
        await producer.send(b"first")
        held = faults.hold("append")
        futures = [await producer.submit(b"%d" % number) for number in range(10)]
        await asyncio.to_thread(held.wait_reached)
        sending = asyncio.ensure_future(producer.send(b"sent"))
        for future in (*futures[::2], sending):
            future.cancel()
        held.release()
        assert [(await future).number for future in futures[1::2]] == [3, 5, 7, 9, 11]
        assert (await producer.send(b"last")).number >= 12


# -- time ------------------------------------------------------------------------------------------------------------


async def test_nobody_there():
    async with AsyncProducer("t", address=NOBODY, timeout=2.5) as producer:
        with pytest.raises(Unreachable, match="millpond serve"):
            await producer.send(b"x")


async def test_nobody_who_says_a_word(silent):
    async with AsyncProducer("t", address=silent, timeout=0.3) as producer:
        with pytest.raises((TimedOut, Unreachable)):
            await producer.send(b"x")


async def test_after_a_success_the_next_failure_is_tried_again_soon(holding):
    address, faults = holding
    async with AsyncProducer("t", address=address) as producer:
        for number in range(1, 4):
            faults.fail_before("append")
            assert (await producer.send(b"x")).number == number
            assert not producer.in_topic("t")._sender._pauses


async def test_an_answer_that_does_not_come_in_time(holding):
    address, faults = holding
    async with AsyncProducer("t", address=address, timeout=30.0) as producer:
        await producer.send(b"first")
        held = faults.hold("append")
        part = producer.in_topic("t")
        part._timeout_s, producer.connections.attempt_s = 2.0, 1.0  # for this one: it is sent again
        with pytest.raises(TimedOut, match="may or may not be stored"):
            await producer.send(b"late")
        part._timeout_s = 30.0
        held.release()
        assert (await producer.send(b"next")).number == 3, "what was given up keeps its place"


# -- ends ------------------------------------------------------------------------------------------------------------


async def test_close_sends_what_was_submitted(setting):
    producer = setting.producer("t")
    futures = [await producer.submit(b"x") for _ in range(500)]
    await producer.close()
    assert [future.result().number for future in futures] == list(range(1, 501))
    await producer.close()
    with pytest.raises(Stopping, match="closed"):
        await producer.send(b"x")


async def test_leaving_because_of_an_error_still_sends_what_was_submitted(setting):
    futures = []

    async def fail():
        async with setting.producer("t") as producer:
            futures.append(await producer.submit(b"x"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert futures[0].result().number == 1


async def test_abort_fails_what_is_not_answered(holding):
    address, faults = holding
    producer = AsyncProducer("t", address=address, buffer_bytes_max=5_000)
    await producer.send(b"x")
    held = faults.hold("append")
    futures = [await producer.submit(b"x" * 1_000) for _ in range(3)]
    await asyncio.to_thread(held.wait_reached)
    waiting = [asyncio.ensure_future(producer.submit(b"x" * 3_000)) for _ in range(3)]
    await asyncio.sleep(0)
    await producer.abort()
    held.release()
    outcomes = await asyncio.gather(*futures, *waiting, return_exceptions=True)
    for outcome in outcomes:
        error = outcome if isinstance(outcome, BaseException) else outcome.exception()
        assert isinstance(error, Stopping), outcome


async def test_close_while_the_first_message_looks_for_its_topic(silent):
    producer = AsyncProducer("t", address=silent, timeout=30.0)
    sending = asyncio.ensure_future(producer.send(b"x"))
    await asyncio.sleep(0)
    await producer.abort()
    with pytest.raises(Stopping):
        await sending


async def test_a_cancelled_close_leaves_nothing_behind(holding, settle):
    address, faults = holding
    producer = AsyncProducer("t", address=address)
    await producer.send(b"x")
    held = faults.hold("append")
    future = await producer.submit(b"x")
    await asyncio.to_thread(held.wait_reached)
    closing = asyncio.ensure_future(producer.close())
    await settle()
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    held.release()
    assert isinstance(future.exception(), Stopping)


async def test_no_tasks_are_left_and_no_error_is_forgotten(setting):
    complaints = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    before = asyncio.all_tasks()
    for end in ("close", "abort"):
        producer = setting.producer("t")
        await producer.send(b"x")
        await getattr(producer, end)()
    failing = AsyncProducer("t", address=NOBODY, timeout=0.2)
    sending = [asyncio.ensure_future(failing.send(b"x")) for _ in range(3)]
    await asyncio.sleep(0)
    for task in sending:
        task.cancel()
    await asyncio.gather(*sending, return_exceptions=True)
    await failing.close()
    left = {task for task in asyncio.all_tasks() - before if is_ours(task)}
    del failing, producer, task, sending
    gc.collect()
    await asyncio.sleep(0)
    assert (left, complaints) == (set(), [])


async def test_a_bug_in_the_sender_leaves_nobody_waiting(setting, monkeypatch, caplog):
    async with setting.producer("t") as producer:
        await producer.send(b"x")
        monkeypatch.setattr(producer.in_topic("t")._lanes[0], "next_batch", lambda *_: 1 / 0)
        with pytest.raises(Defect):
            await producer.send(b"x")
        with pytest.raises(Defect):
            await producer.send(b"x")
    assert "unexpected error in producer; it cannot continue" in caplog.messages


async def test_a_message_without_a_time_gets_that_of_the_sender_s_clock(setting):
    clock = SimulatedClock(1_700_000_000_123)
    async with setting.producer("orders") as producer:
        part = producer.in_topic("orders")
        part._sender = Sender(producer.connections, "orders", producer._buffer, clock=clock)
        await producer.send(b"first")
        clock.advance(5)
        await producer.send(b"second")
        await producer.send(b"third", timestamp_ms=1_700_000_000_001)
    found = [record.timestamp for record in await setting.broker.read("orders")]
    assert found == [1_700_000_000_123, 1_700_000_000_128, 1_700_000_000_001]


# -- several topics ---------------------------------------------------------------------------------------------------


async def test_one_producer_sends_to_several_topics(setting):
    async with setting.producer("a") as producer:
        assert (await producer.send(b"1")).number == 1
        assert (await producer.send(b"2", topic="b", key=b"k")).number == 1
        assert await producer.send_many([b"3", b"4"], topic="c") == [(0, 1), (0, 2)]
        future = await producer.submit(b"5", topic="b")
        assert (await future).number == 2
    for topic, values in (("a", [b"1"]), ("b", [b"2", b"5"]), ("c", [b"3", b"4"])):
        assert [message.value for message in await stored(setting, topic)] == values


async def test_a_producer_without_a_topic_needs_one_in_each_call(setting):
    async with setting.producer() as producer:
        with pytest.raises(
            InvalidArgument, match="topic=None: expected a topic, because the client was created"
        ):
            await producer.send(b"x")
        assert (await producer.send(b"x", topic="t")).number == 1


async def test_an_error_in_one_topic_leaves_the_others_alone(setting):
    await setting.create("small", max_message_bytes="1000")
    async with setting.producer() as producer:
        with pytest.raises(RecordTooLarge):
            await producer.send(bytes(5_000), topic="small")
        assert (await producer.send(bytes(5_000), topic="large")).number == 1


async def test_the_buffer_is_shared_by_all_topics(holding):
    address, faults = holding
    async with AsyncProducer(address=address, buffer_bytes_max=3_000) as producer:
        for topic in ("a", "b"):
            await producer.send(b"x", topic=topic)
        held = faults.hold("append")
        futures = [await producer.submit(bytes(2_000), topic=topic) for topic in ("a", "b")]
        waiting = asyncio.ensure_future(producer.submit(b"x", topic="b"))
        await asyncio.to_thread(held.wait_reached)
        assert not waiting.done()
        held.release()
        futures.append(await waiting)
        assert [(await future).number for future in futures] == [2, 2, 3]


async def test_a_closed_producer_sends_to_no_new_topic(setting):
    async with setting.producer("a") as producer:
        await producer.send(b"x")
    for topic in ("a", "b"):
        with pytest.raises(Stopping):
            await producer.send(b"x", topic=topic)
