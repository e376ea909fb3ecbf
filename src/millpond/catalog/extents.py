"""Extents: which bytes hold which offsets. Every read is an index scan that stops at its budget.

`high_timestamp` is the newest timestamp of the partition up to and including the extent. It never falls from
one extent to the next, so a timestamp is found by bisection, without a separate index.

Every function that changes extents locks in the same order as appends: the partition's row, its extents,
their objects.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog import objects
from millpond.catalog.database import CatalogTransaction, Row
from millpond.model.errors import ExtentsChanged
from millpond.model.extents import NO_APPEND_TIME, Extent
from millpond.model.ids import TopicId, TopicPartition
from millpond.segments.index import unpack_index

INSERT: Final = """
    INSERT INTO extents (topic_id, partition, base_offset, end_offset, epoch, object_id, position, length,
      records, min_timestamp, max_timestamp, high_timestamp, stamped, sparse_index, inline, appended_at, late_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
COLUMNS: Final = """
    e.topic_id, e.partition, e.base_offset, e.end_offset, e.epoch, e.position, e.length, e.records,
    e.min_timestamp, e.max_timestamp, e.stamped, o.key, e.sparse_index, e.appended_at, e.late_at
"""
END_OFFSET: Final = 3
FROM: Final = (
    "FROM extents e LEFT JOIN objects o ON o.id = e.object_id WHERE e.topic_id = ? AND e.partition = ?"
)
# One statement, hence one snapshot. With a lookup followed by a separate scan, an extent that a merge replaces in
# between would be skipped silently.
SCAN: Final = f"""
    SELECT {COLUMNS}, e.inline {FROM} AND e.base_offset >= coalesce(
      (SELECT max(f.base_offset) FROM extents f WHERE f.topic_id = ? AND f.partition = ? AND f.base_offset <= ?), 0)
    ORDER BY e.base_offset LIMIT ?
"""  # noqa: S608  # our own columns
SCAN_FACTS: Final = f"""
    SELECT {COLUMNS}, NULL {FROM} AND e.base_offset >= ? ORDER BY e.base_offset LIMIT ?
"""
SCAN_OUTLINES: Final = SCAN_FACTS.replace("e.sparse_index", "NULL")
BY_MAX_TIMESTAMP: Final = f"""
    SELECT {COLUMNS}, e.inline {FROM} AND e.max_timestamp >= ? AND e.base_offset >= ?
    ORDER BY e.base_offset LIMIT 1
"""
NEWEST_TIMESTAMP: Final = f"""
    SELECT {COLUMNS}, e.inline {FROM} ORDER BY e.max_timestamp DESC, e.base_offset LIMIT 1
"""
BOUNDS: Final = "SELECT min(base_offset), max(base_offset) FROM extents WHERE topic_id = ? AND partition = ?"
HIGH_AT: Final = """
    SELECT base_offset, high_timestamp FROM extents WHERE topic_id = ? AND partition = ? AND base_offset <= ?
    ORDER BY base_offset DESC LIMIT 1
"""
REMOVE: Final = """
    DELETE FROM extents WHERE topic_id = ? AND partition = ? AND base_offset = ? AND end_offset <= ?
    RETURNING object_id, length
"""
OLDEST: Final = """
    SELECT base_offset FROM extents WHERE topic_id = ? AND partition = ? AND base_offset < ? AND end_offset <= ?
    ORDER BY base_offset LIMIT ?
"""
HOLD: Final = "UPDATE partitions SET bytes = bytes WHERE topic_id = ? AND partition = ? RETURNING log_start"
EXACTLY: Final = """
    topic_id = ? AND partition = ? AND base_offset = ? AND end_offset = ? AND position = ? AND length = ?
      AND appended_at = ? AND coalesce(object_id, 0) = coalesce((SELECT id FROM objects WHERE key = ?), 0)
"""
"""Matches an extent that is unchanged since it was read. The append time is compared because `examined` may
have changed the timestamps together with it."""
REMOVE_EXACT: Final = f"""
    DELETE FROM extents WHERE {EXACTLY} RETURNING object_id, length, base_offset, high_timestamp, appended_at, late_at
"""  # noqa: S608  # our own text
EXAMINED: Final = f"""
    UPDATE extents SET min_timestamp = ?, max_timestamp = ?, appended_at = ?, late_at = ? WHERE {EXACTLY}
    RETURNING base_offset
"""  # noqa: S608  # our own text
NEXT_AS_HIGH: Final = """
    SELECT base_offset FROM extents WHERE topic_id = ? AND partition = ? AND base_offset > ? AND high_timestamp >= ?
    ORDER BY base_offset LIMIT 1
"""
RAISE: Final = """
    UPDATE extents SET high_timestamp = ? WHERE topic_id = ? AND partition = ? AND base_offset > ? AND base_offset < ?
"""
RAISE_PARTITION: Final = """
    UPDATE partitions SET high_timestamp = ? WHERE topic_id = ? AND partition = ? AND high_timestamp < ?
"""
SHRINK: Final = "UPDATE partitions SET bytes = bytes - ? WHERE topic_id = ? AND partition = ? RETURNING bytes"
FIRST_SMALL: Final = """
    SELECT min(base_offset) FROM extents WHERE topic_id = ? AND partition = ? AND length < ?
"""
COUNT: Final = """
    SELECT count(*), coalesce(sum(CASE WHEN inline IS NULL THEN 0 ELSE 1 END), 0),
      coalesce(sum(CASE WHEN inline IS NULL THEN 0 ELSE length END), 0) FROM extents
"""

OLDEST_TIMESTAMP: Final = "SELECT min(min_timestamp) FROM extents WHERE topic_id = ?"
SPANS_IN_TIME: Final = """
    SELECT base_offset, end_offset FROM extents WHERE topic_id = ? AND partition = ? AND end_offset > ?
      AND min_timestamp <= ? AND (max_timestamp >= ? OR min_timestamp < 0)
    ORDER BY base_offset LIMIT ?
"""

BASE_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class NewExtent:
    """A row about to be inserted; `sparse_index` is packed."""

    topic_partition: TopicPartition
    base_offset: int
    end_offset: int
    epoch: int
    object_id: int | None
    position: int
    length: int
    records: int
    min_timestamp: int
    max_timestamp: int
    high_timestamp: int
    stamped: bool
    sparse_index: bytes | None
    inline: bytes | bytearray | memoryview | None
    appended_at: int = NO_APPEND_TIME
    late_at: int = NO_APPEND_TIME


@dataclass(frozen=True, slots=True)
class ExtentTotals:
    """The number of rows, and how much of the data is inline in the catalog."""

    extents: int
    inline: int
    inline_bytes: int


def insert(tx: CatalogTransaction, rows: Sequence[NewExtent]) -> None:
    tx.each(INSERT, [_parameters(row) for row in rows])


def find(
    tx: CatalogTransaction, topic_partition: TopicPartition, offset: int, *, bytes_max: int, extents_max: int
) -> list[Extent]:
    """Extents from the one that contains `offset` (or the next one, in a gap) on, until a budget is used up."""
    taken: list[Extent] = []
    room = bytes_max
    for row in tx.rows(SCAN, (*topic_partition, *topic_partition, offset, extents_max + 1)):
        if taken and (room <= 0 or len(taken) == extents_max):
            break
        if row[END_OFFSET] > offset:
            taken.append(extent := _extent(row))
            room -= extent.length
    return taken


def facts(tx: CatalogTransaction, topic_partition: TopicPartition, offset: int, limit: int) -> list[Extent]:
    """Extents from base offset `offset` on, without their inline bytes. Plans need no more."""
    return [_extent(row) for row in tx.rows(SCAN_FACTS, (*topic_partition, offset, limit))]


def outlines(tx: CatalogTransaction, topic_partition: TopicPartition, limit: int) -> list[Extent]:
    """The first extents, also without their indexes. For callers that process a whole partition."""
    return [_extent(row) for row in tx.rows(SCAN_OUTLINES, (*topic_partition, 0, limit))]


def first_with_timestamp(
    tx: CatalogTransaction, topic_partition: TopicPartition, timestamp: int
) -> Extent | None:
    """The first extent that contains a record with this timestamp or a later one. O(log n), unless retention has
    removed the extent that first reached the timestamp; that can happen only if timestamps run backwards."""
    low, high = tx.rows(BOUNDS, topic_partition)[0]
    if low is None:
        return None
    while low < high:
        middle = (low + high) // 2
        reached = tx.rows(
            HIGH_AT, (*topic_partition, middle)
        )  # empty if retention has removed these extents since
        if reached and reached[0][1] >= timestamp:
            high = reached[0][0]
        else:
            low = middle + 1
    return next_with_timestamp(tx, topic_partition, timestamp, low)


def next_with_timestamp(
    tx: CatalogTransaction, topic_partition: TopicPartition, timestamp: int, offset: int
) -> Extent | None:
    """The first extent from base offset `offset` on that contains a record with this timestamp or a later one."""
    found = tx.rows(BY_MAX_TIMESTAMP, (*topic_partition, timestamp, offset))
    return _extent(found[0]) if found else None


def with_newest_timestamp(tx: CatalogTransaction, topic_partition: TopicPartition) -> Extent | None:
    """The first of the extents that contain the newest timestamp."""
    newest = tx.rows(HIGH_AT, (*topic_partition, BASE_OFFSET_MAX))
    if not newest:
        return None
    found = first_with_timestamp(tx, topic_partition, newest[0][1])
    if found is not None:
        return found
    rows = tx.rows(NEWEST_TIMESTAMP, topic_partition)
    return _extent(rows[0]) if rows else None


def oldest_timestamp(tx: CatalogTransaction, topic_id: TopicId) -> int | None:
    """A lower bound for the timestamps of the topic's records; None if the topic has no extents. Reads every
    row of the topic."""
    oldest: int | None = tx.rows(OLDEST_TIMESTAMP, (topic_id,))[0][0]
    return oldest


def spans_in_time(
    tx: CatalogTransaction,
    topic_partition: TopicPartition,
    start_ms: int,
    end_ms: int,
    *,
    offset: int,
    limit: int,
) -> list[tuple[int, int]]:
    """Offsets (base, end) of the extents that may contain records of this time range, or records without a
    timestamp, in any order of timestamps. Starts with the extent that contains `offset`."""
    return [
        (row[0], row[1])
        for row in tx.rows(SPANS_IN_TIME, (*topic_partition, offset, end_ms, start_ms, limit))
    ]


def hold(tx: CatalogTransaction, topic_partition: TopicPartition) -> int | None:
    """Lock the partition's row until the transaction ends. Returns its log start, None if the partition is gone."""
    found = tx.rows(HOLD, topic_partition)
    return found[0][0] if found else None


def remove_below(
    tx: CatalogTransaction, topic_partition: TopicPartition, offset: int, *, limit: int, now_ms: int
) -> int:
    """Remove up to `limit` of the oldest extents that end at or below `offset`. Returns the number removed.
    Also works for a deleted topic, whose partition rows are removed before its extents."""
    hold(tx, topic_partition)
    gone = _remove_oldest(tx, topic_partition, offset, limit)
    if gone:
        tx.rows(SHRINK, (sum(row[1] for row in gone), *topic_partition))
        objects.release(tx, (row[0] for row in gone if row[0] is not None), now_ms=now_ms)
    return len(gone)


def _remove_oldest(
    tx: CatalogTransaction, topic_partition: TopicPartition, offset: int, limit: int
) -> list[Row]:
    bases = [row[0] for row in tx.rows(OLDEST, (*topic_partition, offset, offset, limit))]
    return [
        row for rows in tx.each(REMOVE, [(*topic_partition, base, offset) for base in bases]) for row in rows
    ]


def replace(
    tx: CatalogTransaction,
    old: Sequence[Extent],
    new: NewExtent,
    new_object: objects.NewObject,
    *,
    now_ms: int,
) -> None:
    """Replace several extents by one. Raises `ExtentsChanged` unless all of them are unchanged and the
    partition still exists."""
    if hold(tx, new.topic_partition) is None:
        raise ExtentsChanged
    replace_all(tx, new.topic_partition, old, [(new, new_object)], now_ms=now_ms)


def replace_all(
    tx: CatalogTransaction,
    topic_partition: TopicPartition,
    old: Sequence[Extent],
    new: Sequence[tuple[NewExtent, objects.NewObject]],
    *,
    now_ms: int,
    expired_below: int = 0,
) -> None:
    """Replace extents of one partition by new ones, each with its own object; each new extent covers whole
    old ones. Raises `ExtentsChanged` unless all old extents are unchanged.

    Extents that lie wholly below `expired_below` are removed as well, and old extents there may be gone
    already. Every new extent ends above `expired_below`. The caller holds the partition's row.
    """
    expired = _remove_oldest(tx, topic_partition, expired_below, BASE_OFFSET_MAX) if expired_below else []
    living = [e for e in old if e.end_offset > expired_below]
    removed = [row for rows in tx.each(REMOVE_EXACT, [_exactly(e) for e in living]) for row in rows]
    if len(removed) != len(living):
        raise ExtentsChanged
    gone = expired + removed
    if gone:
        shrunk = sum(row[1] for row in gone) - sum(row.length for row, _ in new)
        tx.rows(SHRINK, (shrunk, *topic_partition))
    insert(tx, [_registered(tx, row, new_object, removed, now_ms) for row, new_object in new])
    objects.release(tx, (row[0] for row in gone if row[0] is not None), now_ms=now_ms)


def _registered(
    tx: CatalogTransaction, new: NewExtent, new_object: objects.NewObject, removed: Sequence[Row], now_ms: int
) -> NewExtent:
    """The new extent with its object's id. Its `high_timestamp` is at least that of the last extent replaced
    up to its end, so it still does not fall from one extent to the next. Its append time is the newest of its
    own and those of the extents it replaces; if one of these has none, its own remains."""
    object_id = objects.add(tx, new_object, extents=1, now_ms=now_ms)
    last = max((row for row in removed if row[2] < new.end_offset), key=lambda row: row[2])
    replaced = [row for row in removed if new.base_offset <= row[2] < new.end_offset]
    appended_at, late_at = max(row[4] for row in replaced), max(row[5] for row in replaced)
    if NO_APPEND_TIME in (row[4] for row in replaced):
        appended_at = NO_APPEND_TIME
    if new.max_timestamp > last[3]:
        _raise_high_timestamps(tx, new)
    return dataclasses.replace(
        new,
        object_id=object_id,
        high_timestamp=max(last[3], new.max_timestamp),
        appended_at=max(new.appended_at, appended_at),
        late_at=max(new.late_at, late_at),
    )


def _raise_high_timestamps(tx: CatalogTransaction, row: NewExtent) -> None:
    """Raise `high_timestamp` of all that follows an extent whose predecessor had too low timestamps."""
    high, start = row.max_timestamp, (*row.topic_partition, row.base_offset)
    found = tx.rows(NEXT_AS_HIGH, (*start, high))
    tx.rows(RAISE, (high, *start, found[0][0] if found else BASE_OFFSET_MAX))
    tx.rows(RAISE_PARTITION, (high, *row.topic_partition, high))


def examined(tx: CatalogTransaction, extent: Extent, oldest: int, newest: int, *, appended_at: int) -> None:
    """Store the timestamps that an examination found in an extent, and an append time. Its batch headers need
    no correction; an extent that needs one is replaced instead. Raises `ExtentsChanged` unless the extent is
    unchanged."""
    found = (oldest, newest, appended_at, appended_at)
    if hold(tx, extent.topic_partition) is None or not tx.rows(EXAMINED, (*found, *_exactly(extent))):
        raise ExtentsChanged


def _exactly(extent: Extent) -> tuple[int | bytes | str | None, ...]:
    bounds = (extent.base_offset, extent.end_offset, extent.position, extent.length)
    return (*extent.topic_partition, *bounds, extent.appended_at, extent.key)


def first_small(
    tx: CatalogTransaction, topic_partitions: Sequence[TopicPartition], smaller_than: int
) -> dict[TopicPartition, int]:
    """The base offset of each partition's first small extent, if it has one. Reads every row of these partitions."""
    found = tx.each(FIRST_SMALL, [(*topic_partition, smaller_than) for topic_partition in topic_partitions])
    return {
        topic_partition: rows[0][0]
        for topic_partition, rows in zip(topic_partitions, found, strict=True)
        if rows[0][0] is not None
    }


def totals(tx: CatalogTransaction) -> ExtentTotals:
    return ExtentTotals(*(int(value) for value in tx.rows(COUNT)[0]))


def _parameters(row: NewExtent) -> tuple[int | bytes | bytearray | memoryview | None, ...]:
    return (
        *row.topic_partition,
        row.base_offset,
        row.end_offset,
        row.epoch,
        row.object_id,
        row.position,
        row.length,
        row.records,
        row.min_timestamp,
        row.max_timestamp,
        row.high_timestamp,
        int(row.stamped),
        row.sparse_index,
        row.inline,
        row.appended_at,
        row.late_at,
    )


def _extent(row: Row) -> Extent:
    (
        topic_id,
        partition,
        base,
        end,
        epoch,
        position,
        length,
        records,
        low,
        high,
        stamped,
        key,
        index,
        appended_at,
        late_at,
        inline,
    ) = row
    return Extent(
        topic_partition=TopicPartition(TopicId(bytes(topic_id)), partition),
        base_offset=base,
        end_offset=end,
        epoch=epoch,
        position=position,
        length=length,
        records=records,
        min_timestamp=low,
        max_timestamp=high,
        stamped=bool(stamped),
        key=key,
        inline=None if inline is None else bytes(inline),
        index=unpack_index(bytes(index)) if index else (),
        appended_at=appended_at,
        late_at=late_at,
    )
