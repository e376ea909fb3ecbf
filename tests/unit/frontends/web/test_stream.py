"""Streams: lines and events that come as messages do, go on after a break, and end when they should."""

import asyncio
import json
import os

import pytest
from tests.unit.frontends.web.wire import ANSWER_SECONDS_MAX, HOST, connect, until

from millpond.model.errors import UnreadableBatch
from millpond.records import Record
from millpond.security import OPEN_ACCESS


def get(path, *headers):
    return b"".join(
        (f"GET {path} HTTP/1.1\r\n".encode(), HOST, *(each + b"\r\n" for each in headers), b"\r\n")
    )


def lines_of(text):
    return [json.loads(line) for line in text.splitlines() if line]


def events_of(text):
    """[(id, message)]"""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("id"), json.loads(fields["data"])))
    return found


@pytest.fixture
async def three_partitions(broker):
    await broker.administration.create_topic("pond", 3, access=OPEN_ACCESS)
    for number in range(9):
        await broker.produce("pond", b"%d" % number, partition=number % 3)


async def next_line(wire):
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        while True:
            if found := lines_of((await wire.chunk()).decode()):
                return found


async def test_a_stream_begins_with_the_oldest_and_goes_on_as_messages_come(broker):
    await broker.produce("pond", b"old", Record(value=None))
    async with connect(broker) as wire:
        wire.send(get("/topics/pond/stream"))
        status, headers = await wire.head()
        assert (status, headers["content-type"]) == (200, "application/x-ndjson")
        assert [each["value"] for each in await next_line(wire)] == ["old", None]
        for text in ("new", "newer"):
            await broker.produce("pond", text.encode())
            assert [each["value"] for each in await next_line(wire)] == [text]


async def test_a_stream_from_the_newest_has_nothing_old(broker):
    await broker.produce("pond", b"old")
    async with connect(broker) as wire:
        wire.send(get("/topics/pond/stream?from=newest"))
        await wire.head()
        assert await wire.chunk() == b"\n"
        await broker.produce("pond", b"new")
        assert [each["value"] for each in await next_line(wire)] == ["new"]


@pytest.mark.usefixtures("three_partitions")
async def test_a_stream_without_following_ends_at_the_end(client):
    found = lines_of((await client.get("/topics/pond/stream?follow=false")).text)
    assert sorted(each["value"] for each in found) == [str(number) for number in range(9)]
    found = lines_of((await client.get("/topics/pond/stream?follow=false&partition=1&from=1")).text)
    assert [each["value"] for each in found] == ["4", "7"]
    assert (await client.get("/topics/pond/stream?follow=false&from=newest")).text == ""


async def test_a_long_stream_without_following_is_complete(client, broker):
    await broker.administration.create_topic("pond", 3, access=OPEN_ACCESS)
    for number in range(3):
        await broker.produce("pond", *(b"%d" % each for each in range(2_000)), partition=number)
    found = lines_of((await client.get("/topics/pond/stream?follow=false")).text)
    for number in range(3):
        own = [each["value"] for each in found if each["partition"] == number]
        assert own == [str(each) for each in range(2_000)]


@pytest.mark.usefixtures("three_partitions")
async def test_events_go_on_exactly_behind_any_of_them(client):
    """Whichever event was the last that a reader saw, with those after it nothing is missing and nothing twice."""
    url = "/topics/pond/stream?follow=false&format=sse"
    events = events_of((await client.get(url)).text)
    everything = {(message["partition"], message["offset"]) for _, message in events}
    assert len(events) == len(everything) == 9
    for count, (event_id, _) in enumerate(events, start=1):
        rest = events_of((await client.get(url, headers={"Last-Event-ID": event_id})).text)
        seen = [(message["partition"], message["offset"]) for _, message in events[:count] + rest]
        assert len(seen) == 9
        assert set(seen) == everything


async def test_a_reader_of_the_newest_that_comes_back_misses_nothing(client, broker):
    """Its id must also hold the partitions in which it has seen nothing yet."""
    await broker.administration.create_topic("pond", 2, access=OPEN_ACCESS)
    await broker.produce("pond", b"old", partition=1)
    async with connect(broker) as wire:
        wire.send(get("/topics/pond/stream?from=newest", b"Accept: text/event-stream"))
        _, headers = await wire.head()
        assert headers["content-type"] == "text/event-stream"
        assert (await wire.chunk()).startswith(b":")
        await broker.produce("pond", b"a", partition=0)
        ((event_id, _),) = events_of((await wire.chunk()).decode())
    await broker.produce("pond", b"b", partition=1)
    url = "/topics/pond/stream?from=newest&follow=false&format=sse"
    rest = events_of((await client.get(url, headers={"Last-Event-ID": event_id})).text)
    assert [message["value"] for _, message in rest] == ["b"]


async def test_partitions_that_are_added_later_are_streamed_too(limited):
    async with limited(keep_alive_ms=10) as broker:
        await broker.produce("pond", b"0")
        async with connect(broker) as wire:
            wire.send(get("/topics/pond/stream"))
            await wire.head()
            assert [each["value"] for each in await next_line(wire)] == ["0"]
            await broker.administration.alter_topic("pond", count=2, access=OPEN_ACCESS)
            await broker.produce("pond", b"1", partition=1)
            assert [each["value"] for each in await next_line(wire)] == ["1"]


async def test_a_stream_in_which_nothing_happens_says_so(limited):
    async with limited(keep_alive_ms=1) as broker:
        await broker.produce("pond", b"x")
        for query, comment in (("", b"\n"), ("?format=sse", b": nothing new\n\n")):
            async with connect(broker) as wire:
                wire.send(get(f"/topics/pond/stream{query}"))
                await wire.head()
                assert b"x" in await wire.chunk()
                assert [await wire.chunk() for _ in range(3)] == [comment] * 3


async def test_a_stream_of_a_topic_that_is_deleted_says_so_and_ends(broker):
    await broker.produce("pond", b"x")
    async with connect(broker) as wire:
        wire.send(get("/topics/pond/stream"))
        await wire.head()
        await wire.chunk()
        await broker.administration.delete_topic("pond", access=OPEN_ACCESS)
        last = lines_of(b"".join([chunk async for chunk in wire.chunks()]).decode())[-1]
        assert last["error"]["code"] in ("UnknownTopic", "UnknownPartition")
    await until(lambda: broker.web._site.streams == 0)


async def test_a_stream_of_a_topic_that_is_made_anew_says_so_and_ends(limited):
    """Positions in the old one mean nothing in the new one."""
    async with limited(keep_alive_ms=1) as broker:
        await broker.produce("pond", b"x", b"y")
        async with connect(broker) as wire:
            wire.send(get("/topics/pond/stream"))
            await wire.head()
            await wire.chunk()
            await broker.administration.delete_topic("pond", access=OPEN_ACCESS)
            await broker.produce("pond", b"z")
            last = lines_of(b"".join([chunk async for chunk in wire.chunks()]).decode())[-1]
            assert last["error"]["code"] in ("TopicReplaced", "UnknownTopic", "UnknownPartition")


@pytest.mark.parametrize(("query", "opening"), [("", '{"error":'), ("?format=sse", "event: failure\ndata: ")])
async def test_a_stream_that_meets_a_batch_it_cannot_read_says_where_it_goes_on(
    broker, monkeypatch, query, opening
):
    await broker.produce("pond", b"x")
    poll = broker.poller.poll
    topic_id = broker.administration.topic("pond").id

    async def unreadable(request):
        if request.positions == {0: 1}:
            assert request.topic_id == topic_id  # it goes on in the topic in which it began
            raise UnreadableBatch(partition=0, offset=1, next_offset=5, reason="it is damaged")
        return await poll(request)

    monkeypatch.setattr(broker.poller, "poll", unreadable)
    async with connect(broker) as wire:
        wire.send(get(f"/topics/pond/stream{query}"))
        await wire.head()
        assert b'"value":"x"' in await wire.chunk()
        last = b"".join([chunk async for chunk in wire.chunks()]).decode()
        assert last.startswith(opening + '{"code":"UnreadableBatch"')
        assert '"next_offset":5' in last
    await until(lambda: broker.web._site.streams == 0)


async def test_a_stream_whose_reader_is_gone_ends(broker):
    await broker.produce("pond", b"x")
    async with connect(broker) as wire:
        wire.send(get("/topics/pond/stream"))
        await wire.head()
        assert broker.web._site.streams == 1
    await until(lambda: broker.web._site.streams == 0 and not broker.poller._waiting)


async def test_no_more_streams_than_the_limit(limited, connected_to):
    async with limited(streams_max=1) as broker, connected_to(broker) as client:
        await broker.produce("pond", b"x")
        async with connect(broker) as wire:
            wire.send(get("/topics/pond/stream"))
            await wire.head()
            answer = await client.get("/topics/pond/stream")
            assert (answer.status_code, answer.json()["code"]) == (503, "TooManyStreams")
            assert answer.headers["retry-after"] == "1"
        await until(lambda: broker.web._site.streams == 0)
        assert (await client.get("/topics/pond/stream?follow=false")).status_code == 200


async def test_a_reader_that_does_not_read_makes_nothing_pile_up(broker, monkeypatch):
    """What is polled for it is bounded by what the socket takes, however much there is."""
    polls = 0
    poll = broker.poller.poll

    async def counted(request):
        nonlocal polls
        polls += 1
        return await poll(request)

    monkeypatch.setattr(broker.poller, "poll", counted)
    for _ in range(64):
        await broker.produce("pond", os.urandom(1024 * 1024 - 1000))
    async with connect(broker) as wire:
        wire.writer.transport.pause_reading()
        wire.send(get("/topics/pond/stream"))
        (connection,) = await settled(broker)
        assert 0 < polls < 64
        assert connection.transport.get_write_buffer_size() < 4 * 1024 * 1024


async def settled(broker):
    """Its connections, once nothing more can be written to the only one."""
    connections = broker.web._connections
    await until(lambda: connections() and connections()[0].flow is not None)
    await until(lambda: connections()[0]._unread_since is not None)
    return connections()


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("from=1", {}),
        ("from=-1", {}),
        ("from=now", {}),
        ("format=xml", {}),
        ("follow=maybe", {}),
        ("", {"Last-Event-ID": "nonsense"}),
        ("", {"Last-Event-ID": "0:1,"}),
    ],
)
@pytest.mark.usefixtures("three_partitions")
async def test_a_stream_that_makes_no_sense_is_refused(client, query, headers):
    answer = await client.get(f"/topics/pond/stream?{query}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidRequest")


@pytest.mark.usefixtures("three_partitions")
async def test_an_id_of_another_stream_does_not_lead_elsewhere(client):
    url = "/topics/pond/stream?follow=false&partition=1"
    for other in ("0:1", "0:1,1:1", "7:1"):
        answer = await client.get(url, headers={"Last-Event-ID": other})
        assert (answer.status_code, answer.json()["code"]) == (400, "InvalidRequest")
    answer = await client.get(url, headers={"Last-Event-ID": "1:2"})
    assert [each["value"] for each in lines_of(answer.text)] == ["7"]


async def test_a_stream_of_nothing_is_not_found(client, broker):
    assert (await client.get("/topics/nowhere/stream")).status_code == 404
    await broker.produce("pond", b"x")
    assert (await client.get("/topics/pond/stream?partition=1")).status_code == 404
    answer = await client.get("/topics/pond/stream", headers={"Last-Event-ID": "7:1"})
    assert (answer.status_code, answer.json()["code"]) == (404, "UnknownPartition")
    assert broker.web._site.streams == 0


async def test_a_stream_of_too_many_partitions_asks_for_one(limited, connected_to):
    async with limited(stream_partitions_max=2) as broker, connected_to(broker) as client:
        await broker.administration.create_topic("pond", 3, access=OPEN_ACCESS)
        assert (await client.get("/topics/pond/stream?follow=false")).status_code == 400
        assert (await client.get("/topics/pond/stream?follow=false&partition=2")).status_code == 200


async def test_many_streams_each_see_everything(broker):
    await broker.produce("pond", b"first")

    async def read(count):
        async with connect(broker) as wire:
            wire.send(get("/topics/pond/stream"))
            await wire.head()
            seen = []
            while len(seen) < count:
                seen += [each["value"] for each in await next_line(wire)]
            return seen

    readers = [asyncio.create_task(read(11)) for _ in range(20)]
    for number in range(10):
        await broker.produce("pond", b"%d" % number)
    assert await asyncio.gather(*readers) == [["first", *map(str, range(10))]] * 20
