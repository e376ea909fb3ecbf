"""The seeds' log service, row by row (S1 to S6, S9, S20, S22, S23, S29), against the engine itself."""

import asyncio
import os

import pytest

from millpond import Record, TopicPartition
from millpond.catalog import extents
from millpond.catalog import objects as catalog_objects
from millpond.model.errors import InvalidTopicName, OffsetOutOfRange, UnknownTopic
from millpond.model.topics import Topic
from millpond.records import build_batch
from millpond.testing import Faults, SimulatedClock, running_broker

DAY_MS = 86_400_000
MIB = 1024 * 1024


async def poll(broker, topic, read_from):
    """The seeds' poll: everything retained from a 1-based number on, and the number to go on from."""
    topic_partition = broker.log.topics.partition(topic, 0)
    position = max(read_from - 1, broker.log.partition(topic_partition).log_start)
    values = []
    while position < broker.log.partition(topic_partition).end_offset:
        records = await broker.read(topic, position)
        values += [record.value for record in records]
        position = records[-1].offset + 1
    return values, position + 1 if values else read_from


async def numbers(broker, topic, *values):
    return [(await broker.produce(topic, value)).base_offset + 1 for value in values]


@pytest.mark.parametrize(
    "value",
    [b"", b"\x00", bytes(range(256)), os.urandom(16_384), os.urandom(70_000), os.urandom(3 * MIB)],
    ids=["empty", "nul", "every byte", "16 KiB", "70 kB", "3 MiB"],
)
async def test_s1_messages_are_opaque_bytes_of_any_length(tmp_path, value):
    async with running_broker(tmp_path, max_message_bytes=4 * MIB) as broker:
        await broker.produce("topic", value)
        assert [record.value for record in await broker.read("topic")] == [value]
    async with running_broker(tmp_path) as broker:
        assert [record.value for record in await broker.read("topic")] == [value]


async def test_s1_keys_headers_and_null_values_come_back_as_they_went():
    record = Record(value=None, key=b"\xff\x00", headers=(("name", None), ("name", b"\x80")), timestamp=12)
    async with running_broker() as broker:
        await broker.produce("topic", record)
        [read] = await broker.read("topic")
    assert (read.value, read.key, read.headers, read.timestamp) == (None, b"\xff\x00", record.headers, 12)


async def test_s2_an_unknown_topic_is_created_by_producing_to_it():
    async with running_broker() as broker:
        with pytest.raises(UnknownTopic, match="There is no topic 'new'"):
            await broker.read("new")
        await broker.produce("new", b"first")
        assert [record.value for record in await broker.read("new")] == [b"first"]


async def test_s2_creation_can_be_turned_off():
    async with running_broker(auto_create_topics=False) as broker:
        with pytest.raises(UnknownTopic, match="no topic 'new'"):
            await broker.produce("new", b"first")
        assert broker.log.topics.all() == []


async def test_s2_many_producers_may_create_the_same_topic_at_once():
    async with running_broker() as broker:
        results = await asyncio.gather(*(broker.produce("new", b"%d" % n) for n in range(50)))
        assert sorted(result.base_offset for result in results) == list(range(50))
        assert len(broker.log.topics.all()) == 1


async def test_s2_many_topics_may_be_created_at_once():
    async with running_broker() as broker:
        await asyncio.gather(*(broker.produce(f"topic-{n}", b"x") for n in range(40)))
        assert len(broker.log.topics.all()) == 40
        for n in range(40):
            assert len(await broker.read(f"topic-{n}")) == 1


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "index", "0", "...", "a..b"])
async def test_s2_legal_names_store_their_messages(tmp_path, name):
    async with running_broker(tmp_path) as broker:
        await broker.produce(name, b"x")
    async with running_broker(tmp_path) as broker:
        assert len(await broker.read(name)) == 1


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "x" * 250, "a b", "é", "a\x00b", "a\n", "‮a"])
async def test_s2_other_names_are_refused(name):
    async with running_broker() as broker:
        with pytest.raises(InvalidTopicName):
            await broker.produce(name, b"x")
        assert broker.log.topics.all() == []


async def test_s3_messages_are_numbered_1_2_3_in_the_order_received():
    async with running_broker() as broker:
        assert await numbers(broker, "first", b"a", b"b", b"c") == [1, 2, 3]
        assert await numbers(broker, "second", b"a") == [1]
        assert await poll(broker, "first", 1) == ([b"a", b"b", b"c"], 4)


async def test_s3_concurrent_messages_are_read_in_the_order_of_their_numbers(tmp_path):
    async with running_broker(tmp_path) as broker:
        results = await asyncio.gather(*(broker.produce("topic", b"%d" % n) for n in range(300)))
        by_number = {result.base_offset: b"%d" % n for n, result in enumerate(results)}
        values, _ = await poll(broker, "topic", 1)
        assert values == [by_number[offset] for offset in range(300)]


async def test_s4_a_poll_returns_all_from_its_own_position_and_says_where_to_go_on():
    async with running_broker() as broker:
        await numbers(broker, "topic", b"1", b"2", b"3")
        assert await poll(broker, "topic", 1) == ([b"1", b"2", b"3"], 4)
        assert await poll(broker, "topic", 4) == ([], 4)
        await numbers(broker, "topic", b"4")
        assert await poll(broker, "topic", 4) == ([b"4"], 5)
        assert await poll(broker, "topic", 3) == ([b"3", b"4"], 5)


async def test_s4_a_poll_can_wait_for_the_next_message():
    async with running_broker() as broker:
        await broker.produce("topic", b"1")
        waiting = asyncio.create_task(broker.read("topic", 1, wait_ms=10_000))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await broker.produce("topic", b"2")
        assert [record.value for record in await waiting] == [b"2"]


async def test_s4_polls_are_bounded_and_always_progress():
    """Also M7: a reader many mebibytes behind can always poll again."""
    async with running_broker(tail_bytes_max=0, cache_bytes_max=0) as broker:
        for number in range(12):
            await broker.produce("topic", bytes([number]) * 700_000)
        position, seen, polls = 0, [], 0
        while records := await broker.read("topic", position):
            assert sum(len(record.value) for record in records) <= 1_400_000
            seen += [record.value[0] for record in records]
            position, polls = records[-1].offset + 1, polls + 1
        assert seen == list(range(12))
        assert polls >= 6


async def test_s5_reading_removes_nothing_and_readers_are_independent():
    async with running_broker() as broker:
        await numbers(broker, "topic", b"1", b"2", b"3")
        polls = await asyncio.gather(*(poll(broker, "topic", 1 + n % 3) for n in range(30)))
        for n, (values, following) in enumerate(polls):
            assert values == [b"1", b"2", b"3"][n % 3 :]
            assert following == 4


@pytest.mark.parametrize("age_ms", [50, 10_000, 3 * DAY_MS])
async def test_s6_messages_expire_by_age_and_numbers_go_on(age_ms):
    clock = SimulatedClock()
    async with running_broker(clock=clock, retention=age_ms) as broker:
        await numbers(broker, "topic", b"1", b"2")
        clock.advance(age_ms // 2 + 1)
        await numbers(broker, "topic", b"3")
        await broker.maintenance.retention.run_once()
        assert await poll(broker, "topic", 1) == ([b"1", b"2", b"3"], 4)
        clock.advance(max(age_ms // 2, 1_001 if age_ms < 2_000 else 0))
        await broker.maintenance.retention.run_once()
        expected = ([b"3"], 4) if age_ms > 2_000 else ([], 1)
        assert await poll(broker, "topic", 1) == expected
        clock.advance(age_ms + 31_000)
        await broker.maintenance.retention.run_once()
        assert await poll(broker, "topic", 1) == ([], 1)
        assert await numbers(broker, "topic", b"4") == [4]
        assert await poll(broker, "topic", 1) == ([b"4"], 5)


async def test_s6_retention_of_a_topic_goes_before_the_servers():
    clock = SimulatedClock()
    async with running_broker(clock=clock, retention=1_000) as broker:
        await broker.log.create_topic("kept", 1, {"retention.ms": "-1"})
        await broker.log.create_topic("bounded", 1, {"retention.ms": "-1", "retention.bytes": "3000"})
        for topic in ("kept", "bounded", "expiring"):
            for _ in range(5):
                await broker.produce(topic, bytes(1_000))
        clock.advance(100_000)
        await broker.maintenance.retention.run_once()
        kept = {topic: len((await poll(broker, topic, 1))[0]) for topic in ("kept", "bounded", "expiring")}
        assert kept == {"kept": 5, "bounded": 3, "expiring": 0}


async def test_s6_a_poll_below_the_oldest_is_told_both_bounds():
    clock = SimulatedClock()
    async with running_broker(clock=clock, retention=1_000) as broker:
        await numbers(broker, "topic", b"1", b"2")
        clock.advance(10_000)
        await broker.maintenance.retention.run_once()
        with pytest.raises(OffsetOutOfRange, match="0 is outside the retained range 2 to 2"):
            await broker.read("topic", 0)


async def test_s9_a_memory_store_keeps_nothing_and_a_directory_everything(tmp_path):
    for place, kept in ((None, 0), (tmp_path, 1)):
        async with running_broker(place) as broker:
            await broker.produce("topic", b"x")
        async with running_broker(place) as broker:
            assert len(broker.log.topics.all()) == kept


@pytest.mark.parametrize("store", ["memory://", "file"])
async def test_s9_each_store_serves_the_same_log(tmp_path, store):
    url = (tmp_path / "elsewhere").as_uri() if store == "file" else store
    async with running_broker(tmp_path / "data", storage=url, tail_bytes_max=0) as broker:
        await numbers(broker, "topic", b"small", os.urandom(50_000))
        values, following = await poll(broker, "topic", 1)
        assert (len(values), following) == (2, 3)
        assert list(broker.store.list("journal/"))


async def test_s20_offsets_are_stored_once_for_each_run_of_batches_not_for_each_message(tmp_path):
    async with running_broker(tmp_path) as broker:
        await broker.produce("topic", *[b"%d" % n for n in range(1_000)])
        assert (await broker.log.read(extents.totals)).extents == 1


async def test_s20_a_batch_sent_again_by_an_idempotent_producer_is_stored_once(tmp_path):
    async with running_broker(tmp_path) as broker:
        topic_partition = await new_partition(broker)
        batch = build_batch(
            [Record(b"a"), Record(b"b")], producer_id=7, producer_epoch=0, base_sequence=0, now_ms=1
        )
        answers = await asyncio.gather(*(broker.log.append(topic_partition, batch) for _ in range(5)))
        assert {answer.base_offset for answer in answers} == {0}
    async with running_broker(tmp_path) as broker:
        assert (await broker.log.append(topic_partition, batch)).base_offset == 0
        assert [record.value for record in await broker.read("topic")] == [b"a", b"b"]


async def test_s20_merging_moves_data_and_leaves_no_second_copy(tmp_path):
    clock = SimulatedClock()
    async with running_broker(tmp_path, clock=clock, garbage_grace=0) as broker:
        for number in range(40):
            await broker.produce("topic", bytes([number]) * 20_000)
        await broker.maintenance.merging.run_once()
        clock.advance(1)
        before, _ = await poll(broker, "topic", 1)
    clock.advance(1)
    async with running_broker(tmp_path, clock=clock, garbage_grace=0) as broker:
        await broker.maintenance.garbage.run_once()
        assert (await poll(broker, "topic", 1))[0] == before == [bytes([n]) * 20_000 for n in range(40)]
        kinds = await broker.log.read(catalog_objects.totals)
        assert set(kinds) == {"segment"}
        on_disk = sum(path.stat().st_size for path in (tmp_path / "objects").rglob("*") if path.is_file())
        assert 800_000 < on_disk < 850_000


async def new_partition(broker, name="topic", partitions=1) -> TopicPartition:
    topic: Topic = await broker.log.create_topic(name, partitions)
    return TopicPartition(topic.id, 0)


def uploading(broker_store):
    """Treat a local store as an object store: appends upload side by side."""

    class Uploading:
        appends_are_uploads = True

        def __getattr__(self, name):
            return getattr(broker_store, name)

    return Uploading()


async def test_s22_a_slow_flush_never_beats_or_hides_a_newer_one(monkeypatch):
    from millpond.testing import broker as testing_broker

    faults = Faults()
    faulty = testing_broker.FaultyStore
    monkeypatch.setattr(testing_broker, "FaultyStore", lambda store, plan: uploading(faulty(store, plan)))
    slow = faults.hold("append")
    async with running_broker(faults=faults, inline_bytes_max=0, flush_delay=1) as broker:
        await broker.log.create_topic("topic", 2)
        first = asyncio.create_task(broker.produce("topic", b"old"))
        await asyncio.to_thread(slow.wait_reached)
        elsewhere = await asyncio.wait_for(broker.produce("topic", b"other", partition=1), 5)
        second = asyncio.create_task(broker.produce("topic", b"new"))
        await asyncio.sleep(0.05)
        assert (first.done(), second.done(), elsewhere.base_offset) == (False, False, 0)
        assert await broker.read("topic") == []
        slow.release()
        assert [(await each).base_offset for each in (first, second)] == [0, 1]
        assert [record.value for record in await broker.read("topic")] == [b"old", b"new"]


async def test_s23_a_flush_is_sealed_by_size_or_by_time_whichever_comes_first(monkeypatch):
    from millpond.testing import broker as testing_broker

    faulty = testing_broker.FaultyStore
    monkeypatch.setattr(testing_broker, "FaultyStore", lambda store, plan: uploading(faulty(store, plan)))
    limits = {"inline_bytes_max": 0, "flush_bytes": 100_000}
    async with running_broker(faults=Faults(), **limits, flush_delay=600) as broker:
        await broker.produce("topic", b"create it")
        clock = asyncio.get_running_loop().time
        started = clock()
        await broker.produce("topic", bytes(1_000))
        assert clock() - started > 0.58
    async with running_broker(faults=Faults(), **limits, flush_delay=60_000) as broker:
        await broker.log.create_topic("topic")
        async with asyncio.timeout(20):
            await asyncio.gather(*(broker.produce("topic", bytes(10_000)) for _ in range(10)))
        assert broker.log._flusher.flushes == 1


async def test_s23_nothing_is_written_when_nothing_arrives(tmp_path):
    async with running_broker(tmp_path) as broker:
        await broker.produce("topic", bytes(50_000))
        files = {path: path.stat().st_size for path in (tmp_path / "objects").rglob("*")}
        await asyncio.sleep(0.3)
        assert {path: path.stat().st_size for path in (tmp_path / "objects").rglob("*")} == files
        assert broker.log._flusher.flushes == 1


async def test_s29_a_published_message_survives_the_broker_being_dropped_without_a_word(tmp_path):
    """The state on disk when the answer comes is enough: a copy of it, taken at once, has everything."""
    import shutil

    async with running_broker(tmp_path / "data") as broker:
        for number in range(30):
            await broker.produce("topic", b"%d" % number, bytes(30_000 * (number % 2)))
            if number % 10 == 9:
                copy = tmp_path / f"copy-{number}"
                shutil.copytree(tmp_path / "data", copy)
                async with running_broker(copy) as survivor:
                    values, _ = await poll(survivor, "topic", 1)
                    assert values[::2] == [b"%d" % n for n in range(number + 1)]


async def test_s29_a_batch_over_several_messages_is_all_there_or_not_at_all():
    async with running_broker() as broker:
        await broker.produce("topic", b"1")
        results = await asyncio.gather(
            broker.produce("topic", *[b"good"] * 3),
            broker.produce("topic", b"good", bytes(2 * MIB)),
            return_exceptions=True,
        )
        assert results[0].base_offset == 1
        assert type(results[1]).__name__ == "RecordTooLarge"
        assert len(await broker.read("topic")) == 4
