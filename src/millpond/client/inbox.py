"""Deliveries of all brokers that have arrived and are not taken yet. Pure, except for the lock: any thread may take.

Deliveries that are no longer valid are dropped before they can be taken: those that the broker revoked, those
whose time ran out here, and those from a former owner of a partition. Deliveries that follow a nacked message
in order are held until the broker has reported what it revoked. Credit is returned for each delivery that is
taken or dropped, until the inbox is closed: after that no more deliveries are wanted.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from millpond.client.delivery import BaseDelivery
from millpond.model.errors import MillpondError


class Order(Enum):
    """Which messages are delivered in order with each other."""

    NONE = "none"
    KEY = "key"
    PARTITION = "partition"

    @classmethod
    def of(cls, config: Mapping[str, str]) -> "Order":
        mode = config.get("mode")
        if mode == "key_shared":
            return cls.KEY
        return cls.NONE if mode == "shared" else cls.PARTITION


GiveBack = Callable[[BaseDelivery], None]
OrderScope = tuple[int, bytes | None]
"""The scope of an order: a partition, or a key of it."""


@dataclass(slots=True)
class _Hold:
    """Holds deliveries behind `number` until the results of `pending_nacks` nacks have arrived. Then the held ones
    are released, and the others wait until those are taken. This way, a delivery that a worker has already
    looked at does not overtake one that was held."""

    number: int
    pending_nacks: int = 0
    held: dict[bytes, BaseDelivery] = field(default_factory=dict)
    released: dict[bytes, BaseDelivery] = field(default_factory=dict)

    def holds(self, delivery: BaseDelivery) -> bool:
        return delivery.number > self.number and delivery.ack_id not in self.released

    def refuse(self, number: int) -> None:
        self.number = min(self.number, number)
        self.pending_nacks += 1
        self.held, self.released = {**self.released, **self.held}, {}

    def next(self) -> list[BaseDelivery]:
        """The deliveries to release now, in order."""
        if self.pending_nacks or any(each.is_live for each in self.released.values()):
            return []
        live = sorted((each for each in self.held.values() if each.is_live), key=lambda each: each.number)
        self.held, self.released = {}, {each.ack_id: each for each in live}
        return live

    @property
    def is_over(self) -> bool:
        return (
            not self.pending_nacks
            and not self.held
            and not any(each.is_live for each in self.released.values())
        )


class Inbox:
    def __init__(
        self,
        return_credit: GiveBack,
        now: Callable[[], float],
        on_released: Callable[[], None] = lambda: None,
    ) -> None:
        """`return_credit` is called for each delivery that leaves the inbox, `on_released` when held deliveries can
        be taken again. Neither may block."""
        self._give_back = return_credit
        self._now = now
        self._on_released = on_released
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[BaseDelivery] = deque()
        self._live: dict[bytes, BaseDelivery] = {}
        self._epochs: dict[int, int] = {}
        self._holds: dict[OrderScope, _Hold] = {}
        self.order = Order.NONE
        self.closed = False
        self.failure: MillpondError | None = None

    # -- events from brokers ----------------------------------------------------------------------------------

    def arrive(self, partition: int, epoch: int, deliveries: Sequence[BaseDelivery]) -> None:
        with self._changed:
            if self.closed or epoch < self._epochs.get(partition, 0):
                self._discard(deliveries)
                return
            if epoch > self._epochs.get(partition, 0):
                self._epochs[partition] = epoch
                self._drop(each for each in self._live.values() if each.partition == partition)
            self._waiting.extend(deliveries)
            for each in deliveries:
                self._live[each.ack_id] = each
            self._changed.notify_all()

    def revoke(self, ack_ids: Iterable[bytes]) -> None:
        with self._changed:
            self._drop(self._live[each] for each in ack_ids if each in self._live)

    def lose(self, link: object, partition: int | None = None) -> None:
        """Drop deliveries that the broker no longer expects to be acknowledged: it has lost a partition, or
        the connection is lost."""
        with self._changed:
            self._drop(
                each
                for each in self._live.values()
                if each.link is link and partition in (None, each.partition)
            )

    def close(self, failure: MillpondError | None = None) -> None:
        """Nothing more can be taken. Wakes up waiting threads."""
        with self._changed:
            self.closed = True
            self.failure = self.failure or failure
            self._discard(self._live.values())
            self._live.clear()
            self._waiting.clear()
            self._holds.clear()
            self._changed.notify_all()

    @property
    def has_some(self) -> bool:
        return bool(self._waiting)

    # -- calls by the application -----------------------------------------------------------------------------

    def take(self) -> BaseDelivery | None:
        with self._lock:
            return self._take()

    def take_with_timeout(self, timeout_s: float | None) -> BaseDelivery | None:
        """For threads: waits. None when the time is up, or the inbox is closed."""
        return self._wait_for(self._take, timeout_s)

    def next_unclaimed(self) -> BaseDelivery | None:
        """The next delivery, which can still be dropped: call `claim` before using it."""
        with self._lock:
            return self._next_unclaimed()

    def wait_for_unclaimed(self, is_over: Callable[[], bool]) -> BaseDelivery | None:
        """For threads: waits. None when `is_over` returns true (`wake` makes it check again), or the inbox is
        closed."""
        return self._wait_for(self._next_unclaimed, None, is_over)

    def wake(self) -> None:
        """Make waiting threads check again whether they are done."""
        with self._changed:
            self._changed.notify_all()

    def _wait_for(
        self,
        find: Callable[[], BaseDelivery | None],
        timeout_s: float | None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> BaseDelivery | None:
        with self._changed:
            until = None if timeout_s is None else self._now() + timeout_s
            while (found := find()) is None and not self.closed and not is_over():
                if not self._changed.wait(None if until is None else until - self._now()):
                    return None
            return found

    def claim(self, delivery: BaseDelivery) -> bool:
        """Take this delivery. Returns whether it may be handed to the application now."""
        with self._lock:
            return self._claim(delivery)

    def refuse(self, refused: BaseDelivery) -> None:
        """Hold deliveries that follow this nacked one in order until the broker has responded."""
        place = self._order_scope(refused)
        if place is not None:
            with self._changed:
                self._holds.setdefault(place, _Hold(refused.number)).refuse(refused.number)

    def release(self, refused: BaseDelivery) -> None:
        """The broker has responded to the nack: the deliveries it revoked are gone by now, and the others may
        be taken."""
        place = self._order_scope(refused)
        with self._changed:
            hold = self._holds.get(place) if place is not None else None
            if place is None or hold is None:
                return
            hold.pending_nacks -= 1
            self._release_held(place, hold)

    def _order_scope(self, delivery: BaseDelivery) -> OrderScope | None:
        """The order's scope that a delivery belongs to; None if it is not ordered. A key's deliveries are
        always ordered, even if the key window allowed only one in flight when this subscriber attached: the
        window can be altered."""
        if self.order is Order.PARTITION:
            return delivery.partition, None
        if self.order is Order.KEY and delivery.key is not None:
            return delivery.partition, delivery.key
        return None

    def _next_unclaimed(self) -> BaseDelivery | None:
        while self._waiting:
            found = self._waiting.popleft()
            if found.is_live:
                return found
        return None

    def _take(self) -> BaseDelivery | None:
        while self._waiting:
            found = self._waiting.popleft()
            if self._claim(found):
                return found
        return None

    def _claim(self, delivery: BaseDelivery) -> bool:
        if not delivery.is_live:
            return False
        place = self._order_scope(delivery) if self._holds else None
        hold = self._holds.get(place) if place is not None else None
        if hold is not None and hold.holds(delivery):
            hold.held[delivery.ack_id] = delivery
            return False
        delivery.is_live = False
        del self._live[delivery.ack_id]
        self._give_back(delivery)
        if hold is not None and place is not None:
            self._release_held(place, hold)
        return delivery.deadline > self._now()

    def _release_held(self, place: OrderScope, hold: _Hold) -> None:
        if following := hold.next():
            self._waiting.extendleft(reversed(following))
            self._changed.notify_all()
            self._on_released()
        elif hold.is_over:
            del self._holds[place]

    def _discard(self, deliveries: Iterable[BaseDelivery]) -> None:
        for each in deliveries:
            each.is_live = False
            if not self.closed:
                self._give_back(each)

    def _drop(self, gone: Iterable[BaseDelivery]) -> None:
        for each in list(gone):
            each.is_live = False
            del self._live[each.ack_id]
            self._give_back(each)
        for place, hold in list(self._holds.items()) if self._holds else ():
            self._release_held(place, hold)
