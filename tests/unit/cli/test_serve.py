"""`millpond serve` as others see it that start and stop it: when it comes back, and how it ends."""

import asyncio
import json
import os
import signal
from typing import ClassVar

import pytest
from tests.unit.cluster.conftest import until

from millpond.broker import Broker
from millpond.catalog import writers
from millpond.cli import serve
from millpond.model.errors import CatalogFailed, CatalogUnavailable, WriterDead
from millpond.settings import Settings


class DeclaredDead:
    """A broker that others declare dead as soon as it serves, and that cannot join again."""

    refusal = CatalogUnavailable
    stops_in_between = False
    node_id = 1
    started = 0

    def __init__(self, settings, *, trust_clock=False, **_):
        self.settings, self.bound = settings, {}
        self.trusted_clock.append(trust_clock)

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
        trusted_clock: ClassVar[list[bool]] = []

    monkeypatch.setattr(serve, "Broker", Broker)
    monkeypatch.setattr(serve, "_announce", lambda *_: None)
    yield Broker
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)


async def test_one_that_is_stopped_while_it_cannot_join_again_ends_in_order(broker, capsys):
    await serve._serve(Settings(), as_json=False, supervised=False)
    assert broker.started == 2
    assert capsys.readouterr().out.splitlines()[-1] == "stopped"


async def test_an_operators_word_for_the_clock_counts_at_the_first_start_only(broker):
    """What jumps later pauses retention, also of one that others have declared dead."""
    await serve._serve(Settings(), as_json=False, supervised=False, trust_clock=True)
    assert broker.trusted_clock == [True, False]


async def test_one_that_is_stopped_between_two_lives_ends_in_order(broker, capsys):
    broker.stops_in_between = True
    await serve._serve(Settings(), as_json=False, supervised=False)
    assert broker.started == 1
    assert capsys.readouterr().out.splitlines()[-1] == "stopped"


async def test_a_catalog_that_has_failed_is_said_all_the_same(broker):
    broker.refusal = CatalogFailed
    with pytest.raises(CatalogFailed):
        await serve._serve(Settings(), as_json=False, supervised=False)


async def test_a_broker_that_was_declared_dead_waits_for_a_catalog_that_is_unavailable(
    tmp_path, monkeypatch, capsys
):
    lives, away = [], iter([CatalogUnavailable(reason="away"), CatalogUnavailable(reason="away")])

    class Unlucky(Broker):
        async def start(self):
            if lives:
                for error in away:
                    raise error
            await super().start()
            lives.append(self)

    monkeypatch.setattr(serve, "Broker", Unlucky)
    monkeypatch.setattr(serve, "REJOIN_DELAY_S", 0.01)
    settings = Settings(data_dir=tmp_path, kafka_listen="", grpc_listen="127.0.0.1:0", http_listen="")
    serving = asyncio.create_task(serve._serve(settings, True, True))
    try:
        await until(lambda: len(lives) == 1)
        [first] = lives
        await first.log.create_topic("t")
        await first.log.write(lambda tx: writers.mark_dead(tx, first.session, 1))
        await until(lambda: len(lives) == 2 or serving.done())
        again = lives[-1]
        await until(lambda: serving.done() or (again.bound == first.bound and again.log.partitions()))
        await again.produce("t", b"x")
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
    sessions = [json.loads(line)["session"] for line in capsys.readouterr().out.splitlines()]
    assert sessions == [first.session, again.session]
    assert first is not again
