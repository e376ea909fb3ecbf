"""Stopping: what has begun is answered, what waits is let go, what is idle is closed."""

import asyncio
import logging
import socket

import pytest
from tests.unit.frontends.web.wire import HEALTH, HOST, PRODUCE, connect, produce, until

from millpond.frontends.web import WebServer
from millpond.frontends.web.limits import WebLimits
from millpond.testing import Faults, running_broker


async def test_an_idle_connection_does_not_hold_up_the_stop(broker):
    async with connect(broker) as used, connect(broker) as silent:
        await used.ask(HEALTH)
        await until(lambda: len(broker.web._connections()) == 2)
        await broker.stop()
        assert await used.is_closed()
        assert await silent.is_closed()


async def test_a_produce_that_has_begun_is_answered_and_is_durable(tmp_path):
    faults = Faults()
    async with running_broker(tmp_path, http=True, faults=faults, inline_bytes_max=0) as broker:
        await broker.produce("pond", b"before")
        held = faults.hold("append")
        async with connect(broker) as wire:
            wire.send(produce(b"begun"))
            await asyncio.to_thread(held.wait_reached)
            stopping = asyncio.create_task(broker.stop())
            await until(lambda: broker.web.stopping)
            held.release()
            answer = await wire.response()
            assert (answer.status, answer.json()["offset"]) == (200, 1)
            assert answer.headers["connection"] == "close"
            assert await wire.is_closed()
            await stopping
    async with running_broker(tmp_path) as broker:
        assert [each.value for each in await broker.read("pond")] == [b"before", b"begun"]


async def test_a_body_that_is_not_there_yet_is_refused_and_not_stored(tmp_path):
    async with running_broker(tmp_path, http=True) as broker:
        await broker.produce("pond", b"before")
        async with connect(broker) as wire:
            wire.send(PRODUCE + b"Content-Length: 10\r\n\r\nhalf")
            await until(lambda: broker.web._state.tasks)
            stopping = asyncio.create_task(broker.stop())
            answer = await wire.response()
            assert (answer.status, answer.json()["code"]) == (503, "Stopping")
            assert answer.headers["retry-after"] == "1"
            await stopping
    async with running_broker(tmp_path) as broker:
        assert [each.value for each in await broker.read("pond")] == [b"before"]


async def test_a_waiting_fetch_is_let_go(broker):
    await broker.produce("pond", b"x")
    async with connect(broker) as wire:
        wire.send(b"GET /topics/pond/fetch/0?offset=1&wait_ms=300000 HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: broker.poller._waiting)
        stopping = asyncio.create_task(broker.stop())
        answer = await wire.response()
        assert (answer.status, answer.json()["code"]) == (503, "Stopping")
        await stopping


async def test_a_stream_ends_as_it_should(broker):
    await broker.produce("pond", b"x")
    async with connect(broker) as wire:
        wire.send(b"GET /topics/pond/stream?format=sse HTTP/1.1\r\n" + HOST + b"\r\n")
        await wire.head()
        await wire.chunk()
        await until(lambda: broker.poller._waiting)
        stopping = asyncio.create_task(broker.stop())
        rest = b"".join([chunk async for chunk in wire.chunks()])
        assert b'event: failure\ndata: {"code":"Stopping"' in rest
        assert await wire.is_closed()
        await stopping


UNREAD = {
    "a stream": b"GET /topics/pond/stream HTTP/1.1\r\n" + HOST + b"\r\n",
    "a large fetch": b"GET /topics/pond/fetch/0?max_bytes=16000000 HTTP/1.1\r\n" + HOST + b"\r\n",
    "many answers": (b"GET /topics/pond/fetch/0/0 HTTP/1.1\r\n" + HOST + b"\r\n") * 20,
}


@pytest.mark.parametrize("asked", UNREAD.values(), ids=UNREAD)
async def test_a_client_that_does_not_read_is_not_waited_for(limited, caplog, asked):
    async with limited(unread_at_stop_ms=100, watch_at_stop_ms=10) as broker:
        await fill(broker)
        async with connect(broker) as wire:
            wire.writer.transport.pause_reading()
            wire.send(asked)
            await until(lambda: any(each._unread_since is not None for each in broker.web._connections()))
            async with asyncio.timeout(broker.web.limits.drain_ms / 1000 / 2):
                await broker.stop()
            assert not broker.web._connections()
            assert not broker.web._state.tasks
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_a_client_that_reads_slowly_is_waited_for(limited):
    """It takes long, but never nothing for long. The watch's time is ours."""
    async with limited(unread_at_stop_ms=500, watch_at_stop_ms=600_000) as broker:
        await fill(broker)
        async with connect(broker) as wire:
            client = wire.writer.transport
            client.pause_reading()
            await until(lambda: broker.web._connections())
            [connection] = broker.web._connections()
            server = connection.transport
            server.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
            wire.send(UNREAD["a large fetch"])
            await until(lambda: connection._unread_since is not None)
            stopping = asyncio.create_task(broker.stop())
            await until(lambda: connection._waiting_since is not None)
            begun = connection._waiting_since
            reading = asyncio.create_task(wire.response())
            for step in range(1, 9):
                client.resume_reading()
                await until(lambda: 0 != server.get_write_buffer_size() != connection._waiting_bytes)
                client.pause_reading()
                connection.watch(begun + step * 0.4)
                assert not server.is_closing()
            client.resume_reading()
            assert len((await reading).json()["messages"]) >= 15
            await stopping


async def test_an_unread_answer_that_is_given_up_leaves_no_traceback(limited, caplog):
    async with limited(drain_ms=1) as broker:
        await fill(broker)
        async with connect(broker) as wire:
            wire.writer.transport.pause_reading()
            wire.send(UNREAD["a large fetch"])
            await until(lambda: any(each._unread_since is not None for each in broker.web._connections()))
            await broker.stop()
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


async def fill(broker):
    for _ in range(16):
        await broker.produce("pond", b"x" * 1_000_000)


async def test_what_takes_too_long_is_given_up(limited, monkeypatch):
    async with limited(drain_ms=1) as broker:
        await broker.produce("pond", b"x")
        never = asyncio.Event()
        monkeypatch.setattr(broker.administration, "groups", lambda *_: never.wait())
        async with connect(broker) as wire:
            wire.send(b"GET /groups HTTP/1.1\r\n" + HOST + b"\r\n")
            await until(lambda: broker.web._state.tasks)
            await broker.stop()
            assert await wire.is_closed()
        assert not broker.web._state.tasks


async def test_nobody_is_taken_in_any_more(broker):
    await broker.stop()
    with pytest.raises(ConnectionRefusedError):
        await connect(broker).__aenter__()


async def test_a_server_that_never_served_can_be_stopped():
    server = WebServer(WebLimits())
    await server.stop()
    port = await server.bind("127.0.0.1", 0)
    await server.stop()
    again = WebServer(WebLimits())
    assert await again.bind("127.0.0.1", port) == port
    await again.stop()
