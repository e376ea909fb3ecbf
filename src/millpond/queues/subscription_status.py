"""Describes the state of a subscription: what is settled, what is in flight, which keys are stuck and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millpond.catalog import partitions
from millpond.catalog import subscriptions as catalog
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.subscriptions import StoredRetry, StoredSubscription
from millpond.queues.dispatcher_results import FailingMessage, KeyStatus
from millpond.queues.dispatcher_state import waits_for
from millpond.queues.partition_queue import PartitionQueue

NO_KEYS: Sequence[KeyStatus] = ()
NO_FAILING: Sequence[FailingMessage] = ()


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """State of one partition for one member. Values that are unknown because the partition is not active here are 0."""

    partition: int
    member: str
    floor: int
    end_offset: int
    at_work: bool = False
    leased: int = 0
    delayed: int = 0
    tracked: int = 0
    settled_above_floor: int = 0
    oldest_age_ms: int = 0
    """Age of the first message that is not settled."""
    keys: Sequence[KeyStatus] = NO_KEYS
    failing: Sequence[FailingMessage] = NO_FAILING
    """The first messages that have failed and are not settled; as stored if the partition is not active here."""

    @property
    def backlog(self) -> int:
        """Offsets that are not settled. Some of them may not be messages."""
        return self.end_offset - self.floor - self.settled_above_floor


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    name: str
    credit: int
    leased: int
    queued: int
    acked: int
    paused: bool
    suspended: bool
    weight: float


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    subscription: StoredSubscription
    topic: str
    partitions: Sequence[PartitionStatus]
    consumers: Sequence[ConsumerStatus]
    dead_letter_topic: str
    dead_letters_waiting: int


@dataclass(frozen=True, slots=True)
class StoredStatus:
    """What the catalog has about a subscription."""

    floors: dict[tuple[str, int], int]
    settled_above: dict[tuple[str, int], int]
    ends: dict[int, int]
    dead_letters_waiting: int
    retries: Mapping[tuple[str, int], Mapping[int, StoredRetry]]


def read_stored(tx: CatalogTransaction, subscription: StoredSubscription, failing_max: int) -> StoredStatus:
    rows = partitions.of_topic(tx, subscription.topic_id)
    return StoredStatus(
        catalog.floors(tx, subscription.id),
        catalog.settled_above_floors(tx, subscription.id),
        {row.topic_partition.partition: row.end_offset for row in rows},
        catalog.dead_letters_waiting(tx, subscription.id),
        catalog.first_retries(tx, subscription.id, failing_max),
    )


def partition_statuses(
    stored: StoredStatus,
    active_queues: dict[tuple[str, int], PartitionQueue],
    *,
    keys_max: int,
    failing_max: int,
    now: int,
) -> list[PartitionStatus]:
    known = dict.fromkeys((("", partition) for partition in stored.ends), 0) | stored.floors
    statuses = []
    for (member, partition), floor in sorted(known.items()):
        end = max(stored.ends.get(partition, floor), floor)
        queue = active_queues.get((member, partition))
        above = stored.settled_above.get((member, partition), 0)
        if queue is None:
            retries = stored.retries.get((member, partition), {})
            statuses.append(
                PartitionStatus(
                    partition,
                    member,
                    floor,
                    end,
                    settled_above_floor=min(above, end - floor),
                    failing=[_stored_failure(offset, retry, now) for offset, retry in retries.items()],
                )
            )
        else:
            statuses.append(_active_partition(queue, end, keys_max, failing_max))
    return statuses


def consumer_statuses(queues: Sequence[PartitionQueue]) -> list[ConsumerStatus]:
    """One entry for each consumer, summed over its partitions."""
    found: dict[str, ConsumerStatus] = {}
    for queue in queues:
        for each in queue.dispatcher.consumers:
            before = found.get(each.name)
            found[each.name] = ConsumerStatus(
                each.name,
                each.consumer_credit.messages,
                len(each.leases) + (before.leased if before else 0),
                len(each.queue) + (before.queued if before else 0),
                each.acked + (before.acked if before else 0),
                each.paused,
                each.suspended or (before is not None and before.suspended),
                min(each.weight, before.weight if before else each.weight),
            )
    return [found[name] for name in sorted(found)]


def _stored_failure(offset: int, retry: StoredRetry, now: int) -> FailingMessage:
    attempts, not_before, reasons = retry
    return FailingMessage(offset, attempts, *waits_for(not_before, now), reasons)


def _active_partition(queue: PartitionQueue, end: int, keys_max: int, failing_max: int) -> PartitionStatus:
    dispatcher = queue.dispatcher
    settled = dispatcher.settled
    return PartitionStatus(
        queue.state_key.partition,
        queue.state_key.member,
        settled.floor,
        max(end, settled.floor),
        at_work=True,
        leased=dispatcher.leased,
        delayed=dispatcher.schedule.delayed,
        tracked=dispatcher.tracked,
        settled_above_floor=settled.above_floor,
        keys=dispatcher.schedule.waiting_keys(keys_max),
        failing=dispatcher.failing(failing_max),
    )
