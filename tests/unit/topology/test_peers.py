"""Which brokers are asked to read the catalog."""

import pytest

from millpond.catalog.topology import LiveBroker, Ownership, Topology
from millpond.model.ids import Session, TopicId, TopicPartition
from millpond.topology import Peers, TopologyView
from millpond.topology.addresses import encode_address

ME, OTHER, SILENT = Session("me"), Session("other"), Session("silent")
MINE, THEIRS, LOST = (TopicPartition(TopicId(bytes(16)), number) for number in range(3))


class Requests:
    """Remembers whom it was asked to send to."""

    def __init__(self):
        self.sent = []
        self.closed = False

    async def send(self, addresses):
        self.sent.append(("send", *addresses))

    def send_soon(self, addresses):
        self.sent.append(("soon", *addresses))

    def send_one_soon(self, address):
        self.sent.append(("one", address))

    async def close(self):
        self.closed = True


def member(session, node_id, **addresses):
    return LiveBroker(session, node_id, encode_address(addresses, machine="m", bound={}), False)


@pytest.fixture
def requests():
    return Requests()


@pytest.fixture
def peers(requests):
    view = TopologyView()
    members = [member(ME, 1, grpc="me:1"), member(OTHER, 2, grpc="other:1"), member(SILENT, 3, http="s:1")]
    owners = {MINE: Ownership(ME, 1), THEIRS: Ownership(OTHER, 1), LOST: Ownership(None, 1)}
    view.apply(Topology(1, {each.session: each for each in members}, owners, {}))
    return Peers(view, ME, requests, may_exist=True)


async def test_all_others_with_an_address_are_asked(peers, requests):
    peers.notify_all()
    await peers.notify_all_and_wait()
    assert requests.sent == [("soon", "other:1"), ("send", "other:1")]
    await peers.close()
    assert requests.closed


def test_the_owner_of_a_partition_is_asked_if_there_is_one(peers, requests):
    peers.notify_owner(THEIRS)
    peers.notify_owner(LOST)
    peers.notify_owner(TopicPartition(TopicId(bytes(16)), 9))
    assert requests.sent == [("one", "other:1")]
