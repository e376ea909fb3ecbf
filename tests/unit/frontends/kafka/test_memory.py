"""Whom the server closes when memory is short: whoever keeps it, and never a bystander."""

from types import SimpleNamespace

import pytest

from millpond.frontends.kafka import KafkaLimits, KafkaServer
from millpond.observability.metrics import Metrics

LIMIT = 1_000_000
NOW = 1_000.0


class Client:
    """As much of a connection as the server looks at."""

    def __init__(self, stuck_bytes, silent_s):
        self.stuck_bytes, self.active_at, self.closed = stuck_bytes, NOW - silent_s, False

    def abort(self, reason):
        self.closed = True


@pytest.fixture
def closed(monkeypatch):
    """`closed(clients, held)` says which of them are closed."""
    monkeypatch.setattr("asyncio.get_running_loop", lambda: SimpleNamespace(time=lambda: NOW))

    def look(clients, held=LIMIT):
        server = KafkaServer(KafkaLimits(frames_bytes_max=LIMIT), Metrics().kafka)
        server._connections = dict.fromkeys(clients)  # in this order, which must not matter
        server._held_bytes = held
        server.make_room()
        return [client for client in clients if client.closed]

    return look


@pytest.mark.parametrize("turned", [False, True])
def test_a_bystander_is_not_closed_although_nobody_was_silent(closed, turned):
    """The loop's clock counts milliseconds: everybody may have been heard just now."""
    bystander, keeper = Client(0, 0.0), Client(LIMIT, 0.0)
    clients = [keeper, bystander] if turned else [bystander, keeper]
    assert closed(clients) == [keeper]


def test_a_few_bytes_of_a_while_ago_are_not_worse_than_many_of_just_now(closed):
    slow, keeper = Client(100, 5.0), Client(LIMIT, 0.0)
    assert closed([slow, keeper]) == [keeper]


def test_many_that_wait_are_worse_than_a_larger_one_that_goes_on(closed):
    active = Client(400_000, 0.0)
    waiting = [Client(300_000, 1.0), Client(300_000, 2.0)]
    assert closed([active, *waiting]) == [waiting[1]]


def test_nobody_is_closed_while_there_is_room(closed):
    assert closed([Client(LIMIT, 9.0)], held=LIMIT - 1) == []


def test_nobody_is_closed_while_most_of_it_is_being_answered(closed):
    assert closed([Client(LIMIT // 2 - 1, 9.0), Client(0, 9.0)]) == []
