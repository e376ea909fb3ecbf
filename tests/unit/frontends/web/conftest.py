"""A broker with an HTTP interface for each test, and a client that talks to it."""

import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from millpond.broker import Broker
from millpond.frontends.web.limits import WebLimits
from millpond.settings import Settings
from millpond.testing import SimulatedClock, running_broker


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with running_broker(http=True) as running:
        yield running


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(broker) as connected:
        yield connected


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch):
    """`async with limited(idle_ms=10) as broker:` is a broker whose HTTP interface has other limits."""

    @contextlib.asynccontextmanager
    async def start(**limits: int) -> AsyncIterator[Broker]:
        monkeypatch.setattr(Settings, "web_limits", lambda _: WebLimits(**limits))
        async with running_broker(http=True) as running:
            yield running

    return start


@pytest.fixture
def connected_to():
    return client_of


def client_of(broker: Broker) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{broker.listeners['http']}", timeout=60)
