"""Subscriptions in the catalog: creates, finds, alters, resets and deletes them, and resolves where they start.

All that find one here get the config that applies: for the subscription of a share group, that of the group.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from millpond.catalog import partitions
from millpond.catalog import subscriptions as catalog
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.subscriptions import StoredSubscription
from millpond.log import Log
from millpond.model.clock import Clock
from millpond.model.errors import InvalidSubscription
from millpond.model.share_groups import SHARE_PREFIX
from millpond.model.subscriptions import SubscriptionConfig, check_name, config_from
from millpond.model.topics import Topic
from millpond.queues.deadletters import check_bodies, check_topic
from millpond.queues.limits import QueueLimits
from millpond.queues.share_config import ShareConfigOf, effective


class StartAt(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class SubscriptionStart:
    """Where a subscription starts. `value` is an offset or a time in milliseconds."""

    at: StartAt = StartAt.EARLIEST
    value: int = 0


EARLIEST: Final = SubscriptionStart()


class StoredSubscriptions:
    def __init__(
        self, log: Log, *, clock: Clock, limits: QueueLimits, share_config_of: ShareConfigOf
    ) -> None:
        self._log = log
        self._share_config_of = share_config_of
        self._clock = clock
        self._limits = limits

    # -- queries ----------------------------------------------------------------------------------------------

    async def find(self, topic: str, name: str) -> StoredSubscription:
        known = await self._log.topic(topic)
        found = await self._log.read(lambda tx: catalog.find(tx, known.id, name, topic=topic))
        return effective(found, self._share_config_of)

    async def all_of(self, topic: str) -> list[StoredSubscription]:
        known = await self._log.topic(topic)
        found = await self._log.read(lambda tx: catalog.of_topic(tx, known.id))
        return [effective(each, self._share_config_of) for each in found]

    async def all(self) -> list[tuple[str, StoredSubscription]]:
        """All subscriptions, with the names of their topics."""
        found = await self._log.read(catalog.all_subscriptions)
        topics = self._log.topics
        return [
            (topics.with_id(each.topic_id).name, effective(each, self._share_config_of))
            for each in found
            if topics.knows_id(each.topic_id)
        ]

    async def floors(self, subscription: StoredSubscription) -> dict[tuple[str, int], int]:
        """The floors by member and partition. Everything below a floor is settled."""
        return await self._log.read(lambda tx: catalog.floors(tx, subscription.id))

    async def times(self, topic: Topic, start: SubscriptionStart) -> dict[int, int]:
        """The offset of the start time in each partition; empty unless the start is a time."""
        if start.at is not StartAt.TIME:
            return {}
        rows = await self._log.read(lambda tx: partitions.of_topic(tx, topic.id))
        return {
            row.topic_partition.partition: await self._log.offset_stored_at(row, start.value) for row in rows
        }

    # -- changes ----------------------------------------------------------------------------------------------

    async def create(
        self, topic: str, name: str, values: Mapping[str, Any], start: SubscriptionStart
    ) -> StoredSubscription:
        check_name(name)
        if name.startswith(SHARE_PREFIX):
            reason = f"names that begin with {SHARE_PREFIX!r} are those of share groups"
            raise InvalidSubscription(reason=reason)
        config = config_from(values)
        known = await self._log.topic(topic)
        self._check_letters(config, known, name)
        if len(await self.all_of(topic)) >= self._limits.subscriptions_max:
            raise InvalidSubscription(reason=f"topic {topic!r} has {self._limits.subscriptions_max} already")
        timed = await self.times(known, start)
        now_ms = self._clock.now_ms()

        def create(tx: CatalogTransaction) -> None:
            floors = floors_of(tx, known, start, timed)
            catalog.create(tx, known.id, name, config, floors, topic=topic, now_ms=now_ms)

        await self._log.write(create)
        return await self.find(topic, name)

    async def alter(self, topic: str, name: str, values: Mapping[str, Any]) -> StoredSubscription:
        """Returns the altered subscription."""
        subscription = await self._own(topic, name)
        config = config_from(values, subscription.config)
        if config.mode is not subscription.config.mode:
            raise InvalidSubscription(reason="the mode cannot be altered; make another subscription")
        self._check_letters(config, await self._log.topic(topic), name)
        await self._log.write(lambda tx: catalog.alter(tx, subscription, config))
        return await self.find(topic, name)

    async def delete(self, topic: str, name: str) -> StoredSubscription:
        """Returns the deleted subscription."""
        subscription = await self._own(topic, name)
        await self._log.write(lambda tx: catalog.delete(tx, subscription))
        return subscription

    async def reset(self, topic: str, name: str, start: SubscriptionStart) -> StoredSubscription:
        """Move all members to a new start. Active dispatchers lose their epoch and are fenced."""
        subscription = await self.find(topic, name)
        known = await self._log.topic(topic)
        timed = await self.times(known, start)

        def reset(tx: CatalogTransaction) -> None:
            members = {member for member, _ in catalog.floors(tx, subscription.id)}
            catalog.reset(tx, subscription, floors_of(tx, known, start, timed), members)

        await self._log.write(reset)
        return subscription

    # -- internals --------------------------------------------------------------------------------------------

    async def _own(self, topic: str, name: str) -> StoredSubscription:
        """Raises `InvalidSubscription` if it is the subscription of a share group."""
        found = await self.find(topic, name)
        if found.share_group:
            reason = f"share group {found.share_group!r} decides about it: alter or delete the group"
            raise InvalidSubscription(reason=reason)
        return found

    def _check_letters(self, config: SubscriptionConfig, topic: Topic, name: str) -> None:
        """Checks the name of the dead-letter topic, and whether an existing one can accept bodies. One that does not
        exist yet will be created with a suitable config."""
        check_topic(config, topic.name, name)
        if self._log.topics.knows(config.dead_letter_topic):
            check_bodies(config, topic, self._log.topics.named(config.dead_letter_topic))


def floors_of(
    tx: CatalogTransaction,
    topic: Topic,
    start: SubscriptionStart,
    timed: Mapping[int, int],
    offsets: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """Where each partition starts, limited to the offsets that the log has now. `offsets` decide about the partitions
    that they name."""
    floors: dict[int, int] = {}
    for row in partitions.of_topic(tx, topic.id):
        number = row.topic_partition.partition
        wanted = {
            StartAt.EARLIEST: row.log_start,
            StartAt.LATEST: row.end_offset,
            StartAt.OFFSET: start.value,
            StartAt.TIME: timed.get(number, row.end_offset),
        }[start.at]
        wanted = (offsets or {}).get(number, wanted)
        floors[number] = min(max(wanted, row.log_start), row.end_offset)
    return floors
