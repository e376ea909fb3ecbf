"""Scheduling state of one subscription partition: which message each consumer may receive next, and what each key
waits for.

The base class of the dispatcher. As soon as a key's first message may be delivered, it is in the queue of the consumer
that owns the key. Messages that need no order are `unordered`, and any consumer may receive them. `_schedule_key` is
called for a key whenever its state changes, and for all keys when their owners may have changed.

Nothing here scans: messages are found by offset, keys by hash, and eligible messages are in their consumer's heap.
Except in partition order, at most `PER_KEY_MAX` waiting messages of a key are tracked; later ones are read from the log
again.
"""

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from millpond.model.subscriptions import SubscriptionConfig, SubscriptionMode
from millpond.queues.dispatcher_results import KeyStatus
from millpond.queues.dispatcher_state import (
    NEVER,
    READY,
    AttachedConsumer,
    ConsumerCredit,
    TrackedKey,
    TrackedMessage,
)
from millpond.queues.key_assignment import FULL_WEIGHT, Assignment

PER_KEY_MAX: Final = 1_000
PER_KEY_WHEN_CROWDED: Final = 16
"""Limit per key once half of the messages that may be tracked are tracked."""
HOT_FACTOR: Final = 2
HOT_SLACK: Final = 8
"""A consumer is hot if its load, queued keys plus leased messages, exceeds the average of the others times
`HOT_FACTOR`, plus `HOT_SLACK`."""
WEIGHT_LESS: Final = 0.75
WEIGHT_MORE: Final = 1.1
WEIGHT_MIN: Final = 0.1

CreditRank = tuple[bool, int, int, AttachedConsumer]
"""A consumer that may receive unordered messages, with its sort key: the smallest receives the next one."""


class Schedule:
    def __init__(self, config: SubscriptionConfig, assignment: Assignment, tracked_max: int) -> None:
        self.now = 0
        self._assignment = assignment
        self._tracked_max = tracked_max
        self._messages: dict[int, TrackedMessage] = {}
        self._keys: dict[int, TrackedKey] = {}
        self._lagging: dict[int, TrackedKey] = {}
        self._drained: dict[int, TrackedKey] = {}
        """Lagging keys that have worked off at least half of the messages that may be tracked for them."""
        self._consumers: dict[str, AttachedConsumer] = {}
        self._attached = 0
        self._unordered: list[int] = []
        """A heap of ready messages that any consumer may receive."""
        self._delayed: list[tuple[int, int]] = []
        self.config = config

    @property
    def config(self) -> SubscriptionConfig:
        """May be altered at any time, except for the mode."""
        return self._config

    @config.setter
    def config(self, config: SubscriptionConfig) -> None:
        self._config = config
        self._strict = config.strict
        self._by_partition = config.ordered_by_partition
        self._window = config.leases_max if self._by_partition else config.key_window
        for key in list(self._keys.values()):
            self._schedule_key(key)

    # -- keys -------------------------------------------------------------------------------------------------

    def _wait(self, message: TrackedMessage) -> None:
        """Schedule a message, for the first time or again."""
        key = message.key
        if key is not None:
            heapq.heappush(key.waiting, message.offset)
            self._schedule_key(key)
        elif message.not_before > self.now:
            self._delay(message)
        else:
            heapq.heappush(self._unordered, message.offset)

    def _delay(self, message: TrackedMessage) -> None:
        if message.alarm != message.not_before < NEVER:
            message.alarm = message.not_before
            heapq.heappush(self._delayed, (message.not_before, message.offset))

    def _schedule_key(self, key: TrackedKey) -> None:
        """Queue the key's first message at its consumer, if it may be delivered now."""
        if self._strict and key.busy:
            return  # considered again when the earlier message is durably settled
        head = self._head(key)
        if key.resume_from is not None and len(key.waiting) * 2 <= self._per_key_max():
            self._drained[key.hash] = key
        if head is None:
            key.queued = -1
            if key.idle:
                self._keys.pop(key.hash, None)
            return
        if key.queued == head.offset:
            return
        key.queued = -1
        if head.not_before > self.now:
            self._delay(head)
            return
        owner = key.owner or self._owner_of(key)
        if owner is not None and (self._strict or self._may_dispatch(key, owner)):
            key.queued = head.offset
            heapq.heappush(owner.queue, head.offset)

    def _owner_of(self, key: TrackedKey) -> AttachedConsumer | None:
        """Cached until keys are reassigned."""
        owner = key.owner = self._consumers.get(self._assignment.owner(key.hash) or "")
        return owner

    def _may_dispatch(self, key: TrackedKey, consumer: AttachedConsumer) -> bool:
        if self._strict:
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

    def _next_unordered(self) -> TrackedMessage | None:
        while self._unordered:
            message = self._messages.get(self._unordered[0])
            if message is not None and message.state is READY:
                return message
            heapq.heappop(self._unordered)
        return None

    def _next_queued(self, consumer: AttachedConsumer) -> TrackedMessage | None:
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

    def _per_key_max(self) -> int:
        if self._by_partition:
            return self._tracked_max
        return PER_KEY_MAX if len(self._messages) * 2 < self._tracked_max else PER_KEY_WHEN_CROWDED

    @property
    def retrack_from(self) -> int | None:
        """Where to read again for keys that have worked off most of their tracked messages; None if there are none."""
        if not self._drained:
            return None
        offsets = [key.resume_from for key in self._drained.values() if key.resume_from is not None]
        return min(offsets, default=None)

    # -- consumers --------------------------------------------------------------------------------------------

    def attach(self, name: str, consumer_credit: ConsumerCredit | None = None) -> None:
        if name not in self._consumers:
            self._attached += 1
            self._consumers[name] = AttachedConsumer(
                name, self._attached, consumer_credit or ConsumerCredit()
            )
            self._reassign()

    def grant(self, name: str, messages: int, size: int | None = None) -> None:
        """Add credit to a consumer. Without a size, bytes are not counted."""
        consumer = self._consumers.get(name)
        if consumer is not None:
            consumer.consumer_credit.add(messages, size)
            self._mark_alive(consumer)

    def mark_alive(self, name: str) -> None:
        """The consumer has shown that it is alive, for example by granting credit."""
        if (consumer := self._consumers.get(name)) is not None:
            self._mark_alive(consumer)

    def pause(self, name: str, *, paused: bool = True) -> None:
        consumer = self._consumers.get(name)
        if consumer is not None:
            consumer.paused = paused
            consumer.starved_since = None
            consumer.suspended = False
            self._reassign()

    def balance(self) -> bool:
        """Move some keys away from consumers with a much higher load than the others. Call it every few seconds."""
        if self._config.mode is not SubscriptionMode.KEY_SHARED or len(self._consumers) < 2:
            return False
        loads = {each.name: len(each.queue) + len(each.leases) for each in self._consumers.values()}
        total = sum(loads.values())
        for consumer in self._consumers.values():
            load = loads[consumer.name]
            others = (total - load) / (len(loads) - 1)
            if load > HOT_FACTOR * others + HOT_SLACK:
                consumer.weight = max(consumer.weight * WEIGHT_LESS, WEIGHT_MIN)
            elif load <= others:
                consumer.weight = min(consumer.weight * WEIGHT_MORE, FULL_WEIGHT)
        return self._reassign()

    def _reassign(self) -> bool:
        """Reassign keys after a change among the consumers; returns whether owners may have changed. Suspended
        consumers own keys only if no other unpaused consumer exists, paused ones only if all are paused."""
        consumers = list(self._consumers.values())
        eligible = (
            [each for each in consumers if not each.paused and not each.suspended]
            or [each for each in consumers if not each.paused]
            or consumers
        )
        if not self._assignment.replace({each.name: each.weight for each in eligible}):
            return False
        for consumer in consumers:
            consumer.queue = []
        for key in list(self._keys.values()):
            key.owner = None
            key.queued = -1
            self._schedule_key(key)
        return True

    def _mark_alive(self, consumer: AttachedConsumer) -> None:
        consumer.starved_since = None
        if consumer.suspended and self._consumers.get(consumer.name) is consumer:
            consumer.suspended = False
            self._reassign()

    def _suspend(self, silent: Iterable[AttachedConsumer]) -> None:
        found = [each for each in silent if not each.suspended]
        for consumer in found:
            consumer.suspended = True
        if found:
            self._reassign()

    # -- time -------------------------------------------------------------------------------------------------

    def _advance_clock(self, now: int) -> None:
        self.now = max(self.now, now)
        while self._delayed and self._delayed[0][0] <= self.now:
            time, offset = heapq.heappop(self._delayed)
            message = self._messages.get(offset)
            if message is None or message.state is not READY or message.not_before != time:
                continue
            message.alarm = 0
            if message.key is None:
                heapq.heappush(self._unordered, offset)
            else:
                self._schedule_key(message.key)

    def _is_starving(self, consumer: AttachedConsumer) -> bool:
        """Whether the consumer has had no credit for a full ack timeout while its keys waited."""
        while consumer.queue and self._next_queued(consumer) is None:
            pass
        if not consumer.queue or consumer.paused or consumer.may_receive:
            consumer.starved_since = None
            return False
        if consumer.starved_since is None:
            consumer.starved_since = self.now
        return self.now - consumer.starved_since >= self._config.ack_timeout_ms

    def _starving_until(self, consumer: AttachedConsumer) -> int | None:
        if consumer.may_receive or consumer.paused or consumer.suspended:
            return None
        since = self.now if consumer.starved_since is None else consumer.starved_since
        return since + self._config.ack_timeout_ms

    # -- inspection -------------------------------------------------------------------------------------------

    @property
    def tracked(self) -> int:
        return len(self._messages)

    @property
    def delayed(self) -> int:
        """Number of messages that wait for their delivery time."""
        return sum(
            1 for each in self._messages.values() if each.state is READY and each.not_before > self.now
        )

    @property
    def consumers(self) -> Sequence[AttachedConsumer]:
        return list(self._consumers.values())

    def waiting_keys(self, limit: int) -> list[KeyStatus]:
        """Keys that are not delivered and why, those with the most waiting messages first."""
        statuses = [each for key in self._keys.values() if (each := self._key_status(key)) is not None]
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
        elif key.settling and self._strict:
            why = "settling"
        elif until:
            why = "blocked" if until >= NEVER else "delayed"
        elif owner is None:
            why = "nobody"
        elif head is not None and not self._consumers[owner].may_receive:
            why = "no_credit"
        else:
            return None
        return KeyStatus(key.hash, offset, len(key.waiting), why, holder, 0 if until >= NEVER else until)


def consumer_with_most_credit(by_credit: list[CreditRank]) -> AttachedConsumer | None:
    """Of the consumers that may receive a message, the one with the most credit; suspended ones come last."""
    while by_credit:
        suspended, credit, number, consumer = by_credit[0]
        if not consumer.may_receive:
            heapq.heappop(by_credit)
        elif -credit != consumer.credit:
            heapq.heapreplace(by_credit, (suspended, -consumer.credit, number, consumer))
        else:
            return consumer
    return None
