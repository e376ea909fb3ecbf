"""The authenticator: every kind of proof, through the methods that interfaces call."""

from base64 import b64encode
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.issuer import AUDIENCE, ISSUER, jwks, token
from tests.unit.security.proofs import (
    NOW_MS,
    SHA_256,
    SHA_512,
    Clock,
    ScramClient,
    Users,
    counting_bytes,
    credential,
)
from tests.unit.security.x509_certificates import common_name, der

from millpond.model.errors import AuthenticationFailed, InvalidSettings
from millpond.model.principals import Principal
from millpond.security.authenticator import AuthenticationSettings, Authenticator
from millpond.security.tokens import new_token

ALICE = credential(version=3)
ALICE_USER = Principal("User", "alice")
CI = new_token(
    "User:ci", now_ms=NOW_MS, expires_at_ms=NOW_MS + 1000, created_by="User:admin", random=counting_bytes
)
USERS = Users(ALICE, credential("colon", "a:b:c"), tokens=(CI.stored,))
ALL = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")


@pytest.fixture(scope="module")
def jwks_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_bytes(jwks())
    return str(path)


async def at_once(work):
    return work()


def made(users=USERS, *, clock=None, random=counting_bytes, **settings):
    settings = AuthenticationSettings(**{"mechanisms": ALL[:3], "password_iterations": 4096} | settings)
    return Authenticator(users, clock=clock or Clock(), settings=settings, off_loop=at_once, random=random)


@pytest.fixture
def authenticator(jwks_file):
    return made(mechanisms=ALL, oauth_issuer=ISSUER, oauth_audience=AUDIENCE, oauth_jwks=jwks_file)


async def is_refused(awaitable):
    with pytest.raises(AuthenticationFailed) as refused:
        await awaitable
    assert str(refused.value) == str(AuthenticationFailed()), "one text for all causes"
    assert refused.value.facts == {}
    return True


async def test_checks_of_passwords_know_the_address_of_the_client(authenticator, monkeypatch):
    """It limits how many of them wait."""
    hosts = []

    async def check(user, password, host):
        hosts.append(host)
        return ALICE

    monkeypatch.setattr(authenticator._passwords, "check", check)
    await authenticator.begin("PLAIN", encrypted=True, host="192.0.2.1").step(b"\0alice\0pencil")
    await authenticator.authorization(basic("alice", "pencil"), host="192.0.2.2")
    await authenticator.password("alice", "pencil", host="192.0.2.3")
    assert hosts == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]


def basic(user, password):
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


# -- SASL -----------------------------------------------------------------------------------------------------


async def test_a_client_logs_in_with_scram(authenticator):
    client = ScramClient()
    exchange = authenticator.begin(SHA_256, encrypted=False)
    step = await exchange.step(client.final((await exchange.step(client.first())).data))
    assert client.accepts(step.data)
    assert step.identity.principal == ALICE_USER
    assert step.identity.credential == "scram:SCRAM-SHA-256:alice"
    assert (step.identity.credential_version, step.identity.expires_at_ms) == (3, None)


async def test_two_exchanges_have_different_nonces():
    taken = iter(range(100))
    authenticator = made(random=lambda size: bytes([next(taken)]) * size)
    steps = [await authenticator.begin(SHA_256, encrypted=True).step(ScramClient().first()) for _ in range(2)]
    assert steps[0].data != steps[1].data


async def test_the_nonce_is_random_by_default():
    settings = AuthenticationSettings(password_iterations=4096)
    authenticator = Authenticator(USERS, clock=Clock(), settings=settings, off_loop=at_once)
    steps = [
        await authenticator.begin(SHA_256, encrypted=True).step(ScramClient().first()) for _ in range(20)
    ]
    assert len({step.data for step in steps}) == 20


async def test_a_client_cannot_switch_the_mechanism(authenticator):
    client = ScramClient(mechanism=SHA_256)
    exchange = authenticator.begin(SHA_512, encrypted=True)
    first = await exchange.step(client.first())
    assert await is_refused(exchange.step(client.final(first.data)))
    assert await is_refused(authenticator.begin("PLAIN", encrypted=True).step(client.first()))
    assert await is_refused(authenticator.begin(SHA_256, encrypted=True).step(b"\0alice\0pencil"))


async def test_a_client_logs_in_with_plain(authenticator):
    step = await authenticator.begin("PLAIN", encrypted=True).step(b"\0alice\0pencil")
    assert step.identity.principal == ALICE_USER


def test_plain_needs_encryption(authenticator):
    with pytest.raises(AuthenticationFailed):
        authenticator.begin("PLAIN", encrypted=False)
    assert authenticator.offered(encrypted=True) == authenticator.mechanisms == ALL
    assert authenticator.offered(encrypted=False) == ("SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER")


@pytest.mark.parametrize(
    "mechanism", ["OAUTHBEARER", "GSSAPI", "", "plain", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-1"]
)
def test_a_mechanism_that_is_not_enabled_fails(mechanism):
    with pytest.raises(AuthenticationFailed):
        made().begin(mechanism, encrypted=True)


@pytest.mark.parametrize("proof", [token(), CI.text])
async def test_a_client_logs_in_with_a_bearer_token(authenticator, proof):
    message = b"n,,\x01auth=Bearer " + proof.encode() + b"\x01\x01"
    step = await authenticator.begin("OAUTHBEARER", encrypted=True).step(message)
    assert step.data == b""
    assert step.identity.principal.name == ("ci" if proof == CI.text else "alice")


async def test_a_bad_token_gets_a_status_first(authenticator):
    exchange = authenticator.begin("OAUTHBEARER", encrypted=True)
    message = b"n,,\x01auth=Bearer " + token(exp=0).encode() + b"\x01\x01"
    assert (await exchange.step(message)).data == b'{"status":"invalid_token"}'
    assert await is_refused(exchange.step(b"\x01"))


async def test_no_client_logs_in_before_the_users_are_read():
    authenticator = made(Users(ALICE, secret=b""))
    with pytest.raises(AuthenticationFailed):
        authenticator.begin(SHA_256, encrypted=True)
    assert await is_refused(authenticator.password("alice", "pencil"))


# -- other proofs ---------------------------------------------------------------------------------------------


async def test_a_password_is_a_proof(authenticator):
    identity = await authenticator.password("alice", "pencil")
    assert (identity.principal, identity.credential_version) == (ALICE_USER, 3)
    assert await is_refused(authenticator.password("alice", "wrong"))
    assert await is_refused(authenticator.password("bob", "pencil"))


async def test_an_api_token_is_a_proof_until_it_expires():
    clock = Clock()
    authenticator = made(clock=clock)
    identity = await authenticator.bearer(CI.text)
    assert identity.principal == Principal("User", "ci")
    assert identity.credential == f"token:{CI.stored.id}"
    assert identity.expires_at_ms == NOW_MS + 1000
    clock.ms += 1000
    assert await is_refused(authenticator.bearer(CI.text))


async def test_a_token_that_another_broker_has_just_created_is_accepted():
    users = Users()
    authenticator = made(users)
    assert await is_refused(authenticator.bearer(CI.text))
    users.on_catch_up = lambda: users.tokens.update({CI.stored.id: CI.stored})
    assert (await authenticator.bearer(CI.text)).principal.name == "ci"


async def test_a_jwt_is_a_proof_only_with_an_issuer(authenticator):
    assert (await authenticator.bearer(token())).principal == ALICE_USER
    assert await is_refused(made().bearer(token()))


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (basic("alice", "pencil"), "alice"),
        (basic("colon", "a:b:c"), "colon"),
        (basic("alice", "pencil").replace("Basic", "bAsIc"), "alice"),
        (f"Bearer {CI.text}", "ci"),
        (f"bearer  {CI.text}", "ci"),
        (f"Bearer {token()}", "alice"),
    ],
)
async def test_a_header_has_one_proof(authenticator, header, name):
    assert (await authenticator.authorization(header)).principal == Principal("User", name)


@pytest.mark.parametrize(
    "header",
    [
        *["", " ", "Basic", "Basic ", "Bearer", "Bearer ", "Basic !", "Basic YQ", "Digest x", CI.text],
        *[basic("alice", "wrong"), basic("", "pencil"), basic("alice", ""), basic("bob", "pencil")],
        "Basic " + b64encode(b"alice").decode(),
        "Basic " + b64encode(b"\xff:x").decode(),
        "Basic" + b64encode(b"alice:pencil").decode(),
        " " + basic("alice", "pencil"),
        basic("alice", "pencil").replace("Basic ", "Basic ~"),
        basic("alice", "pencil") + "\n",
        basic("alice", "pencil") + ", " + basic("alice", "pencil"),
        basic("alice", "pencil") + f", Bearer {CI.text}",
        f"Bearer {CI.text}, Bearer {CI.text}",
        f"Bearer {CI.text} x",
        f"Basic {CI.text}",
        "Bearer " + b64encode(b"alice:pencil").decode(),
        f"Token {CI.text}",
        "Bearer mp_",
    ],
)
async def test_another_header_fails(authenticator, header):
    assert await is_refused(authenticator.authorization(header))


@given(st.text(max_size=40) | st.text("BasicBearer mp_=,.", max_size=40))
async def test_random_headers_fail_and_raise_nothing_else(header):
    assert await is_refused(made().authorization(header))


# -- certificates ---------------------------------------------------------------------------------------------


def test_a_certificate_names_a_user_until_it_expires():
    identity = made().certificate(der(common_name("duke"), lasts=timedelta(seconds=90)))
    assert identity.principal == Principal("User", "CN=duke")
    assert (identity.credential, identity.credential_version) == ("certificate", 0)
    assert identity.expires_at_ms == NOW_MS + 90_000


def test_the_rules_of_the_settings_apply():
    authenticator = made(principal_mapping_rules="RULE:^CN=(d.*)$/$1/U")
    assert authenticator.certificate(der(common_name("duke"))).principal == Principal("User", "DUKE")
    with pytest.raises(AuthenticationFailed):
        authenticator.certificate(der(common_name("alice")))


@pytest.mark.parametrize("name", ["*", "ANONYMOUS", "a\nb"])
def test_a_rule_cannot_yield_a_reserved_name(name):
    with pytest.raises(AuthenticationFailed):
        made(principal_mapping_rules="RULE:^(?s:CN=(.*))$/$1/").certificate(der(common_name(name)))


def test_no_rule_yields_a_broker():
    authenticator = made(principal_mapping_rules="RULE:^CN=(.*)$/Broker:$1/")
    assert authenticator.certificate(der(common_name("1"))).principal == Principal("User", "Broker:1")


def test_an_expired_certificate_fails():
    with pytest.raises(AuthenticationFailed):
        made().certificate(der(common_name("duke"), lasts=timedelta(0)))


@pytest.mark.parametrize("data", [b"", b"x", der(common_name("duke"))[:-1], der(common_name("duke")) + b"x"])
def test_what_is_no_certificate_fails(data):
    with pytest.raises(AuthenticationFailed):
        made().certificate(data)


CERTIFICATE = der(common_name("duke"))


@given(st.integers(0, len(CERTIFICATE) - 1), st.integers(0, 255))
def test_a_damaged_certificate_raises_nothing_else(place, byte):
    data = CERTIFICATE[:place] + bytes([byte]) + CERTIFICATE[place + 1 :]
    try:
        identity = made().certificate(data)
    except AuthenticationFailed:
        return
    assert identity.principal.kind == "User"


# -- settings -------------------------------------------------------------------------------------------------

OAUTH = {"oauth_issuer": ISSUER, "oauth_audience": AUDIENCE, "oauth_jwks": "/keys.json"}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sasl_mechanisms", {"mechanisms": ("GSSAPI",)}),
        ("sasl_mechanisms", {"mechanisms": ("plain",)}),
        ("password_iterations", {"password_iterations": 4095}),
        ("password_iterations", {"password_iterations": 16_385}),
        ("principal_mapping_rules", {"principal_mapping_rules": "default"}),
        ("oauth_issuer", {"mechanisms": ("OAUTHBEARER",)}),
        *[(missing, OAUTH | {missing: ""}) for missing in OAUTH],
        *[(missing, OAUTH | {missing: "", "mechanisms": ALL}) for missing in OAUTH],
        ("oauth_subject_claim", OAUTH | {"oauth_subject_claim": ""}),
        ("oauth_jwks", OAUTH | {"oauth_jwks": "http://issuer.example/keys"}),
    ],
)
def test_settings_that_would_trust_too_much_keep_a_broker_from_starting(name, settings):
    with pytest.raises(InvalidSettings) as refused:
        made(**settings)
    assert refused.value.facts["name"] == name


def test_without_settings_only_scram_is_enabled():
    assert AuthenticationSettings().mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")
