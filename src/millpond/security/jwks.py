"""The public keys that sign JWTs: a JWK set (RFC 7517) from a file or an https URL.

The set is loaded when a key is needed: again each `refresh_ms`, and for an unknown key id at most once per `RETRY_MS`.
While its source fails, the last set stays in use for `STALE_MS`. Only keys that fit one of `ALGORITHMS` are kept, each
bound to the algorithms it may be used with.
"""

import http.client
import json
import logging
import ssl
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key

from millpond.model.clock import Clock
from millpond.model.errors import InvalidSettings
from millpond.security.https_client import RESPONSE_BYTES_MAX, is_https, send
from millpond.security.plain import OffLoop
from millpond.security.shared_loads import SharedLoads

ALGORITHMS: Final = {
    "RSA": ("RS256", "PS256"),
    "P-256": ("ES256",),
    "Ed25519": ("EdDSA", "Ed25519"),  # the name of RFC 8037, and that of RFC 9864
}
"""By curve, or by the type of a key that has none."""
SET_BYTES_MAX: Final = RESPONSE_BYTES_MAX
KEYS_MAX: Final = 1000
RSA_BITS_MIN: Final = 2048
REFRESH_URL_MS: Final = 3_600_000
REFRESH_FILE_MS: Final = 10_000
RETRY_MS: Final = 10_000
STALE_MS: Final = 24 * 3_600_000
_SET: Final = "set"
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")

KeysByUse = Mapping[tuple[str, str], Key]
"""Keys by their id and an algorithm."""

logger = logging.getLogger(__name__)


class JwkSet:
    """Lives on one event loop; `fetch` runs outside of it. A failed fetch is logged and keeps the keys."""

    def __init__(
        self, fetch: Callable[[], bytes], *, clock: Clock, off_loop: OffLoop, refresh_ms: int = REFRESH_URL_MS
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._off_loop = off_loop
        self._refresh_ms = refresh_ms
        self._keys: KeysByUse = {}
        self._loaded_ms: int | None = None
        self._tried_ms: int | None = None
        self._loads: SharedLoads[str, None] = SharedLoads()

    async def key(self, key_id: str, algorithm: str) -> Key | None:
        """The key with this id, if it may be used with this algorithm. A caller that finds its key does not wait for
        another one's refresh."""
        if self._age_ms() >= self._refresh_ms and not self._loads.is_running(_SET):
            await self._load()
        found = self._usable().get((key_id, algorithm))
        if found is None:
            await self._load()
            found = self._usable().get((key_id, algorithm))
        return found

    def _usable(self) -> KeysByUse:
        return self._keys if self._age_ms() <= STALE_MS else {}

    def _age_ms(self) -> int:
        return self._clock.monotonic_ms() - self._loaded_ms if self._loaded_ms is not None else STALE_MS + 1

    async def _load(self) -> None:
        """Load the set, unless an attempt ended less than `RETRY_MS` ago. Waits for one that is being made."""
        tried_ms = self._tried_ms
        is_due = tried_ms is None or self._clock.monotonic_ms() - tried_ms >= RETRY_MS
        if is_due or self._loads.is_running(_SET):
            await self._loads.run(_SET, self._try_to_load)

    async def _try_to_load(self) -> None:
        began_ms = self._clock.monotonic_ms()
        try:
            self._keys = await self._off_loop(lambda: parse_keys(self._fetch()))
            self._loaded_ms = began_ms
        except (OSError, ValueError, http.client.HTTPException) as error:
            logger.warning("loading the JWK set failed; will retry", extra={"error": str(error)})
        finally:
            self._tried_ms = self._clock.monotonic_ms()


# -- parsing --------------------------------------------------------------------------------------------------


def parse_keys(data: bytes) -> KeysByUse:
    """The keys of a set that can verify a signature; the others are ignored (RFC 7517, section 5). ValueError if this
    is no set, or none of its keys is of use."""
    keys: dict[tuple[str, str], Key] = {}
    for member in _members(data)[:KEYS_MAX]:
        for algorithm in _algorithms(member):
            if (key := _imported(member)) is not None:
                keys.setdefault((member["kid"], algorithm), key)
    if not keys:
        raise ValueError("the JWK set has no key that can verify a signature")
    return keys


def _members(data: bytes) -> list[Any]:
    if len(data) > SET_BYTES_MAX:
        raise ValueError(f"the JWK set is larger than {SET_BYTES_MAX} bytes")
    try:
        content = json.loads(data)
    except RecursionError:
        raise ValueError("the JWK set is nested too deeply") from None
    if not isinstance(content, dict) or not isinstance(content.get("keys"), list):
        raise ValueError("the JWK set has no list `keys`")
    return list(content["keys"])


def _algorithms(member: object) -> tuple[str, ...]:
    """The algorithms that a member of a set may be used with."""
    if not isinstance(member, dict) or not isinstance(member.get("kid"), str):
        return ()
    operations = member.get("key_ops", ["verify"])
    if member.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return ()
    kind = "RSA" if member.get("kty") == "RSA" else member.get("crv")
    fitting = ALGORITHMS.get(kind, ()) if isinstance(kind, str) else ()
    return tuple(name for name in fitting if member.get("alg", name) == name)


def _imported(member: dict[str, Any]) -> Key | None:
    public: dict[str, Any] = {name: member[name] for name in _PUBLIC if name in member}
    try:
        if public["kty"] == "RSA" and _bits(public["n"]) < RSA_BITS_MIN:
            return None
        return JWKRegistry.import_key(public)
    except (JoseError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        return None


def _bits(number: str) -> int:
    return int.from_bytes(urlsafe_b64decode(number + "==")).bit_length()


# -- sources --------------------------------------------------------------------------------------------------


def jwk_set(source: str, *, clock: Clock, off_loop: OffLoop) -> JwkSet:
    """The set at an https URL, or in a file. Raises `InvalidSettings` for another URL."""
    if "://" not in source:
        fetch, refresh_ms = lambda: read_file(Path(source)), REFRESH_FILE_MS
    elif is_https(source):
        fetch, refresh_ms = lambda: read_url(source, clock), REFRESH_URL_MS
    else:
        raise InvalidSettings(
            name="oauth_jwks", value=source, reason="expected an https URL or the path of a file"
        )
    return JwkSet(fetch, clock=clock, off_loop=off_loop, refresh_ms=refresh_ms)


def read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SET_BYTES_MAX + 1)


def read_url(url: str, clock: Clock, context: ssl.SSLContext | None = None) -> bytes:
    """Read an https URL. A redirect is an error, and so is every other status than 200: only the configured server may
    name keys. No proxy is used."""
    response = send(url, clock, context=context)
    if response.status != http.client.OK:
        raise ValueError(f"the server responded with status {response.status}")
    return response.body
