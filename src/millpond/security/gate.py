"""Authenticates the clients of the HTTP and gRPC interfaces: the proof of a request becomes an access.

A proof is an `Authorization` value or, without one, the client certificate of the connection. Credentials are refused
on a connection on which others can read them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from millpond.model.addresses import client_address, is_loopback
from millpond.model.clock import Clock
from millpond.model.errors import AuthenticationFailed, NotAuthenticated
from millpond.security import broker_tokens
from millpond.security.access import OPEN_ACCESS, Access
from millpond.security.identity import Identity
from millpond.security.view import SecurityView

FAILURE_DELAY_S: Final = 0.1
"""Delay of the response to a wrong proof, so that guessing takes longer."""
BEARER: Final = "bearer "
UNENCRYPTED: Final = "Credentials are accepted only over TLS, or from the broker's own machine."


class ProofChecker(Protocol):
    """Checks proofs: `Authenticator`. Its methods raise `AuthenticationFailed`."""

    async def authorization(self, header: str) -> Identity: ...

    def certificate(self, der: bytes) -> Identity: ...


class ClientProof(NamedTuple):
    """What an interface knows about the sender of a request. `authorization` are all its values of that header."""

    interface: str
    host: str
    authorization: Sequence[str]
    certificate: bytes | None
    encrypted: bool


class Gate:
    """`behind_tls_proxy`: a proxy ends TLS, so every connection counts as encrypted."""

    def __init__(
        self,
        view: SecurityView,
        checker: ProofChecker,
        *,
        clock: Clock,
        behind_tls_proxy: bool = False,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.enabled = view.enabled
        self._view = view
        self._checker = checker
        self._clock = clock
        self._behind_tls_proxy = behind_tls_proxy
        self._sleep = sleep

    async def admit(self, proof: ClientProof) -> Access:
        """Raises `NotAuthenticated` without a proof, and `AuthenticationFailed` for a wrong one, after a delay."""
        if not self.enabled:
            return OPEN_ACCESS
        if not proof.authorization and proof.certificate is None:
            raise NotAuthenticated
        try:
            identity = await self._identity(proof)
        except AuthenticationFailed:
            self._view.audit.authentication_failed(
                interface=proof.interface, client=proof.host, method=_method(proof)
            )
            await self._sleep(FAILURE_DELAY_S)
            raise
        host = client_address(proof.host)
        self._view.audit.request_authenticated(
            identity.principal, interface=proof.interface, client=host, method=_method(proof)
        )
        return self._view.access(identity, host)

    async def _identity(self, proof: ClientProof) -> Identity:
        if not proof.authorization:
            assert proof.certificate is not None, "one of them is a proof"
            return self._checker.certificate(proof.certificate)
        if len(proof.authorization) > 1:
            raise AuthenticationFailed("Send exactly one Authorization header.")
        if not (proof.encrypted or self._behind_tls_proxy or is_loopback(client_address(proof.host))):
            raise AuthenticationFailed(UNENCRYPTED)
        [value] = proof.authorization
        if value[: len(BEARER)].lower() == BEARER and value[len(BEARER) :].startswith(broker_tokens.PREFIX):
            return broker_tokens.verify(self._view.secret, value[len(BEARER) :], self._clock.now_ms())
        return await self._checker.authorization(value)


def _method(proof: ClientProof) -> str:
    if not proof.authorization:
        return "certificate"
    scheme = proof.authorization[0].partition(" ")[0].lower()
    return scheme if scheme in ("basic", "bearer") else "unknown"
