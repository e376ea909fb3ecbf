"""Deliveries that have come and that nobody has taken, of all brokers. Pure, but for the lock: any thread may take.

What is not worth taking any more is dropped before anybody can: what the broker revoked, what lay here until its time
was up, and whatever came from a former owner of a partition. What is in order behind a message that was refused is held
until the broker has said what it revoked. Room is given back for each that was taken or dropped, until it is closed:
then nothing more is to come.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from millpond.client.delivery import BaseDelivery
from millpond.model.errors import MillpondError


class Order(Enum):
    """Which messages come in order with each other."""

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
Place = tuple[int, bytes | None]
"""What is in order with each other: a partition, or a key of it."""


@dataclass(slots=True)
class _Hold:
    """Those behind `number` wait for so many answers; then some are let go, and the others wait until those are taken,
    so that none that was held is overtaken by one that somebody had looked at already."""

    number: int
    refusals: int = 0
    held: dict[bytes, BaseDelivery] = field(default_factory=dict)
    let_go: dict[bytes, BaseDelivery] = field(default_factory=dict)

    def holds(self, delivery: BaseDelivery) -> bool:
        return delivery.number > self.number and delivery.ack_id not in self.let_go

    def refuse(self, number: int) -> None:
        self.number = min(self.number, number)
        self.refusals += 1
        self.held, self.let_go = {**self.let_go, **self.held}, {}

    def next(self) -> list[BaseDelivery]:
        """Those to be let go now, in their order."""
        if self.refusals or any(each.is_live for each in self.let_go.values()):
            return []
        live = sorted((each for each in self.held.values() if each.is_live), key=lambda each: each.number)
        self.held, self.let_go = {}, {each.ack_id: each for each in live}
        return live

    @property
    def is_over(self) -> bool:
        return not self.refusals and not self.held and not any(each.is_live for each in self.let_go.values())


class Inbox:
    def __init__(
        self, give_back: GiveBack, now: Callable[[], float], on_let_go: Callable[[], None] = lambda: None
    ) -> None:
        """`give_back` is told of each delivery that leaves, `on_let_go` when some that were held can be taken after
        all; neither may wait."""
        self._give_back = give_back
        self._now = now
        self._on_let_go = on_let_go
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[BaseDelivery] = deque()
        self._live: dict[bytes, BaseDelivery] = {}
        self._epochs: dict[int, int] = {}
        self._holds: dict[Place, _Hold] = {}
        self.order = Order.NONE
        self.closed = False
        self.failure: MillpondError | None = None

    # -- what brokers say -------------------------------------------------------------------------------------

    def arrive(self, partition: int, epoch: int, deliveries: Sequence[BaseDelivery]) -> None:
        with self._changed:
            if self.closed or epoch < self._epochs.get(partition, 0):
                self._pass_over(deliveries)
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
        """The broker counts on them no more: a partition of it went away, or the connection."""
        with self._changed:
            self._drop(
                each
                for each in self._live.values()
                if each.link is link and partition in (None, each.partition)
            )

    def close(self, failure: MillpondError | None = None) -> None:
        """Nothing more is taken; whoever waits is let go."""
        with self._changed:
            self.closed = True
            self.failure = self.failure or failure
            self._pass_over(self._live.values())
            self._live.clear()
            self._waiting.clear()
            self._holds.clear()
            self._changed.notify_all()

    @property
    def has_some(self) -> bool:
        return bool(self._waiting)

    # -- what the application does ----------------------------------------------------------------------------

    def take(self) -> BaseDelivery | None:
        with self._lock:
            return self._take()

    def take_in_time(self, timeout_s: float | None) -> BaseDelivery | None:
        """For threads: waits. None when the time is up, or it was closed."""
        return self._in_time(self._take, timeout_s)

    def look(self) -> BaseDelivery | None:
        """The next one, which stays droppable: whoever gets to it asks `claim`."""
        with self._lock:
            return self._look()

    def look_until(self, is_over: Callable[[], bool]) -> BaseDelivery | None:
        """For threads: waits. None when it is over, as `wake` makes it ask, or it was closed."""
        return self._in_time(self._look, None, is_over)

    def wake(self) -> None:
        """Whoever waits looks again whether it is over."""
        with self._changed:
            self._changed.notify_all()

    def _in_time(
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
        """Whether it may be given to the application now."""
        with self._lock:
            return self._claim(delivery)

    def refuse(self, refused: BaseDelivery) -> None:
        """What is in order behind it is not taken until the broker has answered."""
        place = self._place(refused)
        if place is not None:
            with self._changed:
                self._holds.setdefault(place, _Hold(refused.number)).refuse(refused.number)

    def release(self, refused: BaseDelivery) -> None:
        """The broker has answered: what it revoked is gone by now, and what is left may be taken."""
        place = self._place(refused)
        with self._changed:
            hold = self._holds.get(place) if place is not None else None
            if place is None or hold is None:
                return
            hold.refusals -= 1
            self._let_go(place, hold)

    def _place(self, delivery: BaseDelivery) -> Place | None:
        """None if it is in order with nothing. Of a key something may be behind it whatever its window was when this
        subscriber attached: that can be altered."""
        if self.order is Order.PARTITION:
            return delivery.partition, None
        if self.order is Order.KEY and delivery.key is not None:
            return delivery.partition, delivery.key
        return None

    def _look(self) -> BaseDelivery | None:
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
        place = self._place(delivery) if self._holds else None
        hold = self._holds.get(place) if place is not None else None
        if hold is not None and hold.holds(delivery):
            hold.held[delivery.ack_id] = delivery
            return False
        delivery.is_live = False
        del self._live[delivery.ack_id]
        self._give_back(delivery)
        if hold is not None and place is not None:
            self._let_go(place, hold)
        return delivery.deadline > self._now()

    def _let_go(self, place: Place, hold: _Hold) -> None:
        if following := hold.next():
            self._waiting.extendleft(reversed(following))
            self._changed.notify_all()
            self._on_let_go()
        elif hold.is_over:
            del self._holds[place]

    def _pass_over(self, deliveries: Iterable[BaseDelivery]) -> None:
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
            self._let_go(place, hold)
