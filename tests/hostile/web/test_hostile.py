"""Whatever arrives at the port, a client that behaves goes on, and nothing of it stays behind."""

import asyncio
import contextlib
import logging
import random

import pytest
from tests.unit.frontends.web.wire import HEALTH, HOST, PRODUCE, connect, until

from millpond.frontends.web.limits import WebLimits
from millpond.settings import Settings
from millpond.testing import running_broker

KIB = 1024
LIMITS = WebLimits(
    request_bytes_max=64 * KIB,
    requests_bytes_max=512 * KIB,
    head_bytes_max=16 * KIB,
    connections_max=100,
    discarded_bytes_max=64 * KIB,
)
ATTACK = b"POST /topics/attack/produce/0 HTTP/1.1\r\n" + HOST
FETCH = b"GET /topics/attack/fetch/0 HTTP/1.1\r\n" + HOST + b"\r\n"
VALID = ATTACK + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = ATTACK + b"Transfer-Encoding: chunked\r\n\r\n"
ROUNDS = 30


async def send(broker, *parts, read=False):
    """Send, perhaps listen to what comes of it, and hang up."""
    with contextlib.suppress(ConnectionError):
        async with connect(broker) as wire:
            for part in parts:
                wire.send(part)
                await wire.flush()
            if read:
                async with asyncio.timeout(30):
                    await wire.reader.read(KIB)
            wire.hang_up()


async def random_bytes(broker, dice):
    await send(broker, dice.randbytes(dice.randint(1, 5_000)))


async def damaged_requests(broker, dice):
    damaged = bytearray(dice.choice((VALID, CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", FETCH)))
    for _ in range(dice.randint(1, 4)):
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
    await send(broker, bytes(damaged))


async def cut_requests(broker, dice):
    await send(broker, VALID[: dice.randrange(len(VALID))])


async def huge_heads(broker, dice):
    kind = dice.choice((b"A: " + b"x" * 50_000, b"A: x\r\n" * 10_000, b"\r\n" * 10_000))
    await send(broker, b"GET /healthz HTTP/1.1\r\n", kind, b"\r\n\r\n", read=True)


async def lies_about_length(broker, dice):
    told = dice.choice((0, 1, 6, 1_000, 65_536, 65_537, 2**40, 2**64))
    await send(broker, ATTACK + b"Content-Length: %d\r\n\r\nhello" % told, FETCH)


async def bodies_without_end(broker, dice):
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    count = dice.randint(1, 20)
    await send(broker, CHUNKED, *[chunk] * count, read=count > LIMITS.request_bytes_max // 0x4000)


async def requests_ahead(broker, dice):
    await send(broker, dice.choice((VALID, HEALTH, FETCH)) * dice.randint(1, 500))


async def answers_unread(broker, _):
    await send(broker, b"GET /topics/attack/stream HTTP/1.1\r\n" + HOST + b"\r\n", read=True)


ATTACKS = (
    random_bytes,
    damaged_requests,
    cut_requests,
    huge_heads,
    lies_about_length,
    bodies_without_end,
    requests_ahead,
    answers_unread,
)


class GoodClient:
    """Produces and fetches, over one connection, and is right every time."""

    def __init__(self, wire):
        self._wire = wire
        self.rounds = 0

    async def round(self):
        body = b"good:%d" % self.rounds
        answer = await self._wire.ask(PRODUCE, b"Content-Length: %d\r\n\r\n" % len(body), body)
        assert (answer.status, answer.json()["offset"]) == (200, self.rounds)
        path = b"GET /topics/pond/fetch/0?offset=%d HTTP/1.1\r\n" % self.rounds
        answer = await self._wire.ask(path, HOST, b"\r\n")
        assert [each["value"] for each in answer.json()["messages"]] == [str(self.rounds)]
        self.rounds += 1


@pytest.fixture
async def attacked_broker(monkeypatch, caplog):
    monkeypatch.setattr(Settings, "web_limits", lambda _: LIMITS)
    with caplog.at_level(logging.WARNING):
        async with running_broker(http=True) as broker:
            await broker.produce("attack", b"x" * 100_000)
            yield broker
    assert caplog.records == []


async def nothing_is_left(broker):
    """All but the good client's connection are gone, and so is what they held."""
    await until(lambda: len(broker.web._connections()) == 1)
    await until(lambda: not broker.web._state.tasks)
    assert broker.web.application.request_memory.held_bytes == 0
    assert broker.web._site.streams == 0


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_a_good_client_goes_on_beside(attacked_broker, attack):
    dice = random.Random(attack.__name__)
    async with connect(attacked_broker) as wire:
        good = GoodClient(wire)
        for _ in range(ROUNDS):
            await asyncio.gather(good.round(), *(attack(attacked_broker, dice) for _ in range(5)))
        await nothing_is_left(attacked_broker)
        assert len(await attacked_broker.read("pond")) == ROUNDS


async def test_all_attacks_at_once(attacked_broker):
    dice = random.Random(1)
    async with connect(attacked_broker) as wire:
        good = GoodClient(wire)
        for _ in range(ROUNDS):
            await asyncio.gather(good.round(), *(attack(attacked_broker, dice) for attack in ATTACKS))
        await nothing_is_left(attacked_broker)


@pytest.mark.parametrize(
    "beginning", [b"", b"G", b"GET / HTTP/1.1\r\nA: ", ATTACK + b"Content-Length: 9\r\n\r\nx"]
)
async def test_a_crowd_that_never_goes_on_does_not_keep_others_out_for_ever(attacked_broker, beginning):
    async with connect(attacked_broker) as wire, contextlib.AsyncExitStack() as crowd:
        good = GoodClient(wire)
        await good.round()
        (own,) = attacked_broker.web._connections()
        for _ in range(LIMITS.connections_max + 20):
            lazy = await crowd.enter_async_context(connect(attacked_broker))
            lazy.send(beginning)
        await until(lambda: len(attacked_broker.web._connections()) == LIMITS.connections_max)
        await good.round()
        for connection in attacked_broker.web._connections():
            if connection is not own:
                connection.sweep(asyncio.get_running_loop().time() + 3600)
        await until(lambda: attacked_broker.web._connections() == [own])
        await good.round()
        async with connect(attacked_broker) as late:
            assert (await late.ask(HEALTH)).status == 200
