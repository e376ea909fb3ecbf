"""One partition of a subscription, told as plainly as it can be: dictionaries, and a scan for every question.

It knows nothing of heaps, queues, buckets and bitmaps, nor of keys of which only some messages are tracked: the
dispatcher has all these to be quick, and must come to the same deliveries, answers and rows. Which consumer a slot
belongs to, and what a consumer weighs, is taken from `millpond.queues`; everything else is said here again.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

from millpond.model.subscriptions import ExhaustedAction, SubscriptionConfig
from millpond.queues.dispatcher_results import AckResult, Dead, QueueDelivery, Retry, Revoked
from millpond.queues.dispatcher_state import NEVER, LogEntry
from millpond.queues.key_assignment import FirstCome, KeyAssignment
from millpond.queues.share_acks import REJECTED, RELEASED, AckRange, AckRefusal, AckType

REASONS_KEPT = 2


@dataclass
class Log:
    """Messages by offset; None where there is none, or none any more."""

    entries: list[LogEntry | None] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        return len(self.entries)

    def between(self, start: int, end: int) -> list[LogEntry]:
        return [entry for entry in self.entries[max(start, self.start) : end] if entry is not None]

    def has(self, offset: int) -> bool:
        return bool(self.between(offset, offset + 1))


@dataclass
class ModelRow:
    """What is durable."""

    settled: set[int] = field(default_factory=set)
    retries: dict[int, Retry] = field(default_factory=dict)
    dead: dict[int, Dead] = field(default_factory=dict)

    def store(self, batch: "Batch") -> None:
        self.settled |= set(batch.settled)
        self.dead.update({offset: dead for offset, dead in batch.settled.items() if dead is not None})
        self.retries.update({offset: retry for offset, retry in batch.retries.items() if retry is not None})
        for offset in [*batch.settled, *(each for each, retry in batch.retries.items() if retry is None)]:
            self.retries.pop(offset, None)


@dataclass
class Batch:
    """What is being made durable: offsets that are settled, with a dead letter or without, and retries as they are
    to be, None to forget them."""

    settled: dict[int, Dead | None]
    retries: dict[int, Retry | None]


@dataclass(eq=False)
class Member:
    """A consumer. `room` is in bytes, None if they are not counted."""

    name: str
    number: int
    weight: float = 1.0
    credit: int = 0
    room: int | None = None
    paused: bool = False
    silent: bool = False
    starved_since: int | None = None

    @property
    def may_take(self) -> bool:
        return self.credit > 0 and (self.room is None or self.room > 0) and not self.paused


@dataclass
class Lease:
    member: Member
    deadline: int


class Model:
    def __init__(self, config: SubscriptionConfig, log: Log, row: ModelRow, epoch: int) -> None:
        self.config = config
        self.log = log
        self.row = row
        self.epoch = epoch
        self.now = 0
        self.seen = 0
        """Offsets below it were shown."""
        self.entries: dict[int, LogEntry] = {}
        """Messages that were shown and are not durably settled, in their order."""
        self.settling: dict[int, Dead | None] = {}
        """Those of them that are decided."""
        self.leases: dict[int, Lease] = {}
        self.tokens: dict[int, tuple[int, Member]] = {}
        """Of each offset the latest delivery, if it may still be answered."""
        self.issued = 0
        self.log_start = 0
        self.members: dict[str, Member] = {}
        self.attached = 0
        self.retries = dict(row.retries)
        self.changed: set[int] = set()
        """Offsets whose retries are not durable as they are."""
        self.voids: set[int] = set()
        self.batch: Batch | None = None
        self.revoked: list[Revoked] = []
        self.forget_below(log.start)

    # -- whose turn it is -------------------------------------------------------------------------------------

    def is_open(self, offset: int) -> bool:
        return offset in self.entries and offset not in self.settling

    def is_ready(self, offset: int) -> bool:
        retry = self.retries.get(offset, Retry(0, 0))
        time = max(self.entries[offset].not_before, retry.not_before)
        return self.is_open(offset) and offset not in self.leases and self.now >= time

    def of_key(self, key: int, offsets: Iterable[int]) -> list[int]:
        return [offset for offset in offsets if self.entries[offset].key == key]

    def owner(self, key: int) -> Member | None:
        """Those that are paused, or have been silent, have keys only if all are."""
        members = list(self.members.values())
        awake = [each for each in members if not each.paused]
        able = [each for each in awake if not each.silent] or awake or members
        weights = tuple((each.name, each.weight) for each in able)
        name = owner_of(key, self.config.ordered_by_partition, weights)
        return None if name is None else self.members[name]

    def claimant(self, offset: int) -> Member | None:
        """Whose turn it is to take this message of a key, whether it has room or not."""
        key = self.entries[offset].key
        if key is None or not self.is_ready(offset):
            return None
        owner = self.owner(key)
        leased = self.of_key(key, self.leases)
        if len(leased) >= self.window or any(self.leases[each].member is not owner for each in leased):
            return None
        earlier = [each for each in self.of_key(key, self.entries) if each < offset]
        return owner if all(map(self.lets_pass, earlier)) else None

    def lets_pass(self, earlier: int) -> bool:
        """Whether later messages of the key may be delivered."""
        if earlier in self.settling:
            return not self.config.strict
        return earlier in self.leases

    @property
    def window(self) -> int:
        return self.config.leases_max if self.config.ordered_by_partition else self.config.key_window

    def taker(self, offset: int) -> Member | None:
        """Who gets this message now, if anybody."""
        if len(self.leases) >= self.config.leases_max or not self.is_ready(offset):
            return None
        if self.entries[offset].key is None:
            able = [each for each in self.members.values() if each.may_take]
            return min(able, key=lambda each: (each.silent, -each.credit, each.number), default=None)
        claimant = self.claimant(offset)
        return claimant if claimant is not None and claimant.may_take else None

    def could_be_taken(self) -> list[int]:
        """Offsets that somebody could have now, shown or not."""
        all_seen = copy.copy(self)
        all_seen.entries, all_seen.voids = dict(self.entries), set(self.voids)
        all_seen.index(self.log.end)
        return [offset for offset in all_seen.entries if all_seen.taker(offset) is not None]

    # -- consumers --------------------------------------------------------------------------------------------

    def attach(self, name: str) -> None:
        if name not in self.members:
            self.attached += 1
            self.members[name] = Member(name, self.attached)

    def grant(self, name: str, messages: int, size: int | None) -> None:
        if (member := self.members.get(name)) is not None:
            member.credit += messages
            if size is not None:
                member.room = (member.room or 0) + size
            self.hear(member)

    def pause(self, name: str, *, paused: bool) -> None:
        if (member := self.members.get(name)) is not None:
            member.paused = paused
            self.hear(member)

    def hear(self, member: Member) -> None:
        member.silent, member.starved_since = False, None

    def detach(self, name: str, now: int, *, graceful: bool) -> None:
        """Who leaves in order gives back; who breaks off is charged, for each key with its first message."""
        self.now = max(self.now, now)
        if (member := self.members.pop(name, None)) is None:
            return
        for offset in sorted(self.leases):
            if offset in self.leases and self.leases[offset].member is member:
                if graceful:
                    self.release(offset)
                else:
                    self.fail(offset, 0, "connection lost")
                    self.tokens.pop(offset, None)
        self.revoked = [each for each in self.revoked if each.consumer != name]

    # -- the log ----------------------------------------------------------------------------------------------

    def index(self, next_offset: int) -> None:
        for offset in range(self.seen, next_offset):
            if offset in self.row.settled or offset in self.voids:
                continue
            if self.log.has(offset):
                self.entries[offset] = self.log.entries[offset]
            else:
                self.void(offset)
        self.seen = max(self.seen, next_offset)

    def forget_below(self, log_start: int) -> None:
        self.log_start = max(self.log_start, log_start)
        for offset in range(log_start):
            self.void(offset)
        self.seen = max(self.seen, log_start)

    def void(self, offset: int) -> None:
        being_stored = self.batch.settled if self.batch is not None else {}
        if offset in self.settling or offset in self.row.settled or offset in being_stored:
            return
        self.entries.pop(offset, None)
        self.leases.pop(offset, None)
        self.tokens.pop(offset, None)
        self.retries.pop(offset, None)
        self.changed.discard(offset)
        self.voids.add(offset)

    # -- deliveries and their answers -------------------------------------------------------------------------

    def dispatch(self, now: int) -> list[QueueDelivery]:
        self.now = max(self.now, now)
        takers = ((offset, self.taker(offset)) for offset in self.entries)
        return [self.lease(offset, member) for offset, member in takers if member is not None]

    def lease(self, offset: int, member: Member) -> QueueDelivery:
        self.issued += 1
        self.leases[offset] = Lease(member, self.now + self.config.ack_timeout_ms)
        self.tokens[offset] = (self.issued, member)
        member.credit -= 1
        if member.room is not None:
            member.room -= self.entries[offset].size
        return QueueDelivery(offset, member.name, self.attempts(offset), self.issued)

    def attempts(self, offset: int) -> int:
        return self.retries[offset].attempts if offset in self.retries else 0

    def answer(self, offset: int, epoch: int, token: int) -> AckResult:
        """What an answer to this delivery is worth. One that counts is a sign of life."""
        if epoch != self.epoch:
            return AckResult.STALE
        if not 0 < token <= self.issued or offset >= self.seen:
            return AckResult.UNKNOWN
        latest = self.tokens.get(offset)
        if latest is None or latest[0] != token or not self.is_open(offset):
            return AckResult.STALE
        self.hear(latest[1])
        return AckResult.OK

    def ack(self, offset: int, epoch: int, token: int) -> AckResult:
        answer = self.answer(offset, epoch, token)
        if answer is AckResult.OK:
            self.settle(offset, None)
        return answer

    def ack_through(self, offset: int, epoch: int, token: int) -> AckResult:
        answer = self.answer(offset, epoch, token)
        if answer is AckResult.OK:
            member = self.tokens[offset][1]
            for each in [*self.leases, offset]:
                if each == offset or (each < offset and self.leases[each].member is member):
                    self.settle(each, None)
        return answer

    def nack(
        self, offset: int, epoch: int, token: int, now: int, delay_ms: int | None, reason: str = ""
    ) -> AckResult:
        answer = self.answer(offset, epoch, token)
        if answer is AckResult.OK and offset not in self.leases:
            return AckResult.STALE
        if answer is AckResult.OK:
            self.now = max(self.now, now)
            self.fail(offset, delay_ms, reason or "no reason given")
        return answer

    def extend(self, offset: int, epoch: int, token: int, now: int, by_ms: int) -> AckResult:
        answer = self.answer(offset, epoch, token)
        if answer is AckResult.OK and offset not in self.leases:
            return AckResult.STALE
        if answer is AckResult.OK:
            self.now = max(self.now, now)
            self.leases[offset].deadline = self.now + by_ms
        return answer

    def share_refusal(
        self, name: str, ranges: Sequence[AckRange], *, renew_allowed: bool
    ) -> AckRefusal | None:
        """Why a member may not say this about these offsets. What is below the start counts no more."""
        being_stored = self.batch.settled if self.batch is not None else {}
        known = self.row.settled - being_stored.keys()  # what is stored may not be known yet
        start = next(offset for offset in count(self.log_start) if offset not in known)
        for first, last, types in ranges:
            offsets = [offset for offset in range(first, last + 1) if offset >= start]
            if offsets and last >= self.log.end:
                return AckRefusal.MALFORMED
            held = [o for o in offsets if o in self.leases and self.leases[o].member.name == name]
            if offsets != held or (offsets and AckType.RENEW in types and not renew_allowed):
                return AckRefusal.NOT_ACQUIRED
        return None

    def share_settle(self, name: str, ranges: Sequence[AckRange], now: int) -> None:
        if name in self.members:
            self.hear(self.members[name])
        for first, last, types in ranges:
            for offset in range(first, last + 1):
                if offset in self.leases:
                    self.say(offset, types[offset - first if len(types) > 1 else 0], now)

    def say(self, offset: int, kind: int, now: int) -> None:
        if kind != AckType.GAP and kind != AckType.ACCEPT:
            self.now = max(self.now, now)
        if kind == AckType.GAP:
            self.void(offset)
        elif kind == AckType.ACCEPT:
            self.settle(offset, None)
        elif kind == AckType.RELEASE:
            self.fail(offset, 0, RELEASED)
        elif kind == AckType.REJECT:
            self.fail(offset, None, REJECTED, is_last=True)
        else:
            self.leases[offset].deadline = self.now + self.config.ack_timeout_ms

    def restore(self, offset: int, token: int) -> None:
        """It was not delivered after all."""
        if offset in self.leases and self.tokens[offset][0] == token:
            member = self.leases[offset].member
            member.credit += 1
            if member.room is not None:
                member.room += self.entries[offset].size
            self.release(offset)
            self.revoke_after(offset)

    def unblock(self, offset: int | None) -> int:
        blocked = [each for each, retry in self.retries.items() if retry.not_before == NEVER]
        chosen = [each for each in blocked if offset in (None, each) and each not in self.settling]
        for each in chosen:
            del self.retries[each]
            self.changed.add(each)
        return len(chosen)

    # -- time -------------------------------------------------------------------------------------------------

    def expire(self, now: int) -> None:
        self.now = max(self.now, now)
        silent = []
        for offset in sorted(self.leases):
            if offset in self.leases and self.leases[offset].deadline <= self.now:
                silent.append(self.leases[offset].member)
                self.fail(offset, None, "ack timeout")
        silent += [each for each in self.members.values() if self.is_starving(each)]
        for member in silent:
            member.silent = True

    def is_starving(self, member: Member) -> bool:
        """Whether its keys wait, and it has taken nothing, for as long as a delivery may take."""
        waits = any(self.claimant(offset) is member for offset in self.entries)
        if not waits or member.paused or member.may_take:
            member.starved_since = None
            return False
        if member.starved_since is None:
            member.starved_since = self.now
        return self.now - member.starved_since >= self.config.ack_timeout_ms

    # -- what becomes of a message ----------------------------------------------------------------------------

    def settle(self, offset: int, dead: Dead | None) -> None:
        self.leases.pop(offset, None)
        self.settling[offset] = dead

    def release(self, offset: int) -> None:
        """As if it had not been delivered."""
        del self.leases[offset]
        self.tokens.pop(offset, None)

    def reasons(self, offset: int) -> tuple[str, ...]:
        return self.retries[offset].reasons if offset in self.retries else ()

    def failing(self) -> dict[int, tuple[int, tuple[str, ...]]]:
        """Attempts and reasons of the messages that have failed and are not decided."""
        open_retries = {offset: each for offset, each in self.retries.items() if offset not in self.settling}
        return {offset: (each.attempts, each.reasons) for offset, each in open_retries.items()}

    def fail(self, offset: int, delay_ms: int | None, reason: str, *, is_last: bool = False) -> None:
        failed = self.attempts(offset) + 1
        reasons = (*self.reasons(offset), reason)[-REASONS_KEPT:]
        self.changed.add(offset)
        del self.leases[offset]
        if failed < self.config.attempts_max and not is_last:
            rest = self.config.backoff(failed, offset) if delay_ms is None else delay_ms
            self.retries[offset] = Retry(failed, self.now + rest, reasons)
        elif self.config.on_exhausted is ExhaustedAction.BLOCK:
            self.retries[offset] = Retry(failed, NEVER, reasons)
        else:
            dropped = self.config.on_exhausted is ExhaustedAction.DROP
            self.settle(offset, Dead(offset, failed, dropped, reasons))
        self.revoke_after(offset)

    def revoke_after(self, offset: int) -> None:
        """Later messages of the key must wait for this one."""
        key = self.entries[offset].key
        later = [] if key is None else [each for each in self.of_key(key, self.leases) if each > offset]
        for each in sorted(later):
            token, member = self.tokens[each]
            self.revoked.append(Revoked(member.name, each, token))
            self.release(each)

    # -- commits ----------------------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        return bool(self.batch or self.settling or self.changed or self.voids)

    def begin_commit(self) -> Batch:
        """The same again until `committed`."""
        if self.batch is None:
            changed = self.changed - set(self.settling)
            retries = {offset: self.retries.get(offset) for offset in changed}
            self.batch = Batch(self.settling | dict.fromkeys(self.voids), retries)
            self.changed, self.voids = set(), set()
        return self.batch

    def committed(self) -> list[int]:
        """Offsets that were acknowledged and may be answered now."""
        batch, self.batch = self.batch, None
        assert batch is not None, "begin_commit comes first"
        decided = [offset for offset in batch.settled if offset in self.settling]
        for offset in decided:
            del self.settling[offset]
            self.entries.pop(offset, None)
            self.tokens.pop(offset, None)
            self.retries.pop(offset, None)
        return sorted(offset for offset in decided if batch.settled[offset] is None)


@lru_cache(maxsize=10_000)
def owner_of(key: int, by_partition: bool, weights: tuple[tuple[str, float], ...]) -> str | None:
    assignment = FirstCome() if by_partition else KeyAssignment()
    assignment.replace(dict(weights))
    return assignment.owner(key)
