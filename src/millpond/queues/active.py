"""One subscription at work on this broker, or one member of it: its partitions here, and the consumers attached."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from millpond.catalog.subscriptions import Subscription, SubscriptionId
from millpond.model.errors import MillpondError, NotOwner, SubscriptionReplaced
from millpond.model.topics import Topic
from millpond.queues.addressing import Addressing
from millpond.queues.attachment import Attachment
from millpond.queues.partition_queue import PartitionQueue

BEGIN_AGAIN_MS: Final = 1_000
"""How long a partition rests that an error has ended: one that cannot be read is not to be taken all the time."""

Place = tuple[SubscriptionId, str]


@dataclass(slots=True)
class Active:
    """A subscription at work, or one member of it."""

    subscription: Subscription
    topic: Topic
    member: str
    addressing: Addressing
    queues: dict[int, PartitionQueue] = field(default_factory=dict)
    attachments: dict[str, Attachment] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while consumers come and partitions begin."""
    rests_until: dict[int, int] = field(default_factory=dict)
    """Partitions that ended because of an error."""
    balanced_at: int = 0

    @property
    def place(self) -> Place:
        return self.subscription.id, self.member

    def open_queues(self) -> list[PartitionQueue]:
        """Those that have not ended. Also metrics ask, from whatever thread."""
        return [queue for queue in list(self.queues.values()) if queue.closed is None]

    def missing(self, now: int) -> list[int]:
        """Partitions that could begin."""
        return [
            number
            for number in range(self.topic.partitions)
            if number not in self.queues and self.rests_until.get(number, 0) <= now
        ]

    def take_in(self, subscription: Subscription) -> None:
        """A config that was altered holds from now on."""
        self.subscription = subscription
        for queue in self.queues.values():
            queue.subscription = subscription
            queue.dispatcher.config = subscription.config
            queue.wake()

    def connect(self) -> None:
        """Every consumer with every partition, where they are not yet."""
        for number, queue in self.queues.items():
            for attachment in self.attachments.values():
                if attachment.queues.get(number) is not queue:
                    attachment.queues[number] = queue
                    queue.attach(attachment.name, attachment, attachment.purse)
                    queue.pause(attachment.name, paused=attachment.paused)

    def detach(self, name: str, error: MillpondError, *, graceful: bool) -> Attachment | None:
        """The consumer that was let go, if there is one of this name."""
        attachment = self.attachments.pop(name, None)
        if attachment is None:
            return None
        for queue in self.queues.values():
            queue.detach(name, graceful=graceful)
        attachment.queues = {}
        attachment.end(error)
        return attachment

    def remove_ended(self, now: int) -> None:
        """What ended because of an error rests for a while."""
        self.rests_until = {number: until for number, until in self.rests_until.items() if until > now}
        for number, queue in list(self.queues.items()):
            if queue.closed is not None:
                del self.queues[number]
                if not isinstance(queue.closed, NotOwner | SubscriptionReplaced):
                    self.rests_until[number] = now + BEGIN_AGAIN_MS

    def balance(self, now: int) -> None:
        self.balanced_at = now
        for queue in self.queues.values():
            if queue.dispatcher.balance():
                queue.wake()

    def unblock(self) -> int:
        """Let blocked messages go again; how many there were."""
        freed = 0
        for queue in self.queues.values():
            freed += queue.dispatcher.unblock()
            queue.wake()
        return freed

    def close_replaced(self, epochs: Mapping[int, int]) -> None:
        """Those that do not have the epoch which the catalog has for their partition."""
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
