"""What makes a sink exactly once: its newest batch, moved up in the same transaction as the batch's extents.

A sink's batches come in rising numbers, one at a time. One that comes again finds its number taken and changes
nothing, whether it is the last one or an older one.
"""

from typing import Final

from millpond.catalog.database import Transaction
from millpond.model.ids import Session

CLAIM: Final = """
    INSERT INTO sink_commits (sink, batch, session, committed_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (sink) DO UPDATE SET batch = excluded.batch, session = excluded.session,
      committed_at = excluded.committed_at WHERE sink_commits.batch < excluded.batch
    RETURNING batch
"""
NEWEST: Final = "SELECT batch FROM sink_commits WHERE sink = ?"


def claim(tx: Transaction, sink: str, batch: int, session: Session, *, now_ms: int) -> bool:
    """Whether this batch of the sink is new. If not, it was committed before, and nothing is to be done."""
    return bool(tx.rows(CLAIM, (sink, batch, session, now_ms)))


def newest_batch(tx: Transaction, sink: str) -> int | None:
    found = tx.rows(NEWEST, (sink,))
    return found[0][0] if found else None
