"""Names that a request may call the broker by: a page whose name was rebound to loopback is not served."""

import pytest
from tests.unit.frontends.web.wire import connect

from millpond.frontends.web.errors import HttpError
from millpond.frontends.web.hosts import Hosts
from millpond.frontends.web.operations import OPERATIONS
from millpond.model.addresses import is_loopback
from millpond.security import OPEN_ACCESS
from millpond.testing import running_broker

OURS = ["localhost", "LocalHost:8000", "127.0.0.1", "127.8.9.1:1", "[::1]", "[::1]:8000", "pond.example:8000"]
FOREIGN = [
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1@evil.example",
    "192.0.2.1:8000",
    "[::2]:8000",
    "[::1].evil.example",
    "localhost:8000:8000",
    "",
    ":8000",
    "[]",
]


@pytest.mark.parametrize("name", OURS)
def test_names_of_loopback_and_the_advertised_one_are_ours(name):
    Hosts("127.0.0.1", "Pond.example:80").check([name])


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("listening", ["127.0.0.1", "::1", "localhost"])
def test_any_other_name_is_foreign_on_loopback(name, listening):
    hosts = Hosts(listening, "pond.example:80")
    for named in ([name], ["localhost", name], [name, "localhost"]):
        with pytest.raises(HttpError) as refused:
            hosts.check(named)
        assert (refused.value.status, refused.value.code) == (403, "ForeignHost")


@pytest.mark.parametrize("listening", ["0.0.0.0", "::", "192.0.2.1", "pond.example"])  # what is tested
def test_beyond_loopback_any_name_is_taken(listening):
    assert not is_loopback(listening)
    Hosts(listening, "").check([*OURS, *FOREIGN])


def test_who_names_no_host_is_served():
    Hosts("127.0.0.1", "").check([])


@pytest.mark.parametrize("path", sorted({each.path for each in OPERATIONS} | {"/nowhere"}))
async def test_nothing_is_answered_under_a_foreign_name(broker, client, path):
    methods = {each.method for each in OPERATIONS if each.path == path} | {"GET", "HEAD"}
    for method in sorted(methods):
        answer = await client.request(method, path, headers={"Host": "evil.example"})
        assert answer.status_code == 403
        if method != "HEAD":
            assert answer.json()["code"] == "ForeignHost"
    assert broker.administration.topics(access=OPEN_ACCESS) == []


async def test_a_page_that_has_its_name_rebound_cannot_produce(client, broker):
    """It is of the same origin as far as its browser knows."""
    headers = {"Host": "evil.example:8000", "Origin": "http://evil.example:8000"}
    answer = await client.post("/topics/pond/produce/0", content=b"x", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "ForeignHost")
    assert broker.administration.topics(access=OPEN_ACCESS) == []


async def test_a_request_of_http_1_0_needs_no_name(broker):
    async with connect(broker) as wire:
        assert (await wire.ask(b"GET /healthz HTTP/1.0\r\n\r\n")).status == 200


async def test_the_advertised_name_is_served(connected_to):
    async with running_broker(http=True, http_advertise="pond.example:80") as broker:
        broker.listeners["http"] = f"127.0.0.1:{broker.web._socket.getsockname()[1]}"
        async with connected_to(broker) as client:
            assert (await client.get("/healthz", headers={"Host": "pond.example"})).status_code == 200
            assert (await client.get("/healthz", headers={"Host": "evil.example"})).status_code == 403


class Certificate:
    names = frozenset({"broker-1.example", "*.pond.example", "192.0.2.7"})
    current = None


NAMED = [
    "broker-1.example",
    "Broker-1.example:8000",
    "a.pond.example",
    "192.0.2.7",
    "localhost",
    "[::1]:8000",
]
UNNAMED = ["evil.example", "pond.example", "a.b.pond.example", "example", "broker-1.example.evil", "", ":1"]


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0", "pond.example"])
def test_the_names_of_the_certificate_are_ours(listening):
    hosts = Hosts(listening, "", Certificate())
    hosts.check(NAMED)
    for name in UNNAMED:
        with pytest.raises(HttpError, match="certificate"):
            hosts.check([name])


def test_an_address_that_no_page_can_have_for_a_name_is_accepted_beyond_loopback():
    """A probe of the health of a container knows only its address."""
    Hosts("0.0.0.0", "", Certificate()).check(["198.51.100.1:8000", "[2001:db8::1]:8000"])
    with pytest.raises(HttpError):
        Hosts("127.0.0.1", "", Certificate()).check(["198.51.100.1:8000"])


def test_a_new_certificate_brings_new_names():
    certificate = Certificate()
    hosts = Hosts("0.0.0.0", "", certificate)
    certificate.names = frozenset({"new.example"})
    hosts.check(["new.example"])
