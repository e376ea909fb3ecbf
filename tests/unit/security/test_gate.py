"""The gate of the HTTP and gRPC interfaces: which proof counts, on which connection."""

from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from millpond.model.addresses import client_address
from millpond.model.errors import AuthenticationFailed, NotAuthenticated
from millpond.model.principals import Principal
from millpond.security import OPEN_ACCESS, Identity, broker_tokens
from millpond.security.audit import AuditLog
from millpond.security.gate import FAILURE_DELAY_S, ClientProof, Gate
from millpond.testing import SimulatedClock

ALICE, BOB = (Identity(Principal("User", name), "test") for name in ("alice", "bob"))
SECRET = bytes(32)
NOT_ENCRYPTED = ClientProof("http", "192.0.2.1", (), None, encrypted=False)
ENCRYPTED = NOT_ENCRYPTED._replace(encrypted=True)


class Checker:
    """Knows one header and one certificate."""

    def __init__(self):
        self.hosts = []

    async def authorization(self, header, *, host):
        self.hosts.append(host)
        if header != "Bearer alice":
            raise AuthenticationFailed
        return ALICE

    def certificate(self, der):
        if der != b"bob":
            raise AuthenticationFailed
        return BOB


class Entrance:
    def __init__(self, *, enabled=True, **options):
        self.clock = SimulatedClock(1_000)
        self.slept = []
        view = SimpleNamespace(
            enabled=enabled,
            secret=SECRET,
            audit=AuditLog(self.clock),
            access=lambda identity, host: (identity.principal.name, host),
        )
        self.gate = Gate(view, Checker(), clock=self.clock, sleep=self._sleep, **options)

    async def _sleep(self, seconds):
        self.slept.append(seconds)

    async def admit(self, proof, *authorization, certificate=None):
        return await self.gate.admit(proof._replace(authorization=authorization, certificate=certificate))


async def test_a_header_or_a_certificate_is_a_proof_and_the_header_wins():
    entrance = Entrance()
    assert await entrance.admit(ENCRYPTED, "Bearer alice") == ("alice", "192.0.2.1")
    assert await entrance.admit(ENCRYPTED, certificate=b"bob") == ("bob", "192.0.2.1")
    assert await entrance.admit(ENCRYPTED, "Bearer alice", certificate=b"bob") == ("alice", "192.0.2.1")
    assert entrance.slept == []


async def test_a_wrong_proof_is_refused_after_a_delay_and_no_other_is_tried():
    entrance = Entrance()
    for proof in (("x",), ("Bearer alice", "Bearer alice"), ("",)):
        with pytest.raises(AuthenticationFailed):
            await entrance.admit(ENCRYPTED, *proof, certificate=b"bob")
    with pytest.raises(AuthenticationFailed):
        await entrance.admit(ENCRYPTED, certificate=b"x")
    assert entrance.slept == 4 * [FAILURE_DELAY_S]


async def test_a_client_without_a_proof_is_asked_for_one_at_once():
    entrance = Entrance()
    with pytest.raises(NotAuthenticated):
        await entrance.admit(ENCRYPTED)
    assert entrance.slept == []


async def test_credentials_are_refused_where_others_can_read_them():
    with pytest.raises(AuthenticationFailed, match="only over TLS"):
        await Entrance().admit(NOT_ENCRYPTED, "Bearer alice")
    assert await Entrance(behind_tls_proxy=True).admit(NOT_ENCRYPTED, "Bearer alice")
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        entrance = Entrance()
        assert await entrance.admit(NOT_ENCRYPTED._replace(host=host), "Bearer alice")
        assert entrance.gate._checker.hosts == [host]


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_a_broker_proves_itself_with_its_token(scheme):
    entrance = Entrance()
    token = broker_tokens.create(SECRET, 3, entrance.clock.now_ms())
    assert await entrance.admit(ENCRYPTED, f"{scheme} {token}") == ("3", "192.0.2.1")
    entrance.clock.advance(60_000)
    with pytest.raises(AuthenticationFailed):
        await entrance.admit(ENCRYPTED, f"{scheme} {token}")


class View(SimpleNamespace):
    """Knows the password of the session's login after it has read the changes `reads` times."""

    async def catch_up(self):
        self.reads -= 1

    def is_valid(self, _):
        return self.reads <= 0


@pytest.mark.parametrize(("reads", "is_accepted"), [(0, True), (1, True), (2, False)])
async def test_before_a_session_is_refused_the_changes_of_other_brokers_are_read(reads, is_accepted):
    entrance, sessions = Entrance(), SimpleNamespace()
    sessions.identity = AsyncMock(return_value=ALICE)
    view = View(reads=reads, **vars(entrance.gate._view))
    gate = Gate(view, Checker(), clock=entrance.clock, sessions=sessions, sleep=entrance._sleep)
    proof = ENCRYPTED._replace(sessions=("id",))
    if is_accepted:
        assert await gate.admit(proof) == ("alice", "192.0.2.1")
    else:
        with pytest.raises(AuthenticationFailed):
            await gate.admit(proof)
    assert view.reads == max(0, reads - 1)


async def test_without_security_every_client_has_open_access():
    entrance = Entrance(enabled=False)
    assert await entrance.admit(NOT_ENCRYPTED, "wrong") is OPEN_ACCESS
    assert entrance.slept == []


@pytest.mark.parametrize(
    ("address", "host"),
    [
        *[("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1")],
        *[("2001:DB8:0::1", "2001:db8::1"), ("", ""), ("name", "name")],
    ],
)
def test_hosts_are_named_as_acls_name_them(address, host):
    assert client_address(address) == host
