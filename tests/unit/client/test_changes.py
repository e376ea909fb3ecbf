"""Topics that change while clients are open: made anew under the same name, with more partitions, with other limits."""

import asyncio
import contextlib
import json
import threading

import pytest

from millpond import Consumer, Producer
from millpond.client import topic_producer as producing
from millpond.client import topic_reader as consuming
from millpond.client.group_membership import GroupMembership
from millpond.model.errors import RecordTooLarge, TopicReplaced, UnknownPartition, UnknownTopic
from millpond.model.partitioning import partition_of

KEYS = [b"%d" % number for number in range(40)]


def values(polled):
    return [message.value for message in polled.messages]


@pytest.fixture(autouse=True)
def no_heartbeats_between_polls(monkeypatch):
    """A member finds changes in its polls."""

    async def nothing(_):
        pass

    monkeypatch.setattr(GroupMembership, "_try_heartbeat", nothing)


@pytest.fixture
def soon(monkeypatch):
    """Clients look again all the time."""
    monkeypatch.setattr(consuming, "METADATA_REFRESH_S", 0.05)
    monkeypatch.setattr(producing, "METADATA_REFRESH_S", 0.0)


async def make_anew(setting, topic, *values, partitions=1):
    async with setting.admin() as admin:
        await admin.delete_topic(topic)
        await admin.create_topic(topic, partitions=partitions)
    await setting.produce(topic, *values)


# -- made anew -------------------------------------------------------------------------------------------------------


async def test_a_topic_that_is_made_anew_is_read_from_its_first_message_on(setting):
    await setting.produce("t", *[b"old"] * 5)
    async with setting.consumer("t", read_from="latest") as consumer:
        assert await consumer.poll() == ([], 6)
        await make_anew(setting, "t", *[b"%d" % number for number in range(8)])
        polled = await consumer.poll()
        assert (values(polled), polled.read_from) == ([b"%d" % number for number in range(8)], 9)


async def test_a_topic_that_is_made_anew_with_other_partitions(setting):
    await setting.create("t", 3)
    async with setting.consumer("t") as consumer:
        assert await consumer.positions() == {0: 1, 1: 1, 2: 1}
        await make_anew(setting, "t", b"a", partitions=2)
        assert values(await consumer.poll(wait=30.0)) == [b"a"]
        assert await consumer.positions() in ({0: 2, 1: 1}, {0: 1, 1: 2})


async def test_what_was_read_of_the_old_topic_is_still_handed_out(setting):
    await setting.produce("t", b"old 1", b"old 2")
    async with setting.consumer("t") as consumer:
        assert values(await consumer.poll(messages_max=1)) == [b"old 1"]
        await make_anew(setting, "t", b"new")
        assert values(await consumer.poll()) == [b"old 2"]
        assert values(await consumer.poll()) == [b"new"]


async def test_a_strict_consumer_is_told_until_it_says_where_to_go_on(setting):
    await setting.produce("t", b"old")
    async with setting.consumer("t", strict=True) as consumer:
        assert values(await consumer.poll()) == [b"old"]
        await make_anew(setting, "t", b"new 1", b"new 2")
        for _ in range(2):
            with pytest.raises(TopicReplaced):
                await consumer.poll()
        await consumer.seek("earliest")
        assert values(await consumer.poll()) == [b"new 1", b"new 2"]


async def test_a_topic_that_is_gone_and_comes_again(setting):
    await setting.produce("t", b"old")
    async with setting.consumer("t") as consumer, setting.admin() as admin:
        await consumer.poll()
        await admin.delete_topic("t")
        with pytest.raises(UnknownTopic):
            await consumer.poll()
        await setting.produce("t", b"new")
        assert values(await consumer.poll()) == [b"new"]


@pytest.mark.parametrize("kept", [{}, {"group": "g"}])
async def test_a_deleted_topic_is_reported_once_and_the_others_are_read(setting, soon, kept):
    for topic in ("a", "b"):
        await setting.produce(topic, b"1")
    async with setting.consumer(["a", "b"], **kept) as consumer, setting.admin() as admin:
        assert len((await consumer.poll()).messages) == 2
        await admin.delete_topic("a")
        with pytest.raises(UnknownTopic, match="'a'"):
            await consumer.poll()
        for value in (b"2", b"3"):
            await setting.produce("b", value)
            assert values(await consumer.poll()) == [value]
        assert values(await consumer.poll(wait=0.2)) == []
        await setting.produce("a", b"new")
        assert values(await consumer.poll(wait=30.0)) == [b"new"]
        await admin.delete_topic("b")
    async with setting.consumer("a", **kept) as consumer:
        assert values(await consumer.poll()) == ([] if kept else [b"new"]), "the close has kept it"


@pytest.mark.parametrize("kept", [{}, {"group": "g"}])
async def test_a_consumer_whose_topics_are_all_deleted_reports_it_at_every_poll(setting, kept):
    for topic in ("a", "b"):
        await setting.produce(topic, b"1")
    async with setting.consumer(["a", "b"], **kept) as consumer, setting.admin() as admin:
        await consumer.poll()
        for topic in ("a", "b"):
            await admin.delete_topic(topic)
        for _ in range(4):
            with pytest.raises(UnknownTopic):
                await consumer.poll()
        await setting.produce("b", b"new")
        found = []
        while (
            not found
        ):  # a member may have been assigned the new topic already: then one topic is left to read
            with contextlib.suppress(UnknownTopic):
                found = values(await consumer.poll())
        assert found == [b"new"]


async def test_positions_of_partitions_that_are_gone_do_not_prevent_a_poll(setting):
    await setting.create("t", 3)
    async with setting.consumer("t", group="g") as consumer:
        await consumer.positions()
        await make_anew(setting, "t", b"new")
        assert values(await consumer.poll()) == [b"new"]


async def test_positions_in_a_file_are_those_of_one_topic(setting, tmp_path):
    at = tmp_path / "at.json"
    await setting.produce("t", b"old", b"old")
    async with setting.consumer("t", position_file=at) as consumer:
        await consumer.poll()
    await make_anew(setting, "t", b"a", b"b", b"c")
    async with setting.consumer("t", position_file=at, strict=True) as consumer:
        with pytest.raises(TopicReplaced):
            await consumer.poll()
    async with setting.consumer("t", read_from=2, position_file=at) as consumer:
        assert values(await consumer.poll()) == [b"b", b"c"], "it begins at read_from, as without a file"
    async with setting.consumer("t", position_file=at, strict=True) as consumer:
        assert values(await consumer.poll()) == []


async def test_a_strict_consumer_with_a_file_can_go_on_in_the_new_topic(setting, tmp_path):
    at = tmp_path / "at.json"
    await setting.create("t", 2)
    async with setting.consumer("t", position_file=at) as consumer:
        await consumer.positions()
        await consumer.seek({1: 9})
    await make_anew(setting, "t", b"new")
    async with setting.consumer("t", position_file=at, strict=True) as consumer:
        await consumer.seek(1)
        assert values(await consumer.poll()) == [b"new"]
    assert json.loads(at.read_text())["read_from"] == {"0": 2}, "of the old topic nothing is left"


async def test_a_file_without_an_id_is_still_read(setting, tmp_path):
    at = tmp_path / "at.json"
    at.write_text('{"topic": "t", "read_from": {"0": 2}}')
    await setting.produce("t", b"a", b"b")
    async with setting.consumer("t", position_file=at, strict=True) as consumer:
        assert values(await consumer.poll()) == [b"b"]
    async with setting.admin() as admin:
        topic_id = (await admin.describe_topic("t")).topic.id
    assert json.loads(at.read_text()) == {"topic": "t", "topic_id": topic_id, "read_from": {"0": 3}}


async def test_positions_of_the_new_topic_are_kept_from_its_first_poll_on(setting, tmp_path):
    for kept in ({"position_file": tmp_path / "at.json"}, {"group": "g"}):
        await setting.produce("t", b"old", b"old")
        async with setting.consumer("t", **kept) as consumer:
            await consumer.poll()
            await make_anew(setting, "t", b"a", b"b", b"c")
            assert values(await consumer.poll(messages_max=1)) == [b"a"]
        async with setting.consumer("t", **kept) as consumer:
            assert values(await consumer.poll()) == [b"b", b"c"]


# -- more partitions: consumers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_from", [1, "latest", {0: 2}])
async def test_partitions_that_are_added_are_read_from_their_first_message_on(setting, soon, read_from):
    await setting.produce("t", b"old")
    async with setting.consumer("t", read_from=read_from) as consumer, setting.admin() as admin:
        await consumer.poll()
        waiting = asyncio.ensure_future(consumer.poll(wait=30.0))
        await asyncio.sleep(0)
        await admin.alter_topic("t", partitions=3)
        await setting.produce("t", b"new", partition=2)
        assert values(await waiting) == [b"new"]
        assert consumer.read_from == {0: 2, 1: 1, 2: 2}


async def test_the_reader_of_one_partition_keeps_to_it(setting, soon):
    await setting.create("t")
    async with setting.consumer("t", partition=0) as consumer, setting.admin() as admin:
        await consumer.positions()
        await admin.alter_topic("t", partitions=2)
        await setting.produce("t", b"new", partition=1)
        assert await consumer.poll(wait=0.2) == ([], 1)


async def test_a_consumer_does_not_ask_for_partitions_at_every_poll(setting, monkeypatch):
    await setting.produce("t", b"a")
    async with setting.consumer("t") as consumer:
        await consumer.positions()
        asked = []
        call_once = consumer._connections.call_once

        async def noting(service, name, *rest, **named):
            asked.append(name)
            return await call_once(service, name, *rest, **named)

        monkeypatch.setattr(consumer._connections, "call_once", noting)
        for _ in range(5):
            await consumer.poll()
    assert asked == ["Poll"] * 5


# -- more partitions, other limits: producers ------------------------------------------------------------------------


async def test_an_explicit_partition_that_was_added_is_found_at_once(setting):
    async with setting.producer("t") as producer, setting.admin() as admin:
        await producer.send(b"a")
        await admin.alter_topic("t", partitions=3)
        assert (await producer.send(b"b", partition=2)).number == 1
        with pytest.raises(UnknownPartition):
            await producer.send(b"c", partition=3)
        placed = [await (await producer.submit(b"x", key=key)) for key in KEYS]
        assert [each.partition for each in placed] == [partition_of(key, 3) for key in KEYS]


async def test_a_producer_in_use_learns_of_partitions_by_itself(setting, soon):
    async with setting.producer("t") as producer, setting.admin() as admin:
        await producer.send(b"a", key=b"k")
        await admin.alter_topic("t", partitions=4)
        await producer.send(b"a", key=b"k")
        while producer.in_topic("t")._refresh_task is not None:
            await asyncio.sleep(0.01)
        placed = [await (await producer.submit(b"x", key=key)) for key in KEYS]
        assert [each.partition for each in placed] == [partition_of(key, 4) for key in KEYS]


async def test_a_limit_that_was_raised_holds_at_once(setting):
    await setting.create("t", max_message_bytes="1000")
    async with setting.producer("t") as producer, setting.admin() as admin:
        with pytest.raises(RecordTooLarge):
            await producer.send(b"x" * 5_000)
        await admin.alter_topic("t", configs={"max.message.bytes": "10000"})
        outcomes = await asyncio.gather(*(producer.send(b"x" * 5_000) for _ in range(10)))
        assert sorted(outcome.number for outcome in outcomes) == list(range(1, 11))
        assert {lane.batch_bytes for lane in producer.in_topic("t")._lanes} == {
            10_000 - producing.HEADER_SIZE
        }


async def test_looking_again_does_not_make_a_topic_that_was_deleted(setting, soon):
    async with setting.producer("t") as producer, setting.admin() as admin:
        await producer.send(b"a")
        await admin.delete_topic("t")
        with pytest.raises(UnknownTopic):
            await producer.send(b"a", partition=1)
        assert await admin.list_topics() == []


async def test_a_topic_that_was_made_anew_with_fewer_partitions_says_so(setting):
    await setting.create("t", 3)
    async with setting.producer("t") as producer:
        await producer.send(b"a", partition=2)
        await make_anew(setting, "t")
        with pytest.raises(UnknownPartition):
            await producer.send(b"a", partition=2)
        assert (await producer.send(b"a", partition=0)).number == 1


async def test_without_an_event_loop(setting, soon):
    """In another thread, since the broker needs this one."""

    def work():
        with (
            Producer("t", address=setting.address) as producer,
            Consumer("t", address=setting.address) as consumer,
        ):
            producer.send(b"a")
            assert values(consumer.poll(wait=30.0)) == [b"a"]
            grow()
            sents = [producer.submit(b"%d" % number, partition=2) for number in range(50)]
            assert [sent.result().number for sent in sents] == list(range(1, 51))
            with pytest.raises(UnknownPartition):
                producer.send(b"c", partition=3)
            assert len(consumer.poll(wait=30.0).messages) > 0
            consumer.seek({2: 50})
            assert values(consumer.poll(wait=30.0)) == [b"49"]

    def grow():
        done = threading.Event()

        async def alter():
            async with setting.admin() as admin:
                await admin.alter_topic("t", partitions=3)
            done.set()

        asyncio.run_coroutine_threadsafe(alter(), loop)
        assert done.wait(10)

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(work)
