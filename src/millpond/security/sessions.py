"""Sessions of browsers, which a login opens: the id in the cookie, and the sessions as this broker last read them.

An id is `mps_<256 random bits>_<signature>`. The catalog has its SHA-256. The signature, an HMAC with the cluster's
secret, lets a broker refuse a forged id without asking the catalog. Forms carry a second HMAC of the id, which a page
of another origin cannot know.
"""

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from millpond.catalog import sessions
from millpond.catalog.sessions import IDLE_MS, StoredSession
from millpond.model.clock import Clock
from millpond.model.errors import AuthenticationFailed, MillpondError
from millpond.model.principals import Principal
from millpond.security.identity import Identity
from millpond.security.shared_loads import SharedLoads
from millpond.topology.catalog_access import ReadCatalog, WriteCatalog

LIFETIME_MS: Final = 12 * 3_600_000
"""A session ends this long after its login, however much it is used."""
SEEN_EVERY_MS: Final = 60_000
"""How often the time of last use is stored at most."""
CLEAN_EVERY_MS: Final = 10 * 60_000
ENDED_MAX: Final = 10_000
"""Ended sessions that a broker remembers, so that clients that repeat their ids cause no reads."""
SECRET_BYTES: Final = 32
_ID: Final = re.compile(r"(mps_[A-Za-z0-9_-]{43})_([A-Za-z0-9_-]{43})")
_ID_PURPOSE: Final = b"millpond session\0"
_FORM_PURPOSE: Final = b"millpond form of session\0"
"""The secret also has other uses, whose signatures must not be valid here."""


class OpenedSession(NamedTuple):
    """A new session: the id, which the browser gets, and what is stored."""

    id: str
    stored: StoredSession

    def __repr__(self) -> str:
        return f"OpenedSession(principal={self.stored.principal!r})"


def form_token(secret: bytes, session_id: str) -> str:
    """What a form must carry if its request is authenticated by this session."""
    return _signature(secret, _FORM_PURPOSE, session_id)


def is_form_token(secret: bytes, session_id: str, token: str) -> bool:
    return bool(secret) and hmac.compare_digest(form_token(secret, session_id).encode(), token.encode())


def parse_id(secret: bytes, session_id: str) -> bytes:
    """Returns the digest of an id. Raises `AuthenticationFailed` if no broker of this cluster has issued it."""
    found = _ID.fullmatch(session_id)
    if found is None or not secret:
        raise AuthenticationFailed
    if not hmac.compare_digest(_signature(secret, _ID_PURPOSE, found[1]), found[2]):
        raise AuthenticationFailed
    return hashlib.sha256(session_id.encode()).digest()


def new_id(secret: bytes, random: Callable[[int], bytes]) -> str:
    if not secret:
        raise AuthenticationFailed
    signed = "mps_" + _encoded(random(SECRET_BYTES))
    return f"{signed}_{_signature(secret, _ID_PURPOSE, signed)}"


def _signature(secret: bytes, purpose: bytes, text: str) -> str:
    return _encoded(hmac.digest(secret, purpose + text.encode(), "sha256"))


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


class Sessions:
    """Lives on one event loop; `SecurityView` refreshes it twice a second. It remembers the sessions that were used
    here, and looks at them again when the version says that one has ended, so the end of a session takes effect on
    every broker within about a second."""

    def __init__(
        self,
        read: ReadCatalog,
        write: WriteCatalog,
        *,
        clock: Clock,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.secret = b""
        """The cluster's secret, once it has been read."""
        self._read = read
        self._write = write
        self._clock = clock
        self._random = random
        self._known: dict[bytes, StoredSession] = {}
        self._ended: dict[bytes, None] = {}
        """In the order in which their end was found. A session that is not in the catalog never comes back."""
        self._version = -1
        self._loads: SharedLoads[bytes, None] = SharedLoads()
        self._refreshing = asyncio.Lock()
        """A load waits for a refresh before it is applied. A refresh waits for no load."""
        self._cleaned_ms = clock.monotonic_ms()

    async def open(self, identity: Identity, *, replaces: Collection[bytes] = ()) -> OpenedSession:
        """Open a session with a new id for a client that has authenticated. The sessions with the digests `replaces`
        end."""
        now_ms = self._clock.now_ms()
        session_id = new_id(self.secret, self._random)
        expires_at_ms = min(now_ms + LIFETIME_MS, identity.expires_at_ms or now_ms + LIFETIME_MS)
        stored = StoredSession(
            parse_id(self.secret, session_id),
            str(identity.principal),
            identity.credential,
            identity.credential_version,
            now_ms,
            now_ms,
            expires_at_ms,
        )
        await self._write(lambda tx: sessions.add(tx, stored, replaces=replaces))
        for digest in replaces:
            self._forget(digest)
        await self._refresh_quietly()
        return OpenedSession(session_id, stored)

    def digest(self, session_id: str) -> bytes | None:
        """None if no broker of this cluster has issued the id."""
        try:
            return parse_id(self.secret, session_id)
        except AuthenticationFailed:
            return None

    async def identity(self, session_id: str) -> Identity:
        """Who has opened the session. Raises `AuthenticationFailed` if it has ended."""
        found = await self.find(session_id)
        return Identity(
            Principal.parse(found.principal),
            found.credential,
            found.credential_version,
            found.expires_at_ms,
            session_id,
        )

    async def find(self, session_id: str) -> StoredSession:
        """The session, which is in use now. Raises `AuthenticationFailed` if it has ended."""
        digest = parse_id(self.secret, session_id)
        if digest in self._ended:
            raise AuthenticationFailed
        found = self._known.get(digest)
        if found is None or found.has_expired(self._clock.now_ms()):  # another broker may have seen it later
            await self._loads.run(digest, lambda: self._load(digest))
            found = self._known.get(digest)
        now_ms = self._clock.now_ms()
        if found is None or found.has_expired(now_ms):
            raise AuthenticationFailed
        if now_ms - found.seen_at_ms >= SEEN_EVERY_MS:
            found = await self._see(found, now_ms)
        return found

    async def end(self, session_id: str) -> bool:
        """End a session. False if it has ended before."""
        digest = parse_id(self.secret, session_id)
        ended: bool = await self._write(lambda tx: sessions.end(tx, digest))
        self._forget(digest)
        await self._refresh_quietly()
        return ended

    def is_live(self, session_id: str) -> bool:
        """Whether a session that was found here has not ended since. One that is idle ends at the next refresh."""
        digest = self.digest(session_id)
        found = None if digest is None else self._known.get(digest)
        return found is not None and self._clock.now_ms() < found.expires_at_ms

    # -- reading ------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Forget the sessions that have ended."""
        async with self._refreshing:
            if not self._known:
                return
            now_ms = self._clock.now_ms()
            has_expired = any(each.has_expired(now_ms) for each in self._known.values())
            if has_expired or await self._read(sessions.version) != self._version:
                self._version, rows = await self._read(sessions.read)
                stored = {each.digest: each for each in rows}
                for digest in [each for each in self._known if each not in stored]:
                    self._forget(digest)
                found = {digest: stored[digest] for digest in self._known}
                self._known = {key: each for key, each in found.items() if not each.has_expired(now_ms)}

    async def clean_when_due(self) -> None:
        """Delete expired sessions, each `CLEAN_EVERY_MS`."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._cleaned_ms < CLEAN_EVERY_MS:
            return
        self._cleaned_ms = now_ms
        await self.clean()

    async def clean(self) -> None:
        """Delete expired sessions. Without any, nothing is written."""
        now_ms = self._clock.now_ms()
        if await self._read(lambda tx: sessions.has_expired_ones(tx, now_ms=now_ms)):
            await self._write(lambda tx: sessions.clean(tx, now_ms=now_ms))

    async def _refresh_quietly(self) -> None:
        """After a change that is committed: the next refresh tries again by itself."""
        with contextlib.suppress(MillpondError):
            await self.refresh()

    async def _load(self, digest: bytes) -> None:
        """Read one session. If a refresh has found meanwhile that sessions have ended, this may be one of them: it is
        read again."""
        is_current = False
        while not is_current:
            before = self._version
            version, found = await self._read(lambda tx: sessions.find(tx, digest))
            async with self._refreshing:
                is_current = self._version <= max(before, version)
                if is_current and digest not in self._ended:
                    self._apply(digest, version, found)

    def _apply(self, digest: bytes, version: int, found: StoredSession | None) -> None:
        if not self._known:
            self._version = version
        if found is None:
            self._forget(digest)
        elif found.has_expired(self._clock.now_ms()):
            self._known.pop(digest, None)
        else:
            self._known[digest] = found

    def _forget(self, digest: bytes) -> None:
        """The session has ended."""
        self._known.pop(digest, None)
        self._ended[digest] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]  # the oldest

    async def _see(self, session: StoredSession, now_ms: int) -> StoredSession:
        """Concurrent requests find the new time at once, so that one of them stores it."""
        seen = session._replace(seen_at_ms=now_ms)
        self._known[session.digest] = seen
        try:
            is_stored: bool = await self._write(lambda tx: sessions.see(tx, session.digest, now_ms=now_ms))
        except MillpondError:
            return seen  # the session stays usable while the catalog cannot be written
        if not is_stored:
            self._forget(session.digest)
            raise AuthenticationFailed
        return seen


def idle_until_ms(session: StoredSession) -> int:
    """When the session ends if it is not used any more."""
    return min(session.expires_at_ms, session.seen_at_ms + IDLE_MS)
