"""The dispatcher of one (subscription, partition): which consumer may receive which message, and each message's state.

Pure: events come in with the time, `dispatch` returns what to deliver, `begin_commit` returns what to store. All
transitions of a message are here:

    not seen --index--> READY --dispatch--> LEASED --ack--> SETTLING --committed--> settled
    LEASED --nack | deadline | abrupt leave--> READY with one more attempt, after its backoff (a nack may set another
           delay; an abrupt leave has none). At the last attempt: SETTLING as a dead letter or dropped, or READY but
           blocked until an operator releases it
    LEASED --graceful leave | revoke--> READY; no attempt is charged, and the token becomes invalid
    READY  --ack with the latest token--> SETTLING    (a late ack saves a second delivery)
    not seen | READY | LEASED --expired, compacted, aborted, or not a message--> settled as void

A token is the number of one delivery. A message is SETTLING until its commit is durable; the client receives the
response then. At most `key_window` messages of a key are leased, all to one consumer, and never a message before an
earlier one of its key. If the window is 1, the earlier message must be durably settled first. A key that moves to
another consumer is not dispatched until the old consumer has no more leases on it.

It owns three objects without transitions: the `Schedule` knows which message is next, its `AttachedConsumers` which
consumer owns which key, and `UnsavedChanges` what is settled and stored, and what is to be stored next.
"""

import heapq
from collections.abc import Iterable, Mapping
from typing import Final

from millpond.model.subscriptions import ExhaustedAction, SubscriptionConfig
from millpond.queues.dispatcher_results import (
    OK,
    AckResult,
    FailingMessage,
    QueueDelivery,
    Retry,
    Revoked,
    StateChanges,
)
from millpond.queues.dispatcher_state import (
    ACKED,
    LEASED,
    NEVER,
    READY,
    SETTLING,
    AttachedConsumer,
    LeaseDeadlines,
    LogEntry,
    SettleReason,
    TrackedKey,
    TrackedMessage,
)
from millpond.queues.failure_reasons import ACK_TIMEOUT, CONNECTION_LOST
from millpond.queues.key_assignment import Assignment, FirstCome, KeyAssignment
from millpond.queues.limits import ReasonLimits
from millpond.queues.schedule import Schedule, consumer_with_most_credit
from millpond.queues.unsaved_changes import UnsavedChanges

TRACKED_MAX: Final = 50_000
REASON_LIMITS: Final = ReasonLimits()
SPAN_MAX: Final = 16 * 1024 * 1024
"""Maximum distance in offsets from the floor to the frontier, the next offset to index."""


class Dispatcher:
    """One method for each event and each transition of a message, more than 20 in all, so that the machine can be read
    in one file. `schedule` has what is derived from the state of the messages; `consumers` are those of the schedule:
    attaching, pausing or granting credit changes no message."""

    def __init__(
        self,
        config: SubscriptionConfig,
        *,
        epoch: int = 1,
        floor: int = 0,
        chunks: Mapping[int, bytes] | None = None,
        retries: Mapping[int, Retry] | None = None,
        log_start: int = 0,
        assignment: Assignment | None = None,
        tracked_max: int = TRACKED_MAX,
        reasons: ReasonLimits = REASON_LIMITS,
    ) -> None:
        """`epoch`, `floor`, `chunks` (settled offsets above the floor) and `retries` are the partition's stored
        state."""
        self._messages: dict[int, TrackedMessage] = {}
        self._assignment = assignment or (FirstCome() if config.ordered_by_partition else KeyAssignment())
        self.schedule = Schedule(config, self._assignment, self._messages, tracked_max)
        self.consumers = self.schedule.consumers
        self.epoch = epoch
        self._config = config
        self._tracked_max = tracked_max
        self._unsaved = UnsavedChanges(floor, chunks, retries, reasons)
        self.settled = self._unsaved.settled
        self.frontier = self.settled.next_open(floor)
        self.leased = 0
        self.revoked: list[Revoked] = []
        self._tokens = 0
        self._deadlines = LeaseDeadlines()
        self._log_start = 0
        self.forget_below(log_start)

    @property
    def config(self) -> SubscriptionConfig:
        """May be altered at any time, except for the mode."""
        return self._config

    @config.setter
    def config(self, config: SubscriptionConfig) -> None:
        self._config = config
        self.schedule.configure(config)

    @property
    def tracked(self) -> int:
        return len(self._messages)

    @property
    def start(self) -> int:
        """Everything before is settled, or gone from the log."""
        return self.settled.next_open(self._log_start)

    # -- consumers --------------------------------------------------------------------------------------------

    def detach(self, name: str, now: int, *, graceful: bool) -> None:
        """Remove a consumer. A graceful leave releases its leases without charging an attempt. An abrupt leave charges
        one attempt for each message without a key, and for each key only for its first leased message, which the
        consumer may have been processing."""
        if name not in self.consumers.by_name:
            return
        self.schedule.now = max(self.schedule.now, now)
        consumer = self.consumers.remove(name)
        for offset in sorted(consumer.leases):
            message = self._messages[offset]
            if message.state is not LEASED:
                continue
            if graceful:
                self._release(message)
            else:
                self._fail(message, 0, CONNECTION_LOST)
                message.token = 0
        self.revoked = [each for each in self.revoked if each.consumer != name]

    # -- the log ----------------------------------------------------------------------------------------------

    def index(self, entries: Iterable[LogEntry], next_offset: int) -> None:
        """Track the messages from the frontier to `next_offset`. Offsets that are not in `entries` become void."""
        expected = self.frontier
        holes = self.settled.chunks
        for entry in entries:
            offset = entry[0]
            if offset < expected:
                continue
            if offset > expected:
                self._unsaved.void(expected, offset)
            expected = offset + 1
            if not holes or offset not in self.settled:
                self._track(entry)
        if next_offset > expected:
            self._unsaved.void(expected, next_offset)
            expected = next_offset
        self.frontier = self.settled.next_open(expected)

    def retrack(self, entries: Iterable[LogEntry], start: int, end: int) -> None:
        """Track messages between these offsets that were left out before, because too many messages of their key were
        tracked already. Untracked offsets that are no longer in `entries` become void."""
        schedule = self.schedule
        behind = [
            key
            for key in schedule.lagging.values()
            if key.resume_from is not None and start <= key.resume_from
        ]
        resume = {key.hash: key.resume_from or 0 for key in behind}
        for key in behind:
            key.resume_from = None
        end = min(end, self.frontier)
        expected = start
        for entry in entries:
            offset = entry.offset
            if not start <= offset < end:
                continue
            self._void_untracked(expected, offset)
            expected = offset + 1
            if (
                entry.key is not None
                and offset >= resume.get(entry.key, NEVER)
                and offset not in self.settled
            ):
                self._track(entry)
        self._void_untracked(expected, end)
        for key in behind:
            schedule.drained.pop(key.hash, None)
            if key.resume_from is None and max(end, resume[key.hash]) < self.frontier:
                key.resume_from = max(end, resume[key.hash])
            if key.resume_from is None:
                del schedule.lagging[key.hash]
            schedule.schedule_key(key)

    def forget_below(self, log_start: int) -> bool:
        """Settle all messages below the log start as void: they are gone. Returns whether there may be any."""
        if log_start <= max(self.settled.floor, self._log_start):
            return False
        self._log_start = log_start
        for offset in [each for each in self._messages if each < log_start]:
            self.void(offset)
        self._unsaved.void(self.settled.floor, log_start)
        self.frontier = max(self.frontier, self.settled.next_open(log_start))
        for key in list(self.schedule.lagging.values()):
            if key.resume_from is not None and key.resume_from < log_start:
                key.resume_from = log_start
        return True

    def void(self, offset: int) -> None:
        """Settle a message as void: it is gone from the log since it was indexed."""
        message = self._messages.get(offset)
        if message is None:
            if offset < self.frontier and offset not in self.settled:
                self._unsaved.void(offset, offset + 1)
            return
        if message.state is SETTLING:
            return
        if message.state is LEASED:
            self._end_lease(message)
        del self._messages[offset]
        if message.attempts:
            self._unsaved.forget_retry(offset)
        self._unsaved.void(offset, offset + 1)
        if message.key is not None:
            self.schedule.schedule_key(message.key)

    @property
    def is_full(self) -> bool:
        """Whether indexing stops until something is settled, because too many messages are tracked, or the oldest
        unsettled message is too far behind the frontier. No message is lost by that."""
        return len(self._messages) >= self._tracked_max or self.frontier - self.settled.floor >= SPAN_MAX

    @property
    def wants_more(self) -> bool:
        """Whether a consumer has credit and no message is queued for it."""
        if self.leased >= self._config.leases_max or self.is_full:
            return False
        only = self._assignment.owner(0) if self.schedule.by_partition else None
        return any(
            each.may_receive and not each.queue and only in (None, each.name)
            for each in self.consumers.by_name.values()
        )

    def _track(self, entry: LogEntry) -> None:
        offset, key_hash, size, not_before = entry
        schedule, unsaved = self.schedule, self._unsaved
        key = None
        if key_hash is not None:
            key = schedule.keys.get(key_hash)
            if key is None:
                key = schedule.keys[key_hash] = TrackedKey(key_hash)
            if key.resume_from is not None:
                return
            if key.waiting and len(key.waiting) >= schedule.per_key_max():
                key.resume_from = offset
                schedule.lagging[key_hash] = key
                return
        attempts = 0
        if unsaved.retries and offset in unsaved.retries:
            attempts, later, _ = unsaved.retries.pop(offset)
            not_before = max(not_before, later)
        message = self._messages[offset] = TrackedMessage(offset, key, size, not_before, attempts)
        if key is None or not key.waiting:
            schedule.wait(message)
        else:
            heapq.heappush(key.waiting, offset)  # not the first of its key, so the schedule does not change

    def _void_untracked(self, start: int, end: int) -> None:
        """Settle the untracked offsets of this range as void. Tracked ones stay; reading them for delivery shows
        whether they are gone."""
        is_narrow = end - start <= len(self._messages)
        tracked = (
            [each for each in range(start, end) if each in self._messages]
            if is_narrow
            else (sorted(each for each in self._messages if start <= each < end))
        )
        for offset in tracked:
            if start < offset:
                self._unsaved.void(start, offset)
            start = offset + 1
        if start < end:
            self._unsaved.void(start, end)

    # -- delivery ---------------------------------------------------------------------------------------------

    def dispatch(self, now: int, only: AttachedConsumer | None = None) -> list[QueueDelivery]:
        """Lease and return all messages that may be delivered now, in log order: to all consumers, or to this one."""
        schedule = self.schedule
        schedule.advance_clock(now)
        deliveries: list[QueueDelivery] = []
        asked = self.consumers.by_name.values() if only is None else (only,)
        receivers = [each for each in asked if each.may_receive]
        by_credit = [
            (each.suspended, -each.consumer_credit.messages, each.number, each) for each in receivers
        ]
        heads = [(each.queue[0], each.number, each) for each in receivers if each.queue]
        heapq.heapify(by_credit)
        heapq.heapify(heads)
        leases_max, due = self._config.leases_max, schedule.now + self._config.ack_timeout_ms
        bucket = self._deadlines.bucket(due) if by_credit else set()
        single = receivers[0] if len(receivers) == 1 else None
        while self.leased < leases_max:
            unordered = schedule.next_unordered() if schedule.unordered else None
            if unordered is not None and by_credit and (not heads or unordered.offset < heads[0][0]):
                chosen = single if single and single.may_receive else consumer_with_most_credit(by_credit)
                if chosen is not None:
                    heapq.heappop(schedule.unordered)
                    deliveries.append(self._lease(unordered, chosen, due, bucket))
            elif heads:
                _, number, consumer = heads[0]
                if (message := schedule.next_queued(consumer)) is not None and consumer.may_receive:
                    deliveries.append(self._lease_queued(message, consumer, due, bucket))
                if consumer.queue and consumer.may_receive:
                    heapq.heapreplace(heads, (consumer.queue[0], number, consumer))
                else:
                    heapq.heappop(heads)
            else:
                break
        return deliveries

    def token_of(self, offset: int) -> int:
        """The token of the latest delivery of a message; 0 if no acknowledgement of it is valid."""
        return message.token if (message := self._messages.get(offset)) is not None else 0

    def is_leased(self, delivery: QueueDelivery) -> bool:
        """Whether the consumer still holds the lease of this delivery."""
        message = self._messages.get(delivery.offset)
        return message is not None and message.state is LEASED and message.token == delivery.token

    def restore(self, delivery: QueueDelivery) -> None:
        """Undo a delivery that did not happen: no attempt is charged, and the consumer gets its credit back."""
        if (message := self._messages.get(delivery.offset)) and self.is_leased(delivery):
            if message.consumer is not None:
                message.consumer.consumer_credit.restore(message.size)
            self._release(message)
            if message.key is not None:
                self._revoke_after(message, message.key)

    def _lease_queued(
        self, message: TrackedMessage, consumer: AttachedConsumer, due: int, bucket: set[int]
    ) -> QueueDelivery:
        heapq.heappop(consumer.queue)
        key = message.key
        assert key is not None, "only messages with keys are queued"
        first = heapq.heappop(key.waiting)
        assert first == message.offset, "a key is queued with its first waiting message"
        key.queued = -1
        key.leased.add(first)
        key.holder = consumer
        delivery = self._lease(message, consumer, due, bucket)
        if not self.schedule.strict:
            self.schedule.schedule_key(key)
        return delivery

    def _lease(
        self, message: TrackedMessage, consumer: AttachedConsumer, due: int, bucket: set[int]
    ) -> QueueDelivery:
        """Lease a message until `due`. `bucket` is the bucket of `due` in the lease deadlines."""
        self._tokens = token = self._tokens + 1
        offset = message.offset
        message.state = LEASED
        message.consumer = consumer
        message.token = token
        message.deadline = due
        bucket.add(offset)
        self.leased += 1
        consumer.leases.add(offset)
        consumer.consumer_credit.take(message.size)
        return QueueDelivery(offset, consumer.name, message.attempts, token)

    # -- acknowledgements -------------------------------------------------------------------------------------

    def ack(self, offset: int, epoch: int, token: int) -> AckResult:
        """Only the latest delivery of a message can be acknowledged. The caller responds to the consumer when the next
        commit is durable."""
        message = self._find_delivered(offset, epoch, token)
        if isinstance(message, AckResult):
            return message
        self._settle(message, ACKED)
        return OK

    def accept(self, first: int, last: int, consumer: AttachedConsumer) -> None:
        """Like `ack` for all messages of a range, which this consumer has leased."""
        messages, decided, discard = self._messages, self._unsaved.decided, self._deadlines.discard
        for offset in range(first, last + 1):
            if (message := messages[offset]).key is not None:
                if message.state is LEASED:  # it was revoked if an earlier one has just failed
                    self._settle(message, ACKED)
                continue
            message.state = SETTLING
            message.settle_reason = ACKED
            discard(message.deadline, offset)
            consumer.leases.discard(offset)
            decided.append(message)
            self.leased -= 1
            consumer.acked += 1

    def check(self, offset: int, epoch: int, token: int) -> AckResult:
        """What `ack` would return; changes no message."""
        message = self._find_delivered(offset, epoch, token)
        return message if isinstance(message, AckResult) else OK

    def ack_through(self, offset: int, epoch: int, token: int) -> AckResult:
        """Acknowledge this delivery and all earlier ones of the same consumer."""
        message = self._find_delivered(offset, epoch, token)
        if isinstance(message, AckResult):
            return message
        consumer = message.consumer
        self._settle(message, ACKED)
        for earlier in sorted(consumer.leases if consumer is not None else ()):
            if earlier < offset:
                self._settle(self._messages[earlier], ACKED)
        return OK

    def nack(
        self, offset: int, epoch: int, token: int, now: int, delay_ms: int | None = None, reason: str = ""
    ) -> AckResult:
        message = self._find_delivered(offset, epoch, token)
        if isinstance(message, AckResult):
            return message
        if message.state is not LEASED:
            return AckResult.STALE
        self.schedule.now = max(self.schedule.now, now)
        self._fail(message, delay_ms, reason)
        return OK

    def reject(self, offset: int, epoch: int, token: int, now: int, reason: str) -> AckResult:
        """Charge an attempt and treat it as the last one."""
        message = self._find_delivered(offset, epoch, token)
        if isinstance(message, AckResult) or message.state is not LEASED:
            return message if isinstance(message, AckResult) else AckResult.STALE
        self.schedule.now = max(self.schedule.now, now)
        self._fail(message, None, reason, is_last=True)
        return OK

    def extend(self, offset: int, epoch: int, token: int, now: int, by_ms: int) -> AckResult:
        message = self._find_delivered(offset, epoch, token)
        if isinstance(message, AckResult):
            return message
        if message.state is not LEASED:
            return AckResult.STALE
        self.schedule.now = max(self.schedule.now, now)
        self._deadlines.discard(message.deadline, offset)
        message.deadline = self.schedule.now + by_ms
        self._deadlines.add(message.deadline, offset)
        return OK

    def unblock(self, offset: int | None = None) -> int:
        """Release blocked messages (one, or all) and reset their attempts. Returns how many there were."""
        chosen = [*self._messages, *self._unsaved.retries] if offset is None else [offset]
        return sum(self._unblock(each) for each in chosen)

    def _unblock(self, offset: int) -> bool:
        unsaved = self._unsaved
        if (retry := unsaved.retries.get(offset)) is not None and retry.not_before >= NEVER:
            unsaved.forget_retry(offset)
            return True
        message = self._messages.get(offset)
        if message is None or message.not_before < NEVER or message.state is not READY:
            return False
        message.attempts = message.not_before = 0
        unsaved.forget_retry(offset)
        if message.key is None:
            heapq.heappush(self.schedule.unordered, offset)
        else:
            self.schedule.schedule_key(message.key)
        return True

    def _find_delivered(self, offset: int, epoch: int, token: int) -> TrackedMessage | AckResult:
        """The message whose latest delivery has this token, or the result to return if there is none. An ack or nack
        also shows that the consumer is alive."""
        if epoch != self.epoch:
            return AckResult.STALE
        if not 0 < token <= self._tokens or offset >= self.frontier:
            return AckResult.UNKNOWN
        message = self._messages.get(offset)
        if message is None or message.token != token or message.state is SETTLING:
            return AckResult.STALE
        consumer = message.consumer
        if consumer is not None and (consumer.suspended or consumer.starved_since is not None):
            self.consumers.mark_consumer_alive(consumer)
        return message

    # -- time -------------------------------------------------------------------------------------------------

    def expire(self, now: int) -> None:
        """Fail deliveries whose ack timeout has passed. A consumer whose lease expires, or that has no credit for that
        long while its keys wait, is suspended: its keys are assigned to others until it sends something."""
        schedule = self.schedule
        schedule.advance_clock(now)
        silent: list[AttachedConsumer] = []
        for offset in self._deadlines.candidates(schedule.now):
            message = self._messages.get(offset)
            if message is None or message.state is not LEASED or message.deadline > schedule.now:
                continue
            if message.consumer is not None:
                silent.append(message.consumer)
            self._fail(message, None, ACK_TIMEOUT)
        silent += [each for each in self.consumers.by_name.values() if schedule.is_starving(each)]
        self.consumers.suspend(silent)

    def next_event(self) -> int | None:
        """The next time at which something changes without an event; None if nothing will."""
        schedule = self.schedule
        times = [schedule.starving_until(each) for each in self.consumers.by_name.values() if each.queue]
        times += [self._deadlines.next(), schedule.due[0][0] if schedule.due else None]
        return min((time for time in times if time is not None), default=None)

    def failing(self, count: int) -> list[FailingMessage]:
        """The first messages that have failed and are not settled, whether they are tracked or not."""
        return self._unsaved.failing(count, self._messages, self.schedule.now)

    # -- commits ----------------------------------------------------------------------------------------------

    def begin_commit(self) -> StateChanges | None:
        """Returns the changes to store, and the same object again until `committed` is called; None if there are
        none."""
        return self._unsaved.begin()

    @property
    def is_dirty(self) -> bool:
        return self._unsaved.is_dirty

    def committed(self) -> None:
        """The changes that `begin_commit` returned are durable."""
        for message in self._unsaved.end().messages:
            del self._messages[message.offset]
            key = message.key
            if key is not None:
                key.settling -= 1
                self.schedule.schedule_key(key)

    # -- internals --------------------------------------------------------------------------------------------

    def _end_lease(self, message: TrackedMessage) -> None:
        consumer, offset = message.consumer, message.offset
        assert consumer is not None, "a lease has a consumer"
        message.state = READY
        self._deadlines.discard(message.deadline, offset)
        consumer.leases.discard(offset)
        self.leased -= 1
        key = message.key
        if key is not None:
            key.leased.discard(offset)
            if not key.leased:
                key.holder = None

    def _release(self, message: TrackedMessage) -> None:
        """Return a leased message to READY as if it had not been delivered."""
        self._end_lease(message)
        message.token = 0
        self.schedule.wait(message)

    def _fail(
        self, message: TrackedMessage, delay_ms: int | None, reason: str, *, is_last: bool = False
    ) -> None:
        """End the lease and charge an attempt. Without a delay, the configured backoff applies."""
        config = self._config
        self._end_lease(message)
        message.attempts += 1
        self._unsaved.reasons.add(message.offset, reason)
        if message.attempts < config.attempts_max and not is_last:
            delay = config.backoff(message.attempts, message.offset) if delay_ms is None else delay_ms
            self._retry(message, self.schedule.now + delay)
        elif config.on_exhausted is ExhaustedAction.BLOCK:
            self._retry(message, NEVER)
        else:
            message.token = 0
            dropped = config.on_exhausted is ExhaustedAction.DROP
            self._settle(message, SettleReason.DROPPED if dropped else SettleReason.DEAD)
        if message.key is not None:
            self._revoke_after(message, message.key)

    def _retry(self, message: TrackedMessage, not_before: int) -> None:
        message.not_before = not_before
        message.alarm = 0
        self._unsaved.failed[message.offset] = message
        self.schedule.wait(message)

    def _revoke_after(self, failed: TrackedMessage, key: TrackedKey) -> None:
        """Revoke the leases of later messages of the key: they must wait for the failed one."""
        later = sorted(offset for offset in key.leased if offset > failed.offset)
        for offset in later:
            message = self._messages[offset]
            if message.consumer is not None:
                self.revoked.append(Revoked(message.consumer.name, offset, message.token))
            self._release(message)

    def _settle(self, message: TrackedMessage, reason: SettleReason) -> None:
        if message.state is LEASED:
            self._end_lease(message)
        if reason is ACKED and message.consumer is not None:
            message.consumer.acked += 1
        message.state = SETTLING
        message.settle_reason = reason
        self._unsaved.decided.append(message)
        key = message.key
        if key is not None:
            key.settling += 1
            if not self.schedule.strict:  # a strict key is scheduled when this is durable
                self.schedule.schedule_key(key)
