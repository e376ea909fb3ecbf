"""A connection with a client certificate: it needs no SASL, and SASL wins if it is used."""

import pytest
from tests.unit.security.proofs import Clock

from millpond.frontends.kafka.authentication import AuthenticationRules, ConnectionAuthentication
from millpond.model.errors import AuthenticationFailed, NotAuthenticated
from millpond.model.principals import Principal
from millpond.protocol import ErrorCode
from millpond.security import ANONYMOUS_IDENTITY, Identity, SecurityView
from millpond.security.sasl import SaslStep

CERTIFICATE, UNMAPPED = b"the certificate of alice", b"a certificate that no rule maps"
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
METADATA_KEY = 3


class Exchange:
    async def step(self, data):
        if data != b"bob":
            raise AuthenticationFailed
        return SaslStep(b"", Identity(BOB, "test"))


class Proofs:
    """Knows one certificate and one user."""

    def __init__(self, clock):
        self._clock = clock

    def offered(self, *, encrypted):
        return ("PLAIN",)

    def begin(self, mechanism, *, encrypted, host):
        assert host == "127.0.0.1"
        return Exchange()

    def certificate(self, der):
        if der != CERTIFICATE:
            raise AuthenticationFailed
        return Identity(ALICE, "certificate", expires_at_ms=self._clock.now_ms() + 1_000)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def connection(clock):
    def connect(certificate=CERTIFICATE, host="127.0.0.1"):
        view = SecurityView(None, enabled=True, clock=clock)
        rules = AuthenticationRules(view, Proofs(clock), clock, max_reauth_ms=0)
        return ConnectionAuthentication(rules, host, is_private=True, certificate=certificate)

    return connect


def test_a_certificate_is_proof_enough(connection):
    made = connection()
    made.admit(METADATA_KEY)
    assert (made.is_authenticated, made.access.principal) == (True, ALICE)


@pytest.mark.parametrize("certificate", [None, UNMAPPED])
def test_without_a_principal_from_a_certificate_the_client_must_use_sasl(connection, certificate):
    made = connection(certificate)
    assert made.access.identity == ANONYMOUS_IDENTITY
    with pytest.raises(NotAuthenticated):
        made.admit(METADATA_KEY)


def test_access_ends_with_the_certificate(connection, clock):
    made = connection()
    clock.ms += 1_000
    with pytest.raises(AuthenticationFailed):
        made.admit(METADATA_KEY)


async def test_sasl_wins_if_it_is_used(connection):
    made = connection()
    assert made.handshake("PLAIN", 1).code is ErrorCode.NONE
    with pytest.raises(NotAuthenticated):
        made.admit(METADATA_KEY)
    assert (await made.authenticate(b"bob")).code is ErrorCode.NONE
    made.admit(METADATA_KEY)
    assert made.access.principal == BOB


async def test_sasl_that_fails_ends_the_connection_in_spite_of_the_certificate(connection):
    made = connection()
    made.handshake("PLAIN", 1)
    assert (await made.authenticate(b"carol")).code is ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(NotAuthenticated):
        made.admit(METADATA_KEY)


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("unknown", "unknown"),
    ],
)
def test_acls_see_the_address_of_the_client_in_one_form(connection, host, shown):
    assert connection(host=host).access.host == shown
