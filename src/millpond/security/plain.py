"""Passwords that a client sends as they are: in the message of SASL PLAIN (RFC 4616), or in HTTP's `Basic`.

What is stored of a password is SCRAM's form, so a check computes that form again. It takes milliseconds on purpose,
runs outside of the event loop, and takes as long for an unknown user. A success is remembered for `REMEMBERED_MS`,
under an HMAC with a key that this process alone has, and forgotten as soon as the stored credential changes.
"""

import asyncio
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from millpond.catalog.security import ScramCredential
from millpond.model.addresses import network_or_host
from millpond.model.clock import Clock
from millpond.model.errors import AuthenticationFailed, Overloaded
from millpond.security import scram
from millpond.security.decoys import Decoys
from millpond.security.names import is_user_name

MESSAGE_BYTES_MAX: Final = 4096
REMEMBERED_MS: Final = 60_000
REMEMBERED_MAX: Final = 1024
CHECKS_MAX: Final = 2
"""Checks that run at the same time; others wait. They share their threads with other work of the broker."""
WAITING_MAX: Final = 500
"""Checks that run or wait. This many take a few seconds; a client would not wait longer."""
WAITING_PER_ADDRESS_MAX: Final = 100
"""Those of one IPv4 address or IPv6 /64 network, so that one client with wrong passwords does not end all logins."""
KEY_BYTES: Final = 32

T = TypeVar("T")


class OffLoop(Protocol):
    """Runs a function outside of the event loop, like `asyncio.to_thread`."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class CredentialSource(Protocol):
    """The stored credentials, and the cluster's secret."""

    @property
    def secret(self) -> bytes: ...

    @property
    def decoys(self) -> Decoys: ...

    def scram_credential(self, user: str, mechanism: str) -> ScramCredential | None: ...


class UserPassword(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        return f"UserPassword(user={self.user!r})"


def parse_plain(data: bytes) -> UserPassword:
    """Parse `[authzid] NUL user NUL password`. A user may name itself as the one it acts for, and no other one."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise AuthenticationFailed
    try:
        authzid, user, password = data.decode().split("\0")
    except ValueError:  # also UnicodeDecodeError
        raise AuthenticationFailed from None
    if not user or not password or authzid not in ("", user):
        raise AuthenticationFailed
    return UserPassword(user, password)


class _Remembered(NamedTuple):
    credential: ScramCredential
    until_ms: int


class PasswordChecker:
    """Lives on one event loop. Only derivations run outside of it."""

    def __init__(
        self,
        source: CredentialSource,
        *,
        clock: Clock,
        iterations: int,
        off_loop: OffLoop,
        random: Callable[[int], bytes],
    ) -> None:
        self._source = source
        self._clock = clock
        self._iterations = iterations
        self._off_loop = off_loop
        self._key = random(KEY_BYTES)
        self._remembered: dict[bytes, _Remembered] = {}
        self._running = asyncio.Semaphore(CHECKS_MAX)
        self._waiting: Counter[str] = Counter()
        """Checks that run or wait, by network."""

    async def check(self, user: str, password: str, host: str = "") -> ScramCredential:
        """Returns the credential that has this password. A user has up to one for each mechanism. Raises
        `AuthenticationFailed`, and `Overloaded` if too many checks wait, of all clients or of this host."""
        if not is_user_name(user) or not scram.is_password(password):
            raise AuthenticationFailed
        mark = self._mark(user, password)
        found = self._recall(mark)
        if found is None:
            found = await self._derive(user, password, network_or_host(host))
            self._remember(mark, found)
        return found

    async def _derive(self, user: str, password: str, network: str) -> ScramCredential:
        stored = [self._source.scram_credential(user, mechanism) for mechanism in scram.HASHES]
        decoys = [self._decoy(user, mechanism) for mechanism in scram.HASHES]
        candidates = [known or fake for known, fake in zip(stored, decoys, strict=True)]
        costs = [max(self._iterations, self._source.decoys.iterations_max(each)) for each in scram.HASHES]
        fits = await self._queued(network, lambda: _fitting(candidates, password, costs))
        for known, is_fitting in zip(stored, fits, strict=True):
            if known is not None and is_fitting:
                return known
        raise AuthenticationFailed

    def _decoy(self, user: str, mechanism: str) -> ScramCredential:
        return self._source.decoys.credential(
            user, mechanism, secret=self._source.secret, iterations=self._iterations
        )

    async def _queued(self, network: str, work: Callable[[], T]) -> T:
        """A client that gives up does not end its derivation, which counts until it has ended."""
        if self._waiting[network] >= WAITING_PER_ADDRESS_MAX or self._waiting.total() >= WAITING_MAX:
            raise Overloaded("Too many passwords are being checked. Try again later.")
        self._waiting[network] += 1
        return await asyncio.shield(asyncio.ensure_future(self._run(network, work)))

    async def _run(self, network: str, work: Callable[[], T]) -> T:
        try:
            async with self._running:
                return await self._off_loop(work)
        finally:
            self._waiting -= Counter((network,))  # also removes a network without checks

    # -- what is remembered -------------------------------------------------------------------------------------

    def _mark(self, user: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{user}\0{password}".encode(), "sha256")

    def _recall(self, mark: bytes) -> ScramCredential | None:
        found = self._remembered.get(mark)
        if found is None:
            return None
        stored = self._source.scram_credential(found.credential.user, found.credential.mechanism)
        if stored == found.credential and self._clock.monotonic_ms() < found.until_ms:
            return stored
        del self._remembered[mark]
        return None

    def _remember(self, mark: bytes, credential: ScramCredential) -> None:
        self._remembered.pop(mark, None)
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]  # the oldest
        self._remembered[mark] = _Remembered(credential, self._clock.monotonic_ms() + REMEMBERED_MS)


def _fitting(candidates: Sequence[ScramCredential], password: str, costs: Sequence[int]) -> list[bool]:
    """Whether each candidate has this password. It costs the same for all users: for each mechanism, as many iterations
    as any user has, and no fewer than by default."""
    return [_is_fitting(each, password, cost) for each, cost in zip(candidates, costs, strict=True)]


def _is_fitting(candidate: ScramCredential, password: str, iterations: int) -> bool:
    derived, _ = scram.derive(password, candidate.salt, candidate.iterations, candidate.mechanism)
    if candidate.iterations < iterations:
        scram.derive(password, candidate.salt, iterations - candidate.iterations, candidate.mechanism)
    return hmac.compare_digest(derived, candidate.stored_key)
