"""What a run reads, in steps: from where the table is, to where the topic was when the run began. Pure but for
`look`, which reads the catalog."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog import extents, partitions, transactions
from millpond.catalog.database import Database, Transaction
from millpond.model.errors import OffsetOutOfRange, TopicReplaced
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.spark.tables.model import Held

EXTENTS_PER_LOOK: Final = 10_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What of a partition may be read: committed records only."""

    where: TopicPartition
    log_start: int
    end: int


@dataclass(frozen=True, slots=True)
class Range:
    topic: str
    partition: int
    start: int
    end: int
    bytes: int
    """About; what is stored, compressed as it is."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that expired before they came into the table."""

    topic: str
    partition: int
    start: int
    end: int


Ends = Mapping[str, Mapping[int, Bounds]]


def look(database: Database, topics: Sequence[Topic]) -> dict[str, dict[int, Bounds]]:
    """One snapshot of all partitions' bounds."""
    with database.read() as tx:
        return {
            topic.name: {
                row.where.partition: Bounds(
                    row.where, row.log_start, transactions.last_stable_offset(tx, row.where, row.end_offset)
                )
                for row in partitions.of_topic(tx, topic.id)
            }
            for topic in topics
        }


def starting_positions(
    topics: Sequence[Topic], held: Mapping[str, Held], ends: Ends, *, restart: bool, allow_gaps: bool
) -> tuple[dict[str, Held], list[Gap]]:
    """Where to go on in each partition. Raises `TopicReplaced` if the table holds an older topic of that name, and
    `OffsetOutOfRange` if records have expired unread, unless these are allowed."""
    positions, gaps = {}, []
    for topic in topics:
        before = held.get(topic.name)
        if before is not None and before.topic_id != topic.id.hex():
            if not restart:
                raise TopicReplaced(
                    f"Topic {topic.name!r} was deleted and made anew since the table was last written: "
                    "go on with the new one by asking for a restart (its rows follow the old one's).",
                    topic=topic.name,
                )
            before = None
        offsets = {}
        for number, bounds in ends[topic.name].items():
            start = bounds.log_start if before is None else before.offsets.get(number, 0)
            if start < bounds.log_start:
                gaps.append(Gap(topic.name, number, start, bounds.log_start))
            offsets[number] = max(start, bounds.log_start)
        positions[topic.name] = Held(topic.id.hex(), offsets)
    if gaps and not allow_gaps:
        raise _expired(gaps[0], ends)
    return positions, gaps


def next_step(database: Database, positions: Mapping[str, Held], ends: Ends, bytes_max: int) -> list[Range]:
    """A share of every partition that has something to read: together about `bytes_max`, and at least something."""
    behind = [
        (topic, number, offset, ends[topic][number])
        for topic, held in positions.items()
        for number, offset in held.offsets.items()
        if offset < ends[topic][number].end
    ]
    share = max(1, bytes_max // max(1, len(behind)))
    return [_share(database, *each, share) for each in behind]


def advanced(positions: Mapping[str, Held], step: Sequence[Range]) -> dict[str, Held]:
    moved = {(each.topic, each.partition): each.end for each in step}
    return {
        topic: Held(held.topic_id, {p: moved.get((topic, p), offset) for p, offset in held.offsets.items()})
        for topic, held in positions.items()
    }


def offsets_json(step: Sequence[Range], *, is_end: bool) -> str:
    """As Spark's Kafka source writes offsets."""
    by_topic: dict[str, dict[str, int]] = {}
    for each in step:
        by_topic.setdefault(each.topic, {})[str(each.partition)] = each.end if is_end else each.start
    return json.dumps(by_topic)


def assign_json(step: Sequence[Range]) -> str:
    by_topic: dict[str, list[int]] = {}
    for each in step:
        by_topic.setdefault(each.topic, []).append(each.partition)
    return json.dumps(by_topic)


def _share(database: Database, topic: str, number: int, start: int, bounds: Bounds, share: int) -> Range:
    with database.read() as tx:
        found = extents.facts(tx, bounds.where, _first_base(tx, bounds.where, start), EXTENTS_PER_LOOK)
    end, taken = start, 0
    for extent in found:
        low, high = max(start, extent.base_offset), min(extent.end_offset, bounds.end)
        if high <= low:
            continue
        density = extent.length / (extent.end_offset - extent.base_offset)
        room = max(1, int((share - taken) / density))
        if high - low > room:
            return Range(topic, number, start, low + room, taken + int(room * density))
        end, taken = high, taken + int((high - low) * density)
        if taken >= share:
            return Range(topic, number, start, end, taken)
    # What remains is a gap (compaction took the last records), or more extents than one look shows.
    is_all = len(found) < EXTENTS_PER_LOOK
    return Range(topic, number, start, bounds.end if is_all else end, taken)


def _first_base(tx: Transaction, where: TopicPartition, offset: int) -> int:
    first = extents.find(tx, where, offset, bytes_max=1, extents_max=1)
    return first[0].base_offset if first else offset


def _expired(gap: Gap, ends: Ends) -> OffsetOutOfRange:
    bounds = ends[gap.topic][gap.partition]
    return OffsetOutOfRange(
        f"Partition {gap.partition} of topic {gap.topic!r} was read up to offset {gap.start}, and its log now starts "
        f"at {gap.end}: offsets {gap.start} to {gap.end - 1} have expired unread. Go on behind them by allowing gaps.",
        offset=gap.start,
        log_start=gap.end,
        end_offset=bounds.end,
    )
