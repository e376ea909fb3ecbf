"""JWTs as proof of who a client is: compact, signed by a key of the configured set, from the configured issuer, for the
configured audience, not expired.

The algorithm must fit the key that the token names; a token brings no keys of its own (`jku`, `x5u` and `jwk` in its
header are ignored), and a header that demands more (`crit`) is refused. Causes are logged at level DEBUG and never sent
to the client.
"""

import json
import logging
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwk import Key

from millpond.model.clock import Clock
from millpond.model.errors import AuthenticationFailed
from millpond.model.principals import Principal
from millpond.security.identity import Identity
from millpond.security.jwks import ALGORITHMS
from millpond.security.limits import TOKEN_BYTES_MAX
from millpond.security.names import user_principal

SKEW_MS: Final = 30_000
"""How much the clocks of the issuer and of a broker may differ. A token is valid this much longer."""
EMAIL: Final = "email"
SECONDS_MAX: Final = 253_402_300_799
"""The end of the year 9999."""
_COMPACT: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")

logger = logging.getLogger(__name__)


class JwtRules(NamedTuple):
    """What a token must say, and which claim names the user."""

    issuer: str
    audience: str
    subject_claim: str = "sub"


class KeySource(Protocol):
    """Where the key with an id is found, if it may be used with the algorithm."""

    async def key(self, key_id: str, algorithm: str) -> Key | None: ...


class JwtVerifier:
    def __init__(self, rules: JwtRules, keys: KeySource, clock: Clock) -> None:
        self._rules = rules
        self._keys = keys
        self._clock = clock

    async def verify(self, token: str) -> Identity:
        """Raises `AuthenticationFailed`."""
        claims = await self.claims(token)
        principal = subject_of(claims, self._rules.subject_claim)
        expires_at_ms = _milliseconds(claims.get("exp")) + SKEW_MS
        return Identity(principal, f"jwt:{self._rules.issuer}", expires_at_ms=expires_at_ms)

    async def claims(self, token: str) -> Mapping[str, Any]:
        """The claims of a token that follows all rules. Raises `AuthenticationFailed`."""
        header = _header(token)
        key = await self._keys.key(header["kid"], header["alg"])
        if key is None:
            _refuse("no key of the JWK set has this id and algorithm")
        claims = _signed_claims(token, key, header["alg"])
        self._check(claims)
        return claims

    def _check(self, claims: Mapping[str, Any]) -> None:
        if claims.get("iss") != self._rules.issuer:  # a list that contains it is not equal
            _refuse("the issuer is not the configured one")
        if self._rules.audience not in _audiences(claims.get("aud")):
            _refuse("the audience is not the configured one")
        now_ms = self._clock.now_ms()
        if _milliseconds(claims.get("exp")) + SKEW_MS <= now_ms:
            _refuse("the token has expired")
        if any(_milliseconds(claims[name]) - SKEW_MS > now_ms for name in ("nbf", "iat") if name in claims):
            _refuse("the token is not valid yet")


def subject_of(claims: Mapping[str, Any], claim: str) -> Principal:
    """The user that a claim names. An address names one only if the issuer has verified that it is the user's, who may
    otherwise have entered that of another user. Raises `AuthenticationFailed`."""
    if claim == EMAIL and claims.get("email_verified") is not True:
        _refuse("the email address is not verified")
    return user_principal(claims.get(claim))


# -- parts of a token -----------------------------------------------------------------------------------------


def _header(token: str) -> dict[str, Any]:
    """The header, not yet verified: it says which key to use."""
    found = _COMPACT.fullmatch(token) if len(token) <= TOKEN_BYTES_MAX else None
    if found is None:
        _refuse("it is no compact JWT, or too long")
    header = _object(_decoded(found[1]))
    if "crit" in header or "b64" in header:
        _refuse("the header demands an extension")
    if not isinstance(header.get("kid"), str) or header.get("alg") not in list(_REGISTRIES):
        _refuse("the header names no key, or an algorithm that is not allowed")
    return header


def _signed_claims(token: str, key: Key, algorithm: str) -> dict[str, Any]:
    try:
        verified = jws.deserialize_compact(token, key, registry=_REGISTRIES[algorithm])
    except (JoseError, ValueError, TypeError):
        _refuse("the signature is wrong")
    return _object(verified.payload or b"")


def _decoded(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        _refuse("it is no base64")


def _object(data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        _refuse("it is no JSON")
    if not isinstance(content, dict):
        _refuse("it is no JSON object")
    return content


def _audiences(claim: object) -> list[str]:
    """One audience is a string, several are a list of strings."""
    audiences: list[Any] = claim if isinstance(claim, list) else [claim]
    return audiences if all(isinstance(each, str) for each in audiences) else []


def _milliseconds(claim: object) -> int:
    if isinstance(claim, bool) or not isinstance(claim, int | float):
        _refuse("a time is missing or no number")
    if not 0 <= claim <= SECONDS_MAX:  # nor is NaN
        _refuse("a time is out of range")
    return int(claim * 1000)


def _refuse(reason: str) -> NoReturn:
    logger.debug("token refused", extra={"reason": reason})
    raise AuthenticationFailed from None


class _OneAlgorithm(jws.JWSRegistry):
    """Allows one algorithm, and headers that it does not know."""

    max_header_length = max_payload_length = max_signature_length = TOKEN_BYTES_MAX

    def __init__(self, name: str) -> None:
        super().__init__(algorithms=[name], strict_check_header=False)
        self._name = name

    def get_alg(self, name: str) -> Any:
        """Without the warning of joserfc that EdDSA has a new name."""
        if name != self._name:
            raise UnsupportedAlgorithmError(name)
        return self.algorithms[name]

    def check_header(self, header: dict[str, Any]) -> None:
        """Checked in `_header`. The base class would refuse tokens for a `jku` that is no URL, which is ignored."""


_REGISTRIES: Final = {name: _OneAlgorithm(name) for names in ALGORITHMS.values() for name in names}
