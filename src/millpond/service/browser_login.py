"""Login and logout of browsers: with a password, with a token, or at an identity provider (OIDC).

Every login gets a session with a new id, and ends the session that the browser had before. A failed login takes as
long, and says as little, as any other failed authentication.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from millpond.catalog.sessions import StoredSession
from millpond.model.addresses import client_address
from millpond.model.clock import Clock
from millpond.model.errors import AuthenticationFailed, InvalidRequest
from millpond.security import Access, Identity, SecurityView
from millpond.security.authenticator import Authenticator
from millpond.security.gate import ClientProof, Gate
from millpond.security.sessions import OpenedSession, Sessions, form_token, is_form_token

if TYPE_CHECKING:  # packages that few brokers need are imported when they are used
    from millpond.security.oidc import IdentityProvider, OidcLogin

PASSWORD: Final = "password"  # noqa: S105  # no secret
TOKEN: Final = "token"  # noqa: S105  # no secret
OIDC: Final = "oidc"


class OidcCallback(NamedTuple):
    """What the identity provider sends back through the browser."""

    state: str = ""
    code: str = ""
    error: str = ""
    issuer: str | None = None

    def __repr__(self) -> str:
        return f"OidcCallback(error={self.error!r})"


class BrowserLogin:
    """All calls raise `InvalidRequest` while security is off."""

    def __init__(
        self,
        view: SecurityView,
        gate: Gate,
        authenticator: Authenticator,
        sessions: Sessions,
        *,
        clock: Clock,
        provider: "IdentityProvider | None" = None,
    ) -> None:
        self._view = view
        self._gate = gate
        self._authenticator = authenticator
        self._sessions = sessions
        self._clock = clock
        self._provider = provider

    @property
    def is_on(self) -> bool:
        return self._view.enabled

    @property
    def has_oidc(self) -> bool:
        return self._view.enabled and self._provider is not None

    # -- with a password or a token -----------------------------------------------------------------------------

    async def with_password(self, client: ClientProof, user: str, password: str) -> OpenedSession:
        """Raises `AuthenticationFailed` after a delay, whatever is wrong, and `Overloaded`."""
        return await self._log_in(
            client, PASSWORD, lambda: self._authenticator.password(user, password, host=client.host)
        )

    async def with_token(self, client: ClientProof, token: str) -> OpenedSession:
        """The session ends with the token."""
        return await self._log_in(client, TOKEN, lambda: self._authenticator.bearer(token))

    async def _log_in(
        self,
        client: ClientProof,
        method: str,
        check: Callable[[], Awaitable[Identity]],
        replaces: Collection[bytes] = (),
    ) -> OpenedSession:
        """The session that the browser sends ends, and those with the digests `replaces`."""
        self._check_on()

        async def check_encrypted() -> Identity:
            self._gate.check_encrypted(client)
            return await check()

        identity = await self._gate.attempt(client, method, check_encrypted)
        opened = await self._sessions.open(identity, replaces={*replaces, *self._current(client)})
        host = client_address(client.host)
        self._view.audit.session_opened(identity.principal, client=host, method=method)
        return opened

    # -- at an identity provider --------------------------------------------------------------------------------

    async def begin_oidc(
        self, client: ClientProof, redirect_url: str, *, next_path: str, failed_path: str
    ) -> tuple[str, str]:
        """Returns the provider's URL for the browser, and the value of the cookie that keeps the login's state. Raises
        `InvalidRequest` if the paths are too long for it."""
        from millpond.security.oidc import sealed

        provider = self._oidc()
        url, login = await provider.begin(
            self._redirect_url(redirect_url),
            next_path=next_path,
            failed_path=failed_path,
            replaces="".join(each.hex() for each in self._current(client)),
        )
        return url, sealed(self._view.secret, login)

    def begun_oidc(self, cookie: str) -> "OidcLogin | None":
        """The login of a cookie. None if it has expired, or the cookie is wrong."""
        from millpond.security.oidc import unsealed

        try:
            return unsealed(self._view.secret, cookie, self._clock.now_ms())
        except AuthenticationFailed:
            return None

    async def finish_oidc(
        self, client: ClientProof, redirect_url: str, login: "OidcLogin | None", callback: OidcCallback
    ) -> OpenedSession:
        """Raises `AuthenticationFailed`, `IdentityProviderUnavailable` and `Overloaded`."""
        provider = self._oidc()

        async def check() -> Identity:
            if login is None or not login.has_state(callback.state) or callback.error:
                raise AuthenticationFailed
            return await provider.finish(
                login, self._redirect_url(redirect_url), code=callback.code, issuer=callback.issuer
            )

        replaces = [bytes.fromhex(login.replaces)] if login is not None and login.replaces else []
        return await self._log_in(client, OIDC, check, replaces)

    def _oidc(self) -> "IdentityProvider":
        self._check_on()
        if self._provider is None:
            raise InvalidRequest(reason="login with OIDC is not configured; set oidc_issuer")
        return self._provider

    def _redirect_url(self, default: str) -> str:
        return (self._provider.settings.redirect_url if self._provider else "") or default

    # -- sessions -----------------------------------------------------------------------------------------------

    async def log_out(self, access: Access) -> None:
        """End the session of a request. Without one, nothing happens."""
        session_id = access.identity.session
        if session_id and await self._sessions.end(session_id):
            self._view.audit.session_ended(access.principal, client=access.host)

    async def session(self, session_id: str) -> StoredSession:
        """Raises `AuthenticationFailed` if it has ended."""
        return await self._sessions.find(session_id)

    def form_token(self, session_id: str) -> str:
        return form_token(self._view.secret, session_id)

    def is_form_token(self, session_id: str, token: str) -> bool:
        return is_form_token(self._view.secret, session_id, token)

    def is_super_user(self, access: Access) -> bool:
        return self._view.is_super_user(access.principal)

    def _current(self, client: ClientProof) -> list[bytes]:
        """The digest of the session that the browser has sent."""
        digest = self._sessions.digest(client.sessions[0]) if len(client.sessions) == 1 else None
        return [] if digest is None else [digest]

    def _check_on(self) -> None:
        if not self._view.enabled:
            raise InvalidRequest(reason="security is off; start the broker with security=on")
