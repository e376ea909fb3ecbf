"""Coordinator shards: which broker may write the groups and transactions that hash to a shard, and with which
epoch."""

import zlib
from collections.abc import Iterable
from typing import Final

from millpond.catalog.database import CatalogTransaction
from millpond.catalog.schema import COORDINATOR_SHARDS
from millpond.model.errors import NotOwner

CLAIM: Final = "UPDATE coordinators SET owner = ?, epoch = epoch + 1 WHERE shard = ? RETURNING epoch"
HOLD: Final = """
    UPDATE coordinators SET epoch = epoch WHERE shard = ? AND owner = ? AND epoch = ? RETURNING shard
"""
LOCK: Final = "UPDATE coordinators SET epoch = epoch WHERE shard = ?"
ALL: Final = "SELECT shard, owner, epoch FROM coordinators ORDER BY shard"


def shard_of(name: str) -> int:
    """The shard of a group or transactional id: the same in every process and version."""
    return zlib.crc32(name.encode()) % COORDINATOR_SHARDS


def claim(tx: CatalogTransaction, shards: Iterable[int], owner: str) -> dict[int, int]:
    """Take shards over. Returns the epoch to write with, by shard."""
    wanted = sorted(shards)
    claimed = tx.each(CLAIM, [(owner, shard) for shard in wanted])
    return {shard: rows[0][0] for shard, rows in zip(wanted, claimed, strict=True)}


def hold(tx: CatalogTransaction, shard: int, owner: str, epoch: int) -> None:
    """Lock the shard for the rest of the transaction. Raises `NotOwner` if it has another owner or epoch."""
    if not tx.rows(HOLD, (shard, owner, epoch)):
        raise NotOwner(f"Coordinator shard {shard} has moved to another broker.")


def lock(tx: CatalogTransaction, shard: int) -> None:
    """Lock the shard for the rest of the transaction, regardless of its owner. For callers that write beside
    the owner."""
    tx.rows(LOCK, (shard,))


def owners(tx: CatalogTransaction) -> dict[int, tuple[str | None, int]]:
    return {row[0]: (row[1], row[2]) for row in tx.rows(ALL)}
