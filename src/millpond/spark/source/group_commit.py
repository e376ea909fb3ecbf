"""`commitOffsetsToGroup`: commits a stream's progress as a consumer group's offsets, for tools that watch
lag.

It is for display only: Spark itself resumes from its checkpoint. A group that has members is refused, because
its offsets belong to them.
"""

from collections.abc import Mapping

from millpond.catalog import coordinators, groups
from millpond.catalog.database import CatalogTransaction, Database
from millpond.model.errors import GroupNotEmpty
from millpond.model.ids import TopicPartition

EMPTY = "Empty"


def check_free(database: Database, group: str) -> None:
    with database.read() as tx:
        _check_free(tx, group)


def commit_to_group(
    database: Database, group: str, offsets: Mapping[TopicPartition, int], *, now_ms: int
) -> None:
    with database.write() as tx:
        coordinators.lock(tx, coordinators.shard_of(group))  # no member can join between check and commit
        _check_free(tx, group)
        committed = [
            groups.GroupOffset(topic_partition, offset)
            for topic_partition, offset in sorted(offsets.items())
            if offset >= 0
        ]
        groups.commit_offsets_now(tx, group, committed, now_ms=now_ms)


def _check_free(tx: CatalogTransaction, group: str) -> None:
    found = groups.find(tx, group)
    if found is not None and found.state != EMPTY:
        raise GroupNotEmpty(
            f"Group {group!r} has members: option commitOffsetsToGroup would move their offsets. Give the stream "
            "a group of its own.",
            group=group,
        )
