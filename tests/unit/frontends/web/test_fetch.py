"""Fetch over HTTP: from an offset, from a time, with patience, as JSON and as it is."""

import asyncio

import pytest
from tests.unit.frontends.web.wire import HOST, connect, until

from millpond.records import Record, build_batch


@pytest.fixture
async def ten(broker):
    """Ten messages, "0" to "9", with their numbers as times."""
    for number in range(10):
        await broker.produce("pond", Record(value=b"%d" % number, timestamp=number * 10))


async def fetch(client, **query):
    answer = await client.get("/topics/pond/fetch/0", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def values(fetched):
    return "".join(each["value"] for each in fetched["messages"])


@pytest.mark.usefixtures("ten")
async def test_messages_are_fetched_from_an_offset_up_to_a_count(client):
    assert values(await fetch(client)) == "0123456789"
    found = await fetch(client, offset=3, count=2)
    assert values(found) == "34"
    assert (found["topic"], found["partition"]) == ("pond", 0)
    assert (found["next_offset"], found["log_start"], found["end_offset"]) == (5, 0, 10)
    assert [(each["offset"], each["number"]) for each in found["messages"]] == [(3, 4), (4, 5)]
    assert found["messages"][0]["timestamp_ms"] == 30


@pytest.mark.usefixtures("ten")
async def test_a_fetch_at_the_end_is_empty_and_stays_there(client):
    found = await fetch(client, offset=10)
    assert (found["messages"], found["next_offset"]) == ([], 10)


@pytest.mark.usefixtures("ten")
async def test_messages_are_fetched_from_a_time(client):
    assert values(await fetch(client, timestamp=55)) == "6789"
    assert values(await fetch(client, timestamp=60, count=1)) == "6"
    assert values(await fetch(client, timestamp=91)) == ""


@pytest.mark.usefixtures("ten")
async def test_a_fetch_is_bounded_by_bytes_and_always_makes_progress(client):
    assert values(await fetch(client, max_bytes=1)) == "0"


async def test_an_offset_outside_the_retained_range_is_refused_with_the_range(client, broker, ten):
    topic_partition = broker.log.topics.partition("pond", 0)
    await broker.log.delete_records(topic_partition, 4)
    for offset in (3, 11):
        answer = await client.get(f"/topics/pond/fetch/0?offset={offset}")
        assert (answer.status_code, answer.json()["code"]) == (416, "OffsetOutOfRange")
        assert answer.json()["details"] == {"offset": offset, "log_start": 4, "end_offset": 10}
    assert values(await fetch(client)) == "456789"


@pytest.mark.parametrize(
    "query",
    [
        *(
            "offset=-1",
            "offset=x",
            "offset=1_0",
            "offset=",
            "offset=9223372036854775808",
            "offset=1&offset=2",
        ),
        *("count=0", "count=-1", "wait_ms=-1", "max_bytes=0", "encoding=latin-1", "committed=maybe"),
        *(
            "ofset=1",
            "offset=1&timestamp=1",
            "%ff=1",
            "offset=%ff",
            "offset=null",
            "=",
            "&".join(["a=1"] * 200),
        ),
    ],
)
@pytest.mark.usefixtures("ten")
async def test_a_query_that_makes_no_sense_is_refused(client, query):
    answer = await client.get(f"/topics/pond/fetch/0?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidRequest")


@pytest.mark.usefixtures("ten")
async def test_a_topic_or_partition_that_is_not_there_is_not_found(client):
    assert (await client.get("/topics/nowhere/fetch/0")).json()["code"] == "UnknownTopic"
    answer = await client.get("/topics/pond/fetch/1")
    assert (answer.status_code, answer.json()["code"]) == (404, "UnknownPartition")


async def test_a_fetch_waits_for_the_first_message(client, broker):
    await broker.produce("pond", b"0")
    waiting = asyncio.create_task(fetch(client, offset=1, wait_ms=60_000))
    await until(lambda: broker.poller._waiting)
    await broker.produce("pond", b"1")
    assert values(await waiting) == "1"


async def test_nobody_is_waited_for_when_the_client_is_gone(broker):
    await broker.produce("pond", b"0")
    async with connect(broker) as wire:
        wire.send(b"GET /topics/pond/fetch/0?offset=1&wait_ms=300000 HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: broker.poller._waiting)
    await until(lambda: not broker.poller._waiting)


async def test_a_message_is_fetched_as_it_is(client, broker):
    record = Record(value=b"\x00\xff\n", key=b"k", headers=(("trace", b"7"),), timestamp=5)
    await broker.produce("pond", record)
    answer = await client.get("/topics/pond/fetch/0/0")
    assert answer.content == b"\x00\xff\n"
    assert answer.headers["content-type"] == "application/octet-stream"
    ours = {name: value for name, value in answer.headers.items() if name.startswith("x-millpond")}
    assert ours == {
        "x-millpond-offset": "0",
        "x-millpond-timestamp": "5",
        "x-millpond-key": "k",
        "x-millpond-header-trace": "7",
    }


async def test_a_tombstone_has_no_content(client, broker):
    await broker.produce("pond", Record(value=None, key=b"k"), Record(value=b""))
    answer = await client.get("/topics/pond/fetch/0/0")
    assert (answer.status_code, answer.headers["x-millpond-key"]) == (204, "k")
    assert (await client.get("/topics/pond/fetch/0/1")).status_code == 200


@pytest.mark.usefixtures("ten")
async def test_a_message_that_is_not_there_is_refused(client):
    answer = await client.get("/topics/pond/fetch/0/10")
    assert (answer.status_code, answer.json()["details"]["end_offset"]) == (416, 10)


async def test_what_is_not_committed_is_fetched_only_on_request(client, broker):
    await broker.produce("pond", b"plain")
    topic_partition = broker.log.topics.partition("pond", 0)
    producer = await broker.transactions.begin_producer("writer", timeout_ms=60_000)
    await broker.transactions.add_partitions(producer, [topic_partition])
    batch = build_batch(
        [Record(value=b"open")],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
        now_ms=1,
    )
    await (await broker.log.submit(topic_partition, batch))
    assert values(await fetch(client)) == "plain"
    assert values(await fetch(client, committed="false")) == "plainopen"
    await broker.transactions.end(producer, commit=False, bump_epoch=False)
    found = await fetch(client)
    assert (values(found), found["next_offset"]) == ("plain", 3)
    answer = await client.get("/topics/pond/fetch/0/1")
    assert (answer.status_code, answer.json()["code"]) == (404, "UnknownMessage")
