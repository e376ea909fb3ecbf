"""`millpond serve` as others see it that start and stop it: when it comes back, and how it ends."""

import asyncio
import os
import signal

import pytest

from millpond.cli import serve
from millpond.model.errors import CatalogFailed, CatalogUnavailable, WriterDead
from millpond.settings import Settings


class DeclaredDead:
    """A broker that others declare dead as soon as it serves, and that cannot join again."""

    refusal = CatalogUnavailable
    stops_in_between = False
    started = 0

    def __init__(self, settings, **_):
        self.settings, self.bound = settings, {}

    async def start(self):
        type(self).started += 1
        if self.started == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        if self.started > 1:
            raise self.refusal(reason="it is away")

    async def failed(self):
        return WriterDead(session="gone")

    async def stop(self):
        if self.stops_in_between:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)


@pytest.fixture
async def broker(monkeypatch):
    class Broker(DeclaredDead):
        pass

    monkeypatch.setattr(serve, "Broker", Broker)
    monkeypatch.setattr(serve, "_announce", lambda *_: None)
    yield Broker
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)


async def test_one_that_is_stopped_while_it_cannot_join_again_ends_in_order(broker, capsys):
    await serve._serve(Settings(), as_json=False, supervised=False)
    assert broker.started == 2
    assert capsys.readouterr().out.splitlines()[-1] == "stopped"


async def test_one_that_is_stopped_between_two_lives_ends_in_order(broker, capsys):
    broker.stops_in_between = True
    await serve._serve(Settings(), as_json=False, supervised=False)
    assert broker.started == 1
    assert capsys.readouterr().out.splitlines()[-1] == "stopped"


async def test_a_catalog_that_has_failed_is_said_all_the_same(broker):
    broker.refusal = CatalogFailed
    with pytest.raises(CatalogFailed):
        await serve._serve(Settings(), as_json=False, supervised=False)
