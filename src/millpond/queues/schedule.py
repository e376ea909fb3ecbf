"""Scheduling state of one subscription partition: which message each consumer may receive next, and what each key
waits for.

The dispatcher owns it. As soon as a key's first message may be delivered, it is in the queue of the consumer that owns
the key. Messages that need no order are `unordered`, and any consumer may receive them. `schedule_key` is called for a
key whenever its state changes, and for all keys when their owners may have changed.

Nothing here scans: messages are found by offset, keys by hash, and eligible messages are in their consumer's heap.
Except in partition order, at most `PER_KEY_MAX` waiting messages of a key are tracked; later ones are read from the log
again.
"""

import heapq
from typing import Final

from millpond.model.subscriptions import SubscriptionConfig, SubscriptionMode
from millpond.queues.attached_consumers import AttachedConsumers
from millpond.queues.dispatcher_results import KeyStatus
from millpond.queues.dispatcher_state import NEVER, READY, AttachedConsumer, TrackedKey, TrackedMessage
from millpond.queues.key_assignment import Assignment

PER_KEY_MAX: Final = 1_000
PER_KEY_WHEN_CROWDED: Final = 16
"""Limit per key once half of the messages that may be tracked are tracked."""

CreditRank = tuple[bool, int, int, AttachedConsumer]
"""A consumer that may receive unordered messages, with its sort key: the smallest receives the next one."""


class Schedule:
    """`messages` are the dispatcher's, by offset: it adds and removes them, and changes their state. The schedule reads
    them, and sets only their `alarm`. After it has changed a message, the dispatcher calls `wait` if the message waits
    for a delivery from now on, or `schedule_key` if others of its key may be affected."""

    def __init__(
        self,
        config: SubscriptionConfig,
        assignment: Assignment,
        messages: dict[int, TrackedMessage],
        tracked_max: int,
    ) -> None:
        self.now = 0
        """The latest time that the dispatcher was called with."""
        self.consumers = AttachedConsumers(
            assignment,
            self._reschedule_all,
            is_balanced=config.mode is SubscriptionMode.KEY_SHARED,
        )
        self.keys: dict[int, TrackedKey] = {}
        self.lagging: dict[int, TrackedKey] = {}
        """Keys of which the log has more messages than are tracked."""
        self.drained: dict[int, TrackedKey] = {}
        """Lagging keys that have worked off at least half of the messages that may be tracked for them."""
        self.unordered: list[int] = []
        """A heap of ready messages that any consumer may receive."""
        self._messages = messages
        self._tracked_max = tracked_max
        self._assignment = assignment
        self._by_name = self.consumers.by_name
        self.due: list[tuple[int, int]] = []
        """A heap of delayed messages: time and offset."""
        self.configure(config)

    def configure(self, config: SubscriptionConfig) -> None:
        """Apply a config. It may differ from the one before in everything except the mode."""
        self.strict = config.strict
        self.by_partition = config.ordered_by_partition
        self._ack_timeout_ms = config.ack_timeout_ms
        self._window = config.leases_max if self.by_partition else config.key_window
        for key in list(self.keys.values()):
            self.schedule_key(key)

    # -- keys -------------------------------------------------------------------------------------------------

    def wait(self, message: TrackedMessage) -> None:
        """Schedule a message, for the first time or again."""
        key = message.key
        if key is not None:
            heapq.heappush(key.waiting, message.offset)
            self.schedule_key(key)
        elif message.not_before > self.now:
            self._delay(message)
        else:
            heapq.heappush(self.unordered, message.offset)

    def _delay(self, message: TrackedMessage) -> None:
        if message.alarm != message.not_before < NEVER:
            message.alarm = message.not_before
            heapq.heappush(self.due, (message.not_before, message.offset))

    def schedule_key(self, key: TrackedKey) -> None:
        """Queue the key's first message at its consumer, if it may be delivered now."""
        if self.strict and key.busy:
            return  # considered again when the earlier message is durably settled
        head = self._head(key)
        if key.resume_from is not None and len(key.waiting) * 2 <= self.per_key_max():
            self.drained[key.hash] = key
        if head is None:
            key.queued = -1
            if key.idle:
                self.keys.pop(key.hash, None)
            return
        if key.queued == head.offset:
            return
        key.queued = -1
        if head.not_before > self.now:
            self._delay(head)
            return
        owner = key.owner or self._owner_of(key)
        if owner is not None and (self.strict or self._may_dispatch(key, owner)):
            key.queued = head.offset
            heapq.heappush(owner.queue, head.offset)

    def _owner_of(self, key: TrackedKey) -> AttachedConsumer | None:
        """Cached until keys are reassigned."""
        owner = key.owner = self._by_name.get(self._assignment.owner(key.hash) or "")
        return owner

    def _may_dispatch(self, key: TrackedKey, consumer: AttachedConsumer) -> bool:
        if self.strict:
            return not key.busy
        if not key.leased:
            return True
        return key.holder is consumer and len(key.leased) < self._window

    def _head(self, key: TrackedKey) -> TrackedMessage | None:
        while key.waiting:
            message = self._messages.get(key.waiting[0])
            if message is not None and message.state is READY:
                return message
            heapq.heappop(key.waiting)
        return None

    def next_unordered(self) -> TrackedMessage | None:
        while self.unordered:
            message = self._messages.get(self.unordered[0])
            if message is not None and message.state is READY:
                return message
            heapq.heappop(self.unordered)
        return None

    def next_queued(self, consumer: AttachedConsumer) -> TrackedMessage | None:
        """The first message of the consumer's queue. Removes it and returns None if it is no longer eligible."""
        message = self._messages.get(consumer.queue[0])
        if message is not None and message.state is READY:
            key = message.key
            assert key is not None, "only messages with keys are queued"
            if key.queued == message.offset and self._may_dispatch(key, consumer):
                return message
            if key.queued == message.offset:
                key.queued = -1
        heapq.heappop(consumer.queue)
        return None

    def per_key_max(self) -> int:
        if self.by_partition:
            return self._tracked_max
        return PER_KEY_MAX if len(self._messages) * 2 < self._tracked_max else PER_KEY_WHEN_CROWDED

    @property
    def retrack_from(self) -> int | None:
        """Where to read again for keys that have worked off most of their tracked messages; None if there are none."""
        if not self.drained:
            return None
        offsets = [key.resume_from for key in self.drained.values() if key.resume_from is not None]
        return min(offsets, default=None)

    def _reschedule_all(self) -> None:
        """Owners of keys may have changed."""
        for consumer in self._by_name.values():
            consumer.queue = []
        for key in list(self.keys.values()):
            key.owner = None
            key.queued = -1
            self.schedule_key(key)

    # -- time -------------------------------------------------------------------------------------------------

    def advance_clock(self, now: int) -> None:
        self.now = max(self.now, now)
        while self.due and self.due[0][0] <= self.now:
            time, offset = heapq.heappop(self.due)
            message = self._messages.get(offset)
            if message is None or message.state is not READY or message.not_before != time:
                continue
            message.alarm = 0
            if message.key is None:
                heapq.heappush(self.unordered, offset)
            else:
                self.schedule_key(message.key)

    def is_starving(self, consumer: AttachedConsumer) -> bool:
        """Whether the consumer has had no credit for a full ack timeout while its keys waited."""
        while consumer.queue and self.next_queued(consumer) is None:
            pass
        if not consumer.queue or consumer.paused or consumer.may_receive:
            consumer.starved_since = None
            return False
        if consumer.starved_since is None:
            consumer.starved_since = self.now
        return self.now - consumer.starved_since >= self._ack_timeout_ms

    def starving_until(self, consumer: AttachedConsumer) -> int | None:
        """When the consumer, whose keys wait, will have had no credit for a full ack timeout; None if it may receive
        messages, is paused, or is suspended already."""
        if consumer.may_receive or consumer.paused or consumer.suspended:
            return None
        since = self.now if consumer.starved_since is None else consumer.starved_since
        return since + self._ack_timeout_ms

    # -- inspection -------------------------------------------------------------------------------------------

    @property
    def delayed(self) -> int:
        """Number of messages that wait for their delivery time."""
        return sum(
            1 for each in self._messages.values() if each.state is READY and each.not_before > self.now
        )

    def waiting_keys(self, limit: int) -> list[KeyStatus]:
        """Keys that are not delivered and why, those with the most waiting messages first."""
        statuses = [each for key in self.keys.values() if (each := self._key_status(key)) is not None]
        return heapq.nlargest(limit, statuses, key=lambda each: (each.waiting, -each.offset))

    def _key_status(self, key: TrackedKey) -> KeyStatus | None:
        """None if the key is about to be dispatched."""
        head = self._head(key)
        if head is None and not key.leased:
            return None
        offset = head.offset if head is not None else min(key.leased)
        owner = self._assignment.owner(key.hash)
        holder = key.holder.name if key.holder is not None else owner or ""
        until = head.not_before if head is not None and head.not_before > self.now else 0
        if key.leased:
            why = "leased" if owner == holder else "draining"
        elif key.settling and self.strict:
            why = "settling"
        elif until:
            why = "blocked" if until >= NEVER else "delayed"
        elif owner is None:
            why = "nobody"
        elif head is not None and not self._by_name[owner].may_receive:
            why = "no_credit"
        else:
            return None
        return KeyStatus(key.hash, offset, len(key.waiting), why, holder, 0 if until >= NEVER else until)


def consumer_with_most_credit(by_credit: list[CreditRank]) -> AttachedConsumer | None:
    """Of the consumers that may receive a message, the one with the most credit; suspended ones come last."""
    while by_credit:
        suspended, rank, number, consumer = by_credit[0]
        if not consumer.may_receive:
            heapq.heappop(by_credit)
        elif rank != -consumer.consumer_credit.messages:
            heapq.heapreplace(by_credit, (suspended, -consumer.consumer_credit.messages, number, consumer))
        else:
            return consumer
    return None
