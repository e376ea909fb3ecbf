"""Writers: every process that commits has a row, and each of its commits has a number.

A session marked dead can never commit again, which makes its unreferenced bytes safe to collect. A broker's
heartbeat renews `expires_at`, which is compared only with the clock that wrote it. A session that ended in
order had nothing in flight when it ended. A session that died in any other way may have been uploading.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from millpond.catalog.database import CatalogTransaction
from millpond.model.errors import CatalogWentBack, MillpondError, WriterDead
from millpond.model.ids import Session

REGISTER: Final = """
    INSERT INTO writers (session, lane, kind, address, clock, expires_at, wall_ahead, node_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
RENEW: Final = """
    UPDATE writers SET clock = ?, expires_at = ? WHERE session = ? AND dead_since IS NULL RETURNING lane
"""
NUMBER: Final = """
    UPDATE writers SET commit_no = ?, token = ? WHERE session = ? AND lane = ? AND commit_no = ?
       AND dead_since IS NULL RETURNING commit_no
"""
KEEP_RESULT: Final = "UPDATE writers SET result = ? WHERE session = ? AND lane = ?"
LAST_COMMIT: Final = "SELECT commit_no, token, result, dead_since FROM writers WHERE session = ? AND lane = ?"
MARK_DEAD: Final = """
    UPDATE writers SET dead_since = ?, ended_in_order = ? WHERE session = ? AND dead_since IS NULL RETURNING lane
"""
MARK_OTHER_BROKERS_DEAD: Final = """
    UPDATE writers SET dead_since = ? WHERE kind = 'broker' AND session <> ? AND dead_since IS NULL
    RETURNING session
"""
HAS_EXPIRED: Final = "dead_since IS NULL AND session <> ? AND (clock <> ? OR expires_at < ?)"
MARK_EXPIRED_TOOLS_DEAD: Final = f"""
    UPDATE writers SET dead_since = ? WHERE kind <> 'broker' AND {HAS_EXPIRED} RETURNING session
"""  # noqa: S608  # our own text
EXPIRED_BROKERS: Final = f"""
    SELECT DISTINCT session FROM writers WHERE kind = 'broker' AND {HAS_EXPIRED} ORDER BY session
"""  # noqa: S608  # our own text
MARK_BROKER_DEAD: Final = """
    UPDATE writers SET dead_since = ?
    WHERE session = ? AND kind = 'broker' AND dead_since IS NULL AND (clock <> ? OR expires_at < ?) RETURNING session
"""
LEASES: Final = """
    SELECT session, expires_at FROM writers
    WHERE dead_since IS NULL AND kind = 'broker' AND lane = 0 AND clock = ?
"""
DEAD: Final = """
    SELECT DISTINCT session, dead_since, ended_in_order FROM writers WHERE dead_since IS NOT NULL ORDER BY session
"""
FORGET: Final = "DELETE FROM writers WHERE session = ? AND dead_since IS NOT NULL"
LIVING: Final = (
    "SELECT session, kind, address FROM writers WHERE dead_since IS NULL AND lane = 0 ORDER BY session"
)
WALL_AHEAD: Final = """
    SELECT wall_ahead FROM writers WHERE clock = ? AND dead_since IS NULL AND wall_ahead IS NOT NULL
    ORDER BY expires_at DESC LIMIT 1
"""


class DeadSession(NamedTuple):
    session: Session
    dead_since: int
    in_order: bool


@dataclass(frozen=True, slots=True)
class LastCommit:
    number: int
    token: str | None
    result: str | None


def register(
    tx: CatalogTransaction,
    session: Session,
    *,
    kind: str,
    address: str,
    lease_ms: int,
    lane: int = 0,
    wall_ms: int | None = None,
    node_id: int = 0,
) -> None:
    """Lane 0 is registered first. Registering a further lane locks the rows of its session, so that a dead
    session cannot come back. `wall_ms` is the wall clock's time, for other processes to compare theirs with
    (`wall_clock_ahead`)."""
    if lane > 0:
        renew(tx, session, lease_ms)
    clock, now_ms = tx.lease_clock()
    wall_ahead = None if wall_ms is None else wall_ms - now_ms
    tx.rows(REGISTER, (session, lane, kind, address, clock, now_ms + lease_ms, wall_ahead, node_id))


def renew(tx: CatalogTransaction, session: Session, lease_ms: int) -> None:
    """Raises `WriterDead` if another process has marked this session dead."""
    clock, now_ms = tx.lease_clock()
    if not tx.rows(RENEW, (clock, now_ms + lease_ms, session)):
        raise WriterDead(session=session)


def mark_dead(tx: CatalogTransaction, session: Session, now_ms: int, *, in_order: bool = False) -> None:
    """Mark a session dead. `in_order` says that the caller knows that none of its bytes are being uploaded."""
    tx.rows(MARK_DEAD, (now_ms, int(in_order), session))


def mark_other_brokers_dead(tx: CatalogTransaction, session: Session, now_ms: int) -> list[Session]:
    """For the holder of the data directory's lock: every other broker of that directory must be gone."""
    return sorted({Session(row[0]) for row in tx.rows(MARK_OTHER_BROKERS_DEAD, (now_ms, session))})


def mark_expired_tools_dead(tx: CatalogTransaction, session: Session, now_ms: int) -> list[Session]:
    """Mark dead every writer other than a broker whose lease has expired."""
    clock, lease_now_ms = tx.lease_clock()
    rows = tx.rows(MARK_EXPIRED_TOOLS_DEAD, (now_ms, session, clock, lease_now_ms))
    return sorted({Session(row[0]) for row in rows})


def expired_brokers(tx: CatalogTransaction, session: Session) -> list[Session]:
    """Brokers whose leases have expired, except the caller: it is evidently alive, even if the machine slept
    through its lease."""
    return [Session(row[0]) for row in tx.rows(EXPIRED_BROKERS, (session, *tx.lease_clock()))]


def mark_expired_brokers_dead(
    tx: CatalogTransaction, sessions: Sequence[Session], now_ms: int
) -> list[Session]:
    """Mark dead those of these brokers whose leases are still expired. In a fixed order, since other brokers
    may do the same."""
    clock, lease_now_ms = tx.lease_clock()
    wanted = [(now_ms, session, clock, lease_now_ms) for session in sorted(sessions)]
    return sorted({Session(row[0]) for rows in tx.each(MARK_BROKER_DEAD, wanted) for row in rows})


def lease_remaining_ms(tx: CatalogTransaction) -> dict[Session, int]:
    """The milliseconds until each live broker's lease expires."""
    clock, now_ms = tx.lease_clock()
    return {Session(row[0]): row[1] - now_ms for row in tx.rows(LEASES, (clock,))}


def dead_sessions(tx: CatalogTransaction) -> list[DeadSession]:
    """Ordered by session name, oldest first."""
    return [DeadSession(Session(row[0]), row[1], bool(row[2])) for row in tx.rows(DEAD)]


def forget(tx: CatalogTransaction, session: Session) -> None:
    """Remove a dead session's row. Without a row it still cannot commit."""
    tx.rows(FORGET, (session,))


def claim_commit_number(
    tx: CatalogTransaction, session: Session, lane: int, number: int, token: str
) -> LastCommit | None:
    """Claim commit `number`. Returns None if it is claimed now, or the `LastCommit` with its result if it was
    taken before. Raises `WriterDead`, unless the last commit is the caller's own and took effect before the
    session died. Raises `CatalogWentBack` if the session has committed before and has no row."""
    if tx.rows(NUMBER, (number, token, session, lane, number - 1)):
        return None
    found = tx.rows(LAST_COMMIT, (session, lane))
    if not found:
        raise _unknown(session, number)
    last, last_token, result, dead_since = found[0]
    if dead_since is not None and last_token != token:
        raise WriterDead(session=session)
    return LastCommit(last, last_token, result)


def _unknown(session: Session, number: int) -> MillpondError:
    """Only dead sessions are removed, a day after their death. If a session has committed and has no row, the
    catalog is of another time; the session must not simply register again."""
    if number == 1:
        return WriterDead(session=session)
    return CatalogWentBack(reason=f"it does not know a session that has committed {number - 1} times")


def store_result(tx: CatalogTransaction, session: Session, lane: int, result: str) -> None:
    tx.rows(KEEP_RESULT, (result, session, lane))


def living(tx: CatalogTransaction) -> list[tuple[Session, str, str]]:
    """(session, kind, address) of every writer that has not been marked dead."""
    return [(Session(row[0]), row[1], row[2]) for row in tx.rows(LIVING)]


def wall_clock_ahead(tx: CatalogTransaction, clock: str) -> int | None:
    """How far the wall clock was ahead of this lease clock when a live writer that reported it registered."""
    found = tx.rows(WALL_AHEAD, (clock,))
    return int(found[0][0]) if found else None
