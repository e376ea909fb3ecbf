"""API tokens: their form, what is stored, and which are refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.proofs import NOW_MS, Users, counting_bytes

from millpond.model.errors import AuthenticationFailed, InvalidCredential
from millpond.security import tokens
from millpond.security.tokens import new_token, parse_token, verify_token, without_secret


def made(principal="User:alice", *, expires_at_ms=None, random=counting_bytes):
    return new_token(
        principal,
        now_ms=NOW_MS,
        expires_at_ms=expires_at_ms,
        created_by="User:admin",
        description="ci",
        random=random,
    )


def is_refused(text, *stored, now_ms=NOW_MS):
    with pytest.raises(AuthenticationFailed):
        verify_token(text, Users(tokens=stored), now_ms)
    return True


def test_a_token_is_an_id_and_a_secret():
    text, stored = made()
    assert re.fullmatch(r"mp_[a-z2-7]{12}_[A-Za-z0-9_-]{43}", text)
    assert parse_token(text) == stored.id == text[3:15]
    assert (stored.principal, stored.created_at_ms, stored.created_by) == ("User:alice", NOW_MS, "User:admin")
    assert (stored.expires_at_ms, stored.description) == (None, "ci")


def test_the_secret_has_256_random_bits():
    asked = []
    made(random=lambda size: asked.append(size) or bytes(size))
    assert asked == [8, 32]


def test_only_the_digest_is_stored():
    text, stored = made()
    secret = text.rpartition("_")[2]
    assert stored.digest == tokens.digest(text)
    assert secret not in repr(tuple(stored))
    assert secret not in repr(made())


def test_a_stored_token_is_accepted():
    text, stored = made()
    assert verify_token(text, Users(tokens=(stored,)), NOW_MS) == stored


def test_a_whole_token_in_place_of_its_id_is_not_repeated():
    token = made()
    assert without_secret(token.text) == f"mp_{token.stored.id}…"
    assert without_secret(token.stored.id) == token.stored.id


def test_an_unknown_token_fails():
    assert is_refused(made().text)


def test_a_token_with_the_id_of_another_fails():
    one, two = made(), made(random=lambda size: bytes(reversed(range(size))))
    assert one.stored.id != two.stored.id
    assert is_refused(f"mp_{one.stored.id}_{two.text[16:]}", one.stored, two.stored)


def test_every_character_of_the_secret_counts():
    text, stored = made()
    for place in range(16, len(text)):
        other = "A" if text[place] != "A" else "B"
        assert is_refused(text[:place] + other + text[place + 1 :], stored)


def test_a_token_ends_at_its_expiry():
    text, stored = made(expires_at_ms=NOW_MS + 10)
    assert verify_token(text, Users(tokens=(stored,)), NOW_MS + 9) == stored
    assert is_refused(text, stored, now_ms=NOW_MS + 10)


@pytest.mark.parametrize(
    "principal", ["Broker:1", "User:", "alice", "", "Group:x", "User:*", "User:ANONYMOUS"]
)
def test_a_token_is_for_a_user(principal):
    with pytest.raises(InvalidCredential):
        made(principal)
    text, stored = made()
    assert is_refused(text, stored._replace(principal=principal))


def test_a_token_cannot_be_created_expired():
    with pytest.raises(InvalidCredential):
        made(expires_at_ms=NOW_MS)


@given(st.text(max_size=70) | st.from_regex(r"mp_[a-z2-7]{11,13}_[A-Za-z0-9_-]{42,44}"))
def test_no_other_text_is_accepted(text):
    _, stored = made()
    assert is_refused(text, stored)


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text + "\n", lambda text: " " + text, lambda text: text + "="]
)
def test_a_token_has_one_form(change):
    text, stored = made()
    assert is_refused(change(text), stored)
