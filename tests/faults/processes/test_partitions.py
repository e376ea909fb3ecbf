"""Reliability test 13: one broker of three cut off from the catalog, from the store, or from its clients.

Silently, one way only, by refusal, or on and off. Who is cut off acknowledges nothing, others take over where they can,
and when the way is free again everything heals by itself.
"""

import time
from collections.abc import Iterator
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
from tests.faults.processes.chaos import PARTITIONS, TOPIC, Clients, Nemesis, judge, spread_of, start
from tests.faults.processes.checker import failover_seconds
from tests.faults.processes.harness import LEASE_SECONDS, Brokers, Node, eventually
from tests.faults.processes.proxy import Proxy, proxy_to
from tests.s3 import REGION

CUT_SECONDS = 2 * LEASE_SECONDS
UNHURRIED = "30s"
"""A lease for those who are to keep their partitions, on a busy machine, too."""
FLAP_SECONDS = 0.4
ASK_SECONDS = 0.5
RECOVER_SECONDS_MAX = 60.0


def flap(proxy: Proxy) -> None:
    """Gone and back, for about as long as the other faults."""
    until = time.monotonic() + CUT_SECONDS
    while time.monotonic() < until:
        proxy.silence()
        time.sleep(FLAP_SECONDS)
        proxy.heal()
        time.sleep(FLAP_SECONDS)


@pytest.fixture
def to_catalog(catalog: str) -> Iterator[Proxy]:
    folder = parse_qs(urlsplit(catalog).query)["host"][0]
    with proxy_to(f"{folder}/.s.PGSQL.5432") as proxy:
        yield proxy


@pytest.fixture
def to_store(storage: str) -> Iterator[Proxy]:
    endpoint = urlsplit(parse_qs(urlsplit(storage).query)["endpoint"][0])
    with proxy_to((endpoint.hostname, endpoint.port)) as proxy:
        yield proxy


def asked_directly(node: Node, number: int) -> int:
    """What a broker answers to a produce, without going to another; 0 for nothing. The value is no valid one: were it
    stored, every reader would fail."""
    try:
        url = f"http://{node.listeners['http']}/topics/{TOPIC}/produce/{number % PARTITIONS}"
        return httpx.post(url, content=b"must not be stored", timeout=ASK_SECONDS).status_code
    except httpx.HTTPError:
        return 0


FAULTS = ("silence", "hold_answers", "refuse")


def test_a_broker_without_the_catalog_acknowledges_nothing(
    brokers: Brokers, to_catalog: Proxy, figures: list[str]
) -> None:
    """It owns nothing after its lease, so others serve what it had; then it comes back by itself."""
    database = urlsplit(brokers.catalog).path
    node = brokers.make(catalog=f"postgresql://postgres:@{to_catalog.address}{database}")
    start(brokers, 2)
    clients, nemesis = Clients(brokers), Nemesis(brokers)
    replaced: list[float] = []
    recovered: list[float] = []
    asked = 0
    with clients.running():
        for fault in FAULTS:
            owned = brokers.owned_by(node, TOPIC)
            assert owned, "it serves something"
            began = time.monotonic()
            getattr(to_catalog, fault)()
            with nemesis.leaving_out(node):
                replaced += nemesis.failover(owned, began)
            answers = [asked_directly(node, number) for number in range(PARTITIONS)]
            assert 200 not in answers, f"it acknowledged what it cannot have committed: {answers}"
            asked += len(answers)
            to_catalog.heal()
            recovered.append(brokers.until_balanced())
            clients.check()
        flap(to_catalog)
        recovered.append(brokers.until_balanced())
        log = clients.drained()
    judge(clients, nemesis, log)
    figures.append(
        f"broker cut off from PostgreSQL ({', '.join(FAULTS)}): others answered after {spread_of(replaced)}; of "
        f"{asked} it acknowledged 0; balanced again, also after flapping, {spread_of(recovered)}; lost 0 of "
        f"{len(clients.attempts)}"
    )


def test_a_broker_without_the_store_acknowledges_nothing_until_it_heals(
    brokers: Brokers, to_store: Proxy, figures: list[str]
) -> None:
    """It keeps its partitions, whose clients wait. Nothing rides in the catalog here, so all needs the store."""
    brokers.settings |= {"inline_bytes_max": "0B", "lease": UNHURRIED}
    endpoint = quote(f"http://{to_store.address}", safe=":/")
    before, _, _ = brokers.storage.partition("?")
    node = brokers.make(storage=f"{before}?endpoint={endpoint}&region={REGION}")
    start(brokers, 2)
    clients, nemesis = Clients(brokers), Nemesis(brokers)
    recovered: list[float] = []
    with clients.running():
        for fault in FAULTS:
            owned = brokers.owned_by(node, TOPIC)
            assert owned, "it serves something"
            getattr(to_store, fault)()
            cut = time.monotonic()
            time.sleep(CUT_SECONDS / 2)
            clients.check()
            wrong = failover_seconds(clients.attempts, owned, cut)
            assert not wrong, f"acknowledged without the store: {wrong}"
            healed = time.monotonic()
            to_store.heal()
            recovered += _recovery(clients, owned, healed)
        flap(to_store)
        recovered += _recovery(clients, set(range(PARTITIONS)), time.monotonic())
        log = clients.drained()
    judge(clients, nemesis, log)
    figures.append(
        f"broker cut off from S3 ({', '.join(FAULTS)}): acknowledged 0 meanwhile; first answers after it healed, also "
        f"after flapping, {spread_of(recovered)}; lost 0 of {len(clients.attempts)}"
    )


def test_clients_that_are_cut_off_from_a_broker_go_on_when_it_heals(
    brokers: Brokers, figures: list[str]
) -> None:
    brokers.settings["lease"] = UNHURRIED
    with proxy_to(("127.0.0.1", 0)) as to_kafka, proxy_to(("127.0.0.1", 0)) as to_grpc:
        node = brokers.make(kafka_advertise=to_kafka.address, grpc_advertise=to_grpc.address)
        node.start()
        to_kafka.target, to_grpc.target = _place(node.bound["kafka"]), _place(node.bound["grpc"])
        start(brokers, 2)
        clients, nemesis = Clients(brokers), Nemesis(brokers)
        recovered: list[float] = []
        with clients.running():
            for fault in FAULTS:
                owned = brokers.owned_by(node, TOPIC)
                assert owned, "it serves something"
                for proxy in (to_kafka, to_grpc):
                    getattr(proxy, fault)()
                time.sleep(CUT_SECONDS / 2)
                healed = time.monotonic()
                for proxy in (to_kafka, to_grpc):
                    proxy.heal()
                recovered += _recovery(clients, owned, healed)
            log = clients.drained()
    judge(clients, nemesis, log)
    figures.append(
        f"clients cut off from a broker ({', '.join(FAULTS)}): first answers after it healed {spread_of(recovered)}; "
        f"lost 0 of {len(clients.attempts)}"
    )


def _recovery(clients: Clients, owned: set[int], healed: float) -> list[float]:
    """By partition: until something is answered that was sent after it healed."""

    def answered() -> list[float]:
        clients.check()
        found = failover_seconds(clients.attempts, owned, healed)
        return found if len(found) == len(owned) else []

    return eventually(answered, "its partitions are written to again", RECOVER_SECONDS_MAX)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
