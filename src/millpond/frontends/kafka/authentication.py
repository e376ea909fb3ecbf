"""Authentication of one Kafka connection: a state machine without sockets and timers.

A client sends SaslHandshake with a mechanism, then SaslAuthenticate until the exchange has succeeded or failed. Until
then it may send nothing else, except ApiVersions. A client certificate that TLS has verified is proof enough, unless
the client uses SASL. A session that ends, because of its credential or of `max_reauth_ms`, can be renewed on the same
connection by another exchange (KIP-368), with the same mechanism and for the same principal.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from millpond.model.addresses import client_address
from millpond.model.clock import Clock
from millpond.model.errors import AuthenticationFailed, MillpondError, NotAuthenticated
from millpond.protocol import ErrorCode
from millpond.security import ANONYMOUS_IDENTITY, Access, Identity, SecurityView

API_VERSIONS_KEY, HANDSHAKE_KEY, AUTHENTICATE_KEY = 18, 17, 36
KEYS_BEFORE_LOGIN: Final = frozenset((API_VERSIONS_KEY, HANDSHAKE_KEY, AUTHENTICATE_KEY))
WRAPPED_SINCE: Final = 1
"""SaslHandshake v0 announces tokens without Kafka's headers, which are not supported."""
REAUTHENTICATION_EVERY_MS: Final = 1_000
CERTIFICATE: Final = "certificate"
INTERFACE: Final = "kafka"
FAILED: Final = str(AuthenticationFailed())
"""One text for all causes, so that a client learns nothing about users."""


class SaslProgress(Protocol):
    @property
    def data(self) -> bytes:
        """What to send to the client."""

    @property
    def identity(self) -> Identity | None:
        """Who the client is; None if the exchange continues."""


class ClientExchange(Protocol):
    async def step(self, data: bytes) -> SaslProgress:
        """Raises `AuthenticationFailed`."""


class ClientAuthenticator(Protocol):
    """What a connection needs of `security.authenticator.Authenticator`."""

    def offered(self, *, encrypted: bool) -> tuple[str, ...]: ...

    def begin(self, mechanism: str, *, encrypted: bool, host: str) -> ClientExchange: ...

    def certificate(self, der: bytes) -> Identity: ...


class AuthenticationRules(NamedTuple):
    """What all connections of a server have in common."""

    view: SecurityView
    authenticator: ClientAuthenticator
    clock: Clock
    max_reauth_ms: int
    """Maximum time of a session; 0 sets none."""


class HandshakeResult(NamedTuple):
    code: ErrorCode
    mechanisms: Sequence[str] = ()


class AuthenticateResult(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    data: bytes = b""
    lifetime_ms: int = 0
    """Time until the client must authenticate again; 0 if it need not."""


class ConnectionAuthentication:
    """`is_private` says that the connection cannot be read by others: it is encrypted, or stays on this machine.
    `certificate` is what TLS has verified, in DER."""

    def __init__(
        self, rules: AuthenticationRules, host: str, *, is_private: bool, certificate: bytes | None = None
    ) -> None:
        self._rules = rules
        self._host = client_address(host)
        self._is_on = rules.view.enabled
        self.is_private = is_private
        self.access: Access = rules.view.access(ANONYMOUS_IDENTITY, self._host)
        self.is_authenticated = not self._is_on
        self.is_over = False
        """Whether the connection must be closed when the response has been sent."""
        self._exchange: ClientExchange | None = None
        self._mechanism = ""
        self._ends_at_ms: int | None = None
        self._authenticated_at_ms = 0
        if self._is_on and certificate is not None:
            self._use_certificate(certificate)

    # -- every request ------------------------------------------------------------------------------------------

    def admit(self, api_key: int) -> None:
        """Raises `AuthenticationFailed` if a request must not be read, and the connection must be closed."""
        if self.is_over:
            raise NotAuthenticated
        if api_key in KEYS_BEFORE_LOGIN:
            return
        if self._exchange is not None:
            self._audit_failure()  # aiokafka takes the refusal of its OAUTHBEARER token for a success
            raise NotAuthenticated
        if not self.is_authenticated:
            raise NotAuthenticated
        self.check_valid()

    def check_valid(self) -> None:
        """Raises `AuthenticationFailed` when the session has ended: it has expired, or its credential was changed."""
        if self._ends_at_ms is not None and self._rules.clock.monotonic_ms() >= self._ends_at_ms:
            raise AuthenticationFailed("The session has ended. Authenticate again.")
        self.access.check_valid()

    # -- SASL ---------------------------------------------------------------------------------------------------

    def handshake(self, mechanism: str, version: int) -> HandshakeResult:
        if not self._is_on or (self._mechanism and self._exchange is None and not self._may_renew()):
            return HandshakeResult(ErrorCode.ILLEGAL_SASL_STATE)
        if self._exchange is not None or self._mechanism not in ("", mechanism):
            self.is_over = True
            return HandshakeResult(ErrorCode.ILLEGAL_SASL_STATE)
        offered = self._rules.authenticator.offered(encrypted=self.is_private)
        if version < WRAPPED_SINCE or mechanism not in offered:
            self.is_over = True
            return HandshakeResult(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered)
        return self._begin(mechanism, offered)

    async def authenticate(self, data: bytes) -> AuthenticateResult:
        if self._exchange is None:
            self.is_over = not self.is_authenticated
            return AuthenticateResult(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first.")
        try:
            progress = await self._exchange.step(data)
            if progress.identity is None:
                return AuthenticateResult(data=progress.data)
            lifetime_ms = self._accept(progress.identity)
        except MillpondError:
            return self._fail()
        return AuthenticateResult(data=progress.data, lifetime_ms=lifetime_ms)

    def _begin(self, mechanism: str, offered: Sequence[str]) -> HandshakeResult:
        self._mechanism = mechanism
        try:
            self._exchange = self._rules.authenticator.begin(
                mechanism, encrypted=self.is_private, host=self._host
            )
        except MillpondError:
            self._fail()
            return HandshakeResult(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered)
        return HandshakeResult(ErrorCode.NONE, offered)

    def _may_renew(self) -> bool:
        elapsed_ms = self._rules.clock.monotonic_ms() - self._authenticated_at_ms
        return self._ends_at_ms is not None and elapsed_ms >= REAUTHENTICATION_EVERY_MS

    def _accept(self, identity: Identity) -> int:
        """Returns the lifetime of the session in milliseconds. Raises `AuthenticationFailed`."""
        access = self._rules.view.access(identity, self._host)
        access.check_valid()
        is_renewal = self._authenticated_at_ms > 0
        if is_renewal and identity.principal != self.access.principal:
            raise AuthenticationFailed
        now_ms, lifetime_ms = self._rules.clock.monotonic_ms(), self._lifetime_ms(identity)
        self.access, self.is_authenticated, self._exchange = access, True, None
        self._authenticated_at_ms = max(now_ms, 1)
        self._ends_at_ms = now_ms + lifetime_ms if lifetime_ms else None
        if not is_renewal:
            self._rules.view.audit.authenticated(
                identity.principal, interface=INTERFACE, client=self._host, method=self._mechanism
            )
        return lifetime_ms

    def _fail(self) -> AuthenticateResult:
        self._exchange, self.is_over = None, True
        self._audit_failure()
        return AuthenticateResult(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED)

    def _audit_failure(self) -> None:
        self._rules.view.audit.authentication_failed(
            interface=INTERFACE, client=self._host, method=self._mechanism
        )

    def _lifetime_ms(self, identity: Identity) -> int:
        ends = [self._rules.max_reauth_ms] if self._rules.max_reauth_ms else []
        if identity.expires_at_ms is not None:
            ends.append(identity.expires_at_ms - self._rules.clock.now_ms())
        return min(ends, default=0)

    # -- certificates -------------------------------------------------------------------------------------------

    def _use_certificate(self, certificate: bytes) -> None:
        """Without a principal for the certificate, the client can still use SASL."""
        try:
            identity = self._rules.authenticator.certificate(certificate)
        except AuthenticationFailed:
            self._rules.view.audit.authentication_failed(
                interface=INTERFACE, client=self._host, method=CERTIFICATE
            )
            return
        self.access, self.is_authenticated = self._rules.view.access(identity, self._host), True
        self._rules.view.audit.authenticated(
            identity.principal, interface=INTERFACE, client=self._host, method=CERTIFICATE
        )
