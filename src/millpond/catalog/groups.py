"""Groups of all types, and their committed offsets. Writers lock the group's coordinator shard first.

A classic group is one row. A consumer group and a share group have a row for each member as well, so that a change of
one member writes one row. Its `state` is Empty or Stable: how far its members are is known from the members.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog.coordinators import shard_of
from millpond.catalog.database import CatalogTransaction, Row
from millpond.model.ids import TopicId, TopicPartition

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
SAVE: Final = """
    INSERT INTO groups
      (group_id, shard, generation, protocol_type, state, members, updated_at, type, state_of_type)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (group_id) DO UPDATE SET generation = excluded.generation,
      protocol_type = excluded.protocol_type, state = excluded.state, members = excluded.members,
      updated_at = excluded.updated_at, type = excluded.type, state_of_type = excluded.state_of_type
"""
SAVE_EPOCH: Final = "UPDATE groups SET generation = ?, state = ?, updated_at = ? WHERE group_id = ?"
COLUMNS: Final = """
    SELECT group_id, generation, protocol_type, state, members, updated_at, type, state_of_type FROM groups
"""
OF_SHARD: Final = f"{COLUMNS} WHERE shard = ? ORDER BY group_id"
ONE: Final = f"{COLUMNS} WHERE group_id = ?"
SAVE_MEMBER: Final = """
    INSERT INTO group_members (group_id, member_id, member) VALUES (?, ?, ?)
    ON CONFLICT (group_id, member_id) DO UPDATE SET member = excluded.member
"""
REMOVE_MEMBER: Final = "DELETE FROM group_members WHERE group_id = ? AND member_id = ?"
REMOVE_MEMBERS: Final = "DELETE FROM group_members WHERE group_id = ?"
MEMBERS: Final = "SELECT member_id, member FROM group_members WHERE group_id = ? ORDER BY member_id"
ALL: Final = """
    SELECT group_id, protocol_type, state, type FROM groups
    UNION ALL
    SELECT DISTINCT group_id, '', 'Empty', 'classic' FROM group_offsets o
    WHERE NOT EXISTS (SELECT 1 FROM groups g WHERE g.group_id = o.group_id)
    ORDER BY group_id
"""
DELETE: Final = "DELETE FROM groups WHERE group_id = ? RETURNING group_id"
FORGET_EMPTY: Final = """
    DELETE FROM groups WHERE state = 'Empty' AND type <> 'share'
      AND NOT EXISTS (SELECT 1 FROM group_offsets o WHERE o.group_id = groups.group_id)
      AND NOT EXISTS (SELECT 1 FROM txn_offsets t WHERE t.group_id = groups.group_id)
    RETURNING group_id
"""
COMMIT: Final = """
    INSERT INTO group_offsets (group_id, topic_id, partition, committed_offset, leader_epoch, metadata, committed_at)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET committed_offset = excluded.committed_offset,
      leader_epoch = excluded.leader_epoch, metadata = excluded.metadata, committed_at = excluded.committed_at
"""
OFFSETS: Final = """
    SELECT topic_id, partition, committed_offset, leader_epoch, metadata FROM group_offsets
    WHERE group_id = ? ORDER BY topic_id, partition
"""
HAS_OFFSETS: Final = "SELECT 1 FROM group_offsets WHERE group_id = ? LIMIT 1"
PENDING: Final = "SELECT DISTINCT topic_id, partition FROM txn_offsets WHERE group_id = ?"
DELETE_OFFSET: Final = """
    DELETE FROM group_offsets WHERE group_id = ? AND topic_id = ? AND partition = ? RETURNING partition
"""
DELETE_PENDING_OFFSET: Final = (
    "DELETE FROM txn_offsets WHERE group_id = ? AND topic_id = ? AND partition = ? RETURNING partition"
)
FORGET_PENDING: Final = "DELETE FROM txn_offsets WHERE group_id = ? AND topic_id = ? AND partition = ?"
DELETE_OFFSETS: Final = "DELETE FROM group_offsets WHERE group_id = ? RETURNING partition"
DELETE_PENDING_OFFSETS: Final = "DELETE FROM txn_offsets WHERE group_id = ? RETURNING partition"
EXPIRE: Final = """
    DELETE FROM group_offsets WHERE committed_at < ? AND NOT EXISTS
      (SELECT 1 FROM groups g WHERE g.group_id = group_offsets.group_id
        AND (g.state <> 'Empty' OR g.updated_at >= ?))
    RETURNING group_id
"""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """`members`, of a classic group, and `state_of_type`, of others, are the coordinator's own JSON; the catalog does
    not interpret it."""

    group_id: str
    generation: int
    protocol_type: str
    state: str
    members: str
    updated_at: int
    type: str = CLASSIC
    state_of_type: str = ""


@dataclass(frozen=True, slots=True)
class GroupName:
    """A group in a listing. A group that has only offsets has no protocol type."""

    group_id: str
    protocol_type: str
    state: str
    type: str = CLASSIC


@dataclass(frozen=True, slots=True)
class GroupOffset:
    topic_partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def save(tx: CatalogTransaction, group: GroupRow) -> None:
    """Save a group, or the part of it that is not in rows of its members. A classic group has none."""
    shard = shard_of(group.group_id)
    fields = (group.generation, group.protocol_type, group.state, group.members, group.updated_at)
    tx.rows(SAVE, (group.group_id, shard, *fields, group.type, group.state_of_type))
    if group.type == CLASSIC:
        remove_members(tx, group.group_id)


def save_epoch(tx: CatalogTransaction, group_id: str, epoch: int, state: str, *, now_ms: int) -> None:
    """Save what has changed of a stored consumer or share group, if nothing else of its row has."""
    tx.rows(SAVE_EPOCH, (epoch, state, now_ms, group_id))


def save_members(tx: CatalogTransaction, group_id: str, members: Mapping[str, str | None]) -> None:
    """Save members by id; those with the value None are removed."""
    kept = [(group_id, member_id, text) for member_id, text in members.items() if text is not None]
    removed = [(group_id, member_id) for member_id, text in members.items() if text is None]
    tx.each(REMOVE_MEMBER, removed)
    tx.each(SAVE_MEMBER, kept)


def remove_members(tx: CatalogTransaction, group_id: str) -> None:
    tx.rows(REMOVE_MEMBERS, (group_id,))


def members(tx: CatalogTransaction, group_id: str) -> dict[str, str]:
    """The rows of members, by id."""
    return dict(tx.rows(MEMBERS, (group_id,)))


def of_shard(tx: CatalogTransaction, shard: int) -> list[GroupRow]:
    return [GroupRow(*row) for row in tx.rows(OF_SHARD, (shard,))]


def find(tx: CatalogTransaction, group_id: str) -> GroupRow | None:
    found = tx.rows(ONE, (group_id,))
    return GroupRow(*found[0]) if found else None


def all_groups(tx: CatalogTransaction) -> list[GroupName]:
    """Ordered by name. Includes groups that have only offsets."""
    return [GroupName(*row) for row in tx.rows(ALL)]


def delete(tx: CatalogTransaction, group_id: str) -> bool:
    """Delete the group, its offsets, and its offsets in open transactions. Returns whether any of them existed."""
    gone = [tx.rows(each, (group_id,)) for each in (DELETE_OFFSETS, DELETE_PENDING_OFFSETS, DELETE)]
    remove_members(tx, group_id)
    return any(gone)


def forget_empty(tx: CatalogTransaction) -> int:
    """Remove groups that have neither members nor offsets. Share groups stay, with the positions of their
    subscriptions."""
    return len(tx.rows(FORGET_EMPTY))


def commit_offsets(
    tx: CatalogTransaction, group_id: str, offsets: Sequence[GroupOffset], *, now_ms: int
) -> None:
    tx.each(
        COMMIT,
        [
            (group_id, *each.topic_partition, each.offset, each.leader_epoch, each.metadata, now_ms)
            for each in offsets
        ],
    )


def commit_offsets_now(
    tx: CatalogTransaction, group_id: str, offsets: Sequence[GroupOffset], *, now_ms: int
) -> None:
    """Commit outside any transaction. This discards older offsets for these partitions in open transactions."""
    tx.each(FORGET_PENDING, [(group_id, *each.topic_partition) for each in offsets])
    commit_offsets(tx, group_id, offsets, now_ms=now_ms)


def committed_offsets(tx: CatalogTransaction, group_id: str) -> list[GroupOffset]:
    return [_offset(row) for row in tx.rows(OFFSETS, (group_id,))]


def has_offsets(tx: CatalogTransaction, group_id: str) -> bool:
    return bool(tx.rows(HAS_OFFSETS, (group_id,)))


def pending_offsets(tx: CatalogTransaction, group_id: str) -> list[TopicPartition]:
    """Partitions with offsets in transactions that are not decided yet."""
    rows = tx.rows(PENDING, (group_id,))
    return [TopicPartition(TopicId(bytes(topic_id)), partition) for topic_id, partition in rows]


def delete_offsets(tx: CatalogTransaction, group_id: str, topic_partitions: Sequence[TopicPartition]) -> int:
    """Also deletes offsets in open transactions; the returned count does not include them."""
    named = [(group_id, *topic_partition) for topic_partition in topic_partitions]
    deleted = tx.each(DELETE_OFFSET, named)
    tx.each(DELETE_PENDING_OFFSET, named)
    return sum(len(rows) for rows in deleted)


def expire_offsets(tx: CatalogTransaction, *, unused_since_ms: int) -> int:
    """Remove offsets of groups that have had no members and no commit since then."""
    return len(tx.rows(EXPIRE, (unused_since_ms, unused_since_ms)))


def _offset(row: Row) -> GroupOffset:
    topic_id, partition, offset, leader_epoch, metadata = row
    return GroupOffset(TopicPartition(TopicId(bytes(topic_id)), partition), offset, leader_epoch, metadata)
