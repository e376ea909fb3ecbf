"""HTTP, gRPC and the Python client with every proof that they support: right, wrong, expired, and replaced.

`MISSING` has the combinations that do not exist, and docs/reference/authentication.md shows both."""

import base64
import re
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import grpc
import httpx
import pytest
from tests.clients.secured_clients import ITERATIONS, MTLS, PASSWORD, TOPIC, SecuredBroker
from tests.single_attempts import without_retries
from tests.tls import NOW, Pki
from tests.unit.security.issuer import AUDIENCE, ISSUER, jwk, jwks, token

import millpond
from millpond.catalog import security
from millpond.client import Tls
from millpond.client.secret_files import TokenFile
from millpond.errors import AuthenticationFailed, Unreachable
from millpond.security.development_ca import issue_ca
from millpond.security.jwks import REFRESH_FILE_MS
from millpond.security.scram import HASHES, new_credential
from millpond.stubs import admin_pb2
from millpond.testing import SimulatedClock

BASIC, TOKEN, JWT = "Basic", "API token", "JWT"
PROOFS = (BASIC, TOKEN, JWT, MTLS)
RIGHT, WRONG, EXPIRED, ROTATED = "right", "wrong", "expired", "rotated"
OUTCOMES = (RIGHT, WRONG, EXPIRED, ROTATED)
INTERFACES = ("HTTP", "gRPC", "Python client")
MISSING = {(interface, BASIC, EXPIRED): "passwords do not expire" for interface in INTERFACES}
OK, UNAUTHORIZED = 200, 401
A_MINUTE_MS = 60_000
SECONDS_MAX = 60.0
"""Only a hang takes as long as this: a timeout is an error, and never a refusal."""


@dataclass(frozen=True)
class Proof:
    username: str | None = None
    password: str | None = None
    token: str | None = None
    certificate: tuple[Path, Path] | None = None

    @property
    def headers(self):
        if self.username is not None:
            pair = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
            return {"authorization": f"Basic {pair}"}
        return {"authorization": f"Bearer {self.token}"} if self.token is not None else {}


# -- is a proof accepted? ----------------------------------------------------------------------------------------------


def over_http(server, pki, proof):
    context = pki.client_context(proof.certificate)
    try:
        with httpx.Client(
            base_url=f"https://{server.address('http')}", verify=context, timeout=SECONDS_MAX
        ) as client:
            response = client.get("/topics", headers=proof.headers)
    except httpx.TimeoutException:
        raise
    except httpx.TransportError:
        return False
    assert response.status_code in (OK, UNAUTHORIZED)
    return response.status_code == OK and [each["name"] for each in response.json()["topics"]] == [TOPIC]


def over_grpc(server, pki, proof):
    certificate, key = (
        (each.read_bytes() for each in proof.certificate) if proof.certificate else (None, None)
    )
    credentials = grpc.ssl_channel_credentials(pki.ca_path.read_bytes(), key, certificate)
    with grpc.secure_channel(server.address("grpc"), credentials) as channel:
        call = channel.unary_unary(
            "/millpond.v1.Admin/ListTopics",
            request_serializer=admin_pb2.ListTopicsRequest.SerializeToString,
            response_deserializer=admin_pb2.ListTopicsResponse.FromString,
        )
        try:
            found = call(admin_pb2.ListTopicsRequest(), SECONDS_MAX, metadata=list(proof.headers.items()))
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE):
                raise
            return False
    return [each.name for each in found.topics] == [TOPIC]


def with_client(server, pki, proof):
    certificate, key = proof.certificate or (None, None)
    with millpond.Admin(
        address=server.address("grpc"),
        tls=Tls(ca=pki.ca_path, certificate=certificate, key=key),
        username=proof.username,
        password=proof.password,
        token=proof.token,
        timeout=SECONDS_MAX,
    ) as admin:
        try:
            return [each.name for each in admin.list_topics()] == [TOPIC]
        except AuthenticationFailed:
            return False


def with_refused_certificate(server, pki, proof):
    """The client cannot know that its certificate is refused: it sees a lost connection, and would try again."""
    with without_retries(), pytest.raises(Unreachable) as lost:
        return with_client(server, pki, proof)
    assert not re.search("time(d |-)?out", str(lost.value), re.IGNORECASE), "slow, not refused"
    return False


INTERFACE_CALLS = dict(zip(INTERFACES, (over_http, over_grpc, with_client), strict=True))


# -- proofs and brokers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The file with the keys of the issuer."""
    return tmp_path_factory.mktemp("issuer") / "jwks.json"


def start(pki, keys, client_auth):
    keys.write_bytes(jwks(jwk("ec")))
    client_ca(pki).write_bytes(pki.ca.certificate_pem())
    return SecuredBroker(
        SimulatedClock(),
        grpc=True,
        http=True,
        security=True,
        lease=1_000 * A_MINUTE_MS,
        oauth_issuer=ISSUER,
        oauth_audience=AUDIENCE,
        oauth_jwks=str(keys),
        principal_mapping_rules="RULE:CN=([^,]+).*/$1/",
        **pki.settings(client_auth) | {"tls_client_ca": str(client_ca(pki))},
    )


def client_ca(pki):
    """The file with the CA of client certificates."""
    return pki.ca_path.with_name("client-ca.pem")


@pytest.fixture(scope="module")
def broker(pki, keys):
    with closing(start(pki, keys, "none")) as running:
        yield running


@pytest.fixture
def certified_broker(pki, keys):
    with closing(start(pki, keys, "required")) as running:
        yield running


def set_password(server, password):
    made = [new_credential("alice", password, mechanism, ITERATIONS, bytes) for mechanism in HASHES]
    server.change(lambda tx: security.put_credentials(tx, made))


def jwt(server, name="ec", **changes):
    return token("ES256", name=name, **{"exp": server.clock.now_ms() // 1000 + 3_600, **changes})


every_interface = pytest.mark.parametrize("interface", INTERFACES)


@every_interface
def test_passwords(broker, pki, interface):
    def accepts(password, user="alice"):
        return INTERFACE_CALLS[interface](broker, pki, Proof(user, password))

    assert accepts(PASSWORD)
    assert not accepts("wrong")
    assert not accepts(PASSWORD, "bob")
    set_password(broker, "replaced")
    assert accepts("replaced")
    assert not accepts(PASSWORD), "although it was accepted a moment ago"
    set_password(broker, PASSWORD)


@every_interface
def test_tokens(broker, pki, interface):
    def accepts(text):
        return INTERFACE_CALLS[interface](broker, pki, Proof(token=text))

    first = broker.add_token()
    assert accepts(first.text)
    assert not accepts(f"{first.text[:-4]}AAAA")
    brief = broker.add_token(expires_at_ms=broker.clock.now_ms() + A_MINUTE_MS)
    assert accepts(brief.text)
    broker.clock.advance(A_MINUTE_MS)
    assert not accepts(brief.text)
    second = broker.add_token()
    assert accepts(first.text)
    assert accepts(second.text)
    broker.change(lambda tx: security.delete_token(tx, first.stored.id))
    assert accepts(second.text)
    assert not accepts(first.text)


@every_interface
def test_jwts(broker, pki, keys, interface):
    def accepts(text):
        return INTERFACE_CALLS[interface](broker, pki, Proof(token=text))

    assert accepts(jwt(broker))
    for wrong in (
        jwt(broker, aud="another"),
        jwt(broker, iss="https://another.example"),
        jwt(broker, "ec-2"),
    ):
        assert not accepts(wrong)
    assert not accepts(jwt(broker, exp=broker.clock.now_ms() // 1000 - 3_600))
    keys.write_bytes(jwks(jwk("ec"), jwk("ec-3")))
    broker.clock.advance(REFRESH_FILE_MS)
    assert accepts(jwt(broker))
    assert accepts(jwt(broker, "ec-3"))
    keys.write_bytes(jwks(jwk("ec-3")))
    broker.clock.advance(REFRESH_FILE_MS)
    assert not accepts(jwt(broker)), "its key was withdrawn"
    assert accepts(jwt(broker, "ec-3"))
    keys.write_bytes(jwks(jwk("ec")))
    broker.clock.advance(REFRESH_FILE_MS)


def test_certificates(certified_broker, pki):
    """On all interfaces. To revoke a certificate, its CA must go, or its user's ACLs."""

    def check(certificate, is_accepted):
        for call in (over_http, over_grpc, with_client if is_accepted else with_refused_certificate):
            assert call(certified_broker, pki, Proof(certificate=certificate)) == is_accepted, call.__name__

    first = pki.client_files()
    next_ca = issue_ca(NOW + timedelta(seconds=1))
    stranger = pki.client_files(ca=next_ca, file="stranger")
    check(first, True)
    check(pki.client_files(file="renewed"), True)
    check(stranger, False)
    check(None, False)
    check(pki.expired_client_files(), False)
    client_ca(pki).write_bytes(next_ca.certificate_pem())
    assert certified_broker.broker.interfaces.tls.reload()
    check(stranger, True)
    check(first, False)


def test_the_python_client_continues_when_its_token_is_replaced(broker, pki, tmp_path):
    """Its streams were opened with the first token, and end when that is deleted."""
    file = tmp_path / "token"
    file.touch(0o600)
    first, second = broker.add_token(), broker.add_token()
    file.write_text(first.text)
    options = {
        "address": broker.address("grpc"),
        "tls": str(pki.ca_path),
        "token": TokenFile("token", file),
    }
    with millpond.Producer(TOPIC, **options) as producer, millpond.Consumer(TOPIC, **options) as consumer:

        def passes(value):
            producer.send(value)
            found, give_up = [], time.monotonic() + SECONDS_MAX
            while value not in found:
                assert time.monotonic() < give_up, (value, found)
                found += [each.value for each in consumer.poll(1.0).messages]

        consumer.poll(0.0)
        passes(b"first")
        file.write_text(second.text)
        broker.change(lambda tx: security.delete_token(tx, first.stored.id))
        passes(b"second")
        passes(b"third")
