"""What a dispatcher keeps in memory about unsettled messages, their keys, and consumers."""

import heapq
from enum import IntEnum
from typing import Final, NamedTuple

NEVER: Final = 1 << 62
"""A time that never comes. A message with this `not_before` is blocked until an operator releases it."""
UNLIMITED: Final = 1 << 62
CREDIT_MAX: Final = 1_000_000
BYTES_CREDIT_MAX: Final = 1 << 40


def waits_for(not_before: int, now: int) -> tuple[str, int]:
    """What a message waits for that is not delivered, and until when; 0 if it does not wait for a time."""
    if not_before >= NEVER:
        return "blocked", 0
    return ("delayed", not_before) if not_before > now else ("ready", 0)


class LogEntry(NamedTuple):
    """What the dispatcher needs to know about a message of the log."""

    offset: int
    key: int | None
    """The hash of its key; None if the message may be delivered in any order."""
    size: int = 0
    not_before: int = 0


class MessageState(IntEnum):
    READY = 0
    """Waits to be dispatched, or for its `not_before`."""
    LEASED = 1
    """Delivered to a consumer that has not acknowledged it yet."""
    SETTLING = 2
    """How it is settled is decided, but not durable yet."""


READY: Final = MessageState.READY
LEASED: Final = MessageState.LEASED
SETTLING: Final = MessageState.SETTLING
"""Aliases, because Python 3.11 takes ten times as long to look up a member in its enum class."""


class SettleReason(IntEnum):
    """Why a message is settled."""

    ACKED = 0
    DEAD = 1
    DROPPED = 2


ACKED: Final = SettleReason.ACKED


class TrackedMessage:
    """A message that is not settled. `token` is the number of its latest delivery; 0 if no acknowledgement is valid."""

    __slots__ = (
        *("alarm", "attempts", "consumer", "deadline", "key", "not_before"),
        *("offset", "settle_reason", "size", "state", "token"),
    )

    def __init__(
        self, offset: int, key: "TrackedKey | None", size: int, not_before: int, attempts: int
    ) -> None:
        self.offset = offset
        self.key = key
        self.size = size
        self.not_before = not_before
        self.alarm = 0
        """The time of its entry in the heap of delayed messages; 0 if there is none."""
        self.attempts = attempts
        self.state: MessageState = READY
        self.settle_reason: SettleReason = ACKED
        """Valid while the message is SETTLING."""
        self.consumer: AttachedConsumer | None = None
        self.token = 0
        self.deadline = 0


class TrackedKey:
    """A key with unsettled messages. `waiting` is a heap of offsets, some of which may already be settled. From
    `resume_from` on, the log has more messages of the key that are not tracked yet."""

    __slots__ = ("hash", "holder", "leased", "owner", "queued", "resume_from", "settling", "waiting")

    def __init__(self, key: int) -> None:
        self.hash = key
        self.waiting: list[int] = []
        self.leased: set[int] = set()
        self.settling = 0
        """Number of its messages that are SETTLING."""
        self.holder: AttachedConsumer | None = None
        """The consumer of its leased messages. It differs from `owner` after the key was assigned to another
        consumer."""
        self.owner: AttachedConsumer | None = None
        """The consumer that the key is assigned to; None until it is looked up."""
        self.queued = -1
        """The offset of its entry in a consumer's queue; -1 if there is none."""
        self.resume_from: int | None = None

    @property
    def busy(self) -> bool:
        """Whether a message of the key is LEASED or SETTLING."""
        return bool(self.leased or self.settling)

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.busy and self.resume_from is None


class ConsumerCredit:
    """A consumer's remaining credit, shared by all partitions that it is attached to."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = UNLIMITED

    def add(self, messages: int, size: int | None = None) -> None:
        """Without a size, the credit in bytes does not change; it is unlimited until a size was added."""
        self.messages = min(self.messages + messages, CREDIT_MAX)
        if size is not None:
            before = self.bytes if self.bytes < BYTES_CREDIT_MAX else 0
            self.bytes = min(before + size, BYTES_CREDIT_MAX - 1)

    def take(self, size: int) -> None:
        self.messages -= 1
        if self.bytes < BYTES_CREDIT_MAX:
            self.bytes -= size

    def restore(self, size: int) -> None:
        self.messages += 1
        if self.bytes < BYTES_CREDIT_MAX:
            self.bytes += size

    def clear(self) -> None:
        self.messages = 0


class AttachedConsumer:
    """A consumer that is attached to one partition. `queue` is a heap of offsets that it may receive; some may no
    longer be eligible. `number` counts attached consumers: the earlier one has the lower number."""

    __slots__ = (
        *("acked", "leases", "name", "number", "paused", "consumer_credit"),
        *("queue", "starved_since", "suspended", "weight"),
    )

    def __init__(self, name: str, number: int, consumer_credit: ConsumerCredit) -> None:
        self.name = name
        self.number = number
        self.consumer_credit = consumer_credit
        self.paused = False
        self.suspended = False
        """Whether its keys are assigned to others, because a lease of its expired or it had no credit for too long, and
        it has sent nothing since."""
        self.starved_since: int | None = None
        """Since when keys wait for it and it has no credit."""
        self.weight = 1.0
        self.leases: set[int] = set()
        self.queue: list[int] = []
        self.acked = 0

    @property
    def may_receive(self) -> bool:
        """Whether it has credit and is not paused."""
        consumer_credit = self.consumer_credit
        return consumer_credit.messages > 0 and consumer_credit.bytes > 0 and not self.paused


class LeaseDeadlines:
    """Deadlines of leases, in buckets of 64 ms. Most leases end long before their deadline; a heap would keep them
    all."""

    BUCKET_BITS: Final = 6
    EMPTY_MAX: Final = 64
    """Empty buckets are removed when the number of buckets reaches this plus twice the number that the last removal
    kept."""

    def __init__(self) -> None:
        self._buckets: dict[int, set[int]] = {}
        self._order: list[int] = []
        self._sweep_at = self.EMPTY_MAX

    def __len__(self) -> int:
        """The number of buckets."""
        return len(self._order)

    def bucket(self, deadline: int) -> set[int]:
        """The set to which offsets with this deadline are added. Valid only until the next call of another method."""
        number = deadline >> self.BUCKET_BITS
        bucket = self._buckets.get(number)
        return self._new_bucket(number) if bucket is None else bucket

    def add(self, deadline: int, offset: int) -> None:
        self.bucket(deadline).add(offset)

    def discard(self, deadline: int, offset: int) -> None:
        bucket = self._buckets.get(deadline >> self.BUCKET_BITS)
        if bucket is not None:
            bucket.discard(offset)

    def candidates(self, now: int) -> list[int]:
        """Offsets whose deadline may have passed, sorted; the caller knows the exact deadlines. Removes the buckets
        that have passed completely. The current bucket stays, so its offsets are returned again by the next call."""
        found: list[int] = []
        due = now >> self.BUCKET_BITS
        while self._order and self._order[0] < due:
            found += self._buckets.pop(heapq.heappop(self._order))
        if self._order and self._order[0] == due:
            found += self._buckets[due]
        return sorted(found)

    def next(self) -> int | None:
        """When all deadlines of the first bucket will have passed; None if there are none."""
        while self._order and not self._buckets[self._order[0]]:
            del self._buckets[heapq.heappop(self._order)]
        return (self._order[0] + 1) << self.BUCKET_BITS if self._order else None

    def _new_bucket(self, number: int) -> set[int]:
        if len(self._order) >= self._sweep_at:
            self._buckets = {each: bucket for each, bucket in self._buckets.items() if bucket}
            self._order = sorted(self._buckets)
            self._sweep_at = 2 * len(self._order) + self.EMPTY_MAX
        bucket = self._buckets[number] = set()
        heapq.heappush(self._order, number)
        return bucket
