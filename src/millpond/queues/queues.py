"""The interface to subscriptions: create, alter, describe and delete them, and attach consumers.

`stored_subscriptions` changes their rows in the catalog, `active_subscriptions` holds those that are active here. This
module passes changes from one to the other, and decides which consumers may attach. Lives on one event loop.
"""

import asyncio
import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from millpond.catalog import exclusive_consumers
from millpond.catalog.schema import read_meta
from millpond.catalog.subscriptions import SHARED_MEMBER, StoredSubscription, SubscriptionId
from millpond.log import Log
from millpond.model.clock import Clock
from millpond.model.errors import (
    InvalidSubscription,
    MillpondError,
    Stopping,
    SubscriptionBusy,
    SubscriptionReplaced,
    Unavailable,
    UnknownConsumer,
    UnknownSubscription,
)
from millpond.model.ids import Session, TopicPartition
from millpond.model.subscriptions import SubscriptionMode
from millpond.observability.metrics import QueueMetrics
from millpond.queues.ack_transactions import CommitOutcome, commit, result_of
from millpond.queues.ackids import AckIdCodec
from millpond.queues.active_subscription import ActiveSubscription
from millpond.queues.active_subscriptions import ActiveSubscriptions
from millpond.queues.addressing import Addressing
from millpond.queues.attachment import Acquiring, Attachment
from millpond.queues.deadletters import CreateTopic, DeadLetters
from millpond.queues.deadletters import topic_of as dead_letter_topic_of
from millpond.queues.dispatcher_results import AckResult
from millpond.queues.feed import Feed
from millpond.queues.limits import QueueLimits
from millpond.queues.payload_copies import CopyBody, nothing_to_copy
from millpond.queues.redriving import redrive
from millpond.queues.saver import Saver
from millpond.queues.share_config import ShareConfigOf, defaults_of
from millpond.queues.share_subscriptions import ShareSubscriptions
from millpond.queues.stored_subscriptions import EARLIEST, StoredSubscriptions, SubscriptionStart
from millpond.queues.subscription_status import (
    PartitionStatus,
    SubscriptionStatus,
    consumer_statuses,
    partition_statuses,
    read_stored,
)
from millpond.records import Buffer

RELEASE_RETRY_S: Final = 0.5
"""Delay before retrying to release an exclusive subscription in the catalog."""
logger = logging.getLogger(__name__)


class Queues:
    """One method for each request about subscriptions, so there are more than 20."""

    def __init__(
        self,
        log: Log,
        session: Session,
        *,
        clock: Clock,
        limits: QueueLimits,
        metrics: QueueMetrics,
        copy_body: CopyBody = nothing_to_copy,
        create_topic: CreateTopic | None = None,
        share_config_of: ShareConfigOf = defaults_of,
    ) -> None:
        self._log = log
        self._session = session
        self._clock = clock
        self._limits = limits
        self._began = clock.now_ms() - clock.monotonic_ms()
        self._feed = Feed(log, limits)
        self._copy_body = copy_body
        self.dead_letters = DeadLetters(log, limits, copy_body, create_topic)
        self._stored = StoredSubscriptions(log, clock=clock, limits=limits, share_config_of=share_config_of)
        self._active_subscriptions = ActiveSubscriptions(
            log,
            session,
            self._stored,
            self._feed,
            Saver(log, limits, self.dead_letters.wake, metrics),
            now=self.now,
            limits=limits,
            metrics=metrics,
        )
        self.of_share_groups = ShareSubscriptions(
            log, self._stored, self._active_subscriptions, clock=clock, limits=limits
        )
        self._secret = b""
        self._redriving = asyncio.Lock()

    def now(self) -> int:
        """Wall time at the start plus elapsed monotonic time, so it does not jump."""
        return self._began + self._clock.monotonic_ms()

    # -- administration ---------------------------------------------------------------------------------------

    async def create(
        self,
        topic: str,
        name: str,
        values: Mapping[str, Any] | None = None,
        start: SubscriptionStart = EARLIEST,
    ) -> StoredSubscription:
        return await self._stored.create(topic, name, values or {}, start)

    async def find(self, topic: str, name: str) -> StoredSubscription:
        return await self._stored.find(topic, name)

    async def all_of(self, topic: str) -> list[StoredSubscription]:
        return await self._stored.all_of(topic)

    async def all(self) -> list[tuple[str, StoredSubscription]]:
        """All subscriptions, with the names of their topics."""
        return await self._stored.all()

    async def alter(self, topic: str, name: str, values: Mapping[str, Any]) -> StoredSubscription:
        altered = await self._stored.alter(topic, name, values)
        self._active_subscriptions.apply(altered)
        return altered

    async def delete(self, topic: str, name: str) -> None:
        deleted = await self._stored.delete(topic, name)
        gone = UnknownSubscription(topic=topic, subscription=name)
        for active in self._active_subscriptions.of(deleted.id):
            self._active_subscriptions.end(active, gone)

    async def reset(self, topic: str, name: str, start: SubscriptionStart) -> None:
        """Move all members to a new start. Deliveries in flight are discarded; consumers continue from there."""
        subscription = await self._stored.reset(topic, name, start)
        for active in self._active_subscriptions.of(subscription.id):
            active.close_queues(SubscriptionReplaced(subscription=name))
        self._active_subscriptions.check_now()

    async def unblock(self, topic: str, name: str) -> int:
        """Release blocked messages of partitions that are active here. Returns how many there were."""
        subscription = await self.find(topic, name)
        return sum(active.unblock() for active in self._active_subscriptions.of(subscription.id))

    async def redrive(self, topic: str, name: str, messages_max: int = 0) -> int:
        """Send dead letters back to this subscription. Returns how many there were."""
        subscription = await self.find(topic, name)
        secret, found = await self._read_secret(), self._log.topics.named(topic)
        async with self._redriving:
            return await redrive(
                self._log,
                self._feed,
                subscription,
                found,
                Addressing(secret, found.id),
                messages_max,
                self._clock.now_ms(),
                self._copy_body,
            )

    async def describe(
        self, topic: str, name: str, keys_max: int = 10, failing_max: int = 10
    ) -> SubscriptionStatus:
        failing_max = min(failing_max, self._limits.failing_shown_max)
        subscription = await self.find(topic, name)
        stored = await self._log.read(lambda tx: read_stored(tx, subscription, failing_max))
        queues = [
            queue
            for active in self._active_subscriptions.of(subscription.id)
            for queue in active.open_queues()
        ]
        active_queues = {(queue.state_key.member, queue.state_key.partition): queue for queue in queues}
        statuses = partition_statuses(
            stored, active_queues, keys_max=keys_max, failing_max=failing_max, now=self.now()
        )
        return SubscriptionStatus(
            subscription,
            topic,
            [await self._with_age(each, subscription) for each in statuses],
            consumer_statuses(queues),
            dead_letter_topic_of(subscription, topic),
            stored.dead_letters_waiting,
        )

    async def _with_age(self, status: PartitionStatus, subscription: StoredSubscription) -> PartitionStatus:
        """Adds the age of the first unsettled message, if this broker can read it."""
        if not status.at_work or status.backlog <= 0:
            return status
        topic_partition = TopicPartition(subscription.topic_id, status.partition)
        try:
            piece = await self._feed.read(topic_partition, status.floor)
        except MillpondError:
            return status
        if not piece.records:
            return status
        return replace(status, oldest_age_ms=max(0, self._clock.now_ms() - piece.records[0].timestamp))

    async def floors(self, subscription: StoredSubscription) -> dict[tuple[str, int], int]:
        return await self._stored.floors(subscription)

    def active(self, subscription_id: SubscriptionId) -> list[ActiveSubscription]:
        """The active subscription on this broker, or its active members."""
        return self._active_subscriptions.of(subscription_id)

    # -- consumers --------------------------------------------------------------------------------------------

    async def attach(
        self, topic: str, name: str, consumer: str, acquiring: Acquiring | None = None
    ) -> Attachment:
        """Attach a consumer. An attached consumer of the same name is considered dead and is detached."""
        if self._active_subscriptions.stopping:
            raise Stopping
        if not consumer or len(consumer) > 200:
            raise InvalidSubscription(reason="a consumer needs a name of 1 to 200 characters")
        subscription = await self.find(topic, name)
        member = SHARED_MEMBER
        if subscription.config.mode is SubscriptionMode.MULTICAST:
            member = consumer
            await self._check_members(subscription, member)
        secret, found = await self._read_secret(), self._log.topics.named(topic)
        active = self._active_subscriptions.join(subscription, found, member, Addressing(secret, found.id))
        async with active.lock:
            if not self._active_subscriptions.is_active(
                active
            ):  # it ended while this call waited for the lock
                return await self.attach(topic, name, consumer, acquiring)
            self._check_room(active, consumer)
            if consumer in active.attachments:
                self._detach(active, consumer, SubscriptionReplaced(subscription=name), graceful=False)
            attachment = Attachment(
                subscription,
                topic,
                consumer,
                member,
                AckIdCodec(secret, subscription.id, member),
                self._active_subscriptions.check_now,
                secrets.token_hex(8),
                acquiring,
            )
            await self._join(active, attachment)
        return attachment

    async def _join(self, active: ActiveSubscription, attachment: Attachment) -> None:
        """All or nothing: after an error or a cancellation, nothing of the attachment is left."""
        try:
            await self._hold(attachment)
            active.attachments[attachment.name] = attachment
            await self._active_subscriptions.start_partitions(active)
        except SubscriptionBusy:
            raise
        except BaseException:
            active.detach(attachment.name, Stopping(), graceful=True)
            self._release_later(attachment)
            raise

    def connect(self, attachment: Attachment) -> None:
        """Attach a consumer to the partitions that it wants since it was attached."""
        for active in self._active_subscriptions.of(attachment.subscription.id):
            active.connect()

    def detach(self, attachment: Attachment, *, graceful: bool = True) -> None:
        for active in self._active_subscriptions.of(attachment.subscription.id):
            if active.attachments.get(attachment.name) is attachment:
                self._detach(active, attachment.name, Stopping(), graceful=graceful)
        self._active_subscriptions.check_now()

    async def commit(
        self,
        topic: str,
        name: str,
        consumer: str,
        acks: Sequence[bytes],
        appends: Mapping[TopicPartition, Buffer],
    ) -> CommitOutcome:
        """Acknowledge deliveries of a consumer and append batches, all or nothing."""
        attachment = await self._attachment(topic, name, consumer)
        return await commit(self._log, attachment, acks, appends)

    async def check_commit(
        self, topic: str, name: str, consumer: str, acks: Sequence[bytes]
    ) -> list[AckResult]:
        """The result that `commit` would return for each id now. Changes nothing."""
        attachment = await self._attachment(topic, name, consumer)
        return [result_of(attachment.resolve(ack_id)) for ack_id in acks]

    async def _attachment(self, topic: str, name: str, consumer: str) -> Attachment:
        subscription = await self.find(topic, name)
        for active in self._active_subscriptions.of(subscription.id):
            attachment = active.attachments.get(consumer)
            if attachment is not None:
                return attachment
        raise UnknownConsumer(subscription=name, consumer=consumer)

    def _detach(self, active: ActiveSubscription, name: str, error: MillpondError, *, graceful: bool) -> None:
        attachment = active.detach(name, error, graceful=graceful)
        if attachment is not None:
            self._release_later(attachment)

    async def _hold(self, attachment: Attachment) -> None:
        subscription, token = attachment.subscription, attachment.token
        if subscription.config.mode is SubscriptionMode.EXCLUSIVE:
            await self._log.write(
                lambda tx: exclusive_consumers.hold(tx, subscription, self._session, attachment.name, token)
            )

    def _release_later(self, attachment: Attachment) -> None:
        if attachment.subscription.config.mode is SubscriptionMode.EXCLUSIVE:
            self._active_subscriptions.start_task(self._release(attachment))

    async def _release(self, attachment: Attachment) -> None:
        """Retry until the catalog accepts it. During shutdown that is not needed: rows of dead brokers do not count."""
        while True:
            if await self._is_released(attachment) or self._active_subscriptions.stopping:
                return
            await asyncio.sleep(RELEASE_RETRY_S)

    async def _is_released(self, attachment: Attachment) -> bool:
        subscription, token = attachment.subscription, attachment.token
        try:
            await self._log.write(
                lambda tx: exclusive_consumers.release(tx, subscription, self._session, token)
            )
        except Unavailable as error:
            logger.warning(
                "releasing exclusive subscription failed; will retry",
                extra={
                    "topic": attachment.topic,
                    "subscription": subscription.name,
                    "consumer": attachment.name,
                    "error": str(error),
                },
            )
            return False
        return True

    async def _check_members(self, subscription: StoredSubscription, member: str) -> None:
        """Limit the number of members, because each of them has stored state that remains."""
        members = {name for name, _ in await self.floors(subscription)} - {SHARED_MEMBER}
        if member not in members and len(members) >= self._limits.consumers_max:
            reason = f"{self._limits.consumers_max} consumers have a state of their own in it"
            raise SubscriptionBusy(subscription=subscription.name, reason=reason)

    def _check_room(self, active: ActiveSubscription, consumer: str) -> None:
        others = [name for name in active.attachments if name != consumer]
        name = active.subscription.name
        if active.subscription.config.mode is SubscriptionMode.EXCLUSIVE and others:
            raise SubscriptionBusy(subscription=name, reason=f"it is exclusive, and {others[0]!r} has it")
        if len(others) >= self._limits.consumers_max:
            raise SubscriptionBusy(subscription=name, reason=f"it has {self._limits.consumers_max} consumers")

    async def _read_secret(self) -> bytes:
        if not self._secret:
            text = await self._log.read(lambda tx: read_meta(tx, "ack_secret"))
            self._secret = bytes.fromhex(text)
        return self._secret

    # -- service ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the active subscriptions, and move dead letters."""
        async with asyncio.TaskGroup() as services:
            services.create_task(self.dead_letters.run())
            services.create_task(self._active_subscriptions.run())

    async def prepare_handover(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Stop delivery from these partitions, save acknowledgements, and send consumers to the next owner."""
        await self._active_subscriptions.prepare_handover(topic_partitions)

    def end_handover(self, topic_partitions: Collection[TopicPartition]) -> None:
        """The handover of these partitions has completed or failed; owned partitions may start again."""
        self._active_subscriptions.end_handover(topic_partitions)

    async def stop(self) -> None:
        """Detach consumers gracefully, which charges no attempts for their leases, and save acknowledgements."""
        for active in self._active_subscriptions.all():
            for name in list(active.attachments):
                self._detach(active, name, Stopping(), graceful=True)
        await self._active_subscriptions.stop()
