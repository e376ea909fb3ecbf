"""An attached consumer: its credit, the events it receives, and its acknowledgements."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from millpond.catalog.subscriptions import StoredSubscription
from millpond.model.errors import MillpondError
from millpond.queues.ackids import AckId, AckIdCodec
from millpond.queues.deliverer import Delivered
from millpond.queues.dispatcher_results import OK, AckResult, Revoked
from millpond.queues.dispatcher_state import ConsumerCredit
from millpond.queues.partition_queue import PartitionQueue


@dataclass(frozen=True, slots=True)
class Deliveries:
    partition: int
    epoch: int
    deliveries: list[tuple[bytes, Delivered]]
    """Each with its acknowledgement id. The list grows until the consumer takes the event."""


@dataclass(frozen=True, slots=True)
class Revocation:
    """Deliveries that the consumer must discard: their acknowledgement ids are no longer valid."""

    partition: int
    ack_ids: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class PartitionLost:
    partition: int
    error: MillpondError


Event = Deliveries | Revocation | PartitionLost
Act = Callable[[PartitionQueue, int, int, int], AckResult]
"""Called with epoch, offset and token of the delivery."""
Known = tuple[int, int, int, int]
"""The fields of an `AckId`."""


@dataclass(slots=True)
class Acquiring:
    """How a consumer receives that asks for messages when it wants some, instead of granting credit."""

    partitions: set[int]
    """It is attached to these only."""
    on_available: Callable[[], None]
    """Called when messages may have become available to it."""


KNOWN_MAX: Final = 4_096
"""Number of ids cached with their fields, so that an acknowledgement need not verify and decode them."""


class Attachment:
    """Lives on the event loop. `take` returns events in order; acknowledgements go to the partitions they name. It has
    one method for each call of a partition and of its consumer, more than 20 in all."""

    def __init__(
        self,
        subscription: StoredSubscription,
        topic: str,
        name: str,
        member: str,
        ack_ids: AckIdCodec,
        on_lost: Callable[[], None],
        token: str,
        acquiring: Acquiring | None = None,
    ) -> None:
        self.token = token
        """Distinguishes this attachment from others with the same consumer name."""
        self.subscription = subscription
        self.topic = topic
        self.name = name
        self.member = member
        self.consumer_credit = ConsumerCredit()
        self.queues: dict[int, PartitionQueue] = {}
        self.ended: MillpondError | None = None
        self.paused = False
        self._acquiring = acquiring
        self._ack_ids = ack_ids
        self._known: dict[bytes, Known] = {}
        self._on_lost = on_lost
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()

    def wants(self, partition: int) -> bool:
        """Whether to attach it to this partition."""
        return self._acquiring is None or partition in self._acquiring.partitions

    # -- called by partitions ---------------------------------------------------------------------------------

    def deliver(self, partition: int, epoch: int, deliveries: Sequence[Delivered]) -> None:
        encode, known = self._ack_ids.encode, self._known
        if len(known) + len(deliveries) > KNOWN_MAX:
            known.clear()
        sealed = []
        for each in deliveries:
            (offset, _, _, token), _ = each
            ack_id = encode(partition, epoch, offset, token)
            known[ack_id] = (partition, epoch, offset, token)
            sealed.append((ack_id, each))
        last = self._events[-1] if self._events else None
        if isinstance(last, Deliveries) and last.partition == partition and last.epoch == epoch:
            last.deliveries.extend(sealed)
        else:
            self._enqueue(Deliveries(partition, epoch, sealed))

    def revoke(self, partition: int, epoch: int, revoked: Sequence[Revoked]) -> None:
        ids = [self._ack_ids.encode(partition, epoch, each.offset, each.token) for each in revoked]
        self._enqueue(Revocation(partition, ids))

    def on_partition_lost(self, partition: int, error: MillpondError) -> None:
        self.queues.pop(partition, None)
        self._enqueue(PartitionLost(partition, error))
        self._on_lost()

    def on_credit_returned(self) -> None:
        """A partition used credit and then had nothing to deliver. Other partitions may use that credit now."""
        for queue in self.queues.values():
            queue.wake()

    def on_available(self) -> None:
        """Messages may be available to a consumer that asks for them."""
        if self._acquiring is not None:
            self._acquiring.on_available()

    def end(self, error: MillpondError) -> None:
        """End the attachment: no more events follow."""
        self.ended = self.ended or error
        self._news.set()
        self.on_available()

    def _enqueue(self, event: Event) -> None:
        if (
            self._acquiring is not None
        ):  # it takes no events: it sees that the partition is gone when it asks next
            self._acquiring.on_available()
            return
        self._events.append(event)
        self._news.set()

    # -- called by the consumer -------------------------------------------------------------------------------

    async def take(self, wait_s: float | None = None) -> list[Event]:
        """Wait for events and return all pending ones. Returns an empty list after `wait_s` or after `wake`. Raises
        when the attachment has ended and no events are left."""
        if not self._events and self.ended is None:
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                return []
        self._news.clear()
        events = list(self._events)
        self._events.clear()
        if not events and self.ended is not None:
            raise self.ended.copy()
        return events

    def wake(self) -> None:
        """Make a waiting `take` return, because its caller has something else to check."""
        self._news.set()

    def put_back(self, events: Sequence[Event]) -> None:
        """Return events that were taken and could not be used; the next `take` returns them first."""
        self._events.extendleft(reversed(events))

    def grant(self, messages: int, size: int | None = None) -> None:
        self.consumer_credit.add(messages, size)
        for queue in self.queues.values():
            queue.deliverer.mark_alive(self.name)

    def pause(self, *, paused: bool) -> None:
        self.paused = paused
        for queue in self.queues.values():
            queue.deliverer.pause(self.name, paused=paused)

    async def ack(self, ack_ids: Sequence[bytes], *, cumulative: bool = False) -> list[AckResult]:
        """Returns one result for each id, once all successful acknowledgements are durable."""
        return await self.acknowledge(ack_ids, cumulative=cumulative)

    async def nack(
        self, ack_ids: Sequence[bytes], delay_ms: int | None = None, reason: str = ""
    ) -> list[AckResult]:
        """The reason applies to each of them."""
        return await self.acknowledge(nacks=ack_ids, delay_ms=delay_ms, reasons=[reason] * len(ack_ids))

    async def extend(self, ack_ids: Sequence[bytes], by_ms: int) -> list[AckResult]:
        return await self.acknowledge(extends=ack_ids, by_ms=by_ms)

    async def acknowledge(
        self,
        acks: Sequence[bytes] = (),
        nacks: Sequence[bytes] = (),
        extends: Sequence[bytes] = (),
        *,
        cumulative: bool = False,
        delay_ms: int | None = None,
        by_ms: int = 0,
        reasons: Sequence[str] = (),
    ) -> list[AckResult]:
        """`reasons` are those of the nacks, in their order, or empty. Returns the results of the acks, then the nacks,
        then the extends, once all successful acks and nacks are durable."""
        touched: dict[PartitionQueue, None] = {}
        results = self._each(acks, _ack_through if cumulative else _ack, touched)
        if nacks:
            for ack_id, reason in zip(nacks, reasons or repeat(""), strict=bool(reasons)):
                results += self._each([ack_id], _nack(delay_ms, reason), touched)
        if extends:
            results += self._each(extends, lambda queue, *which: queue.deliverer.extend(*which, by_ms))
        lost = await _lost_of([(queue.state_key.partition, queue.saves.when_saved()) for queue in touched])
        if not lost:
            return results
        ids = [*acks, *nacks, *extends]
        return [self._unless_lost(result, each, lost) for result, each in zip(results, ids, strict=True)]

    def resolve(self, ack_id: bytes) -> tuple[PartitionQueue, AckId] | None:
        """The queue and the delivery that the id names; None if the id is invalid or its partition is not here."""
        decoded = self._ack_ids.decode(ack_id)
        queue = self.queues.get(decoded.partition) if decoded is not None else None
        return (queue, decoded) if queue is not None and decoded is not None else None

    def _each(
        self, ack_ids: Sequence[bytes], act: Act, touched: dict[PartitionQueue, None] | None = None
    ) -> list[AckResult]:
        """Apply `act` to each id. Adds the queues that have something to save to `touched`."""
        known, decode, queues = self._known, self._ack_ids.decode, self.queues
        results: list[AckResult] = []
        for each in ack_ids:
            found = known.pop(each, None) or decode(each)
            if found is None:
                results.append(AckResult.UNKNOWN)
                continue
            partition, epoch, offset, token = found
            queue = queues.get(partition)
            if queue is None or queue.closed is not None:
                results.append(AckResult.NOT_OWNER)
                continue
            result = act(queue, epoch, offset, token)
            results.append(result)
            if result is OK:
                if touched is not None:
                    touched[queue] = None
            elif result is AckResult.STALE:
                queue.deliverer.mark_alive(
                    self.name
                )  # too late to count, but it shows that the consumer is alive
        return results

    def _unless_lost(self, result: AckResult, ack_id: bytes, lost: set[int]) -> AckResult:
        decoded = self._ack_ids.decode(ack_id)
        is_lost = result is OK and decoded is not None and decoded.partition in lost
        return AckResult.NOT_OWNER if is_lost else result


def _ack(queue: PartitionQueue, epoch: int, offset: int, token: int) -> AckResult:
    return queue.dispatcher.ack(offset, epoch, token)


def _nack(delay_ms: int | None, reason: str) -> Act:
    return lambda queue, *which: queue.deliverer.nack(*which, delay_ms, reason)


def _ack_through(queue: PartitionQueue, epoch: int, offset: int, token: int) -> AckResult:
    return queue.dispatcher.ack_through(offset, epoch, token)


async def _lost_of(saved: "Sequence[tuple[int, asyncio.Future[None]]]") -> set[int]:
    """The partitions that closed before their acknowledgements were saved."""
    lost = set()
    for partition, future in saved:
        try:
            await future
        except MillpondError:
            lost.add(partition)
    return lost
