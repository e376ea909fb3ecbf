"""Proofs of who a client is, for all interfaces: SASL exchanges, passwords, tokens and certificates.

Whatever is wrong with a proof, the client receives the same `AuthenticationFailed`. Settings under which no proof can
be trusted keep the broker from starting.
"""

import re
import secrets
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from millpond.model.clock import Clock
from millpond.model.errors import AuthenticationFailed, InvalidSettings
from millpond.security.identity import Identity, password_identity, token_identity
from millpond.security.names import user_principal
from millpond.security.plain import CredentialSource, OffLoop, PasswordChecker
from millpond.security.principal_mapping import PrincipalMapping, subject_name
from millpond.security.sasl import (
    OAUTHBEARER,
    PLAIN,
    BearerSasl,
    PlainSasl,
    SaslExchange,
    SaslStep,
    ScramSasl,
)
from millpond.security.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, ScramExchange, new_nonce
from millpond.security.tokens import PREFIX, TokenSource, verify_token

if TYPE_CHECKING:  # packages that few brokers need are imported when they are used
    from millpond.security.jwt import JwtVerifier, KeySource

__all__ = ["MECHANISMS", "AuthenticationSettings", "Authenticator", "ProofSource", "SaslExchange", "SaslStep"]

MECHANISMS: Final = (*HASHES, PLAIN, OAUTHBEARER)
CERTIFICATE: Final = "certificate"
_AUTHORIZATION: Final = re.compile(r"(?P<scheme>[A-Za-z]+) +(?P<proof>[A-Za-z0-9._~+/-]+=*)")


class ProofSource(CredentialSource, TokenSource, Protocol):
    """What a broker knows of its users: `SecurityView`."""

    async def catch_up(self) -> None:
        """Read what other brokers have changed."""


class AuthenticationSettings(NamedTuple):
    mechanisms: tuple[str, ...] = tuple(HASHES)
    """SASL mechanisms that clients may use."""
    password_iterations: int = ITERATIONS_MAX
    """Iterations that an unknown user seems to have while no credential is stored."""
    principal_mapping_rules: str = "DEFAULT"
    oauth_issuer: str = ""
    oauth_audience: str = ""
    oauth_jwks: str = ""
    """Path of a file or https URL."""
    oauth_subject_claim: str = "sub"


class Authenticator:
    """Lives on one event loop; passwords and JWK sets are processed outside of it."""

    def __init__(
        self,
        view: ProofSource,
        *,
        clock: Clock,
        settings: AuthenticationSettings,
        off_loop: OffLoop,
        provider_off_loop: OffLoop | None = None,
        random: Callable[[int], bytes] = secrets.token_bytes,
        keys: "KeySource | None" = None,
    ) -> None:
        """Raises `InvalidSettings`. `provider_off_loop` loads JWK sets, instead of `off_loop`. `keys` replaces the JWK
        set of the settings."""
        check_settings(settings)
        self.mechanisms = settings.mechanisms
        self._view = view
        self._clock = clock
        self._random = random
        self._iterations = settings.password_iterations
        self._mapping = PrincipalMapping(settings.principal_mapping_rules)
        self._passwords = PasswordChecker(
            view, clock=clock, iterations=settings.password_iterations, off_loop=off_loop, random=random
        )
        self._jwts: JwtVerifier | None = None
        if settings.oauth_issuer:
            self._jwts = _jwt_verifier(settings, keys, clock, provider_off_loop or off_loop)

    # -- SASL ---------------------------------------------------------------------------------------------------

    def offered(self, *, encrypted: bool) -> tuple[str, ...]:
        """The mechanisms that a connection may use: PLAIN only if it is encrypted."""
        return tuple(each for each in self.mechanisms if encrypted or each != PLAIN)

    def begin(self, mechanism: str, *, encrypted: bool, host: str = "") -> SaslExchange:
        """Start one exchange with the client of this address. Raises `AuthenticationFailed` if its connection may not
        use the mechanism."""
        if mechanism not in self.offered(encrypted=encrypted):
            raise AuthenticationFailed
        if mechanism == PLAIN:
            return PlainSasl(partial(self.password, host=host))
        if mechanism == OAUTHBEARER:
            return BearerSasl(self.bearer)
        return ScramSasl(self._scram(mechanism))

    def _scram(self, mechanism: str) -> ScramExchange:
        secret = self._secret()
        return ScramExchange(
            mechanism,
            look_up=lambda user: self._view.scram_credential(user, mechanism),
            decoy=lambda user: self._view.decoys.credential(
                user, mechanism, secret=secret, iterations=self._iterations
            ),
            stand_in=lambda user: self._view.decoys.stand_in(user, mechanism),
            nonce=new_nonce(self._random),
        )

    def _secret(self) -> bytes:
        """Without the cluster's secret, users have not been read yet, and decoys could be told from credentials."""
        if not self._view.secret:
            raise AuthenticationFailed
        return self._view.secret

    # -- other proofs -------------------------------------------------------------------------------------------

    async def password(self, user: str, password: str, *, host: str = "") -> Identity:
        """A user's name and password, from SASL PLAIN or HTTP's `Basic`. Raises `AuthenticationFailed`."""
        self._secret()
        return password_identity(await self._passwords.check(user, password, host))

    async def bearer(self, token: str) -> Identity:
        """An API token or a JWT. Raises `AuthenticationFailed`."""
        if token.startswith(PREFIX):
            return await self._token(token)
        if self._jwts is None:
            raise AuthenticationFailed
        return await self._jwts.verify(token)

    async def _token(self, token: str) -> Identity:
        """Another broker may have created the token a moment ago: before it is refused, the changes are read."""
        try:
            return token_identity(verify_token(token, self._view, self._clock.now_ms()))
        except AuthenticationFailed:
            await self._view.catch_up()
        return token_identity(verify_token(token, self._view, self._clock.now_ms()))

    def certificate(self, der: bytes) -> Identity:
        """A client certificate that TLS has verified. The identity ends with it. Raises `AuthenticationFailed`."""
        from cryptography import x509

        try:
            certificate = x509.load_der_x509_certificate(der)
            subject = subject_name(certificate.subject)
            expires_at_ms = int(certificate.not_valid_after_utc.timestamp() * 1000)
        except ValueError:  # also UnicodeDecodeError
            raise AuthenticationFailed from None
        if expires_at_ms <= self._clock.now_ms():
            raise AuthenticationFailed
        principal = user_principal(self._mapping.name(subject))
        return Identity(principal, CERTIFICATE, expires_at_ms=expires_at_ms)

    async def authorization(self, header: str, *, host: str = "") -> Identity:
        """The value of an `Authorization` header: one proof, `Basic` or `Bearer`. Raises `AuthenticationFailed`."""
        found = _AUTHORIZATION.fullmatch(header)
        scheme = found["scheme"].lower() if found else ""
        if found and scheme == "bearer":
            return await self.bearer(found["proof"])
        if found and scheme == "basic":
            return await self.password(*parse_basic(found["proof"]), host=host)
        raise AuthenticationFailed


def _jwt_verifier(
    settings: AuthenticationSettings, keys: "KeySource | None", clock: Clock, off_loop: OffLoop
) -> "JwtVerifier":
    from millpond.security.jwks import jwk_set
    from millpond.security.jwt import JwtRules, JwtVerifier

    rules = JwtRules(settings.oauth_issuer, settings.oauth_audience, settings.oauth_subject_claim)
    return JwtVerifier(rules, keys or jwk_set(settings.oauth_jwks, clock=clock, off_loop=off_loop), clock)


def parse_basic(proof: str) -> tuple[str, str]:
    """The user and password of HTTP's `Basic` (RFC 7617), in UTF-8. A password may contain colons, a name may not."""
    try:
        user, colon, password = b64decode(proof, validate=True).decode().partition(":")
    except ValueError:  # also binascii.Error and UnicodeDecodeError
        raise AuthenticationFailed from None
    if not (user and colon and password):
        raise AuthenticationFailed
    return user, password


# -- settings -------------------------------------------------------------------------------------------------


def check_settings(settings: AuthenticationSettings) -> None:
    """Raises `InvalidSettings`."""
    for name in settings.mechanisms:
        if name not in MECHANISMS:
            reason = f"the mechanisms are {', '.join(MECHANISMS)}"
            raise InvalidSettings(name="sasl_mechanisms", value=name, reason=reason)
    if not ITERATIONS_MIN <= settings.password_iterations <= ITERATIONS_MAX:
        reason = f"Kafka allows {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        raise InvalidSettings(name="password_iterations", value=settings.password_iterations, reason=reason)
    _check_rules(settings.principal_mapping_rules)
    _check_oauth(settings)


def _check_rules(rules: str) -> None:
    try:
        PrincipalMapping(rules)
    except ValueError as error:
        raise InvalidSettings(name="principal_mapping_rules", value=rules, reason=str(error)) from None


def _check_oauth(settings: AuthenticationSettings) -> None:
    """Tokens of every issuer, or for every audience, would be accepted if one of these were optional."""
    needed = {
        name: getattr(settings, name)
        for name in ("oauth_issuer", "oauth_audience", "oauth_jwks", "oauth_subject_claim")
    }
    is_used = OAUTHBEARER in settings.mechanisms or any(list(needed.values())[:-1])
    for name, value in needed.items():
        if is_used and not value:
            reason = "JWTs need oauth_issuer, oauth_audience, oauth_jwks and oauth_subject_claim"
            raise InvalidSettings(name=name, value=value, reason=reason)
