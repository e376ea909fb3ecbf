"""Every Kafka client with every proof that it supports: right, wrong, expired, and given again while it is connected.

`MISSING` has the combinations that do not exist, and docs/reference/authentication.md shows both."""

import time
from collections import Counter
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import KafkaError
from tests.clients.secured_clients import (
    CLIENTS,
    FORBIDDEN,
    LOOK_SECONDS,
    MECHANISMS,
    MTLS,
    OAUTH,
    PASSWORDS,
    SECONDS_MAX,
    TOPIC,
    AioKafka,
    Login,
    Logins,
    Refused,
    SecuredBroker,
    check_refused,
    every_client,
)
from tests.tls import NOW, Pki
from tests.unit.security.issuer import AUDIENCE, ISSUER, jwks, token

from millpond.frontends.kafka import authentication
from millpond.security.development_ca import issue_ca
from millpond.testing import SimulatedClock

RIGHT, WRONG, EXPIRED, AGAIN = "right", "wrong", "expired", "re-authenticated"
OUTCOMES = (RIGHT, WRONG, EXPIRED, AGAIN)
MISSING = {
    **{(AioKafka.name, mechanism, AGAIN): "aiokafka never authenticates again" for mechanism in MECHANISMS},
    **{(each.name, MTLS, AGAIN): "TLS 1.3 has no second handshake" for each in CLIENTS},
}
AN_HOUR_MS = 3_600_000
SHORT_SESSION_MS = 2_400
"""A client authenticates again after 85 % of the session or later. The clock of the broker stands still, so that a
client which is late is still in time."""


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def settings(pki, tmp_path_factory):
    keys = tmp_path_factory.mktemp("issuer") / "jwks.json"
    keys.write_bytes(jwks())
    return {
        "kafka": True,
        "security": True,
        "sasl_mechanisms": (*PASSWORDS, OAUTH),
        "oauth_issuer": ISSUER,
        "oauth_audience": AUDIENCE,
        "oauth_jwks": str(keys),
        "principal_mapping_rules": "RULE:CN=([^,]+).*/$1/",
    }


def running(clock=None, **settings):
    with closing(SecuredBroker(clock, **settings)) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker(settings, pki):
    """Its sessions last an hour of a clock that only tests move."""
    lasting = {"max_reauth": AN_HOUR_MS, "lease": 1_000 * AN_HOUR_MS}
    yield from running(SimulatedClock(), **lasting, **settings, **pki.settings())


@pytest.fixture(scope="module")
def certified_broker(settings, pki):
    """Requires client certificates."""
    yield from running(**settings, **pki.settings("required"))


@pytest.fixture(scope="module")
def hasty_broker(settings, pki):
    """Clients must authenticate again all the time."""
    clock = SimulatedClock()
    clock.advance(1)  # 0 is the time of no login
    yield from running(clock, max_reauth=SHORT_SESSION_MS, **settings, **pki.settings())


@pytest.fixture
def logins():
    with Logins() as handler:
        yield handler


def jwt(**changes):
    """Outlives the sessions of all tests here."""
    return token(**{"exp": int(time.time()) + AN_HOUR_MS, **changes})


def right_login(mechanism, pki):
    certificate = pki.client_files() if mechanism == MTLS else None
    return Login(
        mechanism, token=jwt() if mechanism == OAUTH else "", ca=str(pki.ca_path), certificate=certificate
    )


def wrong_logins(mechanism, pki):
    ca = str(pki.ca_path)
    if mechanism == OAUTH:
        return [Login(OAUTH, ca=ca, token=jwt(aud="another"))]
    if mechanism == MTLS:
        stranger = pki.client_files(ca=issue_ca(NOW), file="stranger")
        return [Login(MTLS, ca=ca, certificate=stranger), Login(MTLS, ca=ca)]
    return [Login(mechanism, ca=ca, password="wrong"), Login(mechanism, ca=ca, user="bob")]


def expired_logins(mechanism, pki):
    """Passwords do not expire, but sessions do."""
    ca = str(pki.ca_path)
    if mechanism == OAUTH:
        return [Login(OAUTH, ca=ca, token=jwt(exp=int(time.time()) - AN_HOUR_MS // 1000))]
    return [Login(MTLS, ca=ca, certificate=pki.expired_client_files())] if mechanism == MTLS else []


@every_client
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_is_served_with_the_right_proof_only(request, client, mechanism, pki, logins):
    server = request.getfixturevalue("certified_broker" if mechanism == MTLS else "broker")
    with closing(client(server.address(), right_login(mechanism, pki))) as connected:
        assert connected.send(TOPIC, b"right") == 0
        assert connected.read(TOPIC, 1) == [b"right"]
        assert connected.send(FORBIDDEN, b"v") == KafkaError.TOPIC_AUTHORIZATION_FAILED
        if mechanism != MTLS:  # certificates end by the clock of OpenSSL
            before = logins.accepted(mechanism)
            server.clock.advance(AN_HOUR_MS)
            assert connected.send(TOPIC, b"right") == 0, "the session has expired; the client connects again"
            assert logins.accepted(mechanism) > before
    for login in (*wrong_logins(mechanism, pki), *expired_logins(mechanism, pki)):
        failed = logins.refused(mechanism)
        with pytest.raises(Refused):
            check_refused(client, server.address(), login)
        give_up = time.monotonic() + SECONDS_MAX
        while logins.refused(mechanism) == failed:  # the broker may log it after the client has seen it
            assert time.monotonic() < give_up, login
            time.sleep(LOOK_SECONDS)


@pytest.mark.parametrize(
    "client", [each for each in CLIENTS if each is not AioKafka], ids=lambda kind: kind.name
)
def test_a_client_authenticates_again_on_its_connection(hasty_broker, client, pki, logins, monkeypatch):
    """While it sends. Only its first login is one for the audit log."""
    monkeypatch.setattr(authentication, "REAUTHENTICATION_EVERY_MS", 0)  # of a clock that stands still
    begun = Counter()
    authenticator = hasty_broker.broker.authenticator
    begin = authenticator.begin

    def count(mechanism, **named):
        begun[mechanism] += 1
        return begin(mechanism, **named)

    monkeypatch.setattr(authenticator, "begin", count)
    mechanisms = [each for each in MECHANISMS if (client.name, each, AGAIN) not in MISSING]
    with ExitStack() as stack:
        connected = {
            each: stack.enter_context(closing(client(hasty_broker.address(), right_login(each, pki))))
            for each in mechanisms
        }
        give_up = time.monotonic() + SECONDS_MAX
        while not all(begun[each] > logins.accepted(each) + logins.refused(each) > 0 for each in mechanisms):
            assert time.monotonic() < give_up, (begun, logins.events)
            for each in connected.values():
                assert each.send(TOPIC, b"again") == 0
            time.sleep(LOOK_SECONDS)
        for each in mechanisms:
            assert connected[each].send(TOPIC, b"again") == 0
            assert logins.refused(each) == 0
