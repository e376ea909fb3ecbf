"""Consumers that pull, such as over HTTP: the first pull attaches a consumer, and an idle consumer is detached.

A pull grants credit for itself and takes unused credit back. Messages that arrive too late for it are returned by the
next pull, with a full ack timeout; if no pull follows soon, other consumers get them, and no attempt is charged. A
consumer may have one pull at a time. A second one is refused, so that two processes that share a name by mistake find
out.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from millpond.model.errors import (
    InvalidRequest,
    MillpondError,
    Stopping,
    SubscriptionBusy,
    UnknownConsumer,
)
from millpond.queues.ackids import from_text, to_text
from millpond.queues.attachment import Attachment, Deliveries, Event, PartitionLost, Revocation
from millpond.queues.deliverer import Delivered
from millpond.queues.dispatcher_results import AckResult
from millpond.queues.dispatcher_state import UNLIMITED
from millpond.queues.feed import size_of
from millpond.queues.limits import QueueLimits
from millpond.queues.queues import Queues
from millpond.records import Record

SWEEP_EVERY_S: Final = 1.0
HELD_MIN: Final = 1_000


class PullerName(NamedTuple):
    topic: str
    subscription: str
    consumer: str


class Pulled(NamedTuple):
    """A delivery as a pull returns it."""

    ack_id: str
    partition: int
    record: Record
    retry_count: int
    age_ms: int


class _Waiting(NamedTuple):
    ack_id: bytes
    partition: int
    delivered: Delivered


@dataclass(slots=True)
class _Puller:
    """`ready` is delivered and not yet returned by a pull; `held` is returned and not acknowledged, with the time at
    which each lease expires."""

    attachment: Attachment
    last_seen_at: int
    ready: deque[_Waiting] = field(default_factory=deque)
    held: dict[bytes, int] = field(default_factory=dict)
    held_enough: int = HELD_MIN
    """Number of held deliveries at which expired ones are removed."""

    @property
    def ack_timeout_ms(self) -> int:
        return self.attachment.subscription.config.ack_timeout_ms

    def apply(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Deliveries(partition, _, deliveries):
                    self.ready += [_Waiting(ack_id, partition, each) for ack_id, each in deliveries]
                case Revocation(_, ack_ids):
                    self._forget(set(ack_ids))
                case PartitionLost(partition, _):
                    self._keep([each for each in self.ready if each.partition != partition])

    def take_ready(self, messages_max: int, bytes_max: int, now: int) -> list[Pulled]:
        """Return as many messages as fit, at least one if any is ready."""
        if len(self.held) >= self.held_enough:
            self._drop_expired(now)
        pulled: list[Pulled] = []
        while self.ready and len(pulled) < messages_max:
            delivery, record = self.ready[0].delivered
            bytes_max -= size_of(record)
            if pulled and bytes_max < 0:
                break
            ack_id, partition, _ = self.ready.popleft()
            self.held[ack_id] = now + self.ack_timeout_ms
            age_ms = max(now - record.timestamp, 0)
            pulled.append(Pulled(to_text(ack_id), partition, record, delivery.attempts, age_ms))
        return pulled

    async def renew_ready(self) -> None:
        """Extend the leases of ready messages to the full ack timeout; drop those whose lease has expired."""
        if self.ready:
            results = await self.attachment.extend([each.ack_id for each in self.ready], self.ack_timeout_ms)
            pairs = zip(self.ready, results, strict=True)
            self._keep([each for each, result in pairs if result is AckResult.OK])

    def restore_ready(self) -> None:
        """Release ready messages as if they had never been delivered."""
        for each in self.ready:
            if (queue := self.attachment.queues.get(each.partition)) is not None:
                queue.dispatcher.restore(each.delivered.delivery)
                queue.wake()
        self.attachment.consumer_credit.clear()
        self.ready.clear()

    def holds_nothing(self, now: int) -> bool:
        self._drop_expired(now)
        return not self.held

    def _drop_expired(self, now: int) -> None:
        self.held = {ack_id: deadline for ack_id, deadline in self.held.items() if deadline > now}
        self.held_enough = 2 * len(self.held) + HELD_MIN

    def _forget(self, ack_ids: set[bytes]) -> None:
        self._keep([each for each in self.ready if each.ack_id not in ack_ids])
        for ack_id in ack_ids:
            self.held.pop(ack_id, None)

    def _keep(self, ready: Sequence[_Waiting]) -> None:
        self.ready = deque(ready)


class PullConsumers:
    """All pulling consumers of this broker. Lives on the event loop; state changes only between awaits."""

    def __init__(self, queues: Queues, limits: QueueLimits) -> None:
        self._queues = queues
        self._limits = limits
        self._pullers: dict[PullerName, _Puller] = {}
        self._pulling: set[PullerName] = set()
        self._stopping = False

    async def pull(
        self, name: PullerName, *, messages_max: int, wait_ms: int = 0, bytes_max: int | None = None
    ) -> list[Pulled]:
        """Deliveries for this consumer, to be acknowledged within the ack timeout. Waits for the first one up to
        `wait_ms`."""
        messages_max = min(messages_max, self._limits.pull_messages_max)
        bytes_max = min(bytes_max or self._limits.pull_bytes_max, self._limits.pull_bytes_max)
        wait_ms = min(max(wait_ms, self._limits.pull_wait_ms_min), self._limits.pull_wait_ms_max)
        with self._exclusive_pull(name):
            puller = await self._attached(name)
            puller.apply(await puller.attachment.take(0))
            await puller.renew_ready()
            if not puller.ready:
                await self._wait(puller, messages_max, bytes_max, wait_ms / 1000)
            puller.last_seen_at = self._queues.now()
            return puller.take_ready(messages_max, bytes_max, puller.last_seen_at)

    async def ack(self, name: PullerName, ack_ids: Sequence[str]) -> list[AckResult]:
        """Returns one result for each id, in order, once all successful acknowledgements are durable."""
        return await self._acknowledge(name, ack_ids, lambda attachment, ids: attachment.ack(ids))

    async def nack(
        self, name: PullerName, ack_ids: Sequence[str], delay_ms: int | None = None, reason: str = ""
    ) -> list[AckResult]:
        """The reason applies to each of them."""
        return await self._acknowledge(
            name, ack_ids, lambda attachment, ids: attachment.nack(ids, delay_ms, reason)
        )

    async def extend(self, name: PullerName, ack_ids: Sequence[str], by_ms: int) -> list[AckResult]:
        puller = self._known(name)
        sealed = self._decode_ids(ack_ids)
        results = await puller.attachment.extend(sealed, by_ms)
        puller.last_seen_at = self._queues.now()
        for ack_id, result in zip(sealed, results, strict=True):
            if result is AckResult.OK:
                puller.held[ack_id] = puller.last_seen_at + min(by_ms, self._limits.extend_ms_max)
        return results

    async def run(self) -> None:
        """Detach idle consumers."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            await self.sweep()

    async def sweep(self) -> None:
        for name, puller in list(self._pullers.items()):
            with contextlib.suppress(MillpondError):  # the attachment has ended; `_check_puller` removes it
                puller.apply(await puller.attachment.take(0) if name not in self._pulling else ())
            if name not in self._pulling and self._pullers.get(name) is puller:
                self._check_puller(name, puller)

    def _check_puller(self, name: PullerName, puller: _Puller) -> None:
        now = self._queues.now()
        silent_ms = now - puller.last_seen_at
        idle = silent_ms >= self._limits.pull_idle_ms
        if puller.attachment.ended is not None or (idle and puller.holds_nothing(now)):
            self._queues.detach(puller.attachment)
            del self._pullers[name]
        elif puller.ready and silent_ms >= self._limits.pull_late_ms:
            puller.restore_ready()

    def stop(self) -> None:
        """End waiting pulls and refuse new ones. Acknowledgements are still accepted."""
        self._stopping = True
        for name in self._pulling & self._pullers.keys():
            self._pullers[name].attachment.end(Stopping())

    # -- internals --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _exclusive_pull(self, name: PullerName) -> Iterator[None]:
        if self._stopping:
            raise Stopping
        if name in self._pulling:
            reason = f"consumer {name.consumer!r} is pulling already"
            raise SubscriptionBusy(subscription=name.subscription, reason=reason)
        self._pulling.add(name)
        try:
            yield
        finally:
            self._pulling.discard(name)

    async def _attached(self, name: PullerName) -> _Puller:
        puller = self._pullers.get(name)
        if puller is not None and puller.attachment.ended is None:
            return puller
        if puller is None and len(self._pullers) >= self._limits.pullers_max:
            reason = f"{self._limits.pullers_max} consumers pull from this broker"
            raise SubscriptionBusy(subscription=name.subscription, reason=reason)
        attachment = await self._queues.attach(*name)
        puller = self._pullers[name] = _Puller(attachment, self._queues.now())
        return puller

    async def _wait(self, puller: _Puller, messages_max: int, bytes_max: int, wait_s: float) -> None:
        """Wait until a message is ready. Byte credit that an earlier pull left over is not added to this one's."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        consumer_credit = puller.attachment.consumer_credit
        consumer_credit.bytes = UNLIMITED
        puller.attachment.grant(messages_max, bytes_max)
        try:
            while not puller.ready:
                left_s = max(deadline - loop.time(), 0)
                puller.apply(await puller.attachment.take(left_s))
                if left_s == 0:
                    return
        finally:
            consumer_credit.clear()

    async def _acknowledge(
        self,
        name: PullerName,
        ack_ids: Sequence[str],
        act: Callable[[Attachment, Sequence[bytes]], Awaitable[list[AckResult]]],
    ) -> list[AckResult]:
        puller = self._known(name)
        sealed = self._decode_ids(ack_ids)
        puller.last_seen_at = self._queues.now()
        results = await act(puller.attachment, sealed)
        for ack_id in sealed:
            puller.held.pop(ack_id, None)
        return results

    def _known(self, name: PullerName) -> _Puller:
        puller = self._pullers.get(name)
        if puller is None or (puller.attachment.ended is not None and not self._stopping):
            raise UnknownConsumer(subscription=name.subscription, consumer=name.consumer)
        return puller

    def _decode_ids(self, ack_ids: Sequence[str]) -> list[bytes]:
        most = self._limits.acks_per_request_max
        if len(ack_ids) > most:
            raise InvalidRequest(reason=f"{len(ack_ids)} ids are more than {most}")
        return [from_text(each) for each in ack_ids]
