"""DeleteTopics: by name, by id, and what is refused."""

import pytest

from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

BY_ID = 6
STRANGER = b"\x07" * 16


async def delete_by_name(interface, *names, version=5):
    return (
        await interface.send(DeleteTopicsRequest(topic_names=list(names), timeout_ms=1), version)
    ).responses


async def delete(interface, *states):
    topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    return (await interface.send(DeleteTopicsRequest(topics=topics, timeout_ms=1), BY_ID)).responses


@pytest.mark.parametrize("version", [1, 5])
async def test_by_name(interface, version):
    await interface.topic("a")
    await interface.topic("b")
    [gone] = await delete_by_name(interface, "a", version=version)
    assert (gone.name, gone.error_code, gone.error_message) == ("a", 0, None)
    assert [each.name for each in interface.log.topics.all()] == ["b"]


async def test_by_name_and_by_id_in_the_newest_version(interface):
    first, second = await interface.topic("a"), await interface.topic("b")
    results = await delete(interface, ("a", NO_UUID), (None, second.id))
    assert [(each.name, each.topic_id, each.error_code) for each in results] == [
        ("a", first.id, 0),
        ("b", second.id, 0),
    ]
    assert interface.log.topics.all() == []


async def test_the_name_is_free_at_once(interface):
    first = await interface.topic("a")
    await delete_by_name(interface, "a")
    assert (await interface.topic("a")).id != first.id


@pytest.mark.parametrize("version", [1, 5])
async def test_an_unknown_name(interface, version):
    [refused] = await delete_by_name(interface, "nothing", version=version)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused.error_message == ("There is no topic 'nothing'." if version == 5 else None)


async def test_an_unknown_id(interface):
    [refused] = await delete(interface, (None, STRANGER))
    assert (refused.name, refused.topic_id) == (None, STRANGER)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_name_and_an_id_together_are_refused(interface):
    topic = await interface.topic("a")
    [refused] = await delete(interface, ("a", topic.id))
    assert (refused.name, refused.topic_id) == ("a", topic.id)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert interface.log.topics.named("a")


async def test_neither_name_nor_id_is_refused(interface):
    [refused] = await delete(interface, (None, NO_UUID))
    assert (refused.name, refused.error_code) == (None, ErrorCode.INVALID_REQUEST)


async def test_a_topic_named_twice_is_refused_once_and_stays(interface):
    topic = await interface.topic("a")
    [by_name] = await delete_by_name(interface, "a", "a")
    [by_id] = await delete(interface, (None, topic.id), (None, topic.id))
    assert by_name.error_code == by_id.error_code == ErrorCode.INVALID_REQUEST
    assert interface.log.topics.named("a")
