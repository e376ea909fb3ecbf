"""Where a consumer keeps its positions, and what comes again after a crash."""

import asyncio
import json
import os

import confluent_kafka
import pytest

from millpond.client.positions import FilePositions
from millpond.groups import ShareHeartbeat
from millpond.model.errors import GroupInUse, InvalidRequest, MillpondError, UnknownGroup


class Killed(BaseException):
    """The process ends here."""


def values(polled):
    return [message.value for message in polled.messages]


@pytest.fixture(params=["file", "group"])
def kept(request, tmp_path):
    """Arguments of a consumer that keeps its positions."""
    return {"position_file": tmp_path / "at.json"} if request.param == "file" else {"group": "readers"}


# -- both ------------------------------------------------------------------------------------------------------------


async def test_a_consumer_goes_on_where_it_left_off(setting, kept):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.consumer("t", **kept) as consumer:
        assert values(await consumer.poll(messages_max=2)) == [b"a", b"b"]
    async with setting.consumer("t", **kept) as consumer:
        assert values(await consumer.poll()) == [b"c"]
    async with setting.consumer("t", **kept) as consumer:
        assert values(await consumer.poll()) == []


async def test_what_was_kept_counts_more_than_where_to_begin(setting, kept):
    await setting.produce("t", b"a", b"b")
    async with setting.consumer("t", read_from=2, **kept) as consumer:
        assert values(await consumer.poll()) == [b"b"]
    await setting.produce("t", b"c")
    async with setting.consumer("t", read_from="earliest", **kept) as consumer:
        assert values(await consumer.poll()) == [b"c"]


async def test_after_a_crash_the_messages_of_the_last_poll_come_again(setting, kept):
    await setting.produce("t", b"a", b"b", b"c")
    crashed = setting.consumer("t", **kept)
    assert values(await crashed.poll(messages_max=1)) == [b"a"]
    assert values(await crashed.poll(messages_max=1)) == [b"b"]
    await setting.crash(crashed)
    async with setting.consumer("t", **kept) as consumer:
        assert values(await consumer.poll()) == [b"b", b"c"]


async def test_leaving_because_of_an_error_is_a_crash(setting, kept):
    await setting.produce("t", b"a")

    async def fail():
        async with setting.consumer("t", **kept) as consumer:
            await consumer.poll()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with setting.consumer("t", **kept) as consumer:
        assert values(await consumer.poll()) == [b"a"]


async def test_commit_keeps_them_now(setting, kept):
    await setting.produce("t", b"a", b"b")
    crashed = setting.consumer("t", **kept)
    await crashed.poll(messages_max=1)
    await crashed.commit()
    await setting.crash(crashed)
    async with setting.consumer("t", **kept) as consumer:
        assert values(await consumer.poll()) == [b"b"]


async def test_partitions_are_kept_apart(setting, kept):
    await setting.create("t", 3)
    for partition in range(3):
        await setting.produce("t", *[b"%d" % partition] * (partition + 1), partition=partition)
    async with setting.consumer("t", **kept) as consumer:
        await consumer.poll()
    async with setting.consumer("t", **kept) as consumer:
        assert await consumer.positions() == {0: 2, 1: 3, 2: 4}
    await setting.produce("t", b"more", partition=1)
    async with setting.consumer("t", partition=1, **kept) as consumer:
        assert values(await consumer.poll()) == [b"more"]
    async with setting.consumer("t", **kept) as consumer:
        assert await consumer.positions() == {0: 2, 1: 4, 2: 4}, "one partition's reader forgot the others"


async def test_without_a_place_to_keep_them_every_consumer_begins_anew(setting):
    await setting.produce("t", b"a")
    for _ in range(2):
        async with setting.consumer("t") as consumer:
            assert values(await consumer.poll()) == [b"a"]


async def test_not_in_two_places(setting, tmp_path):
    with pytest.raises(ValueError, match="not in both"):
        setting.consumer("t", group="g", position_file=tmp_path / "f")


async def test_a_poll_that_cannot_keep_the_last_positions_hands_out_nothing(setting, kept, monkeypatch):
    await setting.produce("t", b"a", b"b")
    async with setting.consumer("t", **kept) as consumer:
        await consumer.poll(messages_max=1)
        with monkeypatch.context() as patched:

            async def fail(*_):
                raise MillpondError("no")

            patched.setattr(consumer._readers[0]._position_store, "save", fail)
            with pytest.raises(MillpondError, match="no"):
                await consumer.poll()
        assert values(await consumer.poll()) == [b"b"]


async def test_a_close_during_a_poll_keeps_the_positions_of_all_topics(setting, monkeypatch):
    for topic in ("a", "b"):
        await setting.produce(topic, b"1", b"2")
    consumer = setting.consumer(["a", "b"], group="g")
    await consumer.poll(messages_max=1)
    saved = []
    for each in consumer._readers:

        async def save(_, read_from, topic=each.topic):
            saved.append(topic)
            consumer._take(1)  # as a poll does at the same time

        monkeypatch.setattr(each._position_store, "save", save)
    await consumer.close()
    assert sorted(saved) == ["a", "b"]


# -- iterations ------------------------------------------------------------------------------------------------------


async def test_an_iteration_that_ends_early_skips_nothing(setting, kept):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.consumer("t", **kept) as consumer:
        async for message in consumer:
            assert message.value == b"a"
            assert consumer.read_from == 2
            break
    async with setting.consumer("t", **kept) as consumer:
        assert values(await consumer.poll()) == [b"a", b"b", b"c"], "the first was not processed"


async def test_a_message_counts_as_processed_when_the_next_one_is_requested(setting, kept):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.consumer("t", **kept) as consumer:
        async for message in consumer:
            if message.value == b"b":
                break
    async with setting.consumer("t", **kept) as consumer:
        async for message in consumer:
            assert message.value == b"b"
            await consumer.commit()
            break
    async with setting.consumer("t", **kept) as consumer:
        assert values(await consumer.poll()) == [b"c"], "a commit counts the message as processed"


async def test_another_iteration_or_a_poll_continues_where_an_iteration_ended(setting, kept):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.consumer("t", **kept) as consumer:
        first, second = aiter(consumer), aiter(consumer)
        assert (await anext(first)).value == b"a"
        assert await consumer.positions() == {0: 2}
        assert (await anext(second)).value == b"b"
        assert values(await consumer.poll()) == [b"c"]
        await consumer.seek(2)
        assert (await anext(first)).value == b"b"


async def test_an_iteration_keeps_positions_once_for_each_poll(setting, monkeypatch):
    await setting.produce("t", *[b"x"] * 10)
    async with setting.consumer("t", group="g") as consumer:
        store, saved = consumer._readers[0]._position_store, []
        save = store.save

        async def noting(topic_id, read_from):
            saved.append(dict(read_from))
            await save(topic_id, read_from)

        monkeypatch.setattr(store, "save", noting)
        async for message in consumer:
            if message.number == 10:
                break
        assert saved == []
    assert saved == [{0: 10}]


# -- in a file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", range(5))
async def test_a_kill_between_any_two_steps_leaves_the_old_positions_or_the_new(tmp_path, monkeypatch, step):
    path = tmp_path / "at.json"
    positions = FilePositions(path, "t")
    await positions.load("id")
    positions._save("id", {0: 5})
    done = []

    def killing(name, function):
        def run(*arguments, **named):
            if len(done) == step:
                raise Killed
            done.append(name)
            return function(*arguments, **named)

        return run

    with monkeypatch.context() as patched:
        patched.setattr(json, "dumps", killing("dump", json.dumps))
        patched.setattr(os, "fsync", killing("fsync", os.fsync))
        patched.setattr(type(path), "replace", killing("replace", type(path).replace))
        patched.setattr(os, "open", killing("open", os.open))
        with pytest.raises(Killed):
            positions._save("id", {0: 9})
    assert done == ["dump", "fsync", "replace", "open", "fsync"][:step]
    assert await FilePositions(path, "t").load("id") == {0: 9 if "replace" in done else 5}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "{",
            "[]",
            "7",
            "\x00\x00",
            '{"topic": "t"}',
            '{"topic": "t", "read_from": 5}',
            '{"read_from": {}}',
            '{"topic": "t", "topic_id": 7, "read_from": {}}',
        ),
        *(
            f'{{"topic": "t", "read_from": {bad}}}'
            for bad in ('{"x": 1}', '{"0": null}', '{"0": 0}', '{"-1": 5}')
        ),
    ],
)
async def test_a_broken_file_is_refused(setting, tmp_path, text):
    await setting.produce("t", b"a")
    path = tmp_path / "at.json"
    path.write_text(text)
    async with setting.consumer("t", position_file=path) as consumer:
        with pytest.raises(InvalidRequest, match="remove it to start again"):
            await consumer.poll()
    assert path.read_text() == text


async def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "at.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequest, match="remove it"):
        await FilePositions(path, "t").load("id")


async def test_positions_of_another_topic_are_refused(setting, tmp_path):
    await setting.produce("t", b"a")
    await setting.produce("u", b"a")
    async with setting.consumer("t", position_file=tmp_path / "f") as consumer:
        await consumer.poll()
    async with setting.consumer("u", position_file=tmp_path / "f") as consumer:
        with pytest.raises(InvalidRequest, match="'t'"):
            await consumer.poll()


async def test_a_place_where_nothing_can_be_written_is_refused_before_anything_is_read(setting, tmp_path):
    await setting.produce("t", b"a")
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "at.json", tmp_path / "missing" / "at.json", tmp_path):
        async with setting.consumer("t", position_file=path) as consumer:
            with pytest.raises(InvalidRequest, match="positions cannot be kept in"):
                await consumer.poll()


async def test_nothing_but_the_file_is_left(setting, tmp_path):
    await setting.produce("t", b"a")
    async with setting.consumer("t", position_file=tmp_path / "at.json") as consumer:
        await consumer.poll()
    assert os.listdir(tmp_path) == ["at.json"]
    kept = json.loads((tmp_path / "at.json").read_text())
    assert kept == {"topic": "t", "topic_id": consumer._readers[0]._topic_id, "read_from": {"0": 2}}


async def test_a_save_that_was_cancelled_does_not_disturb_the_next(tmp_path):
    positions = FilePositions(tmp_path / "at.json", "t")
    for number in range(1, 50):
        cancelled = asyncio.ensure_future(positions.save("id", {0: number}))
        await asyncio.sleep(0)
        cancelled.cancel()
        await positions.save("id", {0: 1_000 + number})
        assert await positions.load("id") == {0: 1_000 + number}


# -- in a group ------------------------------------------------------------------------------------------------------


async def test_kafkas_tools_see_the_positions_of_a_group(setting):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.consumer("t", group="g") as consumer:
        await consumer.poll(messages_max=2)
    topic_partition = confluent_kafka.TopicPartition("t", 0)
    kafka = confluent_kafka.Consumer(
        {"bootstrap.servers": setting.broker.listeners["kafka"], "group.id": "g"}
    )
    try:
        [found] = await asyncio.to_thread(kafka.committed, [topic_partition], 10)
        assert found.offset == 2
    finally:
        await asyncio.to_thread(kafka.close)
    async with setting.admin() as admin:
        described = await admin.describe_group("g")
        assert [(each.read_from, each.lag) for each in described.positions] == [(3, 1)]


async def test_a_consumer_of_one_partition_is_no_member_of_its_group(setting):
    await setting.produce("t", b"a", b"b", b"c")
    async with setting.consumer("t", group="g", partition=0) as consumer, setting.admin() as admin:
        assert values(await consumer.poll(messages_max=1)) == [b"a"]
        await consumer.commit()
        found = await admin.describe_group("g")
        assert (found.members, [each.read_from for each in found.positions]) == ([], [2])
        assert consumer.assignment == {"t": [0]}
    async with setting.consumer("t", group="g") as member:
        assert values(await member.poll(messages_max=1)) == [b"b"]


async def test_a_consumer_of_one_partition_is_refused_while_its_group_has_members(setting):
    await setting.produce("t", b"a")
    async with setting.consumer("t", group="g", partition=0) as early:
        await early.poll()
        async with setting.consumer("t", group="g") as member:
            await member.poll()
            async with setting.consumer("t", group="g", partition=0) as late:
                with pytest.raises(GroupInUse, match=r"without a partition joins them\.$"):
                    await late.poll()
            with pytest.raises(GroupInUse, match="it has a member, which commits its positions"):
                await early.commit()
            async with setting.admin() as admin:
                with pytest.raises(GroupInUse, match="it has a member"):
                    await admin.commit_positions("g", "t", 1)
        await early.commit()


async def test_positions_of_an_earlier_topic_are_not_kept_for_the_new_one(setting):
    await setting.produce("t", b"a", b"b")
    async with setting.consumer("t", group="g", partition=0) as consumer, setting.admin() as admin:
        await consumer.poll()
        await admin.delete_topic("t")
        await setting.produce("t", b"c", b"d", b"e")
        await consumer.commit()
        assert values(await consumer.poll()) == [b"c", b"d", b"e"]


async def test_a_share_group_is_described_and_is_no_group_for_readers(setting):
    await setting.produce("t", b"a")
    joining = ShareHeartbeat("m1", 0, "c", "/h", topic_names=("t",))
    await setting.broker.share_groups.heartbeat("g", joining)
    await setting.produce("t", b"b", b"c")
    async with setting.admin() as admin:
        found = await admin.describe_group("g")
        assert (found.group.type, found.group.state, found.epoch, found.lag) == ("share", "Stable", 1, 2)
        assert [(each.id, dict(each.assigned)) for each in found.members] == [("m1", {"t": [0]})]
        assert [(each.read_from, each.lag) for each in found.positions] == [(2, 2)]
        with pytest.raises(UnknownGroup, match="is a share group"):
            async with setting.consumer("t", group="g") as consumer:
                await consumer.poll()
        await setting.broker.share_groups.heartbeat("g", ShareHeartbeat("m1", -1, "c", "/h"))
        await admin.delete_group("g")
        assert await admin.list_groups() == []
