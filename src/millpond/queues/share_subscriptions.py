"""The subscriptions of share groups: one in each topic that a group has read.

Members of a group create them by subscribing; users do not. The group's coordinator calls this, and decides when: its
members receive messages only of topics that have a subscription.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog import partitions
from millpond.catalog import subscriptions as catalog
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.subscriptions import SHARED_MEMBER, StoredSubscription
from millpond.log import Log
from millpond.model.clock import Clock
from millpond.model.errors import (
    InvalidSubscription,
    SubscriptionExists,
    SubscriptionReplaced,
    UnknownSubscription,
)
from millpond.model.ids import TopicId
from millpond.model.share_groups import (
    EARLIEST,
    LATEST,
    ShareGroupConfig,
    duration_of_start,
    subscription_name,
)
from millpond.model.topics import Topic
from millpond.queues.active_subscriptions import ActiveSubscriptions
from millpond.queues.limits import QueueLimits
from millpond.queues.share_config import subscription_config
from millpond.queues.stored_subscriptions import StartAt, StoredSubscriptions, SubscriptionStart, floors_of

TOPICS_AT_ONCE: Final = 100
"""Topics in which subscriptions are created by one commit."""
ATTEMPTS_MAX: Final = 3
"""At most, if other brokers create the same subscriptions."""


@dataclass(frozen=True, slots=True)
class SharePosition:
    """How far a share group is in a partition. Everything below `start_offset` is settled, and `settled_above` offsets
    above it."""

    partition: int
    start_offset: int
    settled_above: int
    log_start: int
    end_offset: int
    leader_epoch: int

    @property
    def lag(self) -> int:
        """The number of offsets that are not settled. Some of them may not be messages."""
        return max(0, self.end_offset - self.start_offset - self.settled_above)


class ShareSubscriptions:
    def __init__(
        self,
        log: Log,
        stored: StoredSubscriptions,
        active: ActiveSubscriptions,
        *,
        clock: Clock,
        limits: QueueLimits,
    ) -> None:
        self._log = log
        self._stored = stored
        self._active = active
        self._clock = clock
        self._limits = limits

    async def ensure(
        self,
        group_id: str,
        topics: Sequence[Topic],
        config: ShareGroupConfig,
        offsets: Mapping[TopicId, Mapping[int, int]] | None = None,
    ) -> None:
        """Create the group's subscription in each of these topics that does not have it. Partitions begin where
        `offsets` say, the others where the config says. Other brokers may do the same at the same time. Raises
        `SubscriptionExists` if a user has created another subscription of that name."""
        missing = await self._log.read(
            lambda tx: [topic for topic in topics if self._find(tx, group_id, topic) is None]
        )
        for first in range(0, len(missing), TOPICS_AT_ONCE):
            await self._create(group_id, missing[first : first + TOPICS_AT_ONCE], config, offsets or {})

    async def of_group(self, group_id: str) -> list[StoredSubscription]:
        """In all topics that exist."""
        found = await self._log.read(
            lambda tx: catalog.of_share_group(tx, group_id, subscription_name(group_id))
        )
        return [each for each in found if self._log.topics.knows_id(each.topic_id)]

    async def find(self, group_id: str, topic: Topic) -> StoredSubscription | None:
        return await self._log.read(lambda tx: self._find(tx, group_id, topic))

    async def positions(self, subscription: StoredSubscription) -> list[SharePosition]:
        """Of all partitions, as they are stored."""
        return await self._log.read(lambda tx: _positions(tx, subscription))

    async def move(self, subscription: StoredSubscription, offsets: Mapping[int, int]) -> None:
        """Begin at these offsets again in some partitions. What was settled there is forgotten."""

        def move(tx: CatalogTransaction) -> None:
            members = {member for member, _ in catalog.floors(tx, subscription.id)}
            rows = {
                row.topic_partition.partition: row for row in partitions.of_topic(tx, subscription.topic_id)
            }
            floors = {
                number: min(max(offset, rows[number].log_start), rows[number].end_offset)
                for number, offset in offsets.items()
                if number in rows
            }
            catalog.reset(tx, subscription, floors, members)

        await self._log.write(move)
        for active in self._active.of(subscription.id):
            active.close_queues(SubscriptionReplaced(subscription=subscription.name))
        self._active.check_now()

    async def delete(self, subscription: StoredSubscription) -> None:
        await self._log.write(lambda tx: catalog.delete(tx, subscription))
        gone = UnknownSubscription(topic=subscription.topic_id.hex(), subscription=subscription.name)
        for active in self._active.of(subscription.id):
            self._active.end(active, gone)

    # -- internals --------------------------------------------------------------------------------------------

    async def _create(
        self,
        group_id: str,
        topics: Sequence[Topic],
        config: ShareGroupConfig,
        offsets: Mapping[TopicId, Mapping[int, int]],
    ) -> None:
        now_ms = self._clock.now_ms()
        start = _start(config, now_ms)
        timed = {topic.id: await self._stored.times(topic, start) for topic in topics}
        stored_config = subscription_config(config)

        def create(tx: CatalogTransaction) -> None:
            for topic in topics:
                if self._find(tx, group_id, topic) is not None:
                    continue
                if len(catalog.of_topic(tx, topic.id)) >= self._limits.subscriptions_max:
                    reason = f"topic {topic.name!r} has {self._limits.subscriptions_max} already"
                    raise InvalidSubscription(reason=reason)
                floors = floors_of(tx, topic, start, timed[topic.id], offsets.get(topic.id))
                catalog.create(
                    tx,
                    topic.id,
                    subscription_name(group_id),
                    stored_config,
                    floors,
                    topic=topic.name,
                    now_ms=now_ms,
                    share_group=group_id,
                )

        for attempts in range(1, ATTEMPTS_MAX + 1):
            try:
                await self._log.write(create)
                return
            except SubscriptionExists:  # another broker was faster, or a user has created it
                if attempts == ATTEMPTS_MAX:
                    raise

    def _find(self, tx: CatalogTransaction, group_id: str, topic: Topic) -> StoredSubscription | None:
        name = subscription_name(group_id)
        try:
            found = catalog.find(tx, topic.id, name, topic=topic.name)
        except UnknownSubscription:
            return None
        if found.share_group != group_id:
            reason = f"Topic {topic.name!r} has a subscription {name!r} that does not belong to share group"
            message = f"{reason} {group_id!r}. Delete it, or use another group."
            raise SubscriptionExists(message, topic=topic.name, subscription=name)
        return found


def _start(config: ShareGroupConfig, now_ms: int) -> SubscriptionStart:
    if config.start == EARLIEST:
        return SubscriptionStart(StartAt.EARLIEST)
    if config.start == LATEST:
        return SubscriptionStart(StartAt.LATEST)
    return SubscriptionStart(StartAt.TIME, now_ms - duration_of_start(config.start))


def _positions(tx: CatalogTransaction, subscription: StoredSubscription) -> list[SharePosition]:
    floors = catalog.floors(tx, subscription.id)
    above = catalog.settled_above_floors(tx, subscription.id)
    found = []
    for row in partitions.of_topic(tx, subscription.topic_id):
        number = row.topic_partition.partition
        start = max(floors.get((SHARED_MEMBER, number), 0), row.log_start)
        settled_above = above.get((SHARED_MEMBER, number), 0)
        found.append(SharePosition(number, start, settled_above, row.log_start, row.end_offset, row.epoch))
    return found
