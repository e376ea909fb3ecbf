"""Sessions of browsers, by the SHA-256 of the id that the browser has.

A version counts the sessions that were ended, so that a broker that remembers sessions sees with one read whether it
must look at them again. Logins and times of last use do not change it.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from millpond.catalog.database import CatalogTransaction, Row

SESSIONS_MAX: Final = 10_000
SESSIONS_PER_USER_MAX: Final = 20
"""A login beyond one of them ends the oldest sessions."""
CLEANED_MAX: Final = 1_000
"""Expired sessions that one call deletes."""
IDLE_MS: Final = 30 * 60_000
"""A session that was not used for this long has expired. Its last use is stored to the minute."""

COLUMNS: Final = "digest, principal, credential, credential_version, created_at, seen_at, expires_at"
VERSION: Final = "SELECT next FROM counters WHERE name = 'sessions'"
BUMP: Final = "UPDATE counters SET next = next + 1 WHERE name = 'sessions'"
FIND: Final = f"SELECT {COLUMNS} FROM sessions WHERE digest = ?"  # noqa: S608  # our own names
ALL: Final = f"SELECT {COLUMNS} FROM sessions ORDER BY digest"  # noqa: S608  # our own names
ADD: Final = f"INSERT INTO sessions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  # our own names
SEE: Final = """
    UPDATE sessions SET seen_at = CASE WHEN seen_at > ? THEN seen_at ELSE ? END WHERE digest = ? RETURNING digest
"""
DELETE: Final = "DELETE FROM sessions WHERE digest = ? RETURNING digest"
DELETE_OF_PRINCIPAL: Final = "DELETE FROM sessions WHERE principal = ? RETURNING digest"
DELETE_OF_CREDENTIAL: Final = "DELETE FROM sessions WHERE credential = ? RETURNING digest"
EXPIRED: Final = "SELECT digest FROM sessions WHERE expires_at <= ? OR seen_at <= ? LIMIT ?"
DELETE_EXPIRED: Final = f"DELETE FROM sessions WHERE digest IN ({EXPIRED}) RETURNING digest"  # noqa: S608
COUNT: Final = "SELECT count(*) FROM sessions"
COUNT_OF_PRINCIPAL: Final = "SELECT count(*) FROM sessions WHERE principal = ?"
DELETE_OLDEST: Final = """
    DELETE FROM sessions WHERE digest IN (SELECT digest FROM sessions ORDER BY created_at, digest LIMIT ?)
"""
DELETE_OLDEST_OF_PRINCIPAL: Final = """
    DELETE FROM sessions WHERE digest IN
      (SELECT digest FROM sessions WHERE principal = ? ORDER BY created_at, digest LIMIT ?)
"""


class StoredSession(NamedTuple):
    """`credential` and `credential_version` are those of the login, as in the identity of the client. The session ends
    at `expires_at_ms`, or `IDLE_MS` after its last use."""

    digest: bytes
    principal: str
    credential: str
    credential_version: int
    created_at_ms: int
    seen_at_ms: int
    expires_at_ms: int

    def has_expired(self, now_ms: int) -> bool:
        return min(self.expires_at_ms, self.seen_at_ms + IDLE_MS) <= now_ms

    def __repr__(self) -> str:
        return f"StoredSession(principal={self.principal!r})"


def version(tx: CatalogTransaction) -> int:
    found: int = tx.rows(VERSION)[0][0]
    return found


def find(tx: CatalogTransaction, digest: bytes) -> tuple[int, StoredSession | None]:
    """The version, and the session. The version is read first: an end that is committed meanwhile raises it."""
    before = version(tx)
    rows = tx.rows(FIND, (digest,))
    return before, _session(rows[0]) if rows else None


def read(tx: CatalogTransaction) -> tuple[int, list[StoredSession]]:
    """The version, and all sessions."""
    before = version(tx)
    return before, [_session(row) for row in tx.rows(ALL)]


def add(tx: CatalogTransaction, session: StoredSession, *, replaces: Collection[bytes] = ()) -> None:
    """Store a session, and delete those that it replaces, expired ones, and the oldest beyond the limits."""
    for digest in replaces:
        end(tx, digest)
    clean(tx, now_ms=session.created_at_ms)
    own: int = tx.rows(COUNT_OF_PRINCIPAL, (session.principal,))[0][0]
    if own >= SESSIONS_PER_USER_MAX:
        tx.rows(DELETE_OLDEST_OF_PRINCIPAL, (session.principal, own - SESSIONS_PER_USER_MAX + 1))
        tx.rows(BUMP)
    every: int = tx.rows(COUNT)[0][0]
    if every >= SESSIONS_MAX:
        tx.rows(DELETE_OLDEST, (every - SESSIONS_MAX + 1,))
        tx.rows(BUMP)
    tx.rows(ADD, session)


def see(tx: CatalogTransaction, digest: bytes, *, now_ms: int) -> bool:
    """Store that a session is in use. False if it has ended."""
    return bool(tx.rows(SEE, (now_ms, now_ms, digest)))


def end(tx: CatalogTransaction, digest: bytes) -> bool:
    """Delete a session. False if there is none."""
    return bool(_ended(tx, tx.rows(DELETE, (digest,))))


def end_all_of(tx: CatalogTransaction, principal: str) -> int:
    """Delete the sessions of a principal. Returns their number."""
    return _ended(tx, tx.rows(DELETE_OF_PRINCIPAL, (principal,)))


def end_all_by(tx: CatalogTransaction, credential: str) -> int:
    """Delete the sessions that were opened with a credential. Returns their number."""
    return _ended(tx, tx.rows(DELETE_OF_CREDENTIAL, (credential,)))


def has_expired_ones(tx: CatalogTransaction, *, now_ms: int) -> bool:
    return bool(tx.rows(EXPIRED, (now_ms, now_ms - IDLE_MS, 1)))


def clean(tx: CatalogTransaction, *, now_ms: int) -> int:
    """Delete expired sessions, up to `CLEANED_MAX`. Returns their number."""
    return _ended(tx, tx.rows(DELETE_EXPIRED, (now_ms, now_ms - IDLE_MS, CLEANED_MAX)))


def _ended(tx: CatalogTransaction, rows: list[Row]) -> int:
    if rows:
        tx.rows(BUMP)
    return len(rows)


def _session(row: Row) -> StoredSession:
    digest, *rest = row
    return StoredSession(bytes(digest), *rest)
