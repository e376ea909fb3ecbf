"""The broker as a whole: starts that fail, and services that end."""

import asyncio
import threading

import pytest

from millpond.broker import Broker
from millpond.log.log import Log
from millpond.model.errors import CatalogUnavailable
from millpond.settings import Settings
from millpond.testing import running_broker

HANG_S = 60
IN_MEMORY = Settings(catalog="memory://", storage="memory://")


def brokers_threads():
    return {each for each in threading.enumerate() if each.name.startswith("millpond")}


async def test_a_start_that_fails_leaves_no_thread_running(monkeypatch):
    async def fail(_):
        raise CatalogUnavailable(reason="not today")

    monkeypatch.setattr(Log, "refresh", fail)
    before = brokers_threads()
    with pytest.raises(CatalogUnavailable):
        await Broker(IN_MEMORY).start()
    assert brokers_threads() <= before


async def test_a_start_that_fails_at_its_end_leaves_nothing_and_can_be_tried_again(tmp_path, monkeypatch):
    ports = {f"{interface}_listen": "127.0.0.1:0" for interface in ("kafka", "grpc", "http")}
    broker = Broker(Settings(data_dir=tmp_path, **ports), listen=True)
    before = asyncio.all_tasks()

    async def fail(*_):
        raise RuntimeError("at the very end")

    with monkeypatch.context() as patched:
        patched.setattr("millpond.frontends.web.WebServer.serve", fail)
        with pytest.raises(RuntimeError, match="at the very end"):
            await broker.start()
    assert asyncio.all_tasks() == before
    await broker.start()
    await broker.produce("t", b"works")
    await broker.stop()


async def test_a_broker_whose_service_ended_reports_failure(monkeypatch):
    async def broken(self):
        raise KeyError("a bug")

    monkeypatch.setattr("millpond.groups.Groups.run", broken)
    async with running_broker() as broker:
        error = await asyncio.wait_for(broker.failed(), HANG_S)
        assert "a service ended" in str(error)


async def test_a_start_that_fails_after_it_began_to_serve_keeps_what_clients_were_answered(
    tmp_path, monkeypatch
):
    broker = Broker(Settings(data_dir=tmp_path / "new"))

    async def serve_and_fail():
        await broker.produce("t", b"acknowledged")
        raise RuntimeError("the next listener cannot start")

    with monkeypatch.context() as patched:
        patched.setattr(broker, "_serve", serve_and_fail)
        with pytest.raises(RuntimeError):
            await broker.start()
    async with running_broker(tmp_path / "new") as again:
        assert [record.value for record in await again.read("t")] == [b"acknowledged"]
