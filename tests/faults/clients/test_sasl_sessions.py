"""Real clients whose sessions expire while they send."""

import time
from contextlib import closing

import pytest
from tests.clients.secured_clients import TOPIC, Login, every_client, start

SESSION = "2s"
SESSIONS_S = 5.0
"""Longer than two sessions."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    broker = start(tmp_path_factory.mktemp("sessions"), max_reauth=SESSION)
    yield broker
    broker.stop()


@every_client
def test_a_client_continues_when_its_session_expires(server, client):
    """librdkafka and kafka-python authenticate again on their connections, aiokafka connects again."""
    with closing(client(server.address, Login("SCRAM-SHA-256"))) as connected:
        until = time.monotonic() + SESSIONS_S
        while time.monotonic() < until:
            assert connected.send(TOPIC, b"v") == 0
            time.sleep(0.2)
