"""Plans what a run reads, in steps: from the table's positions to the topic's end when the run began. Pure,
except for functions that read the catalog (`read_bounds`, `next_step`)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog import extents, partitions, transactions
from millpond.catalog.database import CatalogTransaction, Database
from millpond.model.errors import OffsetOutOfRange, TopicReplaced
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.spark.tables.model import TableProgress

EXTENTS_PER_PAGE: Final = 10_000


@dataclass(frozen=True, slots=True)
class ReadableRange:
    """The range of a partition that may be read: committed records only."""

    topic_partition: TopicPartition
    log_start: int
    end: int


@dataclass(frozen=True, slots=True)
class TableRange:
    topic: str
    partition: int
    start: int
    end: int
    bytes: int
    """Approximate; stored bytes, as compressed."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that expired before they were written to the table. If the end is below the start, the log ends
    there, and the table's records from there on are no longer in the log."""

    topic: str
    partition: int
    start: int
    end: int


Ends = Mapping[str, Mapping[int, ReadableRange]]


def read_bounds(database: Database, topics: Sequence[Topic]) -> dict[str, dict[int, ReadableRange]]:
    """One snapshot of all partitions' bounds."""
    with database.read() as tx:
        return {
            topic.name: {
                row.topic_partition.partition: ReadableRange(
                    row.topic_partition,
                    row.log_start,
                    transactions.last_stable_offset(tx, row.topic_partition, row.end_offset),
                )
                for row in partitions.of_topic(tx, topic.id)
            }
            for topic in topics
        }


def ahead_of_log(topics: Sequence[Topic], progress: Mapping[str, TableProgress], ends: Ends) -> list[Gap]:
    """Partitions where the table is ahead of the log, each from the log's end on. If `ends` is newer than
    `progress`, the log was cut, for example by restoring the catalog from a backup."""
    return [
        Gap(topic.name, number, progress[topic.name].offsets[number], bounds.end)
        for topic in topics
        if topic.name in progress and progress[topic.name].topic_id == topic.id.hex()
        for number, bounds in ends[topic.name].items()
        if progress[topic.name].offsets.get(number, 0) > bounds.end
    ]


def rewound(
    progress: Mapping[str, TableProgress], cuts: Sequence[Gap], ends: Ends, *, restart: bool, allow_gaps: bool
) -> dict[str, TableProgress]:
    """Positions after a cut of the log. With `restart`, a topic that was cut is read again from its start;
    with `allow_gaps`, its partitions continue at their ends. Raises `OffsetOutOfRange` if neither is set."""
    if cuts and not (restart or allow_gaps):
        raise _cut(cuts[0], ends)
    names = {cut.topic for cut in cuts}
    if restart:
        return {topic: each for topic, each in progress.items() if topic not in names}
    back = {(cut.topic, cut.partition): cut.end for cut in cuts}
    return {
        topic: TableProgress(
            each.topic_id, {p: back.get((topic, p), offset) for p, offset in each.offsets.items()}
        )
        for topic, each in progress.items()
    }


def starting_positions(
    topics: Sequence[Topic],
    progress: Mapping[str, TableProgress],
    ends: Ends,
    *,
    restart: bool,
    allow_gaps: bool,
) -> tuple[dict[str, TableProgress], list[Gap]]:
    """Where to continue in each partition. Raises `TopicReplaced` if the table holds an older topic of that
    name, and `OffsetOutOfRange` if records have expired unread, unless `restart` or `allow_gaps` permits it."""
    positions, gaps = {}, []
    for topic in topics:
        before = progress.get(topic.name)
        if before is not None and before.topic_id != topic.id.hex():
            if not restart:
                raise TopicReplaced(
                    f"Topic {topic.name!r} was deleted and created again since the table was last written: to "
                    "continue with the new topic, request a restart (its rows follow those of the old topic).",
                    topic=topic.name,
                )
            before = None
        offsets = {}
        for number, bounds in ends[topic.name].items():
            start = bounds.log_start if before is None else before.offsets.get(number, 0)
            if start < bounds.log_start:
                gaps.append(Gap(topic.name, number, start, bounds.log_start))
            offsets[number] = max(start, bounds.log_start)
        positions[topic.name] = TableProgress(topic.id.hex(), offsets)
    if gaps and not allow_gaps:
        raise _expired(gaps[0], ends)
    return positions, gaps


def next_step(
    database: Database, positions: Mapping[str, TableProgress], ends: Ends, bytes_max: int
) -> list[TableRange]:
    """A share of every partition that has something to read: about `bytes_max` in total, but always some
    progress."""
    behind = [
        (topic, number, offset, ends[topic][number])
        for topic, progress in positions.items()
        for number, offset in progress.offsets.items()
        if offset < ends[topic][number].end
    ]
    share = max(1, bytes_max // max(1, len(behind)))
    return [_share(database, *each, share) for each in behind]


def max_positions(
    after: Mapping[str, TableProgress], before: Mapping[str, TableProgress]
) -> dict[str, TableProgress]:
    """The later of the two positions for each partition, ignoring those of another topic of the same name."""
    return {
        topic: TableProgress(
            progress.topic_id,
            {
                p: max(offset, _offset(before, topic, progress.topic_id, p))
                for p, offset in progress.offsets.items()
            },
        )
        for topic, progress in after.items()
    }


def _offset(progress: Mapping[str, TableProgress], topic: str, topic_id: str, partition: int) -> int:
    each = progress.get(topic)
    return each.offsets.get(partition, 0) if each is not None and each.topic_id == topic_id else 0


def advanced(positions: Mapping[str, TableProgress], step: Sequence[TableRange]) -> dict[str, TableProgress]:
    moved = {(each.topic, each.partition): each.end for each in step}
    return {
        topic: TableProgress(
            progress.topic_id, {p: moved.get((topic, p), offset) for p, offset in progress.offsets.items()}
        )
        for topic, progress in positions.items()
    }


def offsets_json(step: Sequence[TableRange], *, is_end: bool) -> str:
    """In the format of Spark's Kafka source."""
    by_topic: dict[str, dict[str, int]] = {}
    for each in step:
        by_topic.setdefault(each.topic, {})[str(each.partition)] = each.end if is_end else each.start
    return json.dumps(by_topic)


def assign_json(step: Sequence[TableRange]) -> str:
    by_topic: dict[str, list[int]] = {}
    for each in step:
        by_topic.setdefault(each.topic, []).append(each.partition)
    return json.dumps(by_topic)


def _share(
    database: Database, topic: str, number: int, start: int, bounds: ReadableRange, share: int
) -> TableRange:
    with database.read() as tx:
        found = extents.facts(
            tx, bounds.topic_partition, _first_base(tx, bounds.topic_partition, start), EXTENTS_PER_PAGE
        )
    end, taken = start, 0
    for extent in found:
        low, high = max(start, extent.base_offset), min(extent.end_offset, bounds.end)
        if high <= low:
            continue
        density = extent.length / (extent.end_offset - extent.base_offset)
        room = max(1, int((share - taken) / density))
        if high - low > room:
            return TableRange(topic, number, start, low + room, taken + int(room * density))
        end, taken = high, taken + int((high - low) * density)
        if taken >= share:
            return TableRange(topic, number, start, end, taken)
    # What remains is a gap (compaction removed the last records), or more extents than one query returns.
    is_all = len(found) < EXTENTS_PER_PAGE
    return TableRange(topic, number, start, bounds.end if is_all else end, taken)


def _first_base(tx: CatalogTransaction, topic_partition: TopicPartition, offset: int) -> int:
    first = extents.find(tx, topic_partition, offset, bytes_max=1, extents_max=1)
    return first[0].base_offset if first else offset


def _cut(cut: Gap, ends: Ends) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"Partition {cut.partition} of topic {cut.topic!r} was read up to offset {cut.start}, and its log now ends at "
        f"{cut.end}: it was cut, or its catalog restored. Read the topic again from its start by asking for a restart, "
        f"or go on from offset {cut.end} by allowing gaps.",
        offset=cut.start,
        log_start=ends[cut.topic][cut.partition].log_start,
        end_offset=cut.end,
    )


def _expired(gap: Gap, ends: Ends) -> OffsetOutOfRange:
    bounds = ends[gap.topic][gap.partition]
    return OffsetOutOfRange(
        f"Partition {gap.partition} of topic {gap.topic!r} was read up to offset {gap.start}, and its log now starts "
        f"at {gap.end}: offsets {gap.start} to {gap.end - 1} have expired unread. Go on behind them by allowing gaps.",
        offset=gap.start,
        log_start=gap.end,
        end_offset=bounds.end,
    )
