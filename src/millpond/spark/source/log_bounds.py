"""What can be read now: the subscribed partitions with the bounds of their logs, read from the catalog."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from millpond.catalog import partitions, topics, transactions
from millpond.catalog.database import CatalogTransaction, Database
from millpond.model.errors import UnknownPartition, UnknownTopic
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.spark.source.offsets import NamedPartition
from millpond.spark.source.options import TopicSelection


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of one log. `latest` is the end for a reader of this isolation level; `end_offset` is the
    end of what is stored."""

    topic_partition: TopicPartition
    log_start: int
    end_offset: int
    latest: int


BoundsByPartition = dict[NamedPartition, LogBounds]


def read_bounds(
    database: Database, subscription: TopicSelection, *, committed_only: bool, strict: bool = True
) -> BoundsByPartition:
    """Look up every subscribed partition. A missing partition or topic that was named raises if `strict`,
    else it is left out."""
    with database.read() as tx:
        if subscription.pattern:
            wanted = re.compile(subscription.pattern)
            found = [topic for topic in topics.all_topics(tx) if wanted.fullmatch(topic.name)]
        else:
            names = subscription.topics or sorted({each.topic for each in subscription.assigned})
            found = list(_named(tx, names, strict))
        bounds_by_partition = {
            name: bounds
            for topic in found
            for name, bounds in _topic_bounds(tx, topic, committed_only)
            if not subscription.assigned or name in subscription.assigned
        }
    if strict:
        _check_assigned(subscription, bounds_by_partition)
    return dict(sorted(bounds_by_partition.items()))


def _named(tx: CatalogTransaction, names: Iterable[str], strict: bool) -> Iterable[Topic]:
    for name in names:
        try:
            yield topics.find(tx, name)
        except UnknownTopic:
            if strict:
                raise


def _topic_bounds(
    tx: CatalogTransaction, topic: Topic, committed_only: bool
) -> Iterable[tuple[NamedPartition, LogBounds]]:
    for row in partitions.of_topic(tx, topic.id):
        end = row.end_offset
        latest = transactions.last_stable_offset(tx, row.topic_partition, end) if committed_only else end
        yield (
            NamedPartition(topic.name, row.topic_partition.partition),
            LogBounds(row.topic_partition, row.log_start, end, latest),
        )


def _check_assigned(subscription: TopicSelection, bounds_by_partition: BoundsByPartition) -> None:
    for name in subscription.assigned:
        if name not in bounds_by_partition:
            raise UnknownPartition(topic=name.topic, partition=name.partition)
