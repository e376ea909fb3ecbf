"""SASL exchanges: the order of messages, and the client's message of OAUTHBEARER."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.proofs import SECRET, SHA_256, ScramClient, Users, credential

from millpond.model.errors import AuthenticationFailed
from millpond.model.principals import Principal
from millpond.security.identity import Identity
from millpond.security.sasl import BearerSasl, PlainSasl, ScramSasl, parse_bearer
from millpond.security.scram import ScramExchange

ALICE = credential(version=7)
IDENTITY = Identity(Principal("User", "alice"), "token:x")
GOOD = b"n,,\x01auth=Bearer good\x01\x01"


def scram():
    users = Users(ALICE)
    return ScramSasl(
        ScramExchange(
            SHA_256,
            look_up=lambda user: users.scram_credential(user, SHA_256),
            decoy=lambda user: users.decoys.credential(user, SHA_256, secret=SECRET, iterations=4096),
            stand_in=lambda user: users.decoys.stand_in(user, SHA_256),
            nonce="nonce",
        )
    )


def bearer():
    async def check(token):
        if token != "good":
            raise AuthenticationFailed
        return IDENTITY

    return BearerSasl(check)


def plain():
    async def check(user, password):
        if (user, password) != ("alice", "pencil"):
            raise AuthenticationFailed
        return IDENTITY

    return PlainSasl(check)


async def is_refused(exchange, data):
    with pytest.raises(AuthenticationFailed):
        await exchange.step(data)
    return True


# -- SCRAM ----------------------------------------------------------------------------------------------------


async def test_scram_takes_two_steps_and_ends():
    exchange, client = scram(), ScramClient()
    first = await exchange.step(client.first())
    assert first.identity is None
    final = client.final(first.data)
    last = await exchange.step(final)
    assert client.accepts(last.data)
    assert last.identity.principal == Principal("User", "alice")
    assert last.identity.credential_version == 7
    assert await is_refused(exchange, final)
    assert await is_refused(exchange, client.first())


async def test_the_last_message_cannot_come_first():
    client = ScramClient()
    final = client.final((await scram().step(client.first())).data)
    exchange = scram()
    assert await is_refused(exchange, final)
    assert await is_refused(exchange, client.first()), "a failure ends the exchange"


async def test_a_password_is_tried_once_in_an_exchange():
    exchange, client, wrong = scram(), ScramClient(), ScramClient(password="wrong")
    first = await exchange.step(client.first())
    assert wrong.first() == client.first()
    assert await is_refused(exchange, wrong.final(first.data))
    assert await is_refused(exchange, client.final(first.data))


async def test_the_first_message_cannot_be_sent_twice():
    exchange, client = scram(), ScramClient()
    await exchange.step(client.first())
    assert await is_refused(exchange, client.first())


# -- PLAIN ----------------------------------------------------------------------------------------------------


async def test_plain_takes_one_step():
    exchange = plain()
    assert await exchange.step(b"\0alice\0pencil") == (b"", IDENTITY)
    assert await is_refused(exchange, b"\0alice\0pencil")


@pytest.mark.parametrize("data", [b"\0alice\0wrong", b"", b"bob\0alice\0pencil"])
async def test_plain_fails_once(data):
    exchange = plain()
    assert await is_refused(exchange, data)
    assert await is_refused(exchange, b"\0alice\0pencil")


# -- OAUTHBEARER ----------------------------------------------------------------------------------------------


async def test_a_good_token_takes_one_step():
    exchange = bearer()
    assert await exchange.step(GOOD) == (b"", IDENTITY)
    assert await is_refused(exchange, GOOD)


@pytest.mark.parametrize("answer", [b"\x01", b"", GOOD, b"n,,\x01auth=Bearer bad\x01\x01"])
async def test_a_bad_token_gets_a_status_and_fails_with_the_next_message(answer):
    exchange = bearer()
    assert await exchange.step(b"n,,\x01auth=Bearer bad\x01\x01") == (b'{"status":"invalid_token"}', None)
    assert await is_refused(exchange, answer)
    assert await is_refused(exchange, GOOD)


@pytest.mark.parametrize("authzid", [b"", b"a=alice"])
async def test_a_user_may_name_itself(authzid):
    step = await bearer().step(b"n," + authzid + b",\x01auth=Bearer good\x01\x01")
    assert step.identity == IDENTITY


@pytest.mark.parametrize("authzid", [b"a=admin", b"a=Alice", b"a=", b"alice", b"a=a,a=alice"])
async def test_a_user_may_not_name_another(authzid):
    assert await is_refused(bearer(), b"n," + authzid + b",\x01auth=Bearer good\x01\x01")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"n,,\x01auth=Bearer a.b-c_d~e+f/g==\x01\x01", ("", "a.b-c_d~e+f/g==")),
        (b"n,,\x01auth=bearer  x\x01\x01", ("", "x")),
        (b"y,a=al=2Cic=3De,\x01auth=BEARER x\x01\x01", ("al,ic=e", "x")),
        (b"n,a==3D2C,\x01auth=Bearer x\x01\x01", ("=2C", "x")),
        (b"n,,\x01host=server\x01port=9092\x01auth=Bearer x\x01logicalCluster=lkc 1\x01\x01", ("", "x")),
    ],
)
def test_a_message_has_a_token_and_other_keys(data, expected):
    assert parse_bearer(data) == expected


@pytest.mark.parametrize(
    "data",
    [
        *[b"", b"\x01", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer x\x01", b"n,,auth=Bearer x\x01\x01"],
        *[b"p=x,,\x01auth=Bearer x\x01\x01", b"n\x01auth=Bearer x\x01\x01", b"n,,\x01auth=Basic x\x01\x01"],
        *[b"n,,\x01auth=Bearer\x01\x01", b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=x\x01\x01"],
        *[
            b"n,,\x01auth=Bearer x y\x01\x01",
            b"n,,\x01auth=Bearer x,\x01\x01",
            b"n,,\x01Auth=Bearer x\x01\x01",
        ],
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01\n",
        b"n,,\x01auth=Bearer x\x01k\x01\x01",
        b"n,,\x01auth=Bearer x\x01k=\xff\x01\x01",
        b"n,,\x01auth=Bearer " + 21_000 * b"x" + b"\x01\x01",
    ],
)
def test_another_message_fails(data):
    with pytest.raises(AuthenticationFailed):
        parse_bearer(data)


def test_a_token_is_not_printed():
    assert "secret" not in repr(parse_bearer(b"n,,\x01auth=Bearer secret\x01\x01"))


@given(st.binary(max_size=60) | st.text("ny,a=\x01=2C3DuthBer gdo", max_size=40).map(str.encode))
async def test_random_bytes_raise_nothing_else(data):
    for exchange in (scram(), plain(), bearer()):
        try:
            step = await exchange.step(data)
        except AuthenticationFailed:
            continue
        assert step.identity is None or data in (GOOD, b"\0alice\0pencil")
