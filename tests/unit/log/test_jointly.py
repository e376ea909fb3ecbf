"""Appends to several partitions and an operation of the catalog in one commit: all of it, or nothing."""

import asyncio
import threading

import pytest

from millpond.model.errors import (
    FlushFailed,
    InvalidRequest,
    NotOwner,
    PartitionHalted,
    RecordTooLarge,
    UnknownTopic,
)
from millpond.model.ids import TopicPartition

LARGE = bytes(300_000)


def note(value):
    def operation(tx):
        tx.rows("INSERT INTO meta (name, value) VALUES ('note', ?)", (value,))

    return operation


def notes(engine):
    return [value for (value,) in engine.rows("SELECT value FROM meta WHERE name = 'note'")]


def refuse(tx):
    note("never")(tx)
    raise NotOwner


def note_nothing(_):
    """A joint append of nothing but batches."""


def give_to_another(engine):
    with engine.broker.database.write() as tx:
        tx.rows("UPDATE partitions SET owner = 'another', epoch = epoch + 1 WHERE partition = 0")


@pytest.mark.parametrize("uploads", [False, True], ids=["local", "uploads"])
@pytest.mark.parametrize("value", [b"small", LARGE], ids=["inline", "stored"])
async def test_batches_and_operation_happen_together(start, make_batch, uploads, value):
    engine = await start(partitions=2, uploads=uploads)
    await engine.append(b"before", partition=1)
    appends = {
        engine.topic_partition(0): make_batch(value, b"a"),
        engine.topic_partition(1): make_batch(value, b"b"),
    }
    placed = await engine.log.append_jointly(appends, note("done"))
    assert [placed[engine.topic_partition(n)].base_offset for n in (0, 1)] == [0, 1]
    assert await engine.values(partition=0) == [value, b"a"]
    assert await engine.values(partition=1) == [b"before", value, b"b"]
    assert notes(engine) == ["done"]


@pytest.mark.parametrize("uploads", [False, True], ids=["local", "uploads"])
async def test_an_operation_that_refuses_takes_the_batches_with_it(start, make_batch, uploads):
    engine = await start(partitions=2, uploads=uploads)
    appends = {engine.topic_partition(0): make_batch(b"a"), engine.topic_partition(1): make_batch(b"b")}
    with pytest.raises(NotOwner):
        await engine.log.append_jointly(appends, refuse)
    assert await engine.append(b"next") == (0, 0, -1)
    assert await engine.values(partition=0) == [b"next"]
    assert await engine.values(partition=1) == []
    assert notes(engine) == []


async def test_appends_behind_a_refused_one_are_not_refused(engine, make_batch):
    joint = asyncio.ensure_future(
        engine.log.append_jointly({engine.topic_partition(): make_batch(b"a")}, refuse)
    )
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(engine.append(b"%d" % n, producer=(7, 0, n))) for n in range(3)]
    with pytest.raises(NotOwner):
        await joint
    assert [(await each).base_offset for each in later] == [0, 1, 2]


async def test_a_partition_that_refuses_undoes_the_others(start, make_batch):
    engine = await start(partitions=2)
    missing = TopicPartition(engine.topic_id, 9)
    appends = {engine.topic_partition(0): make_batch(b"a"), missing: make_batch(b"b")}
    with pytest.raises(Exception, match="partition 9"):
        await engine.log.append_jointly(appends, note("never"))
    assert await engine.values(partition=0) == []
    assert notes(engine) == []


async def test_bad_batches_are_refused_before_anything_happens(engine, make_batch):
    topic_partition = engine.topic_partition()
    with pytest.raises(InvalidRequest, match="no batches with sequences"):
        await engine.log.append_jointly(
            {topic_partition: make_batch(b"a", producer=(7, 0, 0))}, note("never")
        )
    with pytest.raises(RecordTooLarge):
        await engine.log.append_jointly({topic_partition: make_batch(bytes(2_000_000))}, note("never"))
    with pytest.raises(UnknownTopic):
        await engine.log.append_jointly({TopicPartition(bytes(16), 0): make_batch(b"a")}, note("never"))
    assert notes(engine) == []


async def test_a_partition_of_another_broker_takes_them_too(engine, make_batch):
    """It is appended to as any foreign writer does, and its owner finds them there."""
    with engine.broker.database.write() as tx:
        tx.rows("UPDATE partitions SET owner = 'another', epoch = epoch + 1")
    await engine.log.refresh()
    with pytest.raises(NotOwner):
        engine.log.partition(engine.topic_partition())
    placed = await engine.log.append_jointly({engine.topic_partition(): make_batch(b"a")}, note("done"))
    assert placed[engine.topic_partition()].base_offset == 0
    with pytest.raises(NotOwner):
        await engine.append(b"its former owner may not append as its owner")


async def test_a_halted_partition_takes_nothing_jointly_either(start, make_batch):
    """The catalog went back: offsets would be given a second time."""
    engine = await start(partitions=2)
    await engine.append(b"a", b"forgotten")
    with engine.broker.database.write() as tx:
        tx.rows("UPDATE partitions SET end_offset = 1 WHERE partition = 0")
    await engine.log.refresh()
    appends = {engine.topic_partition(number): make_batch(b"x") for number in (1, 0)}
    with pytest.raises(PartitionHalted):
        engine.log.check_joint(engine.topic_partition(), make_batch(b"x"))
    with pytest.raises(PartitionHalted):
        await engine.log.append_jointly(appends, note("never"))
    with pytest.raises(PartitionHalted):
        await engine.log.submit_jointly(appends, note("never"))
    assert engine.rows("SELECT end_offset FROM partitions ORDER BY partition") == [(1,), (0,)]
    assert notes(engine) == []


@pytest.mark.parametrize("uploads", [False, True], ids=["local", "uploads"])
async def test_a_partition_is_let_go_while_others_go_on_appending_jointly(start, make_batch, uploads):
    engine = await start(partitions=2, uploads=uploads)
    topic_partitions = [engine.topic_partition(0), engine.topic_partition(1)]
    going_on, answered = True, []

    async def append_on():
        while going_on:
            placed = await engine.log.append_jointly(
                {each: make_batch(b"j") for each in topic_partitions}, note_nothing
            )
            answered.append(placed[topic_partitions[0]].base_offset)

    appending = [asyncio.ensure_future(append_on()) for _ in range(4)]
    accepted = await engine.submit(b"accepted before")
    try:
        async with asyncio.timeout(10):
            await engine.log.prepare_handover(topic_partitions[:1])
        assert accepted.done(), "what was accepted is answered first"
        give_to_another(engine)
        count = len(answered)
        async with asyncio.timeout(10):
            while len(answered) < count + 20:
                await asyncio.sleep(0)
    finally:
        going_on = False
        await asyncio.gather(*appending)
    [(end,)] = engine.rows("SELECT end_offset FROM partitions WHERE partition = 0")
    assert sorted([*answered, accepted.result().base_offset]) == list(range(end))


async def test_what_is_appended_jointly_while_it_is_handed_over_tells_the_new_owner(
    engine, make_batch, monkeypatch
):
    """The commit comes after the hand-over, of which this broker has not heard yet."""
    told = []
    monkeypatch.setattr(engine.broker.peers, "notify_owner", told.append)
    await engine.log.prepare_handover([engine.topic_partition()])
    give_to_another(engine)
    placed = await engine.log.append_jointly({engine.topic_partition(): make_batch(b"a")}, note("done"))
    assert placed[engine.topic_partition()].base_offset == 0
    assert told == [engine.topic_partition()]
    [partition] = engine.log.partitions()
    assert partition.end_offset == 0, "it is no longer this broker's"


@pytest.mark.parametrize("uploads", [False, True], ids=["local", "uploads"])
@pytest.mark.parametrize("padding", [b"", LARGE], ids=["inline", "stored"])
async def test_submits_stay_in_order_when_some_are_joint(start, make_batch, uploads, padding):
    engine = await start(partitions=3, uploads=uploads)
    answers = []
    for number in range(24):
        value = b"%d " % number + padding
        if number % 3 == 1:
            appends = {
                engine.topic_partition(0): make_batch(value),
                engine.topic_partition(1): make_batch(b"beside"),
            }
            answers.append(await engine.log.submit_jointly(appends, lambda _: None))
        else:
            answers.append(await engine.submit(value))
        answers.append(await engine.submit(b"other", partition=2))
    await asyncio.gather(*answers)
    found = []
    while len(found) < 24:
        found += await engine.values(len(found))
    assert [int(value.split()[0]) for value in found] == list(range(24))
    assert engine.log.held_bytes == 0


async def test_joint_appends_one_after_the_other_do_not_hold_up_ordinary_ones(start, make_batch):
    engine = await start(partitions=2)
    joint, ordinary, appended = engine.topic_partition(1), 0, []
    begun, may_end = threading.Event(), threading.Event()

    def slow(_):
        begun.set()
        may_end.wait(60)

    held = asyncio.create_task(engine.log.append_jointly({joint: make_batch(b"held")}, slow))
    await asyncio.to_thread(begun.wait)
    first = await engine.submit(b"first", partition=ordinary)
    assert engine.log._flusher._open is None, "the ordinary one does not wait in its buffer"
    may_end.set()
    await asyncio.gather(held, first)

    async def keep_on():
        while True:
            await engine.log.append_jointly({joint: make_batch(b"joint")}, note_nothing)
            appended.append(1)

    tasks = [asyncio.create_task(keep_on()) for _ in range(16)]
    try:
        async with asyncio.timeout(60):
            while len(appended) < 2 * len(tasks):
                await asyncio.sleep(0)
            await engine.append(b"ordinary", partition=ordinary)
    finally:
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert await engine.values(partition=ordinary) == [b"first", b"ordinary"]


async def test_a_joint_append_that_its_operation_refuses_fails_alone(engine, make_batch):
    def refuse_flush(_):
        raise FlushFailed("another writer was first")

    with pytest.raises(FlushFailed):
        await engine.log.append_jointly({engine.topic_partition(): make_batch(b"joint")}, refuse_flush)
    await engine.append(b"ordinary")
    assert await engine.values() == [b"ordinary"]
