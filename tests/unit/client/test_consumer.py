"""What a consumer reads, from where, and what it does when others want the same."""

import asyncio
from datetime import UTC, datetime

import confluent_kafka
import pytest

from millpond import AsyncConsumer
from millpond.model.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    Stopping,
    UnknownPartition,
    UnknownTopic,
    Unreachable,
)
from millpond.records import Codec, Record, build_batch

NOBODY = "127.0.0.1:1"


def is_ours(task):
    """Whether it runs the client library's code."""
    return "millpond/client" in getattr(getattr(task.get_coro(), "cr_code", None), "co_filename", "")


def values(polled):
    return [message.value for message in polled.messages]


def numbers(polled):
    return [message.number for message in polled.messages]


# -- positions in a topic, as the seeds ask --------------------------------------------------------------------------


async def test_a_position_advances_with_what_was_read(setting):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.consumer("t") as consumer:
        polled = await consumer.poll()
        assert (values(polled), numbers(polled), polled.read_from) == ([b"a", b"b", b"c"], [1, 2, 3], 4)
        assert await consumer.poll() == ([], 4)
        await setting.produce("t", b"d")
        polled = await consumer.poll()
        assert (values(polled), polled.read_from) == ([b"d"], 5)


async def test_a_new_topic_starts_again_at_one(setting):
    assert await setting.produce("one", b"a", b"b") == [1, 2]
    assert await setting.produce("two", b"a") == [1]


async def test_polling_an_unknown_topic_is_an_error_that_says_topic(setting):
    async with setting.consumer("nothing") as consumer:
        with pytest.raises(UnknownTopic, match="topic"):
            await consumer.poll()
        await setting.produce("nothing", b"now")
        assert values(await consumer.poll()) == [b"now"], "a consumer that came too early can go on"


async def test_past_the_end_nothing_comes_and_the_position_stays(setting):
    await setting.produce("t", b"a")
    async with setting.consumer("t", read_from=50) as consumer:
        assert await consumer.poll() == ([], 50)
        assert await consumer.poll(wait=0.05) == ([], 50)


async def test_below_the_oldest_everything_retained_comes(setting):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.admin() as admin:
        assert await admin.delete_messages("t", before=3) == 3
    async with setting.consumer("t", read_from=1) as consumer:
        polled = await consumer.poll()
        assert (values(polled), numbers(polled), polled.read_from) == ([b"c"], [3], 4)


async def test_an_emptied_topic_returns_nothing_and_numbers_go_on(setting):
    await setting.produce("t", b"a", b"b")
    async with setting.admin() as admin:
        await admin.delete_messages("t", before=None)
    async with setting.consumer("t", read_from=2) as consumer:
        assert await consumer.poll() == ([], 2)
        assert await setting.produce("t", b"c") == [3]
        assert numbers(await consumer.poll()) == [3]


@pytest.mark.parametrize("read_from", [1, 99])
async def test_strict_refuses_what_is_not_there(setting, read_from):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.admin() as admin:
        await admin.delete_messages("t", before=2)
    async with setting.consumer("t", read_from=read_from, strict=True) as consumer:
        with pytest.raises(OffsetOutOfRange):
            await consumer.poll()


@pytest.mark.parametrize("start", [{}, {"read_from": "earliest"}, {"read_from": {}}, {"group": "g"}])
async def test_strict_begins_at_the_oldest_message_there_is(setting, start):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.admin() as admin:
        await admin.delete_messages("t", before=2)
    async with setting.consumer("t", strict=True, **start) as consumer:
        assert numbers(await consumer.poll()) == [2, 3]
        await consumer.seek("earliest")
        assert numbers(await consumer.poll()) == [2, 3]


# -- where to begin --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read_from", "found"),
    [(1, [1, 2, 3]), (2, [2, 3]), ("earliest", [1, 2, 3]), ("latest", []), ({0: 3}, [3]), ({}, [1, 2, 3])],
)
async def test_read_from_forms(setting, read_from, found):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.consumer("t", read_from=read_from) as consumer:
        assert numbers(await consumer.poll()) == found


@pytest.mark.parametrize(("offset", "found"), [(0, [0, 1, 2]), (1, [1, 2]), ({0: 2}, [2]), ({}, [0, 1, 2])])
async def test_a_consumer_begins_at_an_offset(setting, offset, found):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.consumer("t", offset=offset) as consumer:
        messages = (await consumer.poll()).messages
        assert [(message.topic, message.offset) for message in messages] == [("t", each) for each in found]
        await consumer.seek(offset=1)
        assert [message.number for message in (await consumer.poll()).messages] == [2, 3]


async def test_a_consumer_begins_at_a_time(setting):
    for timestamp_ms in (1_000, 2_000, 3_000):
        await setting.produce("t", b"x", timestamp_ms=timestamp_ms)
    async with setting.consumer("t", read_from=datetime.fromtimestamp(2, UTC)) as consumer:
        assert [message.number for message in (await consumer.poll()).messages] == [2, 3]
        await consumer.seek(datetime.fromtimestamp(3, UTC))
        assert [message.number for message in (await consumer.poll()).messages] == [3]


async def test_the_positions_of_a_group_are_set_by_name_number_offset_or_time(setting):
    await setting.create("t", 2)
    for timestamp_ms in (1_000, 2_000):
        await setting.produce("t", b"x", timestamp_ms=timestamp_ms, partition=0)
    async with setting.admin() as admin:

        async def at(*read_from, **offset):
            await admin.commit_positions("g", "t", *read_from, **offset)
            positions = (await admin.describe_group("g")).positions
            return [each.read_from for each in sorted(positions, key=lambda each: each.partition)]

        assert await at("latest") == [3, 1]
        assert await at("earliest") == [1, 1]
        assert await at(offset={0: 1}) == [2, 1]
        assert await at({0: 3}) == [3, 1]
        assert await at(datetime.fromtimestamp(2, UTC)) == [2, 1]
        assert await at(1) == [1, 1]


@pytest.mark.parametrize("read_from", [0, -1, "newest", True, 1.5, {0: 0}])
def test_a_wrong_read_from_is_refused_where_it_is_written(read_from):
    with pytest.raises(InvalidRequest, match="read_from"):
        AsyncConsumer("t", read_from=read_from)


async def test_newest_means_from_the_first_poll_on(setting):
    await setting.produce("t", b"old")
    async with setting.consumer("t", read_from="latest") as consumer:
        assert await consumer.positions() == {0: 2}
        await setting.produce("t", b"new")
        assert values(await consumer.poll()) == [b"new"]


@pytest.mark.parametrize(
    ("start", "before", "after"),
    [
        ({}, None, 3),
        ({"read_from": "latest"}, None, 3),
        ({"read_from": datetime.fromtimestamp(2, UTC)}, None, 3),
        ({"read_from": 2, "group": "g"}, None, 3),
        ({"read_from": 2}, 2, 3),
        ({"offset": 1}, 2, 3),
        ({"read_from": {0: 2}}, {0: 2}, 3),
    ],
)
async def test_the_position_is_not_known_before_the_first_poll_unless_it_is_a_number(
    setting, start, before, after
):
    await setting.produce("t", b"a", b"b")
    async with setting.consumer("t", **start) as consumer:
        assert consumer.read_from == before
        await consumer.poll()
        assert consumer.read_from == after


async def test_what_a_poll_says_can_be_given_to_a_new_consumer(setting):
    await setting.create("t", 3)
    for partition in range(3):
        await setting.produce("t", b"%d" % partition, partition=partition)
    async with setting.consumer("t") as consumer:
        polled = await consumer.poll()
        assert polled.read_from == {0: 2, 1: 2, 2: 2}
    await setting.produce("t", b"more", partition=1)
    async with setting.consumer("t", read_from=polled.read_from) as consumer:
        assert values(await consumer.poll()) == [b"more"]


async def test_one_partition_of_several(setting):
    await setting.create("t", 3)
    for partition in range(3):
        await setting.produce("t", b"%d" % partition, partition=partition)
    async with setting.consumer("t", partition=1) as consumer:
        polled = await consumer.poll()
        assert (values(polled), polled.read_from) == ([b"1"], 2)
    async with setting.consumer("t", partition=7) as consumer:
        with pytest.raises(UnknownPartition):
            await consumer.poll()


# -- how much at a time ----------------------------------------------------------------------------------------------


async def test_the_rest_of_a_poll_is_handed_out_later_without_asking_again(setting, monkeypatch):
    await setting.broker.produce("t", *[b"%d" % number for number in range(10)])
    async with setting.consumer("t") as consumer:
        first = await consumer.poll(messages_max=4)
        assert (numbers(first), first.read_from) == ([1, 2, 3, 4], 5)

        async def no_call(*_, **__):
            raise AssertionError("it asked again")

        monkeypatch.setattr(consumer._connections, "call_once", no_call)
        second, third = await consumer.poll(messages_max=4), await consumer.poll(messages_max=4)
        assert (numbers(second), second.read_from) == ([5, 6, 7, 8], 9)
        assert (numbers(third), third.read_from) == ([9, 10], 11)
        with pytest.raises(AssertionError):
            await consumer.poll()


async def test_polls_are_bounded_by_bytes_and_always_progress(setting):
    for number in range(20):
        await setting.broker.produce("t", b"%d" % number + b"x" * 1_000)
    async with setting.consumer("t") as consumer:
        seen = []
        while messages := (await consumer.poll(bytes_max=1)).messages:
            assert len(messages) == 1
            seen += messages
        assert [message.number for message in seen] == list(range(1, 21))


@pytest.mark.parametrize(
    "wrong", [{"messages_max": 0}, {"bytes_max": 0}, {"wait": -1.0}, {"wait": float("nan")}]
)
async def test_a_poll_that_asks_for_nothing_is_refused(setting, wrong):
    async with setting.consumer("t") as consumer:
        with pytest.raises(InvalidRequest):
            await consumer.poll(**wrong)


async def test_a_position_inside_a_batch(setting):
    await setting.broker.produce("t", *[b"%d" % number for number in range(10)])
    async with setting.consumer("t", read_from=7) as consumer:
        assert numbers(await consumer.poll()) == [7, 8, 9, 10]


@pytest.mark.parametrize("codec", list(Codec))
async def test_batches_of_every_compression(setting, codec):
    await setting.create("t")
    topic_partition = setting.broker.log.topics.partition("t", 0)
    records = [Record(b"%d" % number, b"k", (("h", b"v"), ("h", None))) for number in range(3)]
    await setting.broker.log.append(topic_partition, build_batch(records, compression=codec, now_ms=1_234))
    async with setting.consumer("t") as consumer:
        messages = (await consumer.poll()).messages
    assert [message.value for message in messages] == [b"0", b"1", b"2"]
    assert {(m.key, m.headers, m.timestamp_ms) for m in messages} == {
        (b"k", (("h", b"v"), ("h", None)), 1_234)
    }


async def test_gaps_as_compaction_leaves_them(setting):
    """Offsets 0, 4 and 9 are left of 0 to 11."""
    await setting.create("t")
    kept = [Record(b"%d" % offset, offset=offset) for offset in (0, 4, 9)]
    async with setting.consumer("t") as consumer:
        await consumer.positions()
        data = build_batch(kept, now_ms=1, last_offset=11)
        response = type("Response", (), {})()
        response.batches = [type("Batch", (), {"partition": 0, "data": data})()]
        response.standings = [type("Standing", (), {"partition": 0, "read_from": 13})()]
        consumer._readers[0].take_response(response)
        first = await consumer.poll(messages_max=2)
        assert (numbers(first), first.read_from) == ([1, 5], 6)
        rest = await consumer.poll(messages_max=2)
        assert (numbers(rest), rest.read_from) == ([10], 13)


async def test_aborted_transactions_are_not_seen(setting):
    address = setting.broker.listeners["kafka"]
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": "x"})

    def transact():
        producer.init_transactions(30)
        for value, end in ((b"1", producer.commit_transaction), (b"2", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce("t", value)
            producer.flush(30)
            end(30)
        producer.begin_transaction()
        producer.produce("t", b"3")
        producer.flush(30)

    await setting.create("t")
    await asyncio.to_thread(transact)
    async with setting.consumer("t") as consumer, setting.consumer("t", uncommitted=True) as curious:
        polled = await consumer.poll()
        assert values(polled) == [b"1"]
        assert values(await consumer.poll()) == []
        assert values(await curious.poll()) == [b"1", b"2", b"3"]
        await asyncio.to_thread(producer.commit_transaction, 30)
        assert values(await consumer.poll(wait=30.0)) == [b"3"]


# -- several topics --------------------------------------------------------------------------------------------------


def placed(polled):
    return sorted((message.topic, message.partition, message.number) for message in polled.messages)


async def test_one_consumer_reads_several_topics(setting):
    await setting.create("b", 2)
    await setting.produce("a", b"1", b"2")
    await setting.produce("b", b"3", partition=1)
    async with setting.consumer(["a", "b"]) as consumer:
        assert await consumer.positions() == {"a": {0: 1}, "b": {0: 1, 1: 1}}
        polled = await consumer.poll()
        assert placed(polled) == [("a", 0, 1), ("a", 0, 2), ("b", 1, 1)]
        assert polled.read_from == {"a": 3, "b": {0: 1, 1: 2}}
        await setting.produce("a", b"4")
        await setting.produce("b", b"5", partition=0)
    async with setting.consumer(("b", "a"), read_from=polled.read_from) as consumer:
        assert placed(await consumer.poll()) == [("a", 0, 3), ("b", 0, 1)]


async def test_a_list_of_one_topic_has_positions_by_topic(setting):
    await setting.produce("a", b"1")
    async with setting.consumer(["a"]) as consumer:
        assert (await consumer.poll()).read_from == {"a": 2}


async def test_positions_of_several_topics(setting):
    await setting.produce("a", b"1", b"2", b"3")
    await setting.produce("b", b"1", b"2", b"3")
    for position, found in (
        ({}, [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)]),
        ({"read_from": 3}, [("a", 3), ("b", 3)]),
        ({"offset": 2}, [("a", 3), ("b", 3)]),
        ({"read_from": "latest"}, []),
        ({"read_from": {"a": "latest", "b": 3}}, [("b", 3)]),
        ({"offset": {"a": {0: 2}}}, [("a", 3), ("b", 1), ("b", 2), ("b", 3)]),
    ):
        async with setting.consumer(["a", "b"], **position) as consumer:
            messages = (await consumer.poll()).messages
            assert sorted((message.topic, message.number) for message in messages) == found, position
            await consumer.seek({"b": 3})
            assert placed(await consumer.poll()) == [("b", 0, 3)], "a keeps its position"


async def test_a_poll_waits_for_the_first_of_several_topics(setting):
    await setting.create("a")
    await setting.create("b")
    async with setting.consumer(["a", "b"]) as consumer:
        for topic in ("b", "a"):
            waiting = asyncio.ensure_future(consumer.poll(wait=30.0))
            while len(setting.broker.log.waiters._watches) < 2:  # both are asked
                await asyncio.sleep(0)
            await setting.produce(topic, b"x")
            assert placed(await waiting) == [(topic, 0, 1)]


async def test_several_topics_take_turns(setting):
    for topic in ("a", "b"):
        await setting.produce(topic, *[b"x"] * 10)
    async with setting.consumer(["a", "b"]) as consumer:
        firsts = [(await consumer.poll(messages_max=5)).messages[0].topic for _ in range(4)]
        assert sorted(firsts) == ["a", "a", "b", "b"]


async def test_a_topic_that_does_not_exist_is_named(setting):
    await setting.produce("a", b"1")
    async with setting.consumer(["a", "nothing"]) as consumer:
        with pytest.raises(UnknownTopic, match="nothing"):
            await consumer.poll()
        await setting.produce("nothing", b"2")
        assert placed(await consumer.poll()) == [("a", 0, 1), ("nothing", 0, 1)]


async def test_a_group_keeps_the_positions_of_several_topics(setting):
    await setting.produce("a", b"1", b"2")
    await setting.produce("b", b"3", b"4")
    seen = []
    for _ in range(3):
        async with setting.consumer(["a", "b"], group="g") as consumer:
            seen += placed(await consumer.poll(messages_max=2))
    assert sorted(seen) == [("a", 0, 1), ("a", 0, 2), ("b", 0, 1), ("b", 0, 2)]


async def test_a_topic_recovers_while_another_one_is_busy(setting):
    await setting.produce("a", b"1")
    await setting.produce("b", b"2")
    async with setting.consumer(["a", "b"]) as consumer:
        await consumer.positions()
        readers = {each.topic: each for each in consumer._readers}
        readers["a"]._owners = {0: NOBODY}  # as after a broker has died
        assert placed(await consumer.poll()) == [("b", 0, 1)]
        await setting.produce("b", b"3")
        assert placed(await consumer.poll()) == [("a", 0, 1), ("b", 0, 2)]


async def test_an_error_of_a_topic_is_raised_although_another_one_is_busy(setting):
    await setting.produce("a", b"1")
    async with setting.consumer(["a", "b"], read_from={"a": 99}, strict=True) as consumer:
        await setting.produce("b", b"2")
        assert placed(await consumer.poll()) == [("b", 0, 1)]
        await setting.produce("b", b"3")
        with pytest.raises(OffsetOutOfRange):
            await consumer.poll()
        assert placed(await consumer.poll()) == [("b", 0, 2)]
        await consumer.seek({"a": 1})
        assert placed(await consumer.poll()) == [("a", 0, 1)]


async def test_partitions_are_looked_up_at_another_broker_if_the_owner_is_gone(setting):
    await setting.produce("t", b"1")
    async with setting.consumer("t") as consumer:
        await consumer.positions()
        reader = consumer._readers[0]
        reader._owners, reader.refresh_at = {0: NOBODY}, 0.0
        await reader.refresh_metadata()
        assert reader._owners == {0: setting.address}


# -- waiting ---------------------------------------------------------------------------------------------------------


async def test_a_poll_waits_for_the_first_message(setting):
    await setting.create("t", 3)
    async with setting.consumer("t") as consumer:
        waiting = asyncio.ensure_future(consumer.poll(wait=30.0))
        while not setting.broker.log.waiters._watches:  # it is asked
            await asyncio.sleep(0)
        await setting.produce("t", b"at last", partition=2)
        assert values(await waiting) == [b"at last"]


async def test_iterating_follows_the_topic(setting):
    await setting.produce("t", b"a", b"b")
    seen = []
    async with setting.consumer("t") as consumer:
        async for message in consumer:
            seen.append(message.value)
            if len(seen) == 2:
                await setting.produce("t", b"c")
            if len(seen) == 3:
                break
    assert seen == [b"a", b"b", b"c"]


async def test_a_waiting_poll_that_is_cancelled_leaves_nothing_behind(setting, settle):
    await setting.create("t", 2)
    async with setting.consumer("t") as consumer:
        await consumer.positions()
        before = asyncio.all_tasks()
        for turns in (0, 1, 2, 10, 1_000):
            polling = asyncio.ensure_future(consumer.poll(wait=600.0))
            await settle(turns)
            polling.cancel()
            await asyncio.wait([polling])
            assert polling.cancelled()
        mine = {task for task in asyncio.all_tasks() - before if is_ours(task)}
        assert not mine
        await setting.produce("t", b"a", partition=1)
        assert values(await consumer.poll(wait=30.0)) == [b"a"]


async def test_several_may_poll_one_consumer_and_none_gets_anothers_message(setting):
    await setting.broker.produce("t", *[b"%d" % number for number in range(100)])
    async with setting.consumer("t") as consumer:
        polled = await asyncio.gather(*(consumer.poll(messages_max=10) for _ in range(20)))
    assert sorted(number for each in polled for number in numbers(each)) == list(range(1, 101))


# -- ends ------------------------------------------------------------------------------------------------------------


async def test_use_after_close(setting):
    await setting.produce("t", b"a")
    consumer = setting.consumer("t")
    await consumer.poll()
    await consumer.close()
    await consumer.close()
    with pytest.raises(Stopping, match="closed"):
        await consumer.poll()


async def test_closing_sends_away_who_waits(setting):
    await setting.create("t")
    consumer = setting.consumer("t")
    await consumer.positions()
    waiting = asyncio.ensure_future(consumer.poll(wait=30.0))
    while not setting.broker.log.waiters._watches:  # it is asked
        await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(Stopping, match="closed"):
        await waiting


async def test_nobody_there(setting):
    async with AsyncConsumer("t", address=NOBODY, timeout=2.5) as consumer:
        with pytest.raises(Unreachable, match="millpond serve"):
            await consumer.poll()
