"""The dispatcher of one (subscription, partition): who may take which message now, and what became of it.

Pure: events come in with the time, `dispatch` says what to deliver, `begin_commit` what to store. All transitions of
a message are here:

    not seen --index--> READY --dispatch--> LEASED --ack--> SETTLING --committed--> settled
    LEASED --nack | deadline | abrupt leave--> READY, one attempt more and not before its backoff; at the last attempt
           SETTLING as a dead letter or dropped, or READY but blocked until an operator lets it go
    LEASED --graceful leave | revoke--> READY, nothing charged, the token dies
    READY  --ack with the latest token--> SETTLING    (a late answer saves a second delivery)
    any    --expired, compacted, aborted, or never a message--> settled as void

SETTLING lasts until its commit is durable; the client is answered then. Of a key at most `key_window` messages are
leased, to one consumer, and never one before an earlier one of the key; if the window is 1, not before the earlier one
is durably settled. A key that moves to another consumer is not dispatched until the old one has answered.

Nothing here scans: a message is found by its offset, a key by its hash, what is eligible stands in its consumer's
heap. Of a blocked key no more than `PER_KEY_MAX` messages are tracked; the log is asked again for the others.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from millpond.model.subscriptions import Exhausted, Mode, SubscriptionConfig
from millpond.queues.assignment import FULL_WEIGHT, Assignment, FirstCome, KeyAssignment
from millpond.queues.settled import Range, Settled, SettledChange
from millpond.queues.tracked import (
    ACKED,
    FAR,
    LEASED,
    READY,
    SETTLING,
    Consumer,
    Deadlines,
    Entry,
    Key,
    Message,
    Purse,
    Settling,
)

TRACKED_MAX: Final = 50_000
PER_KEY_MAX: Final = 1_000
PER_KEY_WHEN_CROWDED: Final = 16
"""Of a blocked key, once half of what may be tracked is."""
HOT_FACTOR: Final = 2
HOT_SLACK: Final = 8
"""A consumer is hot with more than so many times what the others have on average, and so many more, keys and
messages to work on."""
WEIGHT_LESS: Final = 0.75
WEIGHT_MORE: Final = 1.1
WEIGHT_MIN: Final = 0.1
SPAN_MAX: Final = 16 * 1024 * 1024
"""Offsets between the floor and what was last looked at."""


class Answer(StrEnum):
    """What an acknowledgement, a refusal or an extension came to."""

    OK = "ok"
    STALE = "stale"
    """Settled already, delivered again since, or of an earlier owner."""
    UNKNOWN = "unknown"
    """Never delivered."""
    NOT_OWNER = "not_owner"
    """Another broker has the partition now."""


class Delivery(NamedTuple):
    offset: int
    consumer: str
    attempts: int
    """How many deliveries have failed before."""
    token: int


class Revoked(NamedTuple):
    """Deliveries of a key, from `offset` on, that the consumer must forget: an earlier one failed."""

    consumer: str
    offset: int
    token: int


class KeyStanding(NamedTuple):
    """Why a key does not move: its first message, how many wait, the reason, whose turn it is, and until when."""

    key: int
    offset: int
    waiting: int
    why: str
    consumer: str
    until: int


class Retry(NamedTuple):
    attempts: int
    not_before: int


class Dead(NamedTuple):
    offset: int
    attempts: int
    dropped: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be stored, all of it absolute: storing it twice is storing it once."""

    settled: SettledChange
    retries: Mapping[int, Retry]
    forgotten: Sequence[int]
    """Those of which no retry is to be kept: settled now, or let go by an operator."""
    dead: Sequence[Dead]
    messages: Sequence[Message]


class Dispatcher:
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
    ) -> None:
        self.epoch = epoch
        self.now = 0
        self.settled = Settled(floor, chunks)
        self.frontier = self.settled.next_open(floor)
        self.leased = 0
        self.revoked: list[Revoked] = []
        self._assignment = assignment or (FirstCome() if config.ordered_by_partition else KeyAssignment())
        self._tracked_max = tracked_max
        self._messages: dict[int, Message] = {}
        self._keys: dict[int, Key] = {}
        self._lagging: dict[int, Key] = {}
        self._drained: dict[int, Key] = {}
        """Those of the lagging that have worked off what was tracked of them."""
        self._consumers: dict[str, Consumer] = {}
        self._attached = 0
        self._tokens = 0
        self._loose: list[int] = []
        """Ready messages that are in order with nothing."""
        self._delayed: list[tuple[int, int]] = []
        self._deadlines = Deadlines()
        self._retries = dict(retries or {})
        """Of messages that are not tracked yet."""
        self._decided: list[Message] = []
        self._failed: dict[int, Message] = {}
        self._voids: list[Range] = []
        self._forgotten: list[int] = []
        self._batch: Changes | None = None
        self._log_start = 0
        self.config = config
        self.forget_below(log_start)

    @property
    def config(self) -> SubscriptionConfig:
        """It may be altered at any time, except for the mode."""
        return self._config

    @config.setter
    def config(self, config: SubscriptionConfig) -> None:
        self._config = config
        self._strict = config.strict
        self._by_partition = config.ordered_by_partition
        self._window = config.leases_max if self._by_partition else config.key_window
        for key in list(self._keys.values()):
            self._consider(key)

    # -- consumers --------------------------------------------------------------------------------------------

    def attach(self, name: str, purse: Purse | None = None) -> None:
        if name not in self._consumers:
            self._attached += 1
            self._consumers[name] = Consumer(name, self._attached, purse or Purse())
            self._reassign()

    def grant(self, name: str, messages: int, size: int | None = None) -> None:
        """More deliveries that the consumer has room for. Without a size, bytes are not counted."""
        consumer = self._consumers.get(name)
        if consumer is None:
            return
        consumer.purse.add(messages, size)
        self._heard_of(consumer)

    def hear(self, name: str) -> None:
        """The consumer has shown that it is alive, such as by having room again."""
        if (consumer := self._consumers.get(name)) is not None:
            self._heard_of(consumer)

    def pause(self, name: str, *, paused: bool = True) -> None:
        consumer = self._consumers.get(name)
        if consumer is not None:
            consumer.paused = paused
            consumer.starved_since = None
            consumer.suspended = False
            self._reassign()

    def detach(self, name: str, now: int, *, graceful: bool) -> None:
        """Leases of one that leaves in order go back as if they had never been; one that breaks off is charged,
        for each key only the first message, which it may have been working on."""
        consumer = self._consumers.pop(name, None)
        if consumer is None:
            return
        self.now = max(self.now, now)
        self._reassign()
        for offset in sorted(consumer.leases):
            message = self._messages[offset]
            if message.state is not LEASED:
                continue
            if graceful:
                self._release(message)
            else:
                self._fail(message, 0)
                message.token = 0
        self.revoked = [each for each in self.revoked if each.consumer != name]

    # -- the log ----------------------------------------------------------------------------------------------

    def index(self, entries: Iterable[Entry], next_offset: int) -> None:
        """Messages from the frontier to `next_offset`; offsets that are not among them are no messages."""
        expected = self.frontier
        holes = self.settled.has_holes
        for entry in entries:
            offset = entry.offset
            if offset < expected:
                continue
            if offset > expected:
                self._void(expected, offset)
            expected = offset + 1
            if not holes or offset not in self.settled:
                self._track(entry)
        if next_offset > expected:
            self._void(expected, next_offset)
            expected = next_offset
        self.frontier = self.settled.next_open(expected)

    def recall(self, entries: Iterable[Entry], start: int, end: int) -> None:
        """All messages between these offsets once more, for keys of which not all were tracked. What is not among
        them any more is void."""
        behind = [
            key for key in self._lagging.values() if key.resume_from is not None and start <= key.resume_from
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
            if entry.key is not None and offset >= resume.get(entry.key, FAR) and offset not in self.settled:
                self._track(entry)
        self._void_untracked(expected, end)
        for key in behind:
            self._drained.pop(key.hash, None)
            if key.resume_from is None and max(end, resume[key.hash]) < self.frontier:
                key.resume_from = max(end, resume[key.hash])
            if key.resume_from is None:
                del self._lagging[key.hash]
            self._consider(key)

    def forget_below(self, log_start: int) -> None:
        """The log begins here now: what came before is settled, delivered or not."""
        if log_start <= max(self.settled.floor, self._log_start):
            return
        self._log_start = log_start
        for offset in [each for each in self._messages if each < log_start]:
            self.void(offset)
        self._void(self.settled.floor, log_start)
        self.frontier = max(self.frontier, self.settled.next_open(log_start))
        for key in list(self._lagging.values()):
            if key.resume_from is not None and key.resume_from < log_start:
                key.resume_from = log_start

    def void(self, offset: int) -> None:
        """The message is no more, though it was there when it was indexed."""
        message = self._messages.get(offset)
        if message is None:
            if offset < self.frontier and offset not in self.settled:
                self._void(offset, offset + 1)
            return
        if message.state is SETTLING:
            return
        if message.state is LEASED:
            self._end_lease(message)
        del self._messages[offset]
        self._failed.pop(offset, None)
        if message.attempts:
            self._forgotten.append(offset)
        self._void(offset, offset + 1)
        if message.key is not None:
            self._consider(message.key)

    @property
    def wants_more(self) -> bool:
        """Whether somebody could take a message and there is none for it."""
        if (
            self.leased >= self._config.leases_max
            or len(self._messages) >= self._tracked_max
            or self.frontier - self.settled.floor >= SPAN_MAX
        ):
            return False
        only = self._assignment.owner(0) if self._by_partition else None
        return any(
            each.may_take and not each.queue and only in (None, each.name)
            for each in self._consumers.values()
        )

    @property
    def recalls_from(self) -> int | None:
        """Where to read again for a key that has worked off what was tracked of it."""
        places = [key.resume_from for key in self._drained.values() if key.resume_from is not None]
        return min(places, default=None)

    # -- delivering -------------------------------------------------------------------------------------------

    def dispatch(self, now: int) -> list[Delivery]:
        """Everything that may be delivered now, in the order of the log. Nothing eligible is left behind."""
        self._pass_time(now)
        deliveries: list[Delivery] = []
        able = [each for each in self._consumers.values() if each.may_take]
        takers = [(each.suspended, -each.credit, each.number, each) for each in able]
        heads = [(each.queue[0], each.number, each) for each in able if each.queue]
        heapq.heapify(takers)
        heapq.heapify(heads)
        leases_max = self._config.leases_max
        while self.leased < leases_max:
            loose = self._next_loose()
            if loose is not None and takers and (not heads or loose.offset < heads[0][0]):
                if (richest := _richest(takers)) is not None:
                    heapq.heappop(self._loose)
                    deliveries.append(self._lease(loose, richest))
            elif heads:
                _, number, consumer = heapq.heappop(heads)
                if (message := self._next_queued(consumer)) is not None and consumer.may_take:
                    deliveries.append(self._lease_queued(message, consumer))
                if consumer.may_take and consumer.queue:
                    heapq.heappush(heads, (consumer.queue[0], number, consumer))
            else:
                break
        return deliveries

    def is_leased(self, delivery: Delivery) -> bool:
        """Whether it is still the consumer's."""
        message = self._messages.get(delivery.offset)
        return message is not None and message.state is LEASED and message.token == delivery.token

    def give_back(self, delivery: Delivery) -> None:
        """It was not delivered after all: nothing is charged, and the consumer still has room for it."""
        message = self._messages.get(delivery.offset)
        if message is not None and message.state is LEASED and message.token == delivery.token:
            if message.consumer is not None:
                message.consumer.purse.give_back(message.size)
            self._release(message)
            if message.key is not None:
                self._revoke_after(message, message.key)

    def _next_loose(self) -> Message | None:
        while self._loose:
            message = self._messages.get(self._loose[0])
            if message is not None and message.state is READY:
                return message
            heapq.heappop(self._loose)
        return None

    def _next_queued(self, consumer: Consumer) -> Message | None:
        """The first message of the consumer's queue, if it still stands there rightly."""
        message = self._messages.get(consumer.queue[0])
        if message is not None and message.state is READY:
            key = message.key
            assert key is not None, "only messages with keys are queued"
            if key.queued == message.offset and self._may_go(key, consumer):
                return message
            if key.queued == message.offset:
                key.queued = -1
        heapq.heappop(consumer.queue)
        return None

    def _lease_queued(self, message: Message, consumer: Consumer) -> Delivery:
        heapq.heappop(consumer.queue)
        key = message.key
        assert key is not None, "only messages with keys are queued"
        first = heapq.heappop(key.waiting)
        assert first == message.offset, "a key stands in a queue with its first message"
        key.queued = -1
        key.leased.add(message.offset)
        key.holder = consumer
        delivery = self._lease(message, consumer)
        self._consider(key)
        return delivery

    def _lease(self, message: Message, consumer: Consumer) -> Delivery:
        self._tokens += 1
        message.state = LEASED
        message.consumer = consumer
        message.token = self._tokens
        message.deadline = self.now + self.config.ack_timeout_ms
        self._deadlines.add(message.deadline, message.offset)
        self.leased += 1
        consumer.leases.add(message.offset)
        consumer.purse.take(message.size)
        return Delivery(message.offset, consumer.name, message.attempts, message.token)

    # -- answers ----------------------------------------------------------------------------------------------

    def ack(self, offset: int, epoch: int, token: int) -> Answer:
        """Only the latest delivery counts. The consumer may be told when the next commit is durable."""
        message = self._answered(offset, epoch, token)
        if isinstance(message, Answer):
            return message
        self._settle(message, ACKED)
        return Answer.OK

    def check(self, offset: int, epoch: int, token: int) -> Answer:
        """What `ack` would say."""
        message = self._answered(offset, epoch, token)
        return message if isinstance(message, Answer) else Answer.OK

    def ack_through(self, offset: int, epoch: int, token: int) -> Answer:
        """This delivery and all earlier ones of the same consumer."""
        message = self._answered(offset, epoch, token)
        if isinstance(message, Answer):
            return message
        consumer = message.consumer
        self._settle(message, ACKED)
        for earlier in sorted(consumer.leases if consumer is not None else ()):
            if earlier < offset:
                self._settle(self._messages[earlier], ACKED)
        return Answer.OK

    def nack(self, offset: int, epoch: int, token: int, now: int, delay_ms: int | None = None) -> Answer:
        message = self._answered(offset, epoch, token)
        if isinstance(message, Answer):
            return message
        if message.state is not LEASED:
            return Answer.STALE
        self.now = max(self.now, now)
        self._fail(message, delay_ms)
        return Answer.OK

    def extend(self, offset: int, epoch: int, token: int, now: int, by_ms: int) -> Answer:
        message = self._answered(offset, epoch, token)
        if isinstance(message, Answer):
            return message
        if message.state is not LEASED:
            return Answer.STALE
        self.now = max(self.now, now)
        self._deadlines.discard(message.deadline, offset)
        message.deadline = self.now + by_ms
        self._deadlines.add(message.deadline, offset)
        return Answer.OK

    def unblock(self, offset: int | None = None) -> int:
        """Let blocked messages go (one, or all), as if they had never failed. How many there were."""
        chosen = [*self._messages, *self._retries] if offset is None else [offset]
        return sum(self._unblock(each) for each in chosen)

    def _unblock(self, offset: int) -> bool:
        if (retry := self._retries.get(offset)) is not None and retry.not_before >= FAR:
            self._forget_retry(offset)
            return True
        message = self._messages.get(offset)
        if message is None or message.not_before < FAR or message.state is not READY:
            return False
        message.attempts = message.not_before = 0
        self._failed.pop(offset, None)
        self._forgotten.append(offset)
        if message.key is None:
            heapq.heappush(self._loose, offset)
        else:
            self._consider(message.key)
        return True

    def _answered(self, offset: int, epoch: int, token: int) -> Message | Answer:
        if epoch != self.epoch:
            return Answer.STALE
        if not 0 < token <= self._tokens or offset >= self.frontier:
            return Answer.UNKNOWN
        message = self._messages.get(offset)
        if message is None or message.token != token or message.state is SETTLING:
            return Answer.STALE
        if message.consumer is not None:
            self._heard_of(message.consumer)
        return message

    def _heard_of(self, consumer: Consumer) -> None:
        consumer.starved_since = None
        if consumer.suspended and self._consumers.get(consumer.name) is consumer:
            consumer.suspended = False
            self._reassign()

    # -- time -------------------------------------------------------------------------------------------------

    def expire(self, now: int) -> None:
        """Deliveries that were not answered in time have failed. A consumer that lets one run out, or that takes
        nothing although its keys wait, loses its keys until it is heard of."""
        self._pass_time(now)
        silent: list[Consumer] = []
        for offset in self._deadlines.candidates(self.now):
            message = self._messages.get(offset)
            if message is None or message.state is not LEASED or message.deadline > self.now:
                continue
            if message.consumer is not None:
                silent.append(message.consumer)
            self._fail(message, None)
        silent += [each for each in self._consumers.values() if self._is_starving(each)]
        self._suspend(silent)

    def _is_starving(self, consumer: Consumer) -> bool:
        """Whether it has let its keys wait for as long as a delivery may take."""
        while consumer.queue and self._next_queued(consumer) is None:
            pass
        if not consumer.queue or consumer.paused or consumer.may_take:
            consumer.starved_since = None
            return False
        if consumer.starved_since is None:
            consumer.starved_since = self.now
        return self.now - consumer.starved_since >= self.config.ack_timeout_ms

    def _suspend(self, silent: Iterable[Consumer]) -> None:
        found = [each for each in silent if not each.suspended]
        for consumer in found:
            consumer.suspended = True
        if found:
            self._reassign()

    def next_event(self) -> int | None:
        """When time alone changes something."""
        times = [self._starving_until(each) for each in self._consumers.values() if each.queue]
        times += [self._deadlines.next(), self._delayed[0][0] if self._delayed else None]
        return min((time for time in times if time is not None), default=None)

    def _starving_until(self, consumer: Consumer) -> int | None:
        if consumer.may_take or consumer.paused or consumer.suspended:
            return None
        since = self.now if consumer.starved_since is None else consumer.starved_since
        return since + self.config.ack_timeout_ms

    def _pass_time(self, now: int) -> None:
        self.now = max(self.now, now)
        while self._delayed and self._delayed[0][0] <= self.now:
            time, offset = heapq.heappop(self._delayed)
            message = self._messages.get(offset)
            if message is None or message.state is not READY or message.not_before != time:
                continue
            message.alarm = 0
            if message.key is None:
                heapq.heappush(self._loose, offset)
            else:
                self._consider(message.key)

    # -- balance ----------------------------------------------------------------------------------------------

    def balance(self) -> bool:
        """Move some keys away from a consumer with much more to do than the others. Call it every few seconds."""
        if self.config.mode is not Mode.KEY_SHARED or len(self._consumers) < 2:
            return False
        loads = {each.name: len(each.queue) + len(each.leases) for each in self._consumers.values()}
        total = sum(loads.values())
        for consumer in self._consumers.values():
            load = loads[consumer.name]
            others = (total - load) / (len(loads) - 1)
            if load > HOT_FACTOR * others + HOT_SLACK:
                consumer.weight = max(consumer.weight * WEIGHT_LESS, WEIGHT_MIN)
            elif load <= others:
                consumer.weight = min(consumer.weight * WEIGHT_MORE, FULL_WEIGHT)
        return self._reassign()

    # -- commits ----------------------------------------------------------------------------------------------

    def begin_commit(self) -> Changes | None:
        """What is to be stored; the same again until `committed` is told."""
        if self._batch is None and (self._decided or self._failed or self._voids or self._forgotten):
            decided, self._decided = self._decided, []
            failed, self._failed = self._failed, {}
            voids, self._voids = self._voids, []
            forgotten, self._forgotten = self._forgotten, []
            retries = {
                offset: Retry(message.attempts, message.not_before)
                for offset, message in failed.items()
                if message.state is not SETTLING
            }
            forgotten += [message.offset for message in decided if message.attempts]
            self._batch = Changes(
                settled=self.settled.plan([message.offset for message in decided], voids),
                retries=retries,
                forgotten=[offset for offset in forgotten if offset not in retries],
                dead=[
                    Dead(message.offset, message.attempts, message.settling is Settling.DROPPED)
                    for message in decided
                    if message.settling is not ACKED
                ],
                messages=decided,
            )
        return self._batch

    @property
    def is_dirty(self) -> bool:
        return bool(self._batch or self._decided or self._failed or self._voids or self._forgotten)

    def committed(self) -> None:
        """What `begin_commit` gave is durable."""
        assert self._batch is not None, "begin_commit comes first"
        batch, self._batch = self._batch, None
        self.settled.apply(batch.settled)
        for message in batch.messages:
            del self._messages[message.offset]
            if message.key is not None:
                message.key.settling -= 1
                self._consider(message.key)

    # -- looking on -------------------------------------------------------------------------------------------

    @property
    def tracked(self) -> int:
        return len(self._messages)

    @property
    def delayed(self) -> int:
        """Messages that wait for their time."""
        return sum(
            1 for each in self._messages.values() if each.state is READY and each.not_before > self.now
        )

    @property
    def consumers(self) -> Sequence[Consumer]:
        return list(self._consumers.values())

    def keys_that_wait(self, limit: int) -> list[KeyStanding]:
        """Keys that do not move, those with most behind them first, and why."""
        standings = [each for key in self._keys.values() if (each := self._standing(key)) is not None]
        return heapq.nlargest(limit, standings, key=lambda each: (each.waiting, -each.offset))

    def _standing(self, key: Key) -> KeyStanding | None:
        """None if the key is about to be dispatched."""
        head = self._head(key)
        if head is None and not key.leased:
            return None
        offset = head.offset if head is not None else min(key.leased)
        owner = self._assignment.owner(key.hash)
        holder = key.holder.name if key.holder is not None else owner or ""
        until = head.not_before if head is not None and head.not_before > self.now else 0
        if key.leased:
            why = "leased" if owner == holder else "draining"
        elif key.settling and self._strict:
            why = "settling"
        elif until:
            why = "blocked" if until >= FAR else "delayed"
        elif owner is None:
            why = "nobody"
        elif head is not None and not self._consumers[owner].may_take:
            why = "no_credit"
        else:
            return None
        return KeyStanding(key.hash, offset, len(key.waiting), why, holder, 0 if until >= FAR else until)

    # -- inside -----------------------------------------------------------------------------------------------

    def _track(self, entry: Entry) -> None:
        offset, key_hash, size, not_before = entry
        key = None
        if key_hash is not None:
            key = self._keys.get(key_hash)
            if key is None:
                key = self._keys[key_hash] = Key(key_hash)
            if key.resume_from is not None:
                return
            if key.waiting and len(key.waiting) >= self._per_key_max():
                key.resume_from = offset
                self._lagging[key_hash] = key
                return
        attempts = 0
        if self._retries and offset in self._retries:
            attempts, later = self._retries.pop(offset)
            not_before = max(not_before, later)
        message = self._messages[offset] = Message(offset, key, size, not_before, attempts)
        self._return(message)

    def _return(self, message: Message) -> None:
        """It waits for its turn (again)."""
        key = message.key
        if key is None:
            if message.not_before > self.now:
                self._delay(message)
            else:
                heapq.heappush(self._loose, message.offset)
            return
        heapq.heappush(key.waiting, message.offset)
        self._consider(key)

    def _delay(self, message: Message) -> None:
        if message.alarm != message.not_before < FAR:
            message.alarm = message.not_before
            heapq.heappush(self._delayed, (message.not_before, message.offset))

    def _consider(self, key: Key) -> None:
        """Queue the key's first message with its consumer, if it may be delivered now."""
        if self._strict and key.busy:
            return  # its turn comes when that is durable
        head = self._head(key)
        if key.resume_from is not None and len(key.waiting) * 2 <= self._per_key_max():
            self._drained[key.hash] = key
        if head is None:
            key.queued = -1
            if key.idle:
                self._keys.pop(key.hash, None)
            return
        if key.queued == head.offset:
            return
        key.queued = -1
        if head.not_before > self.now:
            self._delay(head)
            return
        owner = self._consumers.get(self._assignment.owner(key.hash) or "")
        if owner is not None and self._may_go(key, owner):
            key.queued = head.offset
            heapq.heappush(owner.queue, head.offset)

    def _may_go(self, key: Key, consumer: Consumer) -> bool:
        if self._strict:
            return not key.busy
        if not key.leased:
            return True
        return key.holder is consumer and len(key.leased) < self._window

    def _head(self, key: Key) -> Message | None:
        while key.waiting:
            message = self._messages.get(key.waiting[0])
            if message is not None and message.state is READY:
                return message
            heapq.heappop(key.waiting)
        return None

    def _end_lease(self, message: Message) -> None:
        consumer = message.consumer
        assert consumer is not None, "a lease has a consumer"
        message.state = READY
        self._deadlines.discard(message.deadline, message.offset)
        consumer.leases.discard(message.offset)
        self.leased -= 1
        key = message.key
        if key is not None:
            key.leased.discard(message.offset)
            if not key.leased:
                key.holder = None

    def _release(self, message: Message) -> None:
        """Back as if it had not been delivered."""
        self._end_lease(message)
        message.token = 0
        self._return(message)

    def _fail(self, message: Message, delay_ms: int | None) -> None:
        self._end_lease(message)
        message.attempts += 1
        if message.attempts < self.config.attempts_max:
            rest = self.config.backoff(message.attempts, message.offset) if delay_ms is None else delay_ms
            self._retry(message, self.now + rest)
        elif self.config.on_exhausted is Exhausted.BLOCK:
            self._retry(message, FAR)
        else:
            message.token = 0
            dropped = self.config.on_exhausted is Exhausted.DROP
            self._settle(message, Settling.DROPPED if dropped else Settling.DEAD)
        if message.key is not None:
            self._revoke_after(message, message.key)

    def _retry(self, message: Message, not_before: int) -> None:
        message.not_before = not_before
        message.alarm = 0
        self._failed[message.offset] = message
        self._return(message)

    def _revoke_after(self, failed: Message, key: Key) -> None:
        """Later messages of the key must wait for this one."""
        later = sorted(offset for offset in key.leased if offset > failed.offset)
        for offset in later:
            message = self._messages[offset]
            if message.consumer is not None:
                self.revoked.append(Revoked(message.consumer.name, offset, message.token))
            self._release(message)

    def _settle(self, message: Message, settling: Settling) -> None:
        if message.state is LEASED:
            self._end_lease(message)
        if settling is ACKED and message.consumer is not None:
            message.consumer.acked += 1
        message.state = SETTLING
        message.settling = settling
        self._decided.append(message)
        if message.key is not None:
            message.key.settling += 1
            self._consider(message.key)

    def _forget_retry(self, offset: int) -> None:
        del self._retries[offset]
        self._forgotten.append(offset)

    def _void_untracked(self, start: int, end: int) -> None:
        """What lies here is no message. What is tracked is left to whoever finds that it is gone."""
        few = end - start <= len(self._messages)
        tracked = (
            [each for each in range(start, end) if each in self._messages]
            if few
            else (sorted(each for each in self._messages if start <= each < end))
        )
        for offset in tracked:
            if start < offset:
                self._void(start, offset)
            start = offset + 1
        if start < end:
            self._void(start, end)

    def _void(self, start: int, end: int) -> None:
        if self._retries:
            few = end - start <= len(self._retries)
            for offset in range(start, end) if few else list(self._retries):
                if start <= offset < end and offset in self._retries:
                    self._forget_retry(offset)
        if self._voids and self._voids[-1][1] == start:
            self._voids[-1] = (self._voids[-1][0], end)
        else:
            self._voids.append((start, end))

    def _reassign(self) -> bool:
        """After any change among the consumers. Those that take nothing have keys only if nobody takes anything."""
        consumers = list(self._consumers.values())
        able = (
            [each for each in consumers if not each.paused and not each.suspended]
            or [each for each in consumers if not each.paused]
            or consumers
        )
        if not self._assignment.replace({each.name: each.weight for each in able}):
            return False
        for consumer in consumers:
            consumer.queue = []
        for key in list(self._keys.values()):
            key.queued = -1
            self._consider(key)
        return True

    def _per_key_max(self) -> int:
        if self._by_partition:
            return self._tracked_max
        return PER_KEY_MAX if len(self._messages) * 2 < self._tracked_max else PER_KEY_WHEN_CROWDED


def _richest(takers: list[tuple[bool, int, int, Consumer]]) -> Consumer | None:
    """Of those that can take something the one with most room; those that are suspended come last."""
    while takers:
        suspended, credit, number, consumer = takers[0]
        if not consumer.may_take:
            heapq.heappop(takers)
        elif -credit != consumer.credit:
            heapq.heapreplace(takers, (suspended, -consumer.credit, number, consumer))
        else:
            return consumer
    return None
