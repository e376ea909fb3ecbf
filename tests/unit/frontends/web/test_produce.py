"""Produce over HTTP: three kinds of bodies, and what is refused without storing anything."""

import asyncio

import pytest
from tests.unit.frontends.web.wire import PRODUCE, connect, produce, until

from millpond.frontends.web.operations import OPERATIONS
from millpond.model.errors import Defect, NotOwner, Overloaded, Stopping
from millpond.model.partitioning import partition_of
from millpond.records import Record
from millpond.service import MessageWriter
from millpond.testing import Faults, running_broker

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
BINARY = {"Content-Type": "application/octet-stream"}


async def stored(broker, topic="pond", partition=0):
    found = await broker.read(topic, partition=partition)
    return [Record(value=each.value, key=each.key, headers=each.headers) for each in found]


async def test_the_seeds_line_works(client, broker):
    await client.post("/topics", json={"name": "hello"})
    answer = await client.post("/topics/hello/produce/0", content=b"key:value", headers=FORM)
    assert answer.status_code == 200
    assert answer.json() == {"topic": "hello", "partition": 0, "offset": 0, "number": 1}
    assert await stored(broker, "hello") == [Record(value=b"value", key=b"key")]


@pytest.mark.parametrize("headers", [FORM, {"Content-Type": "text/plain; charset=utf-8"}, {}])
async def test_bytes_of_a_raw_body_are_kept_as_they_are(client, broker, headers):
    answer = await client.post("/topics/pond/produce/0", content=b"a%20b:c+d&e=f\n\xff", headers=headers)
    assert answer.json()["offset"] == 0
    assert await stored(broker) == [Record(value=b"c+d&e=f\n\xff", key=b"a%20b")]


@pytest.mark.parametrize("headers", [FORM, {"Content-Type": "text/plain"}, {}])
@pytest.mark.parametrize("body", [b'{"id": 1, "a": 2}', b'[1, {"a": 2}]', b'"a: b"', b' \t\r\n{"id": 1}'])
async def test_a_raw_body_that_looks_like_json_is_never_split(client, broker, headers, body):
    answer = await client.post("/topics/pond/produce/0", content=body, headers=headers)
    assert answer.status_code == 200
    assert await stored(broker) == [Record(value=body, key=None)]


async def test_json_of_ones_own_sent_as_json_is_refused_and_not_split(client):
    answer = await client.post("/topics/pond/produce/0", json={"id": 1})
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidRequest")
    assert (await client.get("/topics")).json() == {"topics": []}


async def test_a_brace_behind_the_colon_is_part_of_the_value(client, broker):
    await client.post("/topics/pond/produce/0", content=b'key:{"id": 1}', headers=FORM)
    assert await stored(broker) == [Record(value=b'{"id": 1}', key=b"key")]


async def test_an_unknown_topic_is_created_with_one_partition(client):
    await client.post("/topics/new/produce", content=b"x")
    assert len((await client.get("/topics/new")).json()["partitions"]) == 1


async def test_a_binary_body_is_the_value(client, broker):
    headers = {**BINARY, "X-Millpond-Key-Base64": "AAE=", "X-Millpond-Header-Trace": "7"}
    await client.post("/topics/pond/produce/0", content=b"k:v\x00\n", headers=headers)
    assert await stored(broker) == [Record(value=b"k:v\x00\n", key=b"\x00\x01", headers=(("trace", b"7"),))]


async def test_a_batch_is_answered_message_by_message_in_its_order(client, broker):
    await client.post("/topics", json={"name": "pond", "partitions": 5})
    keys = [f"key {number}" for number in range(20)]
    batch = {"messages": [{"key": key, "value": key} for key in keys]}
    answer = await client.post("/topics/pond/produce", json=batch)
    places = answer.json()["messages"]
    assert [each["partition"] for each in places] == [partition_of(key.encode(), 5) for key in keys]
    for key, place in zip(keys, places, strict=True):
        found = await broker.read("pond", place["offset"], partition=place["partition"])
        assert found[0].key == key.encode()


async def test_messages_without_a_key_take_turns(client):
    await client.post("/topics", json={"name": "pond", "partitions": 3})
    answers = [await client.post("/topics/pond/produce", content=b"x") for _ in range(6)]
    assert sorted(each.json()["partition"] for each in answers) == [0, 0, 1, 1, 2, 2]


async def test_a_tombstone_is_null_and_not_empty(client, broker):
    batch = {"messages": [{"key": "k", "value": None}, {"key": "k", "value": ""}]}
    await client.post("/topics/pond/produce/0", json=batch)
    assert [each.value for each in await stored(broker)] == [None, b""]


async def test_a_given_time_is_kept(client, broker):
    await client.post("/topics/pond/produce/0", json={"value": "x", "timestamp_ms": 5})
    headers = {**BINARY, "X-Millpond-Timestamp": "6"}
    await client.post("/topics/pond/produce/0", content=b"x", headers=headers)
    assert [each.timestamp for each in await broker.read("pond")] == [5, 6]


async def test_a_partition_that_is_not_there_is_not_found_and_nothing_is_stored(client):
    """L6."""
    await client.post("/topics", json={"name": "pond", "partitions": 2})
    for number in (2, 100, 2**31 - 1):
        answer = await client.post(f"/topics/pond/produce/{number}", content=b"x")
        assert (answer.status_code, answer.json()["code"]) == (404, "UnknownPartition")
    partitions = (await client.get("/topics/pond")).json()["partitions"]
    assert [each["end_offset"] for each in partitions] == [0, 0]


@pytest.mark.parametrize("number", ["-1", "one", "1.5", "%20", "99999999999999999999", "+1"])
async def test_a_partition_that_is_no_number_is_refused(client, number):
    answer = await client.post(f"/topics/pond/produce/{number}", content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidRequest")
    assert (await client.get("/topics")).json() == {"topics": []}


@pytest.mark.parametrize("name", ["a%2Fb", "%2e%2e", "%00", "x" * 250, "%F0%9F%90%9F"])
async def test_a_name_that_is_not_legal_is_refused_and_creates_nothing(client, name):
    """M2, M3."""
    answer = await client.post(f"/topics/{name}/produce/0", content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidTopicName")
    assert (await client.get("/topics")).json() == {"topics": []}


@pytest.mark.parametrize(
    ("place", "body", "code"),
    [
        ("produce/0", {"value": "x" * 2_000_000}, "RecordTooLarge"),
        ("produce", {"value": "x" * 2_000_000}, "RecordTooLarge"),
        ("produce/7", {"value": "x"}, "UnknownPartition"),
        ("produce", {"value": "x", "timestamp_ms": 2**50}, "InvalidTimestamp"),
        (
            "produce",
            {"messages": [{"value": "x"}, {"value": "x", "timestamp_ms": 2**50}]},
            "InvalidTimestamp",
        ),
        ("produce", {"messages": []}, "InvalidRequest"),
    ],
)
async def test_a_refused_message_creates_no_topic(client, place, body, code):
    answer = await client.post(f"/topics/new/{place}", json=body)
    assert answer.json()["code"] == code
    assert (await client.get("/topics")).json() == {"topics": []}


async def test_a_message_that_is_too_large_is_refused_alone(client, broker):
    """L2, S18."""
    await client.post("/topics", json={"name": "pond", "configs": {"max.message.bytes": "1000"}})
    small, large = b"x" * 800, b"x" * 1_200
    answers = await asyncio.gather(
        *(client.post("/topics/pond/produce/0", content=body) for body in (small, large) * 5)
    )
    assert [each.status_code for each in answers] == [200, 413] * 5
    assert answers[1].json()["code"] == "RecordTooLarge"
    assert answers[1].json()["details"]["limit"] == 1_000
    assert [each.value for each in await stored(broker)] == [small] * 5


@pytest.mark.parametrize(
    "kind", ["multipart/form-data; boundary=x", "application/xml", "nonsense", "text/html"]
)
async def test_a_kind_of_body_that_is_not_known_is_unsupported(client, kind):
    answer = await client.post("/topics/pond/produce/0", content=b"x", headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["code"]) == (415, "UnsupportedContentType")
    assert "application/json" in answer.json()["details"]["taken"]
    assert (await client.get("/topics")).json() == {"topics": []}


async def test_a_compressed_body_is_not_taken_for_what_it_is_not(client):
    answer = await client.post("/topics/pond/produce/0", content=b"x", headers={"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["code"]) == (415, "UnsupportedEncoding")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"value": 1}', b'{"messages": []}', b'{"value": "\xff"}']
)
async def test_json_that_is_wrong_is_refused_and_creates_nothing(client, body):
    answer = await client.post(
        "/topics/pond/produce/0", content=body, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidRequest")
    assert (await client.get("/topics")).json() == {"topics": []}


async def test_a_page_from_elsewhere_cannot_make_a_browser_produce(client, broker):
    answer = await client.post("/topics/pond/produce/0", content=b"x", headers={"Origin": "http://elsewhere"})
    assert (answer.status_code, answer.json()["code"]) == (403, "ForeignOrigin")
    own = f"http://{broker.listeners['http']}"
    assert (
        await client.post("/topics/pond/produce/0", content=b"x", headers={"Origin": own})
    ).status_code == 200


async def test_a_client_that_offers_another_protocol_loses_no_body(broker):
    """Java's client offers h2c with its first request; the parser would take the body for that protocol."""
    offer = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk")
    async with connect(broker) as wire:
        answer = await wire.ask(produce(b"first", *offer))
        assert (answer.status, answer.json()["offset"]) == (200, 0)
        head = PRODUCE + b"\r\n".join(offer) + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        wire.send(head)
        await until(lambda: broker.web._state.tasks)
        answer = await wire.ask(b"3\r\nsec\r\n3\r\nond\r\n0\r\n\r\n", produce(b"third"))
        assert answer.json()["offset"] == 1
        assert (await wire.response()).json()["offset"] == 2
    assert [each.value for each in await stored(broker)] == [b"first", b"second", b"third"]


async def test_what_was_accepted_is_stored_though_the_client_hung_up(tmp_path):
    faults = Faults()
    async with running_broker(tmp_path, http=True, faults=faults, inline_bytes_max=0) as broker:
        await broker.produce("pond", b"before")
        held = faults.hold("append")
        async with connect(broker) as wire:
            wire.send(produce(b"accepted"))
            await asyncio.to_thread(held.wait_reached)
            wire.hang_up()
        held.release()
        await until(lambda: broker.log.partition(broker.log.topics.partition("pond", 0)).end_offset == 2)
        assert [each.value for each in await stored(broker)] == [b"before", b"accepted"]


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (Overloaded(waiting=1, limit=1), 429, "1"),
        (Stopping(), 503, "1"),
        (NotOwner(), 503, "1"),
        (NotOwner(owner_http="there:8000"), 307, "1"),
        (Defect(reason="the secret"), 500, None),
        (ValueError("the secret"), 500, None),
    ],
)
async def test_what_goes_wrong_below_is_answered(client, monkeypatch, error, status, retry_after):
    async def fail(*_, **__):
        raise error

    monkeypatch.setattr(MessageWriter, "submit", fail)
    answer = await client.post("/topics/pond/produce/0?", content=b"x")
    assert answer.status_code == status
    assert answer.headers.get("retry-after") == retry_after
    assert answer.json()["retriable"] == (retry_after is not None)
    assert "the secret" not in answer.text


async def test_a_client_is_sent_to_the_same_path_at_the_owner(client, monkeypatch):
    async def fail(*_, **__):
        raise NotOwner(owner_http="there:8000")

    monkeypatch.setattr(MessageWriter, "submit", fail)
    answer = await client.post("/topics/a%2Fb/produce/0", content=b"x")
    assert answer.headers["location"] == "http://there:8000/topics/a%2Fb/produce/0"


def test_every_operation_says_what_it_does():
    for each in OPERATIONS:
        assert each.summary.endswith("."), each.name


@pytest.mark.parametrize(
    ("configs", "good", "bad", "code"),
    [
        ({"cleanup.policy": "compact"}, {"key": "k"}, {}, "InvalidRecord"),
        (
            {"message.timestamp.before.max.ms": "1000"},
            {},
            {"timestamp_ms": 1},
            "InvalidTimestamp",
        ),
        ({"max.message.bytes": "1000"}, {}, {"value": "x" * 1_001}, "RecordTooLarge"),
    ],
    ids=["keyless", "too old", "too large"],
)
async def test_a_refused_request_names_every_bad_message_and_stores_none(
    client, broker, configs, good, bad, code
):
    """By its place in the request, whatever partitions its messages go to."""
    await client.post("/topics", json={"name": "logs", "partitions": 3, "configs": configs})
    messages = [{"value": str(index)} | (bad if index in (1, 2, 3, 5) else good) for index in range(7)]
    answer = await client.post("/topics/logs/produce", json={"messages": messages})
    assert (answer.status_code, answer.json()["code"]) == (400 if code != "RecordTooLarge" else 413, code)
    details = answer.json()["details"]
    assert (details["record"], details["records"]) == (1, "1-3, 5")
    assert [await stored(broker, "logs", number) for number in range(3)] == [[], [], []]
