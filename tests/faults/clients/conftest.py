"""The same clients and brokers as in tests/clients; here a broker may also be killed and started again."""

import gc
from contextlib import ExitStack

import pytest
from tests.clients.adapters.base import SESSION_TIMEOUT_MS
from tests.clients.conftest import HEARTBEAT_MS, HEARTBEATS, Setting, client, setting
from tests.clients.members import group, topic
from tests.clients.process import BrokerProcess

__all__ = ["client", "fragile", "group", "server", "setting", "topic"]

SESSIONS = ("group_consumer_session_timeout", "group_consumer_session_timeout_min")


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """As in tests/clients, but with short sessions, also of members of the consumer protocol."""
    settings = dict.fromkeys(HEARTBEATS, HEARTBEAT_MS) | dict.fromkeys(SESSIONS, SESSION_TIMEOUT_MS)
    in_ms = {name: f"{value}ms" for name, value in settings.items()}
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), **in_ms)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def second_server(tmp_path_factory):
    broker = BrokerProcess(tmp_path_factory.mktemp("second-broker"))
    yield broker
    broker.stop()


@pytest.fixture
def fragile_server(second_server):
    """A broker that the test may kill and start again."""
    if not second_server.is_running:
        second_server.start()
    return second_server


@pytest.fixture
def fragile(fragile_server, client):
    with ExitStack() as stack:
        yield Setting(fragile_server, client, stack)
    gc.collect()  # what a client left behind is to be found now, not in somebody else's test
