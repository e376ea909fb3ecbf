"""Acknowledgements of a share group's member (KIP-932): ranges of offsets, and what becomes of each message.

Pure. The acknowledgements of a partition count together or not at all: `refusal` first looks at every range, and only
then `settle` changes the dispatcher. A member can acknowledge only what it has leased. Offsets below the start are
ignored, because they are settled or gone from the log.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from millpond.queues.dispatcher import Dispatcher

RELEASED: Final = "released by the consumer"
REJECTED: Final = "rejected by the consumer"


class AckType(IntEnum):
    """What a member says about a message."""

    GAP = 0
    """There is none at this offset."""
    ACCEPT = 1
    RELEASE = 2
    """Deliver it again, at once; this delivery counts."""
    REJECT = 3
    """Do not deliver it again; it becomes a dead letter."""
    RENEW = 4
    """Restart the time for which it is locked."""


ACK_TYPES: Final = frozenset(AckType)


class AckRange(NamedTuple):
    """Offsets from `first` to `last`, both included, and one type for all of them or one for each."""

    first: int
    last: int
    types: Sequence[int]

    @property
    def is_well_formed(self) -> bool:
        return (
            0 <= self.first <= self.last
            and len(self.types) in (1, self.last - self.first + 1)
            and ACK_TYPES.issuperset(self.types)
        )

    def typed_from(self, start: int) -> Iterator[tuple[int, int]]:
        """Each offset from `start` on, with its type."""
        start = max(start, self.first)
        if len(self.types) == 1:
            return ((offset, self.types[0]) for offset in range(start, self.last + 1))
        return zip(range(start, self.last + 1), self.types[start - self.first :], strict=True)


class AckRefusal(StrEnum):
    """Why none of the acknowledgements of a partition count."""

    MALFORMED = "malformed"
    """Ranges that overlap or are not sorted, types that do not exist or are not allowed, offsets the log lacks."""
    NOT_ACQUIRED = "not acquired"
    """The member does not have the lock of a message, or may not renew it."""


def malformed(ranges: Sequence[AckRange], *, renews: bool) -> bool:
    """`renews`: whether the request may renew locks."""
    following = 0
    for each in ranges:
        if not each.is_well_formed or each.first < following:
            return True
        if not renews and AckType.RENEW in each.types:
            return True
        following = each.last + 1
    return False


def refusal(
    dispatcher: Dispatcher,
    member: str,
    ranges: Sequence[AckRange],
    *,
    end_offset: int,
    renew_allowed: bool,
) -> AckRefusal | None:
    """Why `settle` must not be called with these well-formed ranges; None if it may. `end_offset` is the log's: what
    was delivered before the queue restarted may lie beyond its frontier."""
    consumer = dispatcher.consumers.by_name.get(member)
    leases = consumer.leases if consumer is not None else set[int]()
    start = dispatcher.start
    for first, last, types in ranges:
        if last < start:
            continue
        if last >= end_offset:
            return AckRefusal.MALFORMED
        first = max(first, start)
        if last - first >= len(leases) or not leases.issuperset(range(first, last + 1)):
            return AckRefusal.NOT_ACQUIRED
        if AckType.RENEW in types and not renew_allowed:
            return AckRefusal.NOT_ACQUIRED
    return None


def settle(dispatcher: Dispatcher, member: str, ranges: Sequence[AckRange], now: int) -> None:
    """Apply ranges that are well-formed and not refused."""
    start, epoch, token_of = dispatcher.start, dispatcher.epoch, dispatcher.token_of
    lock_ms, consumer = dispatcher.config.ack_timeout_ms, dispatcher.consumers.by_name.get(member)
    dispatcher.consumers.mark_alive(member)
    for each in ranges:
        if consumer is not None and len(each.types) == 1 and each.types[0] == AckType.ACCEPT:
            dispatcher.accept(max(start, each.first), each.last, consumer)
            continue
        for offset, kind in each.typed_from(start):
            if (
                token := token_of(offset)
            ) == 0:  # it was revoked, because an earlier one of its key has just failed
                continue
            match kind:
                case AckType.ACCEPT:
                    dispatcher.ack(offset, epoch, token)
                case AckType.RELEASE:
                    dispatcher.nack(offset, epoch, token, now, 0, RELEASED)
                case AckType.REJECT:
                    dispatcher.reject(offset, epoch, token, now, REJECTED)
                case AckType.RENEW:
                    dispatcher.extend(offset, epoch, token, now, lock_ms)
                case _:
                    dispatcher.void(offset)
