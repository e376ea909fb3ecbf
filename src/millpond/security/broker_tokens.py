"""Tokens by which a broker proves to another broker of its cluster who it is: `mpb_<node id>.<expiry>.<signature>`.

The signature is an HMAC with the cluster's secret, which only brokers can read. A token is valid for a minute, so each
call gets a new one.
"""

import hmac
import re
from base64 import urlsafe_b64encode
from typing import Final

from millpond.model.errors import AuthenticationFailed
from millpond.model.principals import BROKER, Principal
from millpond.security.identity import Identity

PREFIX: Final = "mpb_"
LIFETIME_MS: Final = 60_000
_PURPOSE: Final = b"millpond broker token\0"
"""The secret also has other uses, whose signatures must not be valid here."""
_FORM: Final = re.compile(
    r"mpb_(?P<node>[0-9]{1,10})\.(?P<expiry>[0-9]{1,15})\.(?P<signature>[A-Za-z0-9_-]{43})"
)


def create(secret: bytes, node_id: int, now_ms: int) -> str:
    signed = f"{PREFIX}{node_id}.{now_ms + LIFETIME_MS}"
    return f"{signed}.{_signature(secret, signed)}"


def verify(secret: bytes, text: str, now_ms: int) -> Identity:
    """Raises `AuthenticationFailed`. Clocks of brokers may differ by the lifetime of a token."""
    found = _FORM.fullmatch(text)
    if found is None or not secret:
        raise AuthenticationFailed
    signed = text.rpartition(".")[0]
    if not hmac.compare_digest(_signature(secret, signed), found["signature"]):
        raise AuthenticationFailed
    expires_at_ms = int(found["expiry"])
    if not now_ms < expires_at_ms <= now_ms + 2 * LIFETIME_MS:
        raise AuthenticationFailed
    return Identity(Principal(BROKER, str(int(found["node"]))), "broker", expires_at_ms=expires_at_ms)


def _signature(secret: bytes, signed: str) -> str:
    digest = hmac.digest(secret, _PURPOSE + signed.encode(), "sha256")
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
