"""While a broker processes a request with many entries, other clients are served."""

import pytest
from tests.hostile.kafka.hold_ups import TOPIC, requests
from tests.hostile.kafka.siege import ThreadBroker, Wire, create_topic, written

from millpond.frontends.kafka.turns import ENTRIES_PER_TURN, Turns
from millpond.protocol.messages import metadata

ENTRIES = 4 * ENTRIES_PER_TURN
CHEAP = (
    "heartbeat",  # a comparison of lists
    "fetch offsets",  # one query
    "list reassignments",  # there are none
    "describe consumer groups",  # one query
    "describe groups",
    "describe transactions",
    "list transactions",
    "share heartbeat",
    "share fetch: too many",  # it is refused
    "share fetch: opens",
    "share acknowledge",  # a comparison with what the member has
    "describe share groups",  # one query each
    "describe share offsets: groups",
)
"""Requests of which 100,000 entries take a few milliseconds."""


@pytest.fixture(scope="module")
def broker():
    broker = ThreadBroker({}, {})
    broker.start()
    create_topic(broker.port, TOPIC, 10)
    yield broker
    broker.stop()


@pytest.fixture
def turns_of(broker, monkeypatch):
    turns = []
    next_turn = Turns.next

    def counted(self):
        turns.append(self)
        return next_turn(self)

    def count(request, version):
        with Wire(broker.port) as wire:
            wire.send(written(request, version))
            assert wire.receive() is not None
        return len(turns)

    monkeypatch.setattr(Turns, "next", counted)
    return count


@pytest.mark.parametrize(
    ("long_request", "version"),
    [
        pytest.param(request, version, id=name)
        for name, request, version in requests(2 * ENTRIES, ENTRIES)
        if not name.startswith(CHEAP)
    ],
)
def test_a_long_request_is_processed_in_turns(turns_of, long_request, version):
    assert turns_of(long_request, version) >= ENTRIES // ENTRIES_PER_TURN - 1


def test_metadata_of_a_large_topic_is_written_in_turns(broker, turns_of):
    create_topic(broker.port, "larger", ENTRIES)
    topic = metadata.MetadataRequestTopic(name="larger")
    request = metadata.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    assert turns_of(request, 12) >= ENTRIES // ENTRIES_PER_TURN - 1
