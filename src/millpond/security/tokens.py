"""API tokens: `mp_<id>_<secret>`. The catalog keeps the SHA-256 of the text, which needs no salt and no iterations,
because the secret has 256 random bits."""

import hashlib
import hmac
import re
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from millpond.catalog.security import ApiToken
from millpond.model.errors import AuthenticationFailed, InvalidCredential
from millpond.model.principals import USER
from millpond.security.names import is_name

PREFIX: Final = "mp_"
SECRET_BYTES: Final = 32
_ID_BYTES: Final = 8
_ID_CHARS: Final = 12
_TOKEN: Final = re.compile(r"mp_([a-z2-7]{12})_[A-Za-z0-9_-]{43}")
_NO_DIGEST: Final = bytes(32)


class TokenSource(Protocol):
    """The stored tokens."""

    def token(self, token_id: str) -> ApiToken | None: ...


class NewToken(NamedTuple):
    """A new token: its text, which the user sees once, and what to store of it."""

    text: str
    stored: ApiToken

    def __repr__(self) -> str:
        return f"NewToken(id={self.stored.id!r})"


def without_secret(text: str) -> str:
    """What a client sent as the id of a token, for messages: people paste the whole token."""
    return f"{text[: len(PREFIX) + _ID_CHARS]}…" if text.startswith(PREFIX) else text


def new_token(
    principal: str,
    *,
    now_ms: int,
    expires_at_ms: int | None,
    created_by: str,
    description: str = "",
    random: Callable[[int], bytes],
) -> NewToken:
    """Raises `InvalidCredential` unless the principal is a user, and the expiry lies in the future."""
    if not is_user(principal):
        raise InvalidCredential(
            reason=f"a token is for a user, such as {USER}:alice, and not for {principal!r}; {USER}:* means all users"
        )
    if expires_at_ms is not None and expires_at_ms <= now_ms:
        raise InvalidCredential(reason="the token would have expired already")
    token_id = b32encode(random(_ID_BYTES)).decode().lower()[:_ID_CHARS]
    secret = urlsafe_b64encode(random(SECRET_BYTES)).decode().rstrip("=")
    text = f"{PREFIX}{token_id}_{secret}"
    stored = ApiToken(token_id, digest(text), principal, expires_at_ms, now_ms, created_by, description)
    return NewToken(text, stored)


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def parse_token(text: str) -> str:
    """Returns the id of a token. Raises `AuthenticationFailed` if the text is no token."""
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise AuthenticationFailed
    return found[1]


def verify_token(text: str, source: TokenSource, now_ms: int) -> ApiToken:
    """Returns the stored token. Raises `AuthenticationFailed`."""
    stored = source.token(parse_token(text))
    is_equal = hmac.compare_digest(digest(text), stored.digest if stored else _NO_DIGEST)
    if stored is None or not is_equal or not is_user(stored.principal):
        raise AuthenticationFailed
    if stored.expires_at_ms is not None and stored.expires_at_ms <= now_ms:
        raise AuthenticationFailed
    return stored


def is_user(principal: str) -> bool:
    kind, _, name = principal.partition(":")
    return kind == USER and is_name(name)
