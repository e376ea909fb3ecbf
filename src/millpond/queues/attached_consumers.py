"""The consumers that are attached to one partition of a subscription, and which of them keys are assigned to.

A consumer that shows no life is suspended: its keys are assigned to others until it sends something. A consumer with a
much higher load than the others gets less weight, and with it fewer keys.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from millpond.queues.dispatcher_state import AttachedConsumer, ConsumerCredit
from millpond.queues.key_assignment import FULL_WEIGHT, Assignment

HOT_FACTOR: Final = 2
HOT_SLACK: Final = 8
"""A consumer is hot if its load, queued keys plus leased messages, exceeds the average of the others times
`HOT_FACTOR`, plus `HOT_SLACK`."""
WEIGHT_LESS: Final = 0.75
WEIGHT_MORE: Final = 1.1
WEIGHT_MIN: Final = 0.1


class AttachedConsumers:
    """Changes no message. Calls `on_reassigned` whenever the owners of keys may have changed."""

    def __init__(
        self, assignment: Assignment, on_reassigned: Callable[[], None], *, is_balanced: bool
    ) -> None:
        """`is_balanced`: whether `balance` may move keys."""
        self.by_name: dict[str, AttachedConsumer] = {}
        """Changed only by this class."""
        self._assignment = assignment
        self._on_reassigned = on_reassigned
        self._is_balanced = is_balanced
        self._attached = 0

    def __iter__(self) -> Iterator[AttachedConsumer]:
        """In the order in which they were attached."""
        return iter(list(self.by_name.values()))

    def attach(self, name: str, consumer_credit: ConsumerCredit | None = None) -> None:
        if name not in self.by_name:
            self._attached += 1
            self.by_name[name] = AttachedConsumer(name, self._attached, consumer_credit or ConsumerCredit())
            self._reassign()

    def remove(self, name: str) -> AttachedConsumer:
        """Remove a consumer and assign its keys to others. The caller ends its leases."""
        consumer = self.by_name.pop(name)
        self._reassign()
        return consumer

    def grant(self, name: str, messages: int, size: int | None = None) -> None:
        """Add credit to a consumer. Without a size, bytes are not counted."""
        consumer = self.by_name.get(name)
        if consumer is not None:
            consumer.consumer_credit.add(messages, size)
            self.mark_consumer_alive(consumer)

    def mark_alive(self, name: str) -> None:
        """The consumer has shown that it is alive, for example by granting credit."""
        if (consumer := self.by_name.get(name)) is not None:
            self.mark_consumer_alive(consumer)

    def mark_consumer_alive(self, consumer: AttachedConsumer) -> None:
        """Like `mark_alive`. A suspended consumer owns keys again."""
        consumer.starved_since = None
        if consumer.suspended and self.by_name.get(consumer.name) is consumer:
            consumer.suspended = False
            self._reassign()

    def suspend(self, silent: Iterable[AttachedConsumer]) -> None:
        found = [each for each in silent if not each.suspended]
        for consumer in found:
            consumer.suspended = True
        if found:
            self._reassign()

    def pause(self, name: str, *, paused: bool = True) -> None:
        consumer = self.by_name.get(name)
        if consumer is not None:
            consumer.paused = paused
            consumer.starved_since = None
            consumer.suspended = False
            self._reassign()

    def balance(self) -> bool:
        """Move some keys away from consumers with a much higher load than the others. Call it every few seconds."""
        if not self._is_balanced or len(self.by_name) < 2:
            return False
        loads = {each.name: len(each.queue) + len(each.leases) for each in self.by_name.values()}
        total = sum(loads.values())
        for consumer in self.by_name.values():
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
        consumers = list(self.by_name.values())
        eligible = (
            [each for each in consumers if not each.paused and not each.suspended]
            or [each for each in consumers if not each.paused]
            or consumers
        )
        if not self._assignment.replace({each.name: each.weight for each in eligible}):
            return False
        self._on_reassigned()
        return True
