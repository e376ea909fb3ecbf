"""Objects that the catalog knows, each with the number of extents that still refer to it.

An object is dead when that number reaches zero. It may be deleted from the store once it has been dead for a
grace period and can no longer grow: it is sealed, or its writer's session is dead.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog.database import CatalogTransaction
from millpond.model.ids import Session

ADD: Final = """
    INSERT INTO objects (key, kind, session, bytes, extents, sealed, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET bytes = objects.bytes + excluded.bytes,
      extents = objects.extents + excluded.extents, sealed = excluded.sealed, dead_since = NULL
    RETURNING id
"""
SEAL: Final = (
    "UPDATE objects SET sealed = 1 WHERE session = ? AND kind = 'journal' AND sealed = 0 AND key <> ?"
)
UNSEALED: Final = "SELECT key FROM objects WHERE session = ? AND kind = 'journal' AND sealed = 0"
SEAL_ONE: Final = "UPDATE objects SET sealed = 1 WHERE key = ?"
RELEASE: Final = """
    UPDATE objects SET extents = extents - ?,
      dead_since = CASE WHEN extents - ? <= 0 THEN ? ELSE dead_since END
    WHERE id = ?
"""
DEAD: Final = """
    SELECT o.id, o.key FROM objects o WHERE o.dead_since IS NOT NULL AND o.dead_since <= ? AND o.extents <= 0
      AND (o.sealed = 1 OR NOT EXISTS
        (SELECT 1 FROM writers w WHERE w.session = o.session AND w.dead_since IS NULL))
    ORDER BY o.dead_since LIMIT ?
"""
FORGET: Final = "DELETE FROM objects WHERE id = ? AND extents <= 0 RETURNING id"
KNOWN: Final = "SELECT key FROM objects WHERE session = ?"
TOTALS: Final = "SELECT kind, count(*), sum(bytes) FROM objects GROUP BY kind ORDER BY kind"


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object as its writer describes it. `sealed` means that nothing more will be appended to it."""

    key: str
    kind: str
    session: Session
    bytes: int
    sealed: bool


def add(tx: CatalogTransaction, new: NewObject, *, extents: int, now_ms: int) -> int:
    """Register an object, or more bytes of a journal that is still growing. Returns its id."""
    parameters = (new.key, new.kind, new.session, new.bytes, extents, int(new.sealed), now_ms)
    object_id: int = tx.rows(ADD, parameters)[0][0]
    return object_id


def seal_earlier(tx: CatalogTransaction, session: Session, open_key: str) -> None:
    """The writer has moved on to `open_key`. Its earlier journals no longer grow."""
    tx.rows(SEAL, (session, open_key))


def unsealed_journals(tx: CatalogTransaction, session: Session) -> list[str]:
    return [row[0] for row in tx.rows(UNSEALED, (session,))]


def seal(tx: CatalogTransaction, key: str) -> None:
    """Nothing more will be committed into this object."""
    tx.rows(SEAL_ONE, (key,))


def release(tx: CatalogTransaction, object_ids: Iterable[int], *, now_ms: int) -> None:
    """Subtract one extent for each id given (ids may repeat). Locks in id order."""
    counts = Counter(object_ids)
    tx.each(RELEASE, [(gone, gone, now_ms, object_id) for object_id, gone in sorted(counts.items())])


def collectable(tx: CatalogTransaction, *, dead_before_ms: int, limit: int) -> list[tuple[int, str]]:
    return [(row[0], row[1]) for row in tx.rows(DEAD, (dead_before_ms, limit))]


def forget(tx: CatalogTransaction, object_ids: Sequence[int]) -> None:
    tx.each(FORGET, [(object_id,) for object_id in object_ids])


def known_keys(tx: CatalogTransaction, session: Session) -> set[str]:
    return {row[0] for row in tx.rows(KNOWN, (session,))}


def totals(tx: CatalogTransaction) -> dict[str, tuple[int, int]]:
    """Count and bytes of objects by kind."""
    return {row[0]: (row[1], int(row[2])) for row in tx.rows(TOTALS)}
