"""Topics over HTTP."""

import uuid

import pytest

SEED = {"content": b'{"name":"hello"}', "headers": {"Content-Type": "application/json"}}


async def test_a_topic_is_created_with_a_hundred_partitions_as_the_seed_asks(client):
    answer = await client.post("/topics", **SEED)
    assert answer.status_code == 200
    topic = answer.json()
    assert uuid.UUID(topic.pop("id"))
    assert topic.pop("created_at_ms") > 0
    assert "gets 100 (setting http_partitions)" in topic.pop("note")
    assert topic == {"name": "hello", "partitions": 100, "configs": {}}


async def test_a_topic_with_a_number_of_partitions_has_no_note(client):
    made = (await client.post("/topics", json={"name": "pond", "partitions": 2})).json()
    assert set(made) == {"name", "id", "partitions", "created_at_ms", "configs"}
    assert made["partitions"] == 2
    changed = (await client.patch("/topics/pond", json={"partitions": 3})).json()
    assert "note" not in changed


async def test_a_topic_that_exists_is_a_conflict_by_the_seeds_name(client):
    await client.post("/topics", **SEED)
    answer = await client.post("/topics", **SEED)
    assert answer.status_code == 409
    assert answer.json() == {
        "code": "TopicAlreadyExistsException",
        "message": "Topic 'hello' already exists.",
        "retriable": False,
        "details": {"topic": "hello"},
    }


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": "a/b"}, "InvalidTopicName"),
        ({"name": "../x"}, "InvalidTopicName"),
        ({"name": ""}, "InvalidTopicName"),
        ({"name": "x" * 250}, "InvalidTopicName"),
        ({"name": "x", "partitions": 0}, "InvalidRequest"),
        ({"name": "x", "partitions": 10_001}, "InvalidPartitionCount"),
        ({"name": "x", "partitions": "3"}, "InvalidRequest"),
        ({"name": "x", "configs": {"retention.ms": "soon"}}, "InvalidConfig"),
        ({"name": "x", "configs": {"retention.ms": 1}}, "InvalidRequest"),
        ({"name": "x", "configs": {"no.such.config": "1"}}, "InvalidConfig"),
        ({"nam": "x"}, "InvalidRequest"),
        ({}, "InvalidRequest"),
        ([], "InvalidRequest"),
    ],
)
async def test_what_makes_no_topic_is_refused_and_makes_none(client, body, code):
    answer = await client.post("/topics", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert (await client.get("/topics")).json() == {"topics": []}


async def test_topics_are_listed_by_name_and_described(client):
    await client.post("/topics", json={"name": "b", "partitions": 2, "configs": {"retention.ms": "1000"}})
    await client.post("/topics", json={"name": "a", "partitions": 1})
    assert [each["name"] for each in (await client.get("/topics")).json()["topics"]] == ["a", "b"]
    await client.post("/topics/b/produce/1", content=b"x")
    found = (await client.get("/topics/b")).json()
    first, second = found["partitions"]
    assert first == {"partition": 0, "log_start": 0, "end_offset": 0, "size_bytes": 0}
    assert (second["log_start"], second["end_offset"]) == (0, 1)
    assert second["size_bytes"] > 0
    assert found["configs"]["retention.ms"] == {"value": "1000", "source": "topic"}
    assert found["configs"]["max.message.bytes"]["source"] == "broker"
    assert found["configs"]["compression.type"]["source"] == "default"


async def test_a_topic_is_changed_and_a_config_goes_back_to_its_default(client):
    await client.post("/topics", json={"name": "t", "partitions": 1, "configs": {"retention.ms": "1000"}})
    answer = await client.patch("/topics/t", json={"partitions": 3, "configs": {"retention.bytes": "5"}})
    assert answer.status_code == 200
    assert answer.json()["partitions"] == 3
    assert answer.json()["configs"] == {"retention.ms": "1000", "retention.bytes": "5"}
    answer = await client.patch("/topics/t", json={"configs": {"retention.ms": None}})
    assert answer.json()["configs"] == {"retention.bytes": "5"}
    answer = await client.patch("/topics/t", json={"partitions": 2})
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidPartitionCount")


async def test_a_deleted_topic_is_gone(client):
    await client.post("/topics", **SEED)
    answer = await client.delete("/topics/hello")
    assert (answer.status_code, answer.content) == (204, b"")
    for method in ("GET", "DELETE"):
        answer = await client.request(method, "/topics/hello")
        assert (answer.status_code, answer.json()["code"]) == (404, "UnknownTopic")
    assert (await client.patch("/topics/hello", json={})).status_code == 404
