"""JWTs: which are accepted, and every way in which one is refused."""

import json
import logging

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security import issuer
from tests.unit.security.issuer import AUDIENCE, CLAIMS, ISSUER, NOW_S, encoded, jwk, jwks, key, token
from tests.unit.security.proofs import Clock

from millpond.model.errors import AuthenticationFailed
from millpond.model.principals import Principal
from millpond.security.jwks import parse_keys
from millpond.security.jwt import JwtRules, JwtVerifier

ALGORITHMS = list(issuer.KEY_TYPES)


class Keys:
    def __init__(self, data=None):
        self._keys = parse_keys(data or jwks())

    async def key(self, key_id, algorithm):
        return self._keys.get((key_id, algorithm))


KEYS = Keys()


def verifier(*, keys=None, clock=None, subject_claim="sub"):
    return JwtVerifier(JwtRules(ISSUER, AUDIENCE, subject_claim), keys or KEYS, clock or Clock())


async def is_refused(text, **options):
    with pytest.raises(AuthenticationFailed):
        await verifier(**options).verify(text)
    return True


# -- accepted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_signed_token_names_a_user(algorithm):
    identity = await verifier().verify(token(algorithm))
    assert identity.principal == Principal("User", "alice")
    assert identity.credential == f"jwt:{ISSUER}"
    assert identity.credential_version == 0
    assert identity.expires_at_ms == (NOW_S + 600 + 30) * 1000


@pytest.mark.parametrize("aud", [AUDIENCE, [AUDIENCE], ["other", AUDIENCE], [AUDIENCE, "other"]])
async def test_the_audience_may_be_one_of_several(aud):
    assert await verifier().verify(token(aud=aud))


@pytest.mark.parametrize("exp", [NOW_S + 1, NOW_S + 0.5, NOW_S, NOW_S - 29, NOW_S - 29.5])
async def test_a_token_is_valid_half_a_minute_longer(exp):
    identity = await verifier().verify(token(exp=exp))
    assert identity.expires_at_ms == int((exp + 30) * 1000)


@pytest.mark.parametrize("name", ["nbf", "iat"])
async def test_a_token_is_valid_half_a_minute_earlier(name):
    assert await verifier().verify(token(**{name: NOW_S + 30}))
    assert await is_refused(token(**{name: NOW_S + 31}))


async def test_another_claim_may_name_the_user():
    text = token(upn="bob@example.com")
    assert (await verifier(subject_claim="upn").verify(text)).principal.name == "bob@example.com"


async def test_an_email_address_names_the_user_only_if_the_issuer_has_verified_it():
    address = {"email": "bob@example.com"}
    named = await verifier(subject_claim="email").verify(token(**address, email_verified=True))
    assert named.principal.name == "bob@example.com"
    for claims in ({}, {"email_verified": False}, {"email_verified": "true"}, {"email_verified": 1}):
        with pytest.raises(AuthenticationFailed):
            await verifier(subject_claim="email").verify(token(**address, **claims))


@pytest.mark.parametrize(
    "header",
    [
        {"jku": "https://attacker.example/keys"},
        {"x5u": "no url"},
        {"x5c": ["x"]},
        {"jwk": jwk("rsa-attacker", kid="rsa")},
        {"typ": "at+jwt"},
        {"nonce": "x" * 2000},
    ],
)
async def test_other_members_of_the_header_are_ignored(header):
    assert await verifier().verify(token(header=header))


# -- signatures and keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, ["RS256"], {}, 0, True])
async def test_a_token_without_a_signature_fails(alg):
    data = f"{encoded({'alg': alg, 'kid': 'rsa'})}.{encoded(CLAIMS)}"
    assert await is_refused(data + ".")
    assert await is_refused(data)
    assert await is_refused(data + "." + token().rpartition(".")[2])


async def test_a_public_key_is_no_secret_of_hs256():
    public = key("rsa").public_key()
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER):
        assert await is_refused(issuer.hmac_token(public.public_bytes(encoding, spki)))
    assert await is_refused(issuer.hmac_token(json.dumps(jwk("rsa")).encode()))


@pytest.mark.parametrize(("algorithm", "name"), [("RS512", "rsa"), ("ES384", "ec384")])
async def test_an_algorithm_that_is_not_allowed_fails(algorithm, name):
    keys = Keys(jwks(jwk("rsa"), jwk("ec384")))
    assert await is_refused(token(algorithm, name=name), keys=keys)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("claimed", ALGORITHMS)
async def test_the_algorithm_is_that_of_the_signature_and_of_the_key(algorithm, claimed):
    """Switching the name of the algorithm fails, but for the two names of EdDSA."""
    text = token(algorithm, header={"alg": claimed})
    if issuer.KEY_TYPES[algorithm] == issuer.KEY_TYPES[claimed] == "ed" or algorithm == claimed:
        assert await verifier().verify(text)
    else:
        assert await is_refused(text)


async def test_a_key_that_names_its_algorithm_is_used_with_no_other():
    keys = Keys(jwks(jwk("rsa", alg="PS256")))
    assert await verifier(keys=keys).verify(token("PS256"))
    assert await is_refused(token("RS256"), keys=keys)


@pytest.mark.parametrize("kid", ["foreign", "", None, 1, ["rsa"], "ec", "RSA"])
async def test_a_foreign_key_id_fails(kid):
    assert await is_refused(token(header={"kid": kid}))


async def test_a_token_without_a_key_id_fails_even_if_there_is_one_key():
    header = {"alg": "RS256"}
    data = f"{encoded(header)}.{encoded(CLAIMS)}"
    text = f"{data}.{encoded(issuer.signed('RS256', 'rsa', data.encode()))}"
    assert await is_refused(text, keys=Keys(jwks(jwk("rsa"))))


async def test_the_key_of_an_attacker_fails():
    assert await is_refused(token(name="rsa-attacker", header={"kid": "rsa"}))
    assert await is_refused(token(name="rsa-attacker", header={"kid": "rsa", "jwk": jwk("rsa-attacker")}))
    assert await is_refused(token(name="rsa-attacker", header={"jwk": jwk("rsa-attacker")}))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("part", [0, 1, 2])
async def test_every_part_is_signed(algorithm, part):
    parts = token(algorithm).split(".")
    parts[part] = ("A" if parts[part][20] != "A" else "B").join((parts[part][:20], parts[part][21:]))
    assert await is_refused(".".join(parts))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_truncated_or_empty_signature_fails(algorithm):
    data, _, signature = token(algorithm).rpartition(".")
    for length in (0, 1, 2, len(signature) // 2, len(signature) - 2):
        assert await is_refused(f"{data}.{signature[:length]}")


async def test_claims_of_one_token_with_the_signature_of_another_fail():
    one, two = token().split("."), token(sub="admin").split(".")
    assert await is_refused(".".join((one[0], two[1], one[2])))


@pytest.mark.parametrize(
    "header", [{"crit": ["exp"]}, {"crit": []}, {"crit": ["b64"], "b64": False}, {"b64": True}]
)
async def test_a_header_that_demands_an_extension_fails(header):
    assert await is_refused(token(header=header))


# -- claims ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "iss", [..., None, "", ISSUER + "/", ISSUER.upper(), [ISSUER], {ISSUER: 1}, ISSUER[:-1], 1, "other", True]
)
async def test_the_issuer_is_an_equal_string(iss):
    assert await is_refused(token(iss=iss))


@pytest.mark.parametrize(
    "aud",
    [..., None, "", [], "other", ["other"], AUDIENCE + "x", [AUDIENCE, 1], {AUDIENCE: 1}, [[AUDIENCE]], True],
)
async def test_the_audience_is_required(aud):
    assert await is_refused(token(aud=aud))


@pytest.mark.parametrize(
    "exp",
    [
        *[..., None, NOW_S - 30, NOW_S - 31, 0, -1, str(NOW_S + 600), True, [NOW_S + 600]],
        *[10**400, 1e300, float("inf"), float("nan"), float("-inf"), 253_402_300_800],
    ],
)
async def test_the_expiry_is_required_and_lies_in_the_future(exp):
    assert await is_refused(token(exp=exp))


@pytest.mark.parametrize("name", ["nbf", "iat"])
@pytest.mark.parametrize("value", ["1", None, True, [], float("nan"), 10**400])
async def test_another_time_is_a_number(name, value):
    assert await is_refused(token(**{name: value}))


async def test_a_token_expires():
    clock, text = Clock(), token()
    clock.ms += 629_999
    assert await verifier(clock=clock).verify(text)
    clock.ms += 1
    assert await is_refused(text, clock=clock)


@pytest.mark.parametrize(
    "sub", [..., None, "", 1, ["alice"], "*", "ANONYMOUS", "a\nb", "a\0", "x" * 1025, True]
)
async def test_the_subject_is_the_name_of_a_user(sub):
    assert await is_refused(token(sub=sub))


async def test_no_subject_is_a_broker():
    identity = await verifier().verify(token(sub="Broker:1"))
    assert identity.principal == Principal("User", "Broker:1")


# -- form -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claims", [b"", b"[]", b'"x"', b"1", b"null", b"{", b"\xff", b"[" * 9000, b'{"exp":' + b"9" * 5000 + b"}"]
)
async def test_claims_that_are_no_object_fail(claims):
    assert await is_refused(token(claims=claims))


@pytest.mark.parametrize("header", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 9000, b"{" + b'"a":{' * 2000])
async def test_a_header_that_is_no_object_fails(header):
    assert await is_refused(f"{encoded(header)}.{encoded(CLAIMS)}.{encoded(b'x' * 256)}")


@pytest.mark.parametrize(
    "change",
    [
        *[
            lambda text: text + "\n",
            lambda text: " " + text,
            lambda text: text + "=",
            lambda text: text + ".",
        ],
        *[
            lambda text: text + ".x",
            lambda text: text + "!",
            lambda text: "." + text,
            lambda text: text[:-1] + "é",
        ],
        lambda text: json.dumps(
            {"payload": text.split(".")[1], "protected": text.split(".")[0], "signature": "x"}
        ),
        lambda text: ".".join([*text.split("."), "x", "y"]),  # an encrypted one has five parts
    ],
)
async def test_only_the_compact_form_is_read(change):
    assert await is_refused(change(token()))


async def test_a_token_of_16_kib_is_read_and_a_longer_one_is_not():
    def padded(size):
        return token("EdDSA", pad="x" * size)

    room = (16 * 1024 - len(padded(0))) * 3 // 4
    assert len(padded(room)) in (16 * 1024, 16 * 1024 - 1)
    assert await verifier().verify(padded(room))
    assert await is_refused(padded(room + 3))


async def test_a_long_text_is_not_parsed(monkeypatch):
    monkeypatch.setattr("millpond.security.jwt._object", lambda _: pytest.fail("it was parsed"))
    assert await is_refused("a" * 16_000 + "." + "b" * 400 + ".c")


@given(st.text(max_size=60) | st.text("ey.JA-_=", max_size=60))
async def test_no_other_text_is_accepted_or_raises_another_error(text):
    assert await is_refused(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["iss", "aud", "exp", "sub", "nbf", "iat"])


@given(st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64", "typ", "jwk"]), JSON, max_size=3))
async def test_random_headers_raise_no_other_error(header):
    data = f"{encoded(header)}.{encoded(CLAIMS)}"
    assert await is_refused(f"{data}.{encoded(issuer.signed('EdDSA', 'ed', data.encode()))}")


@given(st.dictionaries(NAMES, JSON, min_size=1, max_size=3))
async def test_random_claims_raise_no_other_error(changes):
    text = token("EdDSA", **changes)
    try:
        identity = await verifier().verify(text)
    except AuthenticationFailed:
        return
    assert changes.keys() <= {"sub", "nbf", "iat"}
    assert identity.principal == Principal("User", changes.get("sub", "alice"))


async def test_the_cause_is_logged_and_not_raised(caplog):
    with caplog.at_level(logging.DEBUG, "millpond.security"), pytest.raises(AuthenticationFailed) as refused:
        await verifier().verify(token(exp=0))
    [record] = caplog.records
    assert (record.getMessage(), record.reason) == ("token refused", "the token has expired")
    assert refused.value.facts == {}
    assert str(refused.value) == str(AuthenticationFailed())
