"""One active partition of a subscription: a dispatcher, the log it reads from, and the consumers it delivers to.

It runs as one task that reads ahead, dispatches and waits. Acknowledgements and credit change the dispatcher
immediately and wake the task. State changes only between awaits. The `Saver` makes acknowledgements durable.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from millpond.catalog.subscriptions import DeadLetter, Loaded, StateKey, StateSave, StoredSubscription
from millpond.log import Log
from millpond.model.errors import Defect, MillpondError, Unavailable
from millpond.model.ids import TopicPartition
from millpond.observability.metrics import QueueMetrics
from millpond.queues.ackids import AckId
from millpond.queues.addressing import Addressing
from millpond.queues.deadletters import letter_of
from millpond.queues.dispatcher import Dispatcher
from millpond.queues.dispatcher_results import AckResult, QueueDelivery, Retry, Revoked, StateChanges
from millpond.queues.dispatcher_state import ConsumerCredit
from millpond.queues.feed import Feed, FeedChunk, FoundMessage, entries_of, size_of
from millpond.queues.limits import QueueLimits
from millpond.queues.save_lock import SaveLock
from millpond.records import Record

READ_RETRY_S = 0.5
ALARM_MS_MAX = 3_600_000
"""The longest sleep. Later events are checked again in between."""
logger = logging.getLogger(__name__)


class Delivered(NamedTuple):
    delivery: QueueDelivery
    record: Record


class Receiver(Protocol):
    """A consumer as its partitions see it. Calls return nothing: the consumer has room for all that it granted credit
    for."""

    def deliver(self, queue: "PartitionQueue", deliveries: Sequence[Delivered]) -> None: ...

    def revoke(self, queue: "PartitionQueue", revoked: Sequence[Revoked]) -> None: ...

    def on_partition_lost(self, queue: "PartitionQueue", error: MillpondError) -> None: ...

    def on_credit_returned(self) -> None: ...


class PartitionQueue:
    def __init__(
        self,
        log: Log,
        feed: Feed,
        subscription: StoredSubscription,
        state_key: StateKey,
        loaded: Loaded,
        addressing: Addressing,
        *,
        topic: str,
        now: Callable[[], int],
        mark_dirty: "Callable[[PartitionQueue], None]",
        limits: QueueLimits,
        metrics: QueueMetrics,
    ) -> None:
        self.subscription = subscription
        self.state_key = state_key
        self.topic = topic
        self.topic_partition = TopicPartition(subscription.topic_id, state_key.partition)
        self.dispatcher = Dispatcher(
            subscription.config,
            epoch=loaded.epoch,
            floor=loaded.floor,
            chunks=loaded.chunks,
            retries={offset: Retry(*retry) for offset, retry in loaded.retries.items()},
            log_start=log.partition(self.topic_partition).log_start,
            tracked_max=limits.tracked_max,
        )
        self.closed: MillpondError | None = None
        self._log = log
        self._feed = feed
        self._addressing = addressing
        self._now = now
        self._mark_dirty = mark_dirty
        self._limits = limits
        self._metrics = metrics
        self._receivers: dict[str, Receiver] = {}
        self._held: dict[int, FoundMessage] = {}
        self._held_bytes = 0
        self._delivered_at = 0
        self._held_from = -1
        """The floor at the last `_forget_settled`: no held message was below it then."""
        self._is_full = False
        self._woken = asyncio.Event()
        self._wake_on_growth = True
        """Whether growth of the log wakes the task."""
        self._save: StateSave | None = None
        self._changes: StateChanges | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._saving: list[asyncio.Future[None]] = []
        self.save_lock = SaveLock()
        """Held while state of this partition is being saved."""

    # -- consumers --------------------------------------------------------------------------------------------

    def attach(self, name: str, receiver: Receiver, consumer_credit: ConsumerCredit) -> None:
        self._receivers[name] = receiver
        self.dispatcher.consumers.attach(name, consumer_credit)
        self.wake()

    def detach(self, name: str, *, graceful: bool) -> None:
        if self._receivers.pop(name, None) is not None:
            self.dispatcher.detach(name, self._now(), graceful=graceful)
            self.wake()

    @property
    def consumers(self) -> Sequence[str]:
        return list(self._receivers)

    def mark_alive(self, name: str) -> None:
        self.dispatcher.consumers.mark_alive(name)
        self.wake()

    def pause(self, name: str, *, paused: bool) -> None:
        self.dispatcher.consumers.pause(name, paused=paused)
        self.wake()

    def ack(self, ack_id: AckId) -> AckResult:
        return self.dispatcher.ack(ack_id.offset, ack_id.epoch, ack_id.token)

    def nack(self, epoch: int, offset: int, token: int, delay_ms: int | None) -> AckResult:
        if delay_ms is not None:
            delay_ms = min(delay_ms, self._limits.delay_ms_max)
        result = self.dispatcher.nack(offset, epoch, token, self._now(), delay_ms)
        if result is AckResult.OK:
            self._metrics.nacks.inc()
            self._send_revocations()  # now: the nack may be durable, and its response sent, while a round is reading
        return result

    def extend(self, epoch: int, offset: int, token: int, by_ms: int) -> AckResult:
        by_ms = min(by_ms, self._limits.extend_ms_max)
        return self.dispatcher.extend(offset, epoch, token, self._now(), by_ms)

    def saved(self) -> "asyncio.Future[None]":
        """A future that is done when every change made so far is durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.closed is not None:
            future.set_exception(self.closed.copy())
        elif not self.dispatcher.is_dirty:
            future.set_result(None)
        else:
            self._waiting.append(future)
            self._mark_dirty(self)  # now, not in the next round: the current one may be reading
            self.wake()
        return future

    def wake(self) -> None:
        self._woken.set()

    # -- the task ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until the queue is closed: the partition moved, the subscription was replaced, or an error occurred."""
        stop_listening = self._log.waiters.listen(self.topic_partition, self._on_growth)
        try:
            while self.closed is None:
                await self._guarded_round()
        finally:
            stop_listening()

    async def _guarded_round(self) -> None:
        try:
            await self._round()
        except Unavailable as error:
            logger.warning(
                "reading for subscription failed; will retry",
                extra={
                    "topic": self.topic,
                    "subscription": self.subscription.name,
                    "partition": self.topic_partition.partition,
                    "error": str(error),
                },
            )
            await asyncio.sleep(READ_RETRY_S)
        except MillpondError as error:
            self.close(error)
        except Exception as error:  # a bug must detach the consumers, not leave them waiting
            logger.exception(
                "unexpected error in subscription; detaching consumers",
                extra={
                    "topic": self.topic,
                    "subscription": self.subscription.name,
                    "partition": self.topic_partition.partition,
                    "error": error,
                },
            )
            self.close(Defect(reason=repr(error)))

    async def _round(self) -> None:
        self._woken.clear()
        self._wake_on_growth = False
        now = self._now()
        self._forget_below(self._log.partition(self.topic_partition).log_start)
        self._expire(now)
        deliveries = self.dispatcher.dispatch(now)
        self._send_revocations()
        if deliveries:
            self._delivered_at = now
            await self._deliver(deliveries)
        if self.dispatcher.is_dirty:
            self._mark_dirty(self)
        self._warn_if_full()
        if self._woken.is_set():
            return
        if (start := self.dispatcher.schedule.retrack_from) is not None:
            await self._retrack(start)
        elif self.dispatcher.wants_more and self._read_paused_until() <= now:
            await self._read_ahead_of_dispatch()
        else:
            await self._wait()

    def _warn_if_full(self) -> None:
        """Log a warning once when delivery stops because too much is unsettled, so that operators find the reason."""
        was_full, self._is_full = self._is_full, self.dispatcher.is_full
        if self._is_full and not was_full:
            logger.warning(
                "too many unacknowledged messages; reading ahead paused",
                extra={
                    "topic": self.topic,
                    "subscription": self.subscription.name,
                    "partition": self.topic_partition.partition,
                    "messages": self.dispatcher.tracked,
                    "offset": self.dispatcher.settled.floor,
                },
            )

    def _read_paused_until(self) -> int:
        """Until when reading ahead pauses. While many tracked messages wait, messages further on would only have to be
        read twice."""
        is_crowded = self.dispatcher.tracked * 4 >= self._limits.tracked_max
        return self._delivered_at + self._limits.look_further_ms if is_crowded else 0

    def _forget_below(self, log_start: int) -> None:
        dispatcher = self.dispatcher
        frontier, tracked = dispatcher.frontier, dispatcher.tracked
        dispatcher.forget_below(log_start)
        if gone := tracked - dispatcher.tracked + max(log_start - frontier, 0):
            self._metrics.voided.inc(gone)

    def _expire(self, now: int) -> None:
        """Expire leases. Those that end here timed out, or were revoked because an earlier one of the key timed out."""
        dispatcher = self.dispatcher
        leased, revoked = dispatcher.leased, len(dispatcher.revoked)
        dispatcher.expire(now)
        if ended := leased - dispatcher.leased:
            self._metrics.timeouts.inc(ended - (len(dispatcher.revoked) - revoked))

    async def _read_ahead_of_dispatch(self) -> None:
        self._wake_on_growth = True
        if self.dispatcher.frontier >= self._log.partition(self.topic_partition).end_offset:
            await self._wait()
            return
        piece = await self._feed.read(self.topic_partition, self.dispatcher.frontier)
        if piece.next_offset > self.dispatcher.frontier:
            self._index(piece)
        else:
            await self._wait()

    async def _wait(self) -> None:
        """Until a consumer sends something, a timer is due, or the log has grown."""
        due = self.dispatcher.next_event()
        if self.dispatcher.wants_more and (paused_until := self._read_paused_until()) > self._now():
            due = paused_until if due is None else min(due, paused_until)
        alarm = None
        if due is not None:
            delay_ms = min(max(due - self._now(), 1), ALARM_MS_MAX)
            alarm = asyncio.get_running_loop().call_later(delay_ms / 1000, self.wake)
        try:
            await self._woken.wait()
        finally:
            if alarm is not None:
                alarm.cancel()

    def _on_growth(self) -> None:
        if self._wake_on_growth:
            self.wake()

    def _index(self, piece: FeedChunk) -> None:
        self._forget_below(piece.log_start)
        found = self._entries(piece.records)
        self._hold(found)
        self.dispatcher.index([entry for _, entry in found], piece.next_offset)

    def _entries(self, records: Sequence[Record]) -> list[FoundMessage]:
        name, config = self.subscription.name, self.subscription.config
        return entries_of(records, config, name, self._addressing, delay_ms_max=self._limits.delay_ms_max)

    async def _retrack(self, start: int) -> None:
        end = self.dispatcher.frontier
        piece = await self._feed.read(self.topic_partition, start)
        reached = piece.next_offset if piece.next_offset > start else end
        found = self._entries(piece.records)
        held, settled = self._held, self.dispatcher.settled
        self._hold([each for each in found if each[1].offset not in held and each[1].offset not in settled])
        self.dispatcher.retrack([entry for _, entry in found], start, min(reached, end))

    # -- delivery ---------------------------------------------------------------------------------------------

    async def _deliver(self, deliveries: Sequence[QueueDelivery]) -> None:
        missing = [each.offset for each in deliveries if each.offset not in self._held]
        if missing:
            await self._deliver_read(deliveries, missing)
        else:
            self._hand_out(deliveries, {}, self._receivers)

    async def _deliver_read(self, deliveries: Sequence[QueueDelivery], missing: Sequence[int]) -> None:
        """Deliver messages of which some must be read again. A message that cannot be read now is released as if it had
        never been delivered, together with later ones of its key; a message that no longer exists becomes void."""
        receivers = dict(self._receivers)
        consumer_credits = {each.name: each.consumer_credit for each in self.dispatcher.consumers}
        refusal: MillpondError | None = None
        read: Mapping[int, Record] = {}
        try:
            read = await self._read_again(missing)
        except MillpondError as error:
            refusal = error
        deliveries = self._still_leased(deliveries, read, consumer_credits, receivers)
        without = [each for each in deliveries if each.offset not in self._held and each.offset not in read]
        if without:
            self._release_deliveries(without, are_gone=refusal is None)
            rest = [each for each in deliveries if each.offset in self._held or each.offset in read]
            deliveries = self._still_leased(rest, read, consumer_credits, receivers)
            self._discard_revocations(rest)
        self._hand_out(deliveries, read, receivers)
        if refusal is not None:
            raise refusal

    def _hand_out(
        self,
        deliveries: Sequence[QueueDelivery],
        read: Mapping[int, Record],
        receivers: Mapping[str, Receiver],
    ) -> None:
        """Deliver the messages to their consumers. Every message is held or in `read`."""
        found: dict[str, list[Delivered]] = {}
        for delivery in deliveries:
            offset, consumer, _, _ = delivery
            if (to := found.get(consumer)) is None:
                to = found[consumer] = []
            to.append(Delivered(delivery, self._release_held(offset) or read[offset]))
        for name, delivered in found.items():
            receiver = receivers.get(name)
            if receiver is not None and self._receivers.get(name) is receiver:
                receiver.deliver(self, delivered)  # a consumer that has left has no leases any more
                self._metrics.deliveries.inc(len(delivered))

    def _still_leased(
        self,
        deliveries: Sequence[QueueDelivery],
        read: Mapping[int, Record],
        consumer_credits: Mapping[str, ConsumerCredit],
        receivers: Mapping[str, Receiver],
    ) -> list[QueueDelivery]:
        """The deliveries that are still leased, and none if the partition was closed. Consumers never see the others,
        so their credit is returned."""
        wanted: list[QueueDelivery] = []
        for each in deliveries:
            if self.closed is None and self.dispatcher.is_leased(each):
                wanted.append(each)
                continue
            held, record = self._held.get(each.offset), read.get(each.offset)
            size = held[1].size if held is not None else size_of(record) if record is not None else 0
            consumer_credits[each.consumer].restore(size)
        for name in sorted({each.consumer for each in deliveries}) if len(wanted) < len(deliveries) else ():
            if (receiver := receivers.get(name)) is not None:
                receiver.on_credit_returned()
        return wanted

    def _release_deliveries(self, deliveries: Sequence[QueueDelivery], *, are_gone: bool) -> None:
        """Release these deliveries and return the credit, which other partitions may use. Goes from the last to the
        first: releasing an earlier message of a key revokes the later ones as if they had been delivered."""
        for delivery in reversed(deliveries):
            self.dispatcher.restore(delivery)
            if are_gone:
                self.dispatcher.void(delivery.offset)
                self._metrics.voided.inc()
        for name in sorted({delivery.consumer for delivery in deliveries}):
            if (receiver := self._receivers.get(name)) is not None:
                receiver.on_credit_returned()

    async def _read_again(self, offsets: Sequence[int]) -> dict[int, Record]:
        """Messages that are not kept in memory. Messages that are close together share a read."""
        wanted, found, done = set(offsets), {}, -1
        for offset in sorted(wanted):
            if offset >= done:
                piece = await self._feed.read(self.topic_partition, offset)
                found.update({each.offset: each for each in piece.records if each.offset in wanted})
                done = piece.next_offset
        return found

    def _release_held(self, offset: int) -> Record | None:
        held = self._held.pop(offset, None)
        if held is None:
            return None
        record, entry = held
        self._held_bytes -= entry.size
        return record

    def _send_revocations(self) -> None:
        revoked, self.dispatcher.revoked = self.dispatcher.revoked, []
        if revoked:
            self._metrics.revoked.inc(len(revoked))
        for name in sorted({each.consumer for each in revoked}):
            if (receiver := self._receivers.get(name)) is not None:
                receiver.revoke(self, [each for each in revoked if each.consumer == name])

    def _discard_revocations(self, deliveries: Sequence[QueueDelivery]) -> None:
        """Drop the revocations of these deliveries: they were not handed out, so consumers do not know them."""
        offsets = {each.offset for each in deliveries}
        self.dispatcher.revoked = [each for each in self.dispatcher.revoked if each.offset not in offsets]

    def _hold(self, found: Sequence[FoundMessage]) -> None:
        limit, held = self._limits.held_bytes_max, self._held
        for each in found:
            offset, _, size, _ = each[1]
            if self._held_bytes + size > limit:
                self._forget_settled()
            if self._held_bytes + size <= limit:
                held[offset] = each
                self._held_bytes += size

    def _forget_settled(self) -> None:
        """Drop held messages below the floor. It scans everything that is held, so only after the floor has moved."""
        floor = self.dispatcher.settled.floor
        if floor == self._held_from:
            return
        self._held_from = floor
        for offset in [each for each in self._held if each < floor]:
            self._release_held(offset)

    # -- saving -----------------------------------------------------------------------------------------------

    @property
    def has_unsaved(self) -> bool:
        return self._save is not None or self.dispatcher.is_dirty

    @property
    def needs_letters(self) -> bool:
        """Whether dead letters must be read before the changes can be saved. This begins the changes, so the caller
        must save them."""
        if self.closed is not None or self._save is not None:
            return False
        changes = self._begin_changes()
        return changes is not None and any(not dead.dropped for dead in changes.dead)

    async def begin_save(self) -> StateSave | None:
        """What is to be saved; the same object again until `end_save`."""
        if self.closed is not None:
            return None
        if self._save is None:
            changes = self._begin_changes()
            if changes is not None:
                self._save = self._as_save(changes, await self._letters(changes))
        return self._save

    def _begin_changes(self) -> StateChanges | None:
        """Begin the next changes; all futures that wait now wait for these. If the last changes were not saved, they
        are returned again, and their futures stay."""
        changes = self.dispatcher.begin_commit()
        if changes is not None and changes is not self._changes:
            self._changes = changes
            self._saving, self._waiting = self._waiting, []
        return changes

    def end_save(self) -> None:
        self._save = self._changes = None
        self._count_settled()
        self.dispatcher.committed()
        if not self.dispatcher.is_dirty:  # then futures added since also waited for this save
            self._saving, self._waiting = [*self._saving, *self._waiting], []
        for future in self._saving:
            if not future.done():
                future.set_result(None)
        self._saving = []
        self.wake()

    def _count_settled(self) -> None:
        """Count what is durable now."""
        changes = self.dispatcher.begin_commit()
        if changes is not None and changes.messages:
            dropped = sum(each.dropped for each in changes.dead)
            self._metrics.acked.inc(len(changes.messages) - len(changes.dead))
            self._metrics.dead.inc(len(changes.dead) - dropped)
            self._metrics.dropped.inc(dropped)

    def close(self, error: MillpondError) -> None:
        """Stop delivery and detach consumers. Acknowledgements that are not saved fail with `error`."""
        if self.closed is not None:
            return
        self.closed = error
        for future in [*self._saving, *self._waiting]:
            if not future.done():
                future.set_exception(error.copy())
                future.exception()
        self._saving, self._waiting = [], []
        receivers, self._receivers = self._receivers, {}
        for receiver in receivers.values():
            receiver.on_partition_lost(self, error)
        self.wake()

    def _as_save(self, changes: StateChanges, letters: Sequence[DeadLetter]) -> StateSave:
        return StateSave(
            self.state_key,
            self.subscription.topic_id,
            self.dispatcher.epoch,
            changes.settled.floor,
            changes.settled.chunks,
            changes.settled.removed,
            changes.retries,
            changes.forgotten,
            letters,
        )

    async def _letters(self, changes: StateChanges) -> list[DeadLetter]:
        letters: list[DeadLetter] = []
        dead_offsets = [dead.offset for dead in changes.dead if not dead.dropped]
        records = await self._read_again(dead_offsets) if dead_offsets else {}
        for dead in changes.dead:
            if dead.dropped:
                continue
            record = records.get(dead.offset)
            if record is not None:
                letters.append(
                    letter_of(record, dead, self.state_key, self.subscription, self.topic, self._now())
                )
        return letters
