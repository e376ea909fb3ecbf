"""Makes a sink exactly-once: the number of its newest batch is raised in the same transaction that adds the
batch's extents.

A sink's batches have rising numbers and come one at a time. A series of numbers belongs to one writer into
one topic; a writer of several topics under one number has a sink for each topic. A repeated batch, the last
one or an older one, finds its number taken and changes nothing. A *passing* sink has a random name and only
one batch. It is removed when it is so old that no writer can still ask for it after a lost response.
"""

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from millpond.catalog.database import CatalogTransaction
from millpond.model.errors import UnknownPartition
from millpond.model.ids import Session, TopicPartition

ONE_TIME_PREFIX: Final = "passing/"
ONE_TIME_KEPT_MS: Final = 24 * 60 * 60 * 1000
TOPIC_OF_EACH_ROW: Final = "*"
"""Stored instead of a topic name if each row names its topic. No topic can have this name."""

CLAIM: Final = """
    INSERT INTO sink_commits (sink, batch, session, committed_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (sink) DO UPDATE SET batch = excluded.batch, session = excluded.session,
      committed_at = excluded.committed_at WHERE sink_commits.batch < excluded.batch
    RETURNING batch
"""
NEWEST: Final = "SELECT batch, session FROM sink_commits WHERE sink = ?"
DELETE_ONE_TIME: Final = "DELETE FROM sink_commits WHERE sink >= ? AND sink < ? AND committed_at < ?"
LOCK_PARTITION: Final = """
    UPDATE partitions SET owner = owner WHERE topic_id = ? AND partition = ? RETURNING partition
"""


def one_time_sink() -> str:
    return f"{ONE_TIME_PREFIX}{uuid4()}"


def batch_sink(name: str, topic: str | None) -> str:
    """The sink of batches that the caller numbers. Without a topic, each row names its own."""
    return f"batch/{name}/{topic or TOPIC_OF_EACH_ROW}"


def stream_sink(query: str, topic: str | None) -> str:
    return f"stream/{query}/{topic or TOPIC_OF_EACH_ROW}"


def claim(tx: CatalogTransaction, sink: str, batch: int, session: Session, *, now_ms: int) -> bool:
    """Returns whether this batch of the sink is new. If not, it was committed before, and there is nothing to do."""
    return bool(tx.rows(CLAIM, (sink, batch, session, now_ms)))


def newest_batch(tx: CatalogTransaction, sink: str) -> int | None:
    found = tx.rows(NEWEST, (sink,))
    return found[0][0] if found else None


def is_newest(tx: CatalogTransaction, sink: str, batch: int, session: Session) -> bool:
    """Whether the sink's newest batch is this one, claimed by this session. If so, the commit took effect and
    its response was lost."""
    return [tuple(row) for row in tx.rows(NEWEST, (sink,))] == [(batch, session)]


def delete_one_time_sinks(tx: CatalogTransaction, *, now_ms: int) -> None:
    """Remove the rows of passing sinks that are a day old."""
    after_all = ONE_TIME_PREFIX[:-1] + chr(ord("/") + 1)
    tx.rows(DELETE_ONE_TIME, (ONE_TIME_PREFIX, after_all, now_ms - ONE_TIME_KEPT_MS))


def lock_partitions(tx: CatalogTransaction, topic_partitions: Sequence[TopicPartition]) -> None:
    """Lock the append rows until the transaction ends. Pass them in order, the order in which every writer
    locks them."""
    for topic_partition, rows in zip(
        topic_partitions, tx.each(LOCK_PARTITION, topic_partitions), strict=True
    ):
        if not rows:
            raise UnknownPartition(topic=topic_partition.topic_id.hex(), partition=topic_partition.partition)
