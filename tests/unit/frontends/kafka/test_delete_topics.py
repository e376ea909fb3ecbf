"""DeleteTopics: by name, by id, and what is refused."""

import pytest

from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

BY_ID = 6
STRANGER = b"\x07" * 16


async def delete_by_name(face, *names, version=5):
    return (await face.send(DeleteTopicsRequest(topic_names=list(names), timeout_ms=1), version)).responses


async def delete(face, *states):
    topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    return (await face.send(DeleteTopicsRequest(topics=topics, timeout_ms=1), BY_ID)).responses


@pytest.mark.parametrize("version", [1, 5])
async def test_by_name(face, version):
    await face.topic("a")
    await face.topic("b")
    [gone] = await delete_by_name(face, "a", version=version)
    assert (gone.name, gone.error_code, gone.error_message) == ("a", 0, None)
    assert [each.name for each in face.log.topics.all()] == ["b"]


async def test_by_name_and_by_id_in_the_newest_version(face):
    first, second = await face.topic("a"), await face.topic("b")
    results = await delete(face, ("a", NO_UUID), (None, second.id))
    assert [(each.name, each.topic_id, each.error_code) for each in results] == [
        ("a", first.id, 0),
        ("b", second.id, 0),
    ]
    assert face.log.topics.all() == []


async def test_the_name_is_free_at_once(face):
    first = await face.topic("a")
    await delete_by_name(face, "a")
    assert (await face.topic("a")).id != first.id


@pytest.mark.parametrize("version", [1, 5])
async def test_an_unknown_name(face, version):
    [refused] = await delete_by_name(face, "nothing", version=version)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused.error_message == ("There is no topic 'nothing'." if version == 5 else None)


async def test_an_unknown_id(face):
    [refused] = await delete(face, (None, STRANGER))
    assert (refused.name, refused.topic_id) == (None, STRANGER)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_name_and_an_id_together_are_refused(face):
    topic = await face.topic("a")
    [refused] = await delete(face, ("a", topic.id))
    assert (refused.name, refused.topic_id) == ("a", topic.id)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert face.log.topics.named("a")


async def test_neither_name_nor_id_is_refused(face):
    [refused] = await delete(face, (None, NO_UUID))
    assert (refused.name, refused.error_code) == (None, ErrorCode.INVALID_REQUEST)


async def test_a_topic_named_twice_is_refused_once_and_stays(face):
    topic = await face.topic("a")
    [by_name] = await delete_by_name(face, "a", "a")
    [by_id] = await delete(face, (None, topic.id), (None, topic.id))
    assert by_name.error_code == by_id.error_code == ErrorCode.INVALID_REQUEST
    assert face.log.topics.named("a")
