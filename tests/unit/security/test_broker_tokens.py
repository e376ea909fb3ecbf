"""Tokens of brokers: only with the cluster's secret, and for a minute."""

import pytest

from millpond.model.errors import AuthenticationFailed
from millpond.model.principals import Principal
from millpond.security import broker_tokens

SECRET = bytes(range(32))
NOW_MS = 1_000_000
TOKEN = broker_tokens.create(SECRET, 3, NOW_MS)


def test_a_token_proves_which_broker_sends_it():
    identity = broker_tokens.verify(SECRET, TOKEN, NOW_MS)
    assert identity.principal == Principal("Broker", "3")
    assert identity.expires_at_ms == NOW_MS + 60_000


@pytest.mark.parametrize(
    "text",
    [
        *("", "mpb_", TOKEN[:-1], TOKEN + "a", TOKEN.upper(), TOKEN.replace("mpb_3.", "mpb_4.")),
        *(TOKEN.replace("1060000", "1060001"), TOKEN.replace("mpb_", "mp_"), TOKEN + "\n", "mpb_é.1.a"),
        broker_tokens.create(b"another secret", 3, NOW_MS),
    ],
)
def test_any_other_text_proves_nothing(text):
    with pytest.raises(AuthenticationFailed):
        broker_tokens.verify(SECRET, text, NOW_MS)


@pytest.mark.parametrize(
    ("now_ms", "is_valid"), [(59_999, True), (60_000, False), (-60_000, True), (-60_001, False)]
)
def test_a_token_is_valid_for_a_minute_and_clocks_may_differ_by_one(now_ms, is_valid):
    if is_valid:
        broker_tokens.verify(SECRET, TOKEN, NOW_MS + now_ms)
    else:
        with pytest.raises(AuthenticationFailed):
            broker_tokens.verify(SECRET, TOKEN, NOW_MS + now_ms)


def test_without_a_secret_no_token_is_valid():
    """A broker that has not read the secret yet must not accept what others can compute."""
    with pytest.raises(AuthenticationFailed):
        broker_tokens.verify(b"", broker_tokens.create(b"", 3, NOW_MS), NOW_MS)
