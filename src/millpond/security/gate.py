"""Authenticates the clients of the HTTP and gRPC interfaces: the proof of a request becomes an access.

A proof is an `Authorization` value or the cookie of a session, never both; without them, the client certificate of the
connection. Credentials are refused on a connection on which others can read them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from millpond.model.addresses import client_address, is_loopback
from millpond.model.clock import Clock
from millpond.model.errors import AuthenticationFailed, NotAuthenticated
from millpond.security import broker_tokens
from millpond.security.access import OPEN_ACCESS, Access
from millpond.security.identity import ANONYMOUS_IDENTITY, Identity
from millpond.security.sessions import Sessions
from millpond.security.view import SecurityView

FAILURE_DELAY_S: Final = 0.1
"""Delay of the response to a wrong proof, so that guessing takes longer."""
BEARER: Final = "bearer "
UNENCRYPTED: Final = "Credentials are accepted only over TLS, or from the broker's own machine."


class ProofChecker(Protocol):
    """Checks proofs: `Authenticator`. Its methods raise `AuthenticationFailed`."""

    async def authorization(self, header: str, *, host: str) -> Identity: ...

    def certificate(self, der: bytes) -> Identity: ...


class ClientProof(NamedTuple):
    """What an interface knows about the sender of a request. `authorization` are all its values of that header,
    `sessions` those of the session's cookie."""

    interface: str
    host: str
    authorization: Sequence[str]
    certificate: bytes | None
    encrypted: bool
    sessions: Sequence[str] = ()

    def has_any(self) -> bool:
        return bool(self.authorization or self.sessions or self.certificate is not None)

    def __repr__(self) -> str:
        return f"ClientProof(interface={self.interface!r}, host={self.host!r})"


class Gate:
    """`behind_tls_proxy`: a proxy ends TLS, so every connection counts as encrypted."""

    def __init__(
        self,
        view: SecurityView,
        checker: ProofChecker,
        *,
        clock: Clock,
        sessions: Sessions | None = None,
        behind_tls_proxy: bool = False,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.enabled = view.enabled
        self._view = view
        self._checker = checker
        self._clock = clock
        self._sessions = sessions
        self._behind_tls_proxy = behind_tls_proxy
        self._sleep = sleep

    async def admit(self, proof: ClientProof) -> Access:
        """Raises `NotAuthenticated` without a proof, and `AuthenticationFailed` for a wrong one, after a delay."""
        if not self.enabled:
            return OPEN_ACCESS
        if not proof.has_any():
            raise NotAuthenticated
        method, host = _method(proof), client_address(proof.host)
        identity = await self.attempt(proof, method, lambda: self._identity(proof))
        if not proof.sessions:  # the audit log has the login of a session
            self._view.audit.request_authenticated(
                identity.principal, interface=proof.interface, client=host, method=method
            )
        return self._view.access(identity, host)

    async def admit_anyone(self, proof: ClientProof) -> Access:
        """Like `admit`, but a client without a proof, or whose session has ended, is anonymous."""
        if self.enabled and proof.sessions and not proof.authorization:
            try:
                return self._view.access(await self._identity(proof), client_address(proof.host))
            except AuthenticationFailed:
                proof = proof._replace(sessions=())
        if self.enabled and not proof.has_any():
            return self._view.access(ANONYMOUS_IDENTITY, client_address(proof.host))
        return await self.admit(proof)

    async def attempt(
        self, proof: ClientProof, method: str, check: Callable[[], Awaitable[Identity]]
    ) -> Identity:
        """Checks a proof. A failure is in the audit log, and is raised after a delay."""
        try:
            return await check()
        except AuthenticationFailed:
            self._view.audit.authentication_failed(
                interface=proof.interface, client=proof.host, method=method
            )
            await self._sleep(FAILURE_DELAY_S)
            raise

    def check_encrypted(self, proof: ClientProof) -> None:
        """Raises `AuthenticationFailed` if others could read the credentials."""
        if not (proof.encrypted or self._behind_tls_proxy or is_loopback(client_address(proof.host))):
            raise AuthenticationFailed(UNENCRYPTED)

    async def _identity(self, proof: ClientProof) -> Identity:
        if not proof.authorization and not proof.sessions:
            assert proof.certificate is not None, "one of them is a proof"
            return self._checker.certificate(proof.certificate)
        if len(proof.authorization) > 1:
            raise AuthenticationFailed("Send exactly one Authorization header.")
        if len(proof.authorization) + len(proof.sessions) > 1:
            raise AuthenticationFailed("Send either an Authorization header or the cookie of one session.")
        self.check_encrypted(proof)
        if proof.sessions:
            return await self._session_identity(*proof.sessions)
        [value] = proof.authorization
        if value[: len(BEARER)].lower() == BEARER and value[len(BEARER) :].startswith(broker_tokens.PREFIX):
            return broker_tokens.verify(self._view.secret, value[len(BEARER) :], self._clock.now_ms())
        return await self._checker.authorization(value, host=proof.host)

    async def _session_identity(self, session_id: str) -> Identity:
        if self._sessions is None:
            raise AuthenticationFailed
        identity = await self._sessions.identity(session_id)
        if not self._view.is_valid(identity):  # another broker may have stored a new password a moment ago
            await self._view.catch_up()
        if not self._view.is_valid(identity):
            raise AuthenticationFailed
        return identity


def _method(proof: ClientProof) -> str:
    if proof.sessions:
        return "session"
    if not proof.authorization:
        return "certificate"
    scheme = proof.authorization[0].partition(" ")[0].lower()
    return scheme if scheme in ("basic", "bearer") else "unknown"
