"""A subscriber's deliveries from all brokers that have arrived and that the application has not taken yet. Pure, except
for the lock: any thread may take.

Deliveries that are no longer valid are dropped before they can be taken: those that the broker revoked, those
whose ack timeout has passed, and those from a former owner of a partition. If messages are delivered in order and
one is nacked, the deliveries behind it are held until the broker has reported which of them it revoked. Credit is
returned for each delivery that is taken or dropped, until the inbox is closed: from then on no more deliveries are
requested.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from millpond.client.delivery import BaseDelivery
from millpond.model.errors import MillpondError


class DeliveryOrder(Enum):
    """Which messages of a partition the broker delivers in order: none, those of the same key, or all."""

    NONE = "none"
    KEY = "key"
    PARTITION = "partition"

    @classmethod
    def of(cls, config: Mapping[str, str]) -> "DeliveryOrder":
        mode = config.get("mode")
        if mode == "key_shared":
            return cls.KEY
        return cls.NONE if mode == "shared" else cls.PARTITION


ReturnCredit = Callable[[BaseDelivery], None]
OrderScope = tuple[int, bytes | None]
"""The messages that are in order with each other: those of a partition (the key is None), or of one of its keys."""


@dataclass(slots=True)
class _Hold:
    """Holds the deliveries of one scope behind message `number` until the results of `pending_nacks` nacks have
    arrived. Then the held ones are released, and deliveries that are held later wait until those are taken. So a
    delivery that a worker already had does not overtake one that was held before it."""

    number: int
    pending_nacks: int = 0
    held: dict[bytes, BaseDelivery] = field(default_factory=dict)
    released: dict[bytes, BaseDelivery] = field(default_factory=dict)

    def holds(self, delivery: BaseDelivery) -> bool:
        return delivery.number > self.number and delivery.ack_id not in self.released

    def add_nack(self, number: int) -> None:
        self.number = min(self.number, number)
        self.pending_nacks += 1
        self.held, self.released = {**self.released, **self.held}, {}

    def release(self) -> list[BaseDelivery]:
        """Release the held deliveries if that is possible now. Returns them in order."""
        if self.pending_nacks or any(each.is_live for each in self.released.values()):
            return []
        live = sorted((each for each in self.held.values() if each.is_live), key=lambda each: each.number)
        self.held, self.released = {}, {each.ack_id: each for each in live}
        return live

    @property
    def is_empty(self) -> bool:
        return (
            not self.pending_nacks
            and not self.held
            and not any(each.is_live for each in self.released.values())
        )


class Inbox:
    """One method for each event of a stream and each call of a subscriber, so there are more than 20."""

    def __init__(
        self,
        return_credit: ReturnCredit,
        now: Callable[[], float],
        on_released: Callable[[], None] = lambda: None,
    ) -> None:
        """`return_credit` is called for each delivery that leaves the inbox, `on_released` when held deliveries can
        be taken again. Neither may block."""
        self._return_credit = return_credit
        self._now = now
        self._on_released = on_released
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[BaseDelivery] = deque()
        self._live: dict[bytes, BaseDelivery] = {}
        self._epochs: dict[int, int] = {}
        self._holds: dict[OrderScope, _Hold] = {}
        self.order = DeliveryOrder.NONE
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
        """Drop all deliveries; nothing more can be taken. Wakes up blocked threads."""
        with self._changed:
            self.closed = True
            self.failure = self.failure or failure
            self._discard(self._live.values())
            self._live.clear()
            self._waiting.clear()
            self._holds.clear()
            self._changed.notify_all()

    @property
    def has_waiting(self) -> bool:
        """Whether deliveries wait to be taken; some of them may have been dropped."""
        return bool(self._waiting)

    # -- calls by the application -----------------------------------------------------------------------------

    def take(self) -> BaseDelivery | None:
        with self._lock:
            return self._take()

    def take_with_timeout(self, timeout_s: float | None) -> BaseDelivery | None:
        """Like `take`, but blocks the thread until there is a delivery. None when the time is up, or the inbox is
        closed."""
        return self._wait_for(self._take, timeout_s)

    def next_unclaimed(self) -> BaseDelivery | None:
        """The next delivery, without taking it: it can still be dropped. Call `claim` to take it."""
        with self._lock:
            return self._next_unclaimed()

    def wait_for_unclaimed(self, is_over: Callable[[], bool]) -> BaseDelivery | None:
        """Like `next_unclaimed`, but blocks the thread until there is a delivery. None when `is_over` returns true
        (`wake` makes it check again), or the inbox is closed."""
        return self._wait_for(self._next_unclaimed, None, is_over)

    def put_back(self, deliveries: Iterable[BaseDelivery]) -> None:
        """Deliveries that were returned by `next_unclaimed` and not claimed can be taken again, before all others."""
        with self._changed:
            self._waiting.extendleft(reversed([each for each in deliveries if each.is_live]))
            self._changed.notify_all()
        self._on_released()

    def wake(self) -> None:
        """Make blocked threads call their `is_over` again."""
        with self._changed:
            self._changed.notify_all()

    def _wait_for(
        self,
        find: Callable[[], BaseDelivery | None],
        timeout_s: float | None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> BaseDelivery | None:
        with self._changed:
            deadline = None if timeout_s is None else self._now() + timeout_s
            while not is_over():
                if (found := find()) is not None or self.closed:
                    return found
                if not self._changed.wait(None if deadline is None else deadline - self._now()):
                    return None
            return None

    def claim(self, delivery: BaseDelivery) -> bool:
        """Take this delivery. Returns whether it may be handed to the application now."""
        with self._lock:
            return self._claim(delivery)

    def hold_behind(self, nacked: BaseDelivery) -> None:
        """Hold the deliveries that are behind this nacked one in order, until the broker has responded to the nack."""
        scope = self._order_scope(nacked)
        if scope is not None:
            with self._changed:
                self._holds.setdefault(scope, _Hold(nacked.number)).add_nack(nacked.number)

    def release_behind(self, nacked: BaseDelivery) -> None:
        """The broker has responded to the nack. The deliveries that it revoked have been dropped by now; the others
        may be taken."""
        scope = self._order_scope(nacked)
        with self._changed:
            hold = self._holds.get(scope) if scope is not None else None
            if scope is None or hold is None:
                return
            hold.pending_nacks -= 1
            self._release_held(scope, hold)

    def _order_scope(self, delivery: BaseDelivery) -> OrderScope | None:
        """The messages that a delivery is in order with; None if it is not ordered. With an order by key this does not
        depend on the key window: even if it allowed only one delivery in flight when this subscriber attached, it may
        have been altered since."""
        if self.order is DeliveryOrder.PARTITION:
            return delivery.partition, None
        if self.order is DeliveryOrder.KEY and delivery.key is not None:
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
        scope = self._order_scope(delivery) if self._holds else None
        hold = self._holds.get(scope) if scope is not None else None
        if hold is not None and hold.holds(delivery):
            hold.held[delivery.ack_id] = delivery
            return False
        delivery.is_live = False
        del self._live[delivery.ack_id]
        self._return_credit(delivery)
        if hold is not None and scope is not None:
            self._release_held(scope, hold)
        return delivery.deadline > self._now()

    def _release_held(self, scope: OrderScope, hold: _Hold) -> None:
        if released := hold.release():
            self._waiting.extendleft(reversed(released))
            self._changed.notify_all()
            self._on_released()
        elif hold.is_empty:
            del self._holds[scope]

    def _discard(self, deliveries: Iterable[BaseDelivery]) -> None:
        for each in deliveries:
            each.is_live = False
            if not self.closed:
                self._return_credit(each)

    def _drop(self, dropped: Iterable[BaseDelivery]) -> None:
        for each in list(dropped):
            each.is_live = False
            del self._live[each.ack_id]
            self._return_credit(each)
        for scope, hold in list(self._holds.items()) if self._holds else ():
            self._release_held(scope, hold)
