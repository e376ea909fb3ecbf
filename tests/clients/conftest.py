"""Real client libraries against a broker in a process of its own."""

import time
import uuid
from contextlib import ExitStack

import pytest
from tests.clients.adapters.named import CONSUMER_PROTOCOL, PLACES, client_named
from tests.clients.members import group, topic
from tests.clients.patience import POLL_SECONDS, SECONDS_MAX
from tests.clients.process import BrokerProcess

__all__ = [
    "CLIENTS",
    "GROUP_CLIENTS",
    "HEARTBEATS",
    "HEARTBEAT_MS",
    "Setting",
    "client",
    "group",
    "server",
    "setting",
    "topic",
]

CLIENTS = tuple(client_named(name) for name in PLACES)
GROUP_CLIENTS = (*CLIENTS, client_named(CONSUMER_PROTOCOL))
"""Those that differ in how they are members of a group."""
HEARTBEAT_MS = 200
HEARTBEATS = ("group_consumer_heartbeat_interval", "group_consumer_heartbeat_interval_min")
"""Members of the consumer protocol learn from the broker how often to send heartbeats."""


class Setting:
    """A broker and one client library, with the few sentences that the scenarios keep saying."""

    def __init__(self, server, client, stack):
        self.server, self.client, self._stack = server, client, stack
        self.address = server.address

    def with_client(self, client):
        return Setting(self.server, client, self._stack)

    def topic(self, partitions=1, **configs):
        """A new one, whose name nobody has used."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin().create_topic(name, partitions, named)
        return name

    def producer(self, **named):
        return self._closing(self.client.producer(self.address, **named))

    def consumer(self, **named):
        return self._closing(self.client.consumer(self.address, **named))

    def admin(self):
        return self._closing(self.client.admin(self.address))

    def reader(self, topic, partitions=1, **named):
        return self.consumer(places=[(topic, number) for number in range(partitions)], **named)

    def read(self, topic, count, partitions=1, **named):
        """The first messages of a topic."""
        return self.take(self.reader(topic, partitions, **named), count)

    def take(self, consumer, count):
        found = []
        give_up = time.monotonic() + SECONDS_MAX
        while len(found) < count and time.monotonic() < give_up:
            found += consumer.poll(POLL_SECONDS)
        return found

    def _closing(self, thing):
        self._stack.callback(thing.close)
        return thing


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One broker for all tests that leave it running."""
    broker = BrokerProcess(
        tmp_path_factory.mktemp("broker"), **dict.fromkeys(HEARTBEATS, f"{HEARTBEAT_MS}ms")
    )
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request):
    return request.param


@pytest.fixture
def setting(server, client):
    with ExitStack() as stack:
        yield Setting(server, client, stack)
