"""What bounds a client: sizes, times and numbers, each with an answer where one can be given."""

import asyncio
import base64
import logging
import os

import pytest
from tests.unit.frontends.web.wire import HEALTH, HOST, PRODUCE, connect, produce, until

from millpond.security import OPEN_ACCESS
from millpond.security.addresses import AddressLimits

CHUNKED = PRODUCE + b"Transfer-Encoding: chunked\r\n\r\n"
LATER_S = 3600.0


def sweep_later(broker):
    """As if an hour had passed for the connections."""
    broker.web.sweep(asyncio.get_running_loop().time() + LATER_S)


async def stored(broker):
    return [each.value for each in await broker.read("pond")]


# -- bodies ---------------------------------------------------------------------------------------------------


async def test_a_body_that_is_announced_too_large_is_refused_before_it_is_sent(limited):
    async with limited(request_bytes_max=1000) as broker, connect(broker) as wire:
        answer = await wire.ask(PRODUCE + b"Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n")
        assert (answer.status, answer.json()["code"]) == (413, "RequestTooLarge")
        assert answer.json()["details"] == {"limit": 1000}
        assert broker.administration.topics(access=OPEN_ACCESS) == []


async def test_a_body_that_grows_too_large_is_refused_on_the_way(limited):
    async with limited(request_bytes_max=1000) as broker, connect(broker) as wire:
        wire.send(CHUNKED, b"1f4\r\n", b"x" * 500, b"\r\n")
        answer = await wire.ask(b"1f5\r\n", b"x" * 501, b"\r\n")
        assert (answer.status, answer.json()["code"]) == (413, "RequestTooLarge")


async def test_a_body_of_just_the_limit_is_taken_and_the_connection_goes_on(limited):
    async with limited(request_bytes_max=1000) as broker, connect(broker) as wire:
        assert (await wire.ask(produce(b"x" * 1000))).status == 200
        assert (await wire.ask(produce(b"x" * 1001))).status == 413
        assert (await wire.ask(produce(b"y"))).json()["offset"] == 1


async def test_a_refused_body_without_end_is_cut_off(limited):
    async with limited(request_bytes_max=10, discarded_bytes_max=1000) as broker, connect(broker) as wire:
        wire.send(CHUNKED, b"ffffffff\r\n", b"x" * 11)
        assert (await wire.response()).status == 413
        wire.send(b"x" * 1001)
        assert await wire.is_closed()


async def test_all_bodies_together_are_bounded_and_the_rest_is_told_to_come_back(limited):
    async with (
        limited(requests_bytes_max=1000) as broker,
        connect(broker) as slow,
        connect(broker) as wire,
    ):
        slow.send(PRODUCE + b"Content-Length: 500\r\n\r\n" + b"s" * 400)
        await until(lambda: held(broker) == 400)
        answer = await wire.ask(produce(b"x" * 601))
        assert (answer.status, answer.json()["code"]) == (503, "OutOfMemory")
        assert answer.headers["retry-after"] == "1"
        assert (await wire.ask(produce(b"x" * 600))).status == 200
        assert (await slow.ask(b"s" * 100)).status == 200
        await until(lambda: held(broker) == 0)


async def test_when_memory_is_short_the_body_that_does_not_go_on_is_given_up(limited):
    async with (
        limited(requests_bytes_max=1000) as broker,
        connect(broker) as stuck,
        connect(broker) as wire,
    ):
        stuck.send(PRODUCE + b"Content-Length: 900\r\n\r\n" + b"s" * 800)
        await until(lambda: held(broker) == 800)
        assert (await wire.ask(produce(b"x" * 500))).status == 503
        answer = await stuck.response()
        assert (answer.status, answer.json()["code"]) == (408, "BodyTooSlow")
        assert (await wire.ask(produce(b"x" * 500))).status == 200
        assert await stored(broker) == [b"x" * 500]


async def test_who_announces_much_and_sends_nothing_takes_no_room(limited):
    async with limited(requests_bytes_max=1000, request_bytes_max=900) as broker, connect(broker) as liar:
        liar.send(PRODUCE + b"Content-Length: 900\r\n\r\n")
        await until(lambda: broker.web._state.tasks)
        async with connect(broker) as wire:
            assert (await wire.ask(produce(b"x" * 900))).status == 200


def held(broker):
    return broker.web.application.request_memory.held_bytes


async def test_json_that_holds_no_messages_may_be_less_large(limited, connected_to):
    async with limited(document_bytes_max=1000) as broker, connected_to(broker) as client:
        configs = {"x" * 1000: "1"}
        answer = await client.post("/topics", json={"name": "pond", "configs": configs})
        assert (answer.status_code, answer.json()["details"]) == (413, {"limit": 1000})
        answer = await client.post("/topics/pond/produce", json={"value": "x" * 1000})
        assert answer.status_code == 200


async def test_too_many_messages_are_refused_and_nothing_is_stored(client, broker):
    body = b'{"messages":[%s]}' % b",".join([b'{"value":""}'] * 20_000)
    answer = await client.post(
        "/topics/pond/produce", content=body, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidRequest")
    assert "where 1 to 10000 are allowed" in answer.json()["message"]
    assert broker.administration.topics(access=OPEN_ACCESS) == []


async def test_a_message_of_the_largest_size_can_be_json(client, broker):
    """In base64 it is larger by a third."""
    value = os.urandom(1024 * 1024 - 100)
    encoded = base64.b64encode(value).decode()
    answer = await client.post("/topics/pond/produce", json={"value": {"base64": encoded}})
    assert answer.status_code == 200
    batch = {"messages": [{"value": encoded[: 512 * 1024], "encoding": "base64"}] * 8}
    answer = await client.post("/topics/pond/produce", json=batch)
    assert len(answer.json()["messages"]) == 8
    assert (await broker.read("pond"))[0].value == value
    assert (await broker.read("pond", 1))[0].value == value[: 384 * 1024]


# -- heads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * 2000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nA: " + b"x" * 2000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"A: x\r\n" * 400 + b"\r\n",
    ],
    ids=["url", "one header", "many headers"],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_head_that_is_too_large_is_refused(limited, head, at_once):
    async with limited(head_bytes_max=1000) as broker, connect(broker) as wire:
        if not at_once:  # then it is known to be too large before it has ended
            wire.send(head[:10])
            await until(lambda: any(each._in_head for each in broker.web._connections()))
            head = head[10:1100]
        answer = await wire.ask(head)
        assert (answer.status, answer.json()["code"]) == (431, "HeadTooLarge")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\xff\x01\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"FISH / HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
        b"CONNECT pond:80 HTTP/1.1\r\n" + HOST + b"\r\n",
        PRODUCE + b"Content-Length: -1\r\n\r\n",
        PRODUCE + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        PRODUCE + b"Content-Length: 99999999999999999999999\r\n\r\n",
        PRODUCE + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        PRODUCE + b"Transfer-Encoding: gzip\r\n\r\nx",
        CHUNKED + b"fish\r\n",
    ],
)
async def test_what_is_no_request_is_refused_and_nothing_is_logged_or_stored(broker, caplog, request_bytes):
    with caplog.at_level(logging.INFO):
        async with connect(broker) as wire:
            answer = await wire.ask(request_bytes)
            assert (answer.status, answer.json()["code"]) == (400, "BadRequest")
            assert await wire.is_closed()
    assert caplog.records == []
    assert broker.administration.topics(access=OPEN_ACCESS) == []


async def test_garbage_behind_a_request_does_not_answer_it(broker):
    await broker.produce("pond", b"x")
    async with connect(broker) as wire:
        wire.send(b"GET /topics/pond/fetch/0?offset=1&wait_ms=60000 HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: broker.poller._waiting)
        wire.send(b"\x00\xffgarbage\r\n\r\n")
        await wire.flush()
        await broker.produce("pond", b"y")
        answer = await wire.response()
        assert (answer.status, answer.json()["messages"][0]["value"]) == (200, "y")
        assert await wire.is_closed()


async def test_requests_sent_ahead_are_answered_in_order_up_to_a_limit(limited):
    async with limited(pipelined_max=10) as broker:
        async with connect(broker) as wire:
            wire.send(*[produce(b"%d" % number) for number in range(8)])
            assert [(await wire.response()).json()["offset"] for _ in range(8)] == list(range(8))
            assert await stored(broker) == [b"%d" % number for number in range(8)]
        async with connect(broker) as wire:
            wire.send(HEALTH * 1000)
            answers = 0
            while not await at_end(wire):
                assert (await wire.response()).status == 200
                answers += 1
            assert 10 <= answers < 1000


async def at_end(wire):
    try:
        found = await wire.reader.read(1)
    except ConnectionError:
        return True
    wire.reader._buffer[:0] = found
    return not found


async def test_a_crowd_of_upgrades_in_one_packet_harms_nobody(broker):
    offer = b"GET /healthz HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    async with connect(broker) as crowd, connect(broker) as wire:
        crowd.send(offer * 5000)
        assert (await crowd.response()).status == 200
        assert (await wire.ask(HEALTH)).status == 200


# -- times ----------------------------------------------------------------------------------------------------


async def test_a_head_that_does_not_end_is_given_up(broker):
    async with connect(broker) as wire:
        wire.send(b"GET /healthz HTTP/1.1\r\nHo")
        await until(lambda: any(each._in_head for each in broker.web._connections()))
        sweep_later(broker)
        answer = await wire.response()
        assert (answer.status, answer.json()["code"]) == (408, "HeadTooSlow")
        assert await wire.is_closed()


async def test_a_head_that_trickles_is_given_up_however_lately_it_was_heard(limited):
    async with limited(head_wait_ms=1, sweep_ms=60_000) as broker, connect(broker) as wire:
        wire.send(b"GET /healthz HTTP/1.1\r\nA: ")
        await until(lambda: any(each._in_head for each in broker.web._connections()))
        (connection,) = broker.web._connections()

        def trickle():
            wire.send(b"x")
            return connection._last_received_at - connection._head_since > 0.002

        await until(trickle)
        broker.web.sweep(connection._last_received_at)
        assert (await wire.response()).json()["code"] == "HeadTooSlow"


async def test_a_body_that_does_not_go_on_is_given_up_and_not_stored(broker):
    async with connect(broker) as wire:
        wire.send(PRODUCE + b"Content-Length: 10\r\n\r\nhalf")
        await until(lambda: held(broker) == 4)
        sweep_later(broker)
        answer = await wire.response()
        assert (answer.status, answer.json()["code"]) == (408, "BodyTooSlow")
        await until(lambda: held(broker) == 0 and not broker.web._state.tasks)
        assert broker.administration.topics(access=OPEN_ACCESS) == []


@pytest.mark.parametrize("before", [b"", b"\r\n\r\n", HEALTH])
async def test_an_idle_connection_is_closed(broker, before):
    async with connect(broker) as wire:
        if before == HEALTH:
            await wire.ask(before)
        else:
            wire.send(before)
        await until(broker.web._connections)
        sweep_later(broker)
        assert await wire.is_closed()


async def test_a_request_in_progress_is_not_idle(broker):
    await broker.produce("pond", b"x")
    async with connect(broker) as wire:
        wire.send(b"GET /topics/pond/fetch/0?offset=1&wait_ms=60000 HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: broker.poller._waiting)
        sweep_later(broker)
        await broker.produce("pond", b"y")
        assert (await wire.response()).status == 200


async def test_a_client_that_does_not_read_its_answer_is_closed(broker):
    await broker.produce("pond", b"x" * 1_000_000)
    async with connect(broker) as wire:
        wire.writer.transport.pause_reading()
        wire.send((b"GET /topics/pond/fetch/0/0 HTTP/1.1\r\n" + HOST + b"\r\n") * 20)
        await until(lambda: any(each._unread_since is not None for each in broker.web._connections()))
        sweep_later(broker)
        await until(lambda: not broker.web._connections())


# -- numbers --------------------------------------------------------------------------------------------------


async def test_no_more_connections_than_the_limit(limited):
    async with limited(connections_max=2) as broker, connect(broker) as first, connect(broker) as second:
        assert (await first.ask(HEALTH)).status == 200
        assert (await second.ask(HEALTH)).status == 200
        async with connect(broker) as third:
            answer = await third.response()
            assert (answer.status, answer.json()["code"]) == (503, "TooManyConnections")
            assert answer.headers["retry-after"] == "1"
            assert await third.is_closed()
        assert (await first.ask(HEALTH)).status == 200
        second.hang_up()
        await until(lambda: len(broker.web._connections()) == 1)
        async with connect(broker) as fourth:
            assert (await fourth.ask(HEALTH)).status == 200


async def test_an_address_has_no_more_connections_than_its_limit(limited, monkeypatch):
    monkeypatch.setattr("millpond.security.addresses.LOOPBACK_FACTOR", 1)
    async with limited() as broker, connect(broker) as first, connect(broker) as second:
        monkeypatch.setattr(broker.web.addresses, "_limits", AddressLimits(open_max=2, per_second=0))
        assert (await first.ask(HEALTH)).status == 200
        assert (await second.ask(HEALTH)).status == 200
        async with connect(broker) as third:
            answer = await third.response()
            assert (answer.status, answer.json()["code"]) == (503, "TooManyConnections")
        second.hang_up()
        await until(lambda: len(broker.web._connections()) == 1)
        async with connect(broker) as fourth:
            assert (await fourth.ask(HEALTH)).status == 200


def is_paused(broker):
    return any(not each.transport.is_reading() for each in broker.web._connections())


async def test_a_connection_that_comes_too_fast_is_read_later(limited, loop_time, clock):
    async with limited() as broker:
        addresses = broker.web.addresses
        addresses.quota_of = {"127.0.0.1": 1}.get
        addresses._clock = clock
        async with connect(broker) as first:
            assert (await first.ask(HEALTH)).status == 200
            for _ in range(4):  # a delay that a machine which stands still does not reach
                addresses.admit("127.0.0.1")
                addresses.forget("127.0.0.1")
            async with connect(broker) as second:
                second.send(HEALTH)
                await until(lambda: is_paused(broker))
                for _ in range(50):
                    await asyncio.sleep(0)
                assert is_paused(broker)
                loop_time.advance(5.001)
                assert (await second.response()).status == 200
