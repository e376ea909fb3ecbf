"""Consumer groups and the offsets they committed. Writers hold the group's coordinator shard first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog.coordinators import shard_of
from millpond.catalog.database import Row, Transaction
from millpond.model.ids import TopicId, TopicPartition

SAVE: Final = """
    INSERT INTO groups (group_id, shard, generation, protocol_type, state, members, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (group_id) DO UPDATE SET generation = excluded.generation,
      protocol_type = excluded.protocol_type, state = excluded.state, members = excluded.members,
      updated_at = excluded.updated_at
"""
COLUMNS: Final = "SELECT group_id, generation, protocol_type, state, members, updated_at FROM groups"
OF_SHARD: Final = f"{COLUMNS} WHERE shard = ? ORDER BY group_id"
ONE: Final = f"{COLUMNS} WHERE group_id = ?"
DELETE: Final = "DELETE FROM groups WHERE group_id = ? RETURNING group_id"
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
DELETE_OFFSET: Final = """
    DELETE FROM group_offsets WHERE group_id = ? AND topic_id = ? AND partition = ? RETURNING partition
"""
DELETE_OFFSETS: Final = "DELETE FROM group_offsets WHERE group_id = ?"
EXPIRE: Final = """
    DELETE FROM group_offsets WHERE committed_at < ? AND NOT EXISTS
      (SELECT 1 FROM groups g WHERE g.group_id = group_offsets.group_id
        AND (g.state <> 'Empty' OR g.updated_at >= ?))
    RETURNING group_id
"""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """`members` is the coordinator's own JSON; the catalog does not look into it."""

    group_id: str
    generation: int
    protocol_type: str
    state: str
    members: str
    updated_at: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    where: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def save(tx: Transaction, group: GroupRow) -> None:
    shard = shard_of(group.group_id)
    fields = (group.generation, group.protocol_type, group.state, group.members, group.updated_at)
    tx.rows(SAVE, (group.group_id, shard, *fields))


def of_shard(tx: Transaction, shard: int) -> list[GroupRow]:
    return [GroupRow(*row) for row in tx.rows(OF_SHARD, (shard,))]


def find(tx: Transaction, group_id: str) -> GroupRow | None:
    found = tx.rows(ONE, (group_id,))
    return GroupRow(*found[0]) if found else None


def delete(tx: Transaction, group_id: str) -> bool:
    tx.rows(DELETE_OFFSETS, (group_id,))
    return bool(tx.rows(DELETE, (group_id,)))


def commit_offsets(tx: Transaction, group_id: str, offsets: Sequence[GroupOffset], *, now_ms: int) -> None:
    tx.each(
        COMMIT,
        [(group_id, *each.where, each.offset, each.leader_epoch, each.metadata, now_ms) for each in offsets],
    )


def committed_offsets(tx: Transaction, group_id: str) -> list[GroupOffset]:
    return [_offset(row) for row in tx.rows(OFFSETS, (group_id,))]


def delete_offsets(tx: Transaction, group_id: str, wheres: Sequence[TopicPartition]) -> int:
    deleted = tx.each(DELETE_OFFSET, [(group_id, *where) for where in wheres])
    return sum(len(rows) for rows in deleted)


def expire_offsets(tx: Transaction, *, unused_since_ms: int) -> int:
    """Drop offsets of groups that have had no members and no commit since then."""
    return len(tx.rows(EXPIRE, (unused_since_ms, unused_since_ms)))


def _offset(row: Row) -> GroupOffset:
    topic_id, partition, offset, leader_epoch, metadata = row
    return GroupOffset(TopicPartition(TopicId(bytes(topic_id)), partition), offset, leader_epoch, metadata)
