"""The server's side of SCRAM: test vectors of the RFCs, other clients, and every rule that an attacker would break."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.proofs import (
    SECRET,
    SHA_256,
    SHA_512,
    ScramClient,
    Users,
    counting_bytes,
    credential,
)

from millpond.catalog.security import ScramCredential
from millpond.model.errors import AuthenticationFailed, InvalidCredential
from millpond.security import scram
from millpond.security.scram import ScramExchange

ALICE = credential()
ALICE_512 = credential(mechanism=SHA_512)
USERS = Users(ALICE, ALICE_512)
SHA_1 = "SCRAM-SHA-1"
"""Not supported, but the mechanism of RFC 5802's example."""


def exchange(mechanism=SHA_256, *, nonce="ServerNonce", users=USERS, secret=SECRET):
    return ScramExchange(
        mechanism,
        look_up=lambda user: users.scram_credential(user, mechanism),
        decoy=lambda user: users.decoys.credential(user, mechanism, secret=secret, iterations=16_384),
        stand_in=lambda user: users.decoys.stand_in(user, mechanism),
        nonce=nonce,
    )


def run(client, server=None, **changes):
    server = server or exchange(client.mechanism)
    return server.final(client.final(server.first(client.first()), **changes))


def is_refused(client, server=None, **changes):
    with pytest.raises(AuthenticationFailed):
        run(client, server, **changes)
    return True


# -- vectors --------------------------------------------------------------------------------------------------


VECTORS = [
    (
        SHA_1,
        b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (
        SHA_256,
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


@pytest.mark.parametrize(
    ("mechanism", "first", "nonce", "challenge", "final", "last"), VECTORS, ids=["5802", "7677"]
)
def test_the_examples_of_the_rfcs(monkeypatch, mechanism, first, nonce, challenge, final, last):
    monkeypatch.setitem(scram.HASHES, SHA_1, "sha1")
    salt = b64decode(challenge.split(b",")[1][2:])
    stored = ScramCredential("user", mechanism, salt, *scram.derive("pencil", salt, 4096, mechanism), 4096)
    server = exchange(mechanism, nonce=nonce, users=Users(stored))
    assert server.first(first) == challenge
    assert server.final(final) == (last, stored)


@pytest.mark.filterwarnings("ignore:(open|read)_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize("stored", [ALICE, ALICE_512])
def test_the_client_of_kafka_python_logs_in(stored):
    from kafka.net.sasl.scram import ScramClient as KafkaPythonClient

    client = KafkaPythonClient("alice", "pencil", stored.mechanism)
    server = exchange(stored.mechanism)
    client.process_server_first_message(server.first(client.first_message()))
    last, proved = server.final(client.final_message())
    client.process_server_final_message(last)
    assert proved == stored


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=alice,", b"y,a=alice,"])
def test_a_client_logs_in_and_knows_the_server(mechanism, header):
    client = ScramClient(mechanism=mechanism, header=header)
    last, proved = run(client)
    assert client.accepts(last)
    assert (proved.user, proved.mechanism) == ("alice", mechanism)


@pytest.mark.parametrize("user", ["a,b", "a=b", "=2C", "=3D", ",=,", "two words", "!~"])
def test_a_name_is_escaped(user):
    stored = credential(user)
    client = ScramClient(user=user)
    assert run(client, exchange(users=Users(stored)))[1] == stored
    escaped = client.bare.split(b",")[0][2:]
    named = ScramClient(user=user, header=b"n,a=" + escaped + b",")
    assert run(named, exchange(users=Users(stored)))[1] == stored


# -- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("password", ["Pencil", "pencil ", "", "pencil\0x"])
def test_a_wrong_password_fails(mechanism, password):
    assert is_refused(ScramClient(password=password, mechanism=mechanism))


@pytest.mark.parametrize(
    "header",
    [
        *[b"p=tls-unique,,", b"p,,", b"N,,", b"", b",,", b"n,", b"n", b"x,,"],
        *[
            b"n,a=bob,",
            b"n,a=,",
            b"n,alice,",
            b"n,a=Alice,",
            b"n,a=alice,a=alice,",
            b"n,a=alice=,",
            b"n,a=*,",
        ],
    ],
)
def test_a_header_with_channel_binding_or_another_user_fails(header):
    assert is_refused(ScramClient(header=header))


@pytest.mark.parametrize(
    "binding", [b"", b"n", b"y,,", b"n,,n", b"p=tls-unique,,", b"n,a=alice,", b"n,a=admin,"]
)
def test_the_last_message_repeats_the_header_of_the_first(binding):
    assert is_refused(ScramClient(binding=binding))


@pytest.mark.parametrize("extension", [b",tokenauth=true", b",x=y", b",m=ext", b",", b",n=bob", b",r=x"])
def test_an_extension_fails(extension):
    assert is_refused(ScramClient(extension=extension))
    assert is_refused(ScramClient(final_extension=extension))


@pytest.mark.parametrize(
    "change", [lambda final: final.replace(b",p=", b",x=y,p="), lambda final: final + b",x=y"]
)
def test_nothing_is_added_to_the_last_message(change):
    client, server = ScramClient(), exchange()
    final = client.final(server.first(client.first()))
    with pytest.raises(AuthenticationFailed):
        server.final(change(final))
    assert server.final(final)


def test_a_mandatory_extension_fails():
    with pytest.raises(AuthenticationFailed):
        exchange().first(b"n,,m=ext,n=alice,r=abc")


@pytest.mark.parametrize(
    "nonce",
    [
        *[b"ServerNonce", b"xServerNonce", b"rOprNGfwEbeRWgbNEkqO", b"rOprNGfwEbeRWgbNEkqOServerNonc"],
        *[b"rOprNGfwEbeRWgbNEkqOServerNonce1", b"aOprNGfwEbeRWgbNEkqOServerNonce", b"x"],
    ],
)
def test_the_whole_nonce_is_compared(nonce):
    """CVE-2024-56128: only the end was."""
    assert is_refused(ScramClient(), nonce=nonce)


def test_a_replayed_login_fails():
    client, server = ScramClient(), exchange(nonce="one")
    final = client.final(server.first(client.first()))
    assert server.final(final)
    again = exchange(nonce="two")
    again.first(client.first())
    with pytest.raises(AuthenticationFailed):
        again.final(final)


def test_every_truncated_last_message_fails():
    client = ScramClient()
    final = client.final(exchange().first(client.first()))
    for length in range(len(final)):
        server = exchange()
        server.first(client.first())
        with pytest.raises(AuthenticationFailed):
            server.final(final[:length])


@pytest.mark.parametrize("keep", [0, 1, 20, 31, 33, 64])
def test_a_proof_of_another_length_fails(keep):
    client, server = ScramClient(), exchange()
    bare, _, proof = client.final(server.first(client.first())).partition(b",p=")
    cut = (b64decode(proof) + bytes(64))[:keep]
    with pytest.raises(AuthenticationFailed):
        server.final(bare + b",p=" + b64encode(cut))


def test_every_bit_of_the_proof_counts():
    client = ScramClient()
    final = client.final(exchange().first(client.first()))
    bare, _, proof = final.partition(b",p=")
    for bit in range(256):
        changed = bytearray(b64decode(proof))
        changed[bit // 8] ^= 1 << bit % 8
        server = exchange()
        server.first(client.first())
        with pytest.raises(AuthenticationFailed):
            server.final(bare + b",p=" + b64encode(bytes(changed)))


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_every_byte_of_the_stored_key_is_compared(mechanism):
    name, message = scram.HASHES[mechanism], b"message"
    client_key = hmac.digest(b"key", b"", name)
    stored_key = hashlib.new(name, client_key).digest()

    def is_proved(key):
        signature = hmac.digest(key, message, name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return scram.proves(proof, ALICE._replace(mechanism=mechanism, stored_key=key), message)

    assert is_proved(stored_key)
    for place, byte in enumerate(stored_key):
        assert not is_proved(stored_key[:place] + bytes([byte ^ 1]) + stored_key[place + 1 :])


def test_a_proof_of_another_mechanism_fails():
    client, server = ScramClient(mechanism=SHA_256), exchange(SHA_512)
    assert is_refused(client, server)


def test_a_user_without_a_credential_for_the_mechanism_fails():
    only_256 = Users(ALICE)
    assert is_refused(ScramClient(mechanism=SHA_512), exchange(SHA_512, users=only_256))


def test_the_stored_key_is_no_password():
    """An attacker who reads the catalog does not know the client key: a proof of zeros or of the stored key fails."""
    client, server = ScramClient(), exchange()
    bare = client.final(server.first(client.first())).partition(b",p=")[0]
    for proof in (bytes(32), ALICE.stored_key, ALICE.server_key):
        server = exchange()
        server.first(client.first())
        with pytest.raises(AuthenticationFailed):
            server.final(bare + b",p=" + b64encode(proof))


@pytest.mark.parametrize(
    "first",
    [
        *[
            b"",
            b"n,,",
            b"n,,n=,r=abc",
            b"n,,n=alice,r=",
            b"n,,n=alice",
            b"n,,r=abc,n=alice",
            b"n,,n=al=ice,r=abc",
        ],
        *[b"n,,n=alice,r=a b", b"n,,n=alice,r=a\x7f", b"n,,n=al\xc3\xafce,r=abc", b"n,,n=al\0ice,r=abc"],
        *[
            b"n,,n=alice,r=abc\n",
            b"\nn,,n=alice,r=abc",
            b"n,,n=*,r=abc",
            b"n,,n=ANONYMOUS,r=abc",
            b"n,,n= a,r=abc",
        ],
        *[b"n,,n=" + 256 * b"a" + b",r=abc", b"n,,n=alice,r=" + 5000 * b"a"],
    ],
)
def test_a_malformed_first_message_fails(first):
    with pytest.raises(AuthenticationFailed):
        exchange().first(first)


# -- unknown users --------------------------------------------------------------------------------------------


def challenge(user, mechanism=SHA_256, secret=SECRET):
    server = exchange(mechanism, secret=secret)
    return dict(part.split(b"=", 1) for part in server.first(ScramClient(user=user).first()).split(b","))


def test_an_unknown_user_gets_a_challenge_like_a_known_one():
    known, unknown = challenge("alice"), challenge("bob")
    assert known.keys() == unknown.keys()
    assert unknown[b"i"] == known[b"i"] == b"4096"
    assert len(b64decode(unknown[b"s"])) == len(b64decode(known[b"s"])) == 16


def test_the_salt_of_an_unknown_user_is_its_own_and_stays():
    assert challenge("bob") == challenge("bob")
    salts = [
        challenge("bob")[b"s"],
        challenge("carol")[b"s"],
        challenge("bob", SHA_512)[b"s"],
        challenge("bob", secret=b"another cluster's secret")[b"s"],
    ]
    assert len(set(salts)) == 4


def test_an_unknown_user_fails_with_every_password():
    assert is_refused(ScramClient(user="bob"))


def test_an_unknown_user_fails_even_with_the_proof_that_its_decoy_demands(monkeypatch):
    """The decoy's keys are random; an attacker who met them by chance, or knew the secret, is not let in, either."""
    client, server = ScramClient(user="bob"), exchange()
    monkeypatch.setattr(scram, "proves", lambda *_: True)
    assert is_refused(client, server)


# -- properties -----------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_random_bytes_fail_and_raise_nothing_else(data):
    with pytest.raises(AuthenticationFailed):
        exchange().first(data)
    server = exchange()
    server.first(ScramClient().first())
    with pytest.raises(AuthenticationFailed):
        server.final(data)


@given(st.text("nyp,a=rc=i2C3D*/+ lice", max_size=40), st.text("cprvn,=biwsA+/ =", max_size=60))
def test_almost_messages_fail_and_raise_nothing_else(first, final):
    server = exchange()
    try:
        server.first(first.encode())
    except AuthenticationFailed:
        server.first(ScramClient().first())
    with pytest.raises(AuthenticationFailed):
        server.final(final.encode())


@given(st.text(max_size=20).filter(lambda text: text.rstrip("\0") != "pencil"))
def test_no_other_password_succeeds(password):
    """But for zeros at its end, which HMAC ignores. A stored password has none."""
    encodable = password.encode("utf-8", "replace").decode()
    assert is_refused(ScramClient(password=encodable))


# -- credentials ----------------------------------------------------------------------------------------------


def test_a_credential_keeps_no_password():
    made = scram.new_credential("alice", "pencil", SHA_512, 4096, counting_bytes)
    assert made.salt == bytes(range(16))
    assert (len(made.stored_key), len(made.server_key), made.iterations) == (64, 64, 4096)
    assert made.stored_key != made.server_key
    assert "pencil" not in repr(made)
    assert b"pencil" not in b"".join((made.salt, made.stored_key, made.server_key))


def test_two_credentials_for_one_password_differ():
    salts = iter([b"1" * 16, b"2" * 16])
    one, two = (scram.new_credential("a", "x", SHA_256, 4096, lambda _: next(salts)) for _ in range(2))
    assert one.stored_key != two.stored_key


@pytest.mark.parametrize(
    ("user", "password", "mechanism", "iterations"),
    [
        *[
            ("", "x", SHA_256, 4096),
            ("é", "x", SHA_256, 4096),
            (" a", "x", SHA_256, 4096),
            ("a\n", "x", SHA_256, 4096),
        ],
        *[("*", "x", SHA_256, 4096), ("ANONYMOUS", "x", SHA_256, 4096), ("a" * 256, "x", SHA_256, 4096)],
        *[("a", "", SHA_256, 4096), ("a", "x" * 1025, SHA_256, 4096), ("a", "x\0y", SHA_256, 4096)],
        *[("a", "\ud800", SHA_256, 4096), ("a", "x", "SCRAM-SHA-1", 4096), ("a", "x", "PLAIN", 4096)],
        *[("a", "x", SHA_256, 4095), ("a", "x", SHA_256, 16_385), ("a", "x", SHA_256, -1)],
    ],
)
def test_an_unusable_credential_is_refused(user, password, mechanism, iterations):
    with pytest.raises(InvalidCredential) as refused:
        scram.new_credential(user, password, mechanism, iterations, counting_bytes)
    assert password not in str(refused.value) or len(password) < 2


def test_a_password_that_the_client_has_salted_is_stored_alike():
    client = ScramClient(mechanism=SHA_512)
    run(client)
    assert scram.salted_credential(
        "alice", SHA_512, 4096, ALICE_512.salt, client.salted
    ) == ALICE_512._replace(version=0)


@pytest.mark.parametrize(
    ("salt", "salted"),
    [(b"", bytes(32)), (bytes(256), bytes(32)), (b"s", bytes(31)), (b"s", bytes(64)), (b"s", b"")],
)
def test_an_unusable_salted_password_is_refused(salt, salted):
    with pytest.raises(InvalidCredential):
        scram.salted_credential("alice", SHA_256, 4096, salt, salted)


def test_a_nonce_has_more_than_130_random_bits():
    asked = []
    nonce = scram.new_nonce(lambda size: asked.append(size) or bytes(range(size)))
    assert asked == [24]
    assert b64decode(nonce) == bytes(range(24))
    assert "," not in nonce


def test_the_same_steps_are_taken_for_every_user():
    """One look-up finds a credential and one does not, whether or not the user exists."""
    users, looked_up = Users(ALICE), []

    def look_up(user):
        looked_up.append(users.scram_credential(user, SHA_256))
        return looked_up[-1]

    for user in ("alice", "bob"):
        server = ScramExchange(
            SHA_256,
            look_up=look_up,
            decoy=lambda user: users.decoys.credential(user, SHA_256, secret=SECRET, iterations=4096),
            stand_in=lambda user: users.decoys.stand_in(user, SHA_256),
            nonce="x",
        )
        looked_up.clear()
        server.first(ScramClient(user=user).first())
        assert sorted(each is None for each in looked_up) == [False, True]
        assert server._credential == ALICE, "its keys are used for the proof, which fails for an unknown user"


def test_an_unknown_user_fails_with_the_password_of_its_stand_in():
    """An attacker who knows alice's password does not enter as a user that does not exist."""
    server = exchange(users=Users(ALICE))
    client = ScramClient(user="bob", password="pencil")
    challenge = server.first(client.first()).split(b",")
    challenge[1:] = [b"s=" + b64encode(ALICE.salt), b"i=4096"]
    with pytest.raises(AuthenticationFailed):
        server.final(client.final(b",".join(challenge)))
