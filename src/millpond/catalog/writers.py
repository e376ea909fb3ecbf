"""Writers: every process that commits has a row, and every commit of it a number.

A session marked dead can never commit again, which is what makes its unreferenced bytes safe to collect.
A broker's heartbeat renews `expires_at`; it is judged only by the clock that wrote it. A session that ended in order
had nothing under way when it did; one that died otherwise may have been uploading.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from millpond.catalog.database import Transaction
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
BURY: Final = """
    UPDATE writers SET dead_since = ?, ended_in_order = ? WHERE session = ? AND dead_since IS NULL RETURNING lane
"""
BURY_OTHER_BROKERS: Final = """
    UPDATE writers SET dead_since = ? WHERE kind = 'broker' AND session <> ? AND dead_since IS NULL
    RETURNING session
"""
HAS_EXPIRED: Final = "dead_since IS NULL AND session <> ? AND (clock <> ? OR expires_at < ?)"
BURY_EXPIRED_TOOLS: Final = f"""
    UPDATE writers SET dead_since = ? WHERE kind <> 'broker' AND {HAS_EXPIRED} RETURNING session
"""  # noqa: S608  # our own text
EXPIRED_BROKERS: Final = f"""
    SELECT DISTINCT session FROM writers WHERE kind = 'broker' AND {HAS_EXPIRED} ORDER BY session
"""  # noqa: S608  # our own text
BURY_BROKER: Final = """
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
    tx: Transaction,
    session: Session,
    *,
    kind: str,
    address: str,
    lease_ms: int,
    lane: int = 0,
    wall_ms: int | None = None,
    node_id: int = 0,
) -> None:
    """Lane 0 comes first. A further lane holds the rows of its session, so that a dead one cannot get a new life.
    `wall_ms` is what the wall clock shows, for others to compare theirs with (`wall_clock_ahead`)."""
    if lane > 0:
        renew(tx, session, lease_ms)
    clock, now_ms = tx.lease_clock()
    wall_ahead = None if wall_ms is None else wall_ms - now_ms
    tx.rows(REGISTER, (session, lane, kind, address, clock, now_ms + lease_ms, wall_ahead, node_id))


def renew(tx: Transaction, session: Session, lease_ms: int) -> None:
    """Raises `WriterDead` if somebody has given this session up."""
    clock, now_ms = tx.lease_clock()
    if not tx.rows(RENEW, (clock, now_ms + lease_ms, session)):
        raise WriterDead(session=session)


def bury(tx: Transaction, session: Session, now_ms: int, *, in_order: bool = False) -> None:
    """Declare a session dead. `in_order`: whoever does it knows that nothing of it is being uploaded."""
    tx.rows(BURY, (now_ms, int(in_order), session))


def bury_other_brokers(tx: Transaction, session: Session, now_ms: int) -> list[Session]:
    """For the holder of the data directory's lock: every other broker on it must be gone."""
    return sorted({Session(row[0]) for row in tx.rows(BURY_OTHER_BROKERS, (now_ms, session))})


def bury_expired_tools(tx: Transaction, session: Session, now_ms: int) -> list[Session]:
    """Declare dead every writer that is no broker and has not renewed its lease."""
    clock, lease_now_ms = tx.lease_clock()
    rows = tx.rows(BURY_EXPIRED_TOOLS, (now_ms, session, clock, lease_now_ms))
    return sorted({Session(row[0]) for row in rows})


def expired_brokers(tx: Transaction, session: Session) -> list[Session]:
    """Brokers that have not renewed their leases, except the caller: it is evidently alive, even if the machine slept
    through its lease."""
    return [Session(row[0]) for row in tx.rows(EXPIRED_BROKERS, (session, *tx.lease_clock()))]


def bury_expired_brokers(tx: Transaction, sessions: Sequence[Session], now_ms: int) -> list[Session]:
    """Declare those of them dead that still have not renewed. In a fixed order, since others may do the same."""
    clock, lease_now_ms = tx.lease_clock()
    wanted = [(now_ms, session, clock, lease_now_ms) for session in sorted(sessions)]
    return sorted({Session(row[0]) for rows in tx.each(BURY_BROKER, wanted) for row in rows})


def lease_rests(tx: Transaction) -> dict[Session, int]:
    """How many milliseconds each living broker's lease still has."""
    clock, now_ms = tx.lease_clock()
    return {Session(row[0]): row[1] - now_ms for row in tx.rows(LEASES, (clock,))}


def dead_sessions(tx: Transaction) -> list[DeadSession]:
    """Oldest name first."""
    return [DeadSession(Session(row[0]), row[1], bool(row[2])) for row in tx.rows(DEAD)]


def forget(tx: Transaction, session: Session) -> None:
    """Drop a dead session's row. Without a row it still cannot commit."""
    tx.rows(FORGET, (session,))


def take_number(tx: Transaction, session: Session, lane: int, number: int, token: str) -> LastCommit | None:
    """Claim commit `number`. None: it is ours. A `LastCommit`: it was taken before, and this was its result.
    Raises `WriterDead`, unless it is our own commit that took effect before the session died, and `CatalogWentBack`
    if the session has committed and is not there."""
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
    """Only the dead are forgotten, a day later; whoever has committed before that and is not known is in a catalog of
    another time, and must not simply come back as somebody new."""
    if number == 1:
        return WriterDead(session=session)
    return CatalogWentBack(reason=f"it does not know a session that has committed {number - 1} times")


def keep_result(tx: Transaction, session: Session, lane: int, result: str) -> None:
    tx.rows(KEEP_RESULT, (result, session, lane))


def living(tx: Transaction) -> list[tuple[Session, str, str]]:
    """(session, kind, address) of whoever has not been declared dead."""
    return [(Session(row[0]), row[1], row[2]) for row in tx.rows(LIVING)]


def wall_clock_ahead(tx: Transaction, clock: str) -> int | None:
    """How far the wall clock was ahead of this lease clock when a writer that lives, and told it, was registered."""
    found = tx.rows(WALL_AHEAD, (clock,))
    return int(found[0][0]) if found else None
