"""A subscription that is active on this broker: its partitions here and its attached consumers. Of a multicast
subscription, each consumer is a member with state of its own, and is active separately."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from millpond.catalog.subscriptions import StoredSubscription, SubscriptionId
from millpond.model.errors import MillpondError, NotOwner, SubscriptionReplaced
from millpond.model.topics import Topic
from millpond.queues.addressing import Addressing
from millpond.queues.attachment import Attachment
from millpond.queues.partition_queue import PartitionQueue

RESTART_DELAY_MS: Final = 1_000
"""Delay before a partition is started again after an error closed it. Without it, a partition that cannot be read
would be started in a tight loop."""

ActiveKey = tuple[SubscriptionId, str]
"""The subscription and the member."""


@dataclass(slots=True)
class ActiveSubscription:
    """A subscription that is active on this broker, or one member of a multicast subscription."""

    subscription: StoredSubscription
    topic: Topic
    member: str
    addressing: Addressing
    queues: dict[int, PartitionQueue] = field(default_factory=dict)
    attachments: dict[str, Attachment] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while consumers attach and while partitions start."""
    restart_at: dict[int, int] = field(default_factory=dict)
    """Partitions that an error closed, with the time at which each may start again."""
    balanced_at: int = 0

    @property
    def key(self) -> ActiveKey:
        return self.subscription.id, self.member

    def open_queues(self) -> list[PartitionQueue]:
        """Queues that are not closed. Metrics call this from any thread."""
        return [queue for queue in list(self.queues.values()) if queue.closed is None]

    def missing(self, now: int) -> list[int]:
        """Partitions that have no queue and may start now."""
        return [
            number
            for number in range(self.topic.partitions)
            if number not in self.queues and self.restart_at.get(number, 0) <= now
        ]

    def apply(self, subscription: StoredSubscription) -> None:
        """Apply an altered subscription config to all queues from now on."""
        self.subscription = subscription
        for queue in self.queues.values():
            queue.alter(subscription)

    def connect(self) -> None:
        """Attach every consumer to every queue that it wants and is not attached to yet."""
        for number, queue in self.queues.items():
            for attachment in self.attachments.values():
                if attachment.queues.get(number) is not queue and attachment.wants(number):
                    attachment.queues[number] = queue
                    queue.deliverer.attach(attachment.name, attachment, attachment.consumer_credit)
                    queue.deliverer.pause(attachment.name, paused=attachment.paused)
                    attachment.on_available()

    def detach(self, name: str, error: MillpondError, *, graceful: bool) -> Attachment | None:
        """Detach a consumer. Returns its attachment, or None if no consumer has this name."""
        attachment = self.attachments.pop(name, None)
        if attachment is None:
            return None
        for queue in self.queues.values():
            queue.deliverer.detach(name, graceful=graceful)
        attachment.queues = {}
        attachment.end(error)
        return attachment

    def remove_ended(self, now: int) -> None:
        """Remove closed queues. A queue that an error closed delays the next start of its partition; a queue that
        closed because the partition moved or the subscription was replaced does not."""
        self.restart_at = {number: until for number, until in self.restart_at.items() if until > now}
        for number, queue in list(self.queues.items()):
            if queue.closed is not None:
                del self.queues[number]
                if not isinstance(queue.closed, NotOwner | SubscriptionReplaced):
                    self.restart_at[number] = now + RESTART_DELAY_MS

    def balance(self, now: int) -> None:
        self.balanced_at = now
        for queue in self.queues.values():
            if queue.dispatcher.consumers.balance():
                queue.wake()

    def unblock(self) -> int:
        """Release blocked messages for delivery. Returns how many there were."""
        freed = 0
        for queue in self.queues.values():
            freed += queue.dispatcher.unblock()
            queue.wake()
        return freed

    def close_replaced(self, epochs: Mapping[int, int]) -> None:
        """Close queues whose epoch is not the one in the catalog."""
        for number, queue in list(self.queues.items()):
            if epochs.get(number) != queue.dispatcher.epoch:
                queue.close(SubscriptionReplaced(subscription=self.subscription.name))

    def close_queues(self, error: MillpondError) -> None:
        for queue in list(self.queues.values()):
            queue.close(error)

    def end(self, error: MillpondError) -> None:
        self.close_queues(error)
        for attachment in self.attachments.values():
            attachment.end(error)
