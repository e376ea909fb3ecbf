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
from collections.abc import Callable
from typing import Final, NamedTuple

from millpond.catalog import sessions
from millpond.catalog.sessions import IDLE_MS, StoredSession
from millpond.model.clock import Clock
from millpond.model.errors import AuthenticationFailed, MillpondError
from millpond.model.principals import Principal
from millpond.security.identity import Identity
from millpond.topology.catalog_access import ReadCatalog, WriteCatalog

LIFETIME_MS: Final = 12 * 3_600_000
"""A session ends this long after its login, however much it is used."""
SEEN_EVERY_MS: Final = 60_000
"""How often the time of last use is stored at most."""
CLEAN_EVERY_MS: Final = 10 * 60_000
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
        self._version = -1
        self._reading = asyncio.Lock()
        """One read after the other: an older one must not bring back what a newer one has found ended."""
        self._cleaned_ms = clock.monotonic_ms()

    async def open(self, identity: Identity, *, replaces: str | None = None) -> OpenedSession:
        """Open a session with a new id for a client that has authenticated. The session `replaces` ends."""
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
        replaced = self._digest(replaces)
        await self._write(lambda tx: sessions.add(tx, stored, replaces=replaced))
        await self._refresh_quietly()
        return OpenedSession(session_id, stored)

    def _digest(self, session_id: str | None) -> bytes | None:
        try:
            return None if session_id is None else parse_id(self.secret, session_id)
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
        found = self._known.get(digest)
        if found is None or found.has_expired(self._clock.now_ms()):  # another broker may have seen it later
            found = await self._load(digest)
        now_ms = self._clock.now_ms()
        if found is None or found.has_expired(now_ms):
            self._known.pop(digest, None)
            raise AuthenticationFailed
        if now_ms - found.seen_at_ms >= SEEN_EVERY_MS:
            found = await self._see(found, now_ms)
        return found

    async def end(self, session_id: str) -> bool:
        """End a session. False if it has ended before."""
        digest = parse_id(self.secret, session_id)
        ended: bool = await self._write(lambda tx: sessions.end(tx, digest))
        self._known.pop(digest, None)
        await self._refresh_quietly()
        return ended

    def is_live(self, session_id: str) -> bool:
        """Whether a session that was found here has not ended since. One that is idle ends at the next refresh."""
        digest = self._digest(session_id)
        found = None if digest is None else self._known.get(digest)
        return found is not None and self._clock.now_ms() < found.expires_at_ms

    # -- reading ------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Forget the sessions that have ended."""
        async with self._reading:
            if not self._known:
                return
            now_ms = self._clock.now_ms()
            has_expired = any(each.has_expired(now_ms) for each in self._known.values())
            if has_expired or await self._read(sessions.version) != self._version:
                self._version, stored = await self._read(sessions.read)
                live = {each.digest: each for each in stored if not each.has_expired(now_ms)}
                self._known = {digest: live[digest] for digest in self._known if digest in live}

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

    async def _load(self, digest: bytes) -> StoredSession | None:
        async with self._reading:
            version, found = await self._read(lambda tx: sessions.find(tx, digest))
            if not self._known:
                self._version = version
            if found is not None:
                self._known[digest] = found
            return found

    async def _see(self, session: StoredSession, now_ms: int) -> StoredSession:
        """Concurrent requests find the new time at once, so that one of them stores it."""
        seen = self._known[session.digest] = session._replace(seen_at_ms=now_ms)
        try:
            is_stored: bool = await self._write(lambda tx: sessions.see(tx, session.digest, now_ms=now_ms))
        except MillpondError:
            return seen  # the session stays usable while the catalog cannot be written
        if not is_stored:
            self._known.pop(session.digest, None)
            raise AuthenticationFailed
        return seen


def idle_until_ms(session: StoredSession) -> int:
    """When the session ends if it is not used any more."""
    return min(session.expires_at_ms, session.seen_at_ms + IDLE_MS)
