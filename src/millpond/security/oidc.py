"""Login with an identity provider: OpenID Connect's authorization code flow, with PKCE, state and nonce.

The browser carries the state of a login in a cookie that the cluster's secret signs, so that every broker can finish
what another one began, and no broker remembers anything. The provider's own description says where its endpoints and
keys are; it must name the configured issuer, and everything is https.
"""

import asyncio
import hashlib
import hmac
import http.client
import json
import logging
import secrets
import ssl
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import quote_plus, urlencode

from millpond.model.clock import Clock
from millpond.model.errors import (
    AuthenticationFailed,
    IdentityProviderUnavailable,
    InvalidRequest,
    MillpondError,
    Overloaded,
)
from millpond.security.https_client import RESPONSE_BYTES_MAX, HttpsResponse, is_https, send
from millpond.security.identity import Identity
from millpond.security.jwks import JwkSet, read_url
from millpond.security.jwt import JwtRules, JwtVerifier, subject_of
from millpond.security.oidc_settings import OidcSettings, check_oidc
from millpond.security.plain import OffLoop
from millpond.security.shared_loads import SharedLoads

LOGIN_MS: Final = 10 * 60_000
"""Time that a user has for the login at the provider."""
METADATA_MS: Final = 3_600_000
"""Age at which the provider's description is loaded again."""
RETRY_MS: Final = 10_000
"""After a failure the description is not loaded again for this time."""
EXCHANGES_MAX: Final = 4
EXCHANGES_WAITING_MAX: Final = 100
"""Codes that are exchanged at the same time, and that also wait for it; further logins are refused."""
CODE_CHARS_MAX: Final = 4096
COOKIE_CHARS_MAX: Final = 4000
"""Browsers ignore a cookie whose name and value have more than 4,096 characters."""
RANDOM_BYTES: Final = 32
_DESCRIPTION: Final = "description"
_STATE_PURPOSE: Final = b"millpond OIDC login\0"

logger = logging.getLogger(__name__)


# -- the state of a login -------------------------------------------------------------------------------------


class OidcLogin(NamedTuple):
    """A login that has begun. `next` is the path that the user wants to see, `failed` the one if it fails. `replaces`
    is the digest of the session that the browser had, in hex: it is not sent when another site, such as the provider,
    sends the browser here."""

    state: str
    nonce: str
    verifier: str
    next: str
    failed: str
    replaces: str
    expires_at_ms: int

    def __repr__(self) -> str:
        return f"OidcLogin(next={self.next!r})"

    def has_state(self, state: str) -> bool:
        """Whether a callback with this state belongs to the login."""
        return hmac.compare_digest(self.state.encode(), state.encode())

    def challenge(self) -> str:
        """PKCE's S256 of the verifier (RFC 7636)."""
        return _encoded(hashlib.sha256(self.verifier.encode()).digest())


def sealed(secret: bytes, login: OidcLogin) -> str:
    """The value of the cookie. Raises `InvalidRequest` if a browser would not store it."""
    if not secret:
        raise AuthenticationFailed
    payload = _encoded(json.dumps(login).encode())
    cookie = f"{payload}.{_signature(secret, payload)}"
    if len(cookie) > COOKIE_CHARS_MAX:
        raise InvalidRequest(reason="the paths `next` and `failed` are too long for a cookie")
    return cookie


def unsealed(secret: bytes, cookie: str, now_ms: int) -> OidcLogin:
    """The login that a cookie of `sealed` has. Raises `AuthenticationFailed`."""
    payload, _, signature = cookie.partition(".")
    if not secret or len(cookie) > COOKIE_CHARS_MAX or not cookie.isascii():
        raise AuthenticationFailed
    if not hmac.compare_digest(_signature(secret, payload), signature):
        raise AuthenticationFailed
    login = OidcLogin(*json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))
    if login.expires_at_ms <= now_ms:
        raise AuthenticationFailed
    return login


def _signature(secret: bytes, payload: str) -> str:
    return _encoded(hmac.digest(secret, _STATE_PURPOSE + payload.encode(), "sha256"))


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


# -- the provider ---------------------------------------------------------------------------------------------


class ProviderMetadata(NamedTuple):
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    secret_in_form: bool


class IdentityProvider:
    """Lives on one event loop; requests to the provider run outside of it. `context` replaces the trusted CAs."""

    def __init__(
        self,
        settings: OidcSettings,
        *,
        clock: Clock,
        off_loop: OffLoop,
        random: Callable[[int], bytes] = secrets.token_bytes,
        context: ssl.SSLContext | None = None,
    ) -> None:
        check_oidc(settings)
        self.settings = settings
        self._clock = clock
        self._off_loop = off_loop
        self._random = random
        self._context = context
        self._metadata: ProviderMetadata | None = None
        self._loaded_ms = 0
        self._failed_ms: int | None = None
        self._loads: SharedLoads[str, None] = SharedLoads()
        self._verifier: JwtVerifier | None = None
        self._exchanging = asyncio.Semaphore(EXCHANGES_MAX)
        self._waiting = 0

    async def begin(
        self, redirect_url: str, *, next_path: str, failed_path: str, replaces: str = ""
    ) -> tuple[str, OidcLogin]:
        """Returns the provider's URL for the browser, and the login. Raises `IdentityProviderUnavailable`."""
        metadata = await self._described()
        state, nonce, verifier = (_encoded(self._random(RANDOM_BYTES)) for _ in range(3))
        expires_at_ms = self._clock.now_ms() + LOGIN_MS
        login = OidcLogin(state, nonce, verifier, next_path, failed_path, replaces, expires_at_ms)
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_url,
            "scope": self.settings.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": login.challenge(),
            "code_challenge_method": "S256",
        }
        separator = "&" if "?" in metadata.authorization_endpoint else "?"
        return f"{metadata.authorization_endpoint}{separator}{urlencode(query)}", login

    async def finish(
        self, login: OidcLogin, redirect_url: str, *, code: str, issuer: str | None = None
    ) -> Identity:
        """Exchange the code of a callback that belongs to the login for a token, and verify it. Raises
        `AuthenticationFailed`, `IdentityProviderUnavailable` and `Overloaded`. `issuer` is the parameter `iss` of the
        callback (RFC 9207)."""
        if issuer is not None and issuer != self.settings.issuer:
            raise AuthenticationFailed
        if not 0 < len(code) <= CODE_CHARS_MAX:
            raise AuthenticationFailed
        metadata = await self._described()
        response = await self._limited(lambda: self._exchange(metadata, login, redirect_url, code))
        return await self._identity(_id_token(response), login.nonce)

    async def _identity(self, token: str, nonce: str) -> Identity:
        assert self._verifier is not None, "the metadata have been loaded"
        claims = await self._verifier.claims(token)
        if not hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode()):
            _refuse("the nonce is not that of the login")
        if claims.get("azp", self.settings.client_id) != self.settings.client_id:
            _refuse("the token was issued to another client")
        principal = subject_of(claims, self.settings.subject_claim)
        return Identity(principal, f"oidc:{self.settings.issuer}")

    # -- requests -----------------------------------------------------------------------------------------------

    async def _limited(self, exchange: Callable[[], Awaitable[HttpsResponse]]) -> HttpsResponse:
        if self._waiting >= EXCHANGES_MAX + EXCHANGES_WAITING_MAX:
            raise Overloaded("Too many logins wait for the identity provider. Try again later.")
        self._waiting += 1
        try:
            async with self._exchanging:
                return await exchange()
        finally:
            self._waiting -= 1

    async def _exchange(
        self, metadata: ProviderMetadata, login: OidcLogin, redirect_url: str, code: str
    ) -> HttpsResponse:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_url,
            "code_verifier": login.verifier,
        }
        headers = {}
        if metadata.secret_in_form:
            form |= {"client_id": self.settings.client_id, "client_secret": self.settings.client_secret}
        else:
            pair = f"{quote_plus(self.settings.client_id)}:{quote_plus(self.settings.client_secret)}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        body = urlencode(form).encode()
        try:
            return await self._off_loop(
                lambda: send(
                    metadata.token_endpoint, self._clock, form=body, headers=headers, context=self._context
                )
            )
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise _unavailable(str(error)) from None

    async def _described(self) -> ProviderMetadata:
        """The provider's description. While it is loaded again, or cannot be, the last one is used."""
        is_current = self._metadata is not None and self._age_ms(self._loaded_ms) < METADATA_MS
        has_just_failed = self._failed_ms is not None and self._age_ms(self._failed_ms) < RETRY_MS
        is_loading = self._loads.is_running(_DESCRIPTION)
        if self._metadata is not None and (is_current or has_just_failed or is_loading):
            return self._metadata
        if has_just_failed and not is_loading:
            raise IdentityProviderUnavailable(reason="its description could not be loaded a moment ago")
        try:
            await self._loads.run(_DESCRIPTION, self._load)
        except MillpondError:
            if self._metadata is None:
                raise
        assert self._metadata is not None, "it has been loaded"
        return self._metadata

    def _age_ms(self, since_ms: int) -> int:
        return self._clock.monotonic_ms() - since_ms

    async def _load(self) -> None:
        url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        try:
            data = await self._off_loop(lambda: read_url(url, self._clock, self._context))
            metadata = parse_metadata(data, self.settings.issuer)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._failed_ms = self._clock.monotonic_ms()
            raise _unavailable(str(error)) from None
        if self._metadata is None or self._metadata.jwks_uri != metadata.jwks_uri:
            self._verifier = self._new_verifier(metadata.jwks_uri)
        self._metadata, self._loaded_ms, self._failed_ms = metadata, self._clock.monotonic_ms(), None

    def _new_verifier(self, jwks_uri: str) -> JwtVerifier:
        keys = JwkSet(
            lambda: read_url(jwks_uri, self._clock, self._context), clock=self._clock, off_loop=self._off_loop
        )
        return JwtVerifier(JwtRules(self.settings.issuer, self.settings.client_id), keys, self._clock)


def parse_metadata(data: bytes, issuer: str) -> ProviderMetadata:
    """ValueError if it is not the description of this issuer, or names an endpoint that is not https."""
    content = _object(data)
    if content.get("issuer") != issuer:
        raise ValueError("its description names another issuer")
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        if not is_https(content.get(name)):
            raise ValueError(f"`{name}` of its description is no https URL")
    methods = content.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    return ProviderMetadata(
        content["authorization_endpoint"],
        content["token_endpoint"],
        content["jwks_uri"],
        secret_in_form=isinstance(methods, list)
        and "client_secret_basic" not in methods
        and "client_secret_post" in methods,
    )


def _id_token(response: HttpsResponse) -> str:
    """Raises `AuthenticationFailed` for a code that the provider refuses (RFC 6749, section 5.2)."""
    try:
        content = _object(response.body)
    except ValueError:
        content = {}
    if response.status == http.client.BAD_REQUEST and content.get("error") == "invalid_grant":
        _refuse("the provider refused the code")
    if response.status != http.client.OK:
        raise _unavailable(f"its token endpoint responded with status {response.status}")
    token = content.get("id_token")
    if not isinstance(token, str):
        raise _unavailable("its token endpoint sent no ID token")
    return token


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(data) if len(data) <= RESPONSE_BYTES_MAX else None
    except RecursionError:
        content = None
    if not isinstance(content, dict):
        raise ValueError("it did not send a JSON object")  # of what a server sent
    return content


def _unavailable(reason: str) -> IdentityProviderUnavailable:
    logger.warning("identity provider failed", extra={"error": reason})
    return IdentityProviderUnavailable(reason=reason)


def _refuse(reason: str) -> NoReturn:
    logger.debug("login refused", extra={"reason": reason})
    raise AuthenticationFailed from None
