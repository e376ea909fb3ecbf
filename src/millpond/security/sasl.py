"""SASL exchanges: the messages of a client in, those of the server out, until the client is known or has failed.

A failure ends an exchange, and so does success: every further message fails.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from millpond.model.errors import AuthenticationFailed
from millpond.security.identity import Identity, password_identity
from millpond.security.limits import TOKEN_BYTES_MAX
from millpond.security.plain import UserPassword, parse_plain
from millpond.security.scram import ScramExchange

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
"""What a client receives for a bad token (RFC 7628, section 3.2.2). It confirms with `CONFIRMATION`, and fails."""
CONFIRMATION: Final = b"\x01"
_BEARER_BYTES_MAX: Final = TOKEN_BYTES_MAX + 4096
_BEARER: Final = re.compile(
    r"[ny],(?:a=(?P<authzid>(?:[^\0\x01=,]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[!-~ \t\r\n]*\x01)*)\x01"
)
_AUTH: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)


class SaslStep(NamedTuple):
    """The server's message, and the identity of the client if the exchange has succeeded."""

    data: bytes
    identity: Identity | None = None


class SaslExchange(Protocol):
    async def step(self, data: bytes) -> SaslStep:
        """Process one message of the client. Raises `AuthenticationFailed`; the exchange has ended then."""


_Handler = Callable[[bytes], Awaitable[SaslStep]]


class _OneAfterAnother:
    """Calls one handler for each message. A handler that expects another message sets `_handler` again."""

    _handler: _Handler | None

    async def step(self, data: bytes) -> SaslStep:
        handler, self._handler = self._handler, None
        if handler is None:
            raise AuthenticationFailed
        return await handler(data)


class ScramSasl(_OneAfterAnother):
    def __init__(self, exchange: ScramExchange) -> None:
        self._exchange = exchange
        self._handler = self._first

    async def _first(self, data: bytes) -> SaslStep:
        response = self._exchange.first(data)
        self._handler = self._final
        return SaslStep(response)

    async def _final(self, data: bytes) -> SaslStep:
        response, credential = self._exchange.final(data)
        return SaslStep(response, password_identity(credential))


class PlainSasl(_OneAfterAnother):
    def __init__(self, check: Callable[[str, str], Awaitable[Identity]]) -> None:
        self._check = check
        self._handler = self._only

    async def _only(self, data: bytes) -> SaslStep:
        sent: UserPassword = parse_plain(data)
        return SaslStep(b"", await self._check(sent.user, sent.password))


class BearerSasl(_OneAfterAnother):
    def __init__(self, check: Callable[[str], Awaitable[Identity]]) -> None:
        self._check = check
        self._handler = self._first

    async def _first(self, data: bytes) -> SaslStep:
        sent = parse_bearer(data)
        try:
            identity = await self._check(sent.token)
        except AuthenticationFailed:
            self._handler = self._confirmation
            return SaslStep(INVALID_TOKEN)
        if sent.authzid not in ("", identity.principal.name):
            raise AuthenticationFailed
        return SaslStep(b"", identity)

    async def _confirmation(self, data: bytes) -> SaslStep:
        """Fails with `CONFIRMATION`, as the RFC says, and with everything else."""
        raise AuthenticationFailed


class BearerMessage(NamedTuple):
    authzid: str
    token: str

    def __repr__(self) -> str:
        return f"BearerMessage(authzid={self.authzid!r})"


def parse_bearer(data: bytes) -> BearerMessage:
    """Parse a client's message of OAUTHBEARER (RFC 7628, section 3.1). Like Kafka, it ignores all keys but `auth`."""
    found = _BEARER.fullmatch(_text(data))
    if found is None:
        raise AuthenticationFailed
    pairs = [pair.partition("=") for pair in found["pairs"].split("\x01")]
    values = [value for key, _, value in pairs if key == "auth"]
    auth = _AUTH.fullmatch(values[0]) if len(values) == 1 else None
    if auth is None:
        raise AuthenticationFailed
    authzid = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(authzid, auth[1])


def _text(data: bytes) -> str:
    if len(data) > _BEARER_BYTES_MAX:
        raise AuthenticationFailed
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed from None
