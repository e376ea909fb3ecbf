"""The messages from tasks to the driver. They are in a module of their own because a commit needs nothing
else: no numba, no Arrow."""

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from millpond.catalog.appends import AppendShare
from millpond.model.ids import Session, TopicId


@dataclass(frozen=True, slots=True)
class Flushed:
    """One append to the store: the object, and each partition's share of it."""

    key: str
    bytes: int
    shares: tuple[AppendShare, ...]


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What a task stored, as plain data. A task without rows has no session."""

    session: Session | None
    flushes: tuple[Flushed, ...]
    topics: tuple[tuple[TopicId, str], ...]
    query: str | None = None
    """The streaming query, and its batch, that the task belongs to."""
    batch: int | None = None
