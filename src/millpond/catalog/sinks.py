"""What makes a sink exactly once: its newest batch, moved up in the same transaction as the batch's extents.

A sink's batches come in rising numbers, one at a time. A series of numbers is that of one writer into one topic: who
writes several topics under one number has a sink for each. One that comes again finds its number taken and changes
nothing, whether it is the last one or an older one. A *passing* sink has one batch only, a random name, and is
forgotten when no lost answer can make anybody ask for it again.
"""

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from millpond.catalog.database import Transaction
from millpond.model.errors import UnknownPartition
from millpond.model.ids import Session, TopicPartition

PASSING: Final = "passing/"
PASSING_KEPT_MS: Final = 24 * 60 * 60 * 1000
TOPIC_OF_EACH_ROW: Final = "*"
"""In the place of a topic's name, which cannot be this."""

CLAIM: Final = """
    INSERT INTO sink_commits (sink, batch, session, committed_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (sink) DO UPDATE SET batch = excluded.batch, session = excluded.session,
      committed_at = excluded.committed_at WHERE sink_commits.batch < excluded.batch
    RETURNING batch
"""
NEWEST: Final = "SELECT batch, session FROM sink_commits WHERE sink = ?"
FORGET_PASSING: Final = "DELETE FROM sink_commits WHERE sink >= ? AND sink < ? AND committed_at < ?"
LOCK_PARTITION: Final = """
    UPDATE partitions SET owner = owner WHERE topic_id = ? AND partition = ? RETURNING partition
"""


def passing_sink() -> str:
    return f"{PASSING}{uuid4()}"


def batch_sink(name: str, topic: str | None) -> str:
    """The sink of batches that somebody numbers. Without a topic each row says where it goes."""
    return f"batch/{name}/{topic or TOPIC_OF_EACH_ROW}"


def stream_sink(query: str, topic: str | None) -> str:
    return f"stream/{query}/{topic or TOPIC_OF_EACH_ROW}"


def claim(tx: Transaction, sink: str, batch: int, session: Session, *, now_ms: int) -> bool:
    """Whether this batch of the sink is new. If not, it was committed before, and nothing is to be done."""
    return bool(tx.rows(CLAIM, (sink, batch, session, now_ms)))


def newest_batch(tx: Transaction, sink: str) -> int | None:
    found = tx.rows(NEWEST, (sink,))
    return found[0][0] if found else None


def is_newest(tx: Transaction, sink: str, batch: int, session: Session) -> bool:
    """Whether the sink's newest batch is this one, claimed by this session: then a lost answer was asked for again."""
    return [tuple(row) for row in tx.rows(NEWEST, (sink,))] == [(batch, session)]


def forget_passing(tx: Transaction, *, now_ms: int) -> None:
    """Drop the rows of passing sinks that are a day old."""
    after_all = PASSING[:-1] + chr(ord("/") + 1)
    tx.rows(FORGET_PASSING, (PASSING, after_all, now_ms - PASSING_KEPT_MS))


def lock_partitions(tx: Transaction, wheres: Sequence[TopicPartition]) -> None:
    """Keep the append rows until the transaction ends. Give them in order, as every writer takes them."""
    for where, rows in zip(wheres, tx.each(LOCK_PARTITION, wheres), strict=True):
        if not rows:
            raise UnknownPartition(topic=where.topic_id.hex(), partition=where.partition)
