"""A dispatcher and the model side by side: the same events go to both, and whatever they say must be the same.

The world is what the shell, the log, the catalog and the consumers are to a dispatcher. The names of the invariants
are those of the queue's design: I1 to I4 and I7 to I12, X1 for who holds a key, O1 and O2 for order.
"""

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

from tests.queues.model import REASONS_KEPT, Log, Model, ModelRow
from tests.queues.row import Row

from millpond.model.subscriptions import ExhaustedAction, SubscriptionConfig, SubscriptionMode
from millpond.queues import attached_consumers, schedule
from millpond.queues.dispatcher import Dispatcher
from millpond.queues.dispatcher_results import AckResult, QueueDelivery, StateChanges
from millpond.queues.dispatcher_state import NEVER, LogEntry, MessageState, SettleReason
from millpond.queues.key_assignment import key_hash
from millpond.queues.limits import ReasonLimits
from millpond.queues.settled_offsets import SettledOffsets
from millpond.queues.share_acks import AckRange, AckType, refusal, settle

KEYS = {"a": key_hash(b"a"), "b": key_hash(b"b"), "c": key_hash(b"c")}
ACK_TIMEOUT_MS = 10_000
BACKOFF_MS = 1_000
ZOMBIES_MAX = 3
DRAIN_ROUNDS = 30
READS_MAX = 1_000
LARGEST = 40
"""Bytes of a message."""


@dataclass(frozen=True)
class Shape:
    """A configuration to be tried. With `exact` the model must agree; otherwise so little may be tracked that the
    dispatcher falls behind the model, and only the invariants count."""

    mode: SubscriptionMode
    key_window: int = 1
    per_key_max: int = 1_000
    tracked_max: int = 10_000
    exact: bool = True


@dataclass(frozen=True)
class Token:
    offset: int
    epoch: int
    number: int
    consumer: str


class World:
    def __init__(
        self, shape: Shape, leases_max: int, attempts_max: int, on_exhausted: ExhaustedAction
    ) -> None:
        self.shape = shape
        self.config = SubscriptionConfig(
            mode=shape.mode,
            ack_timeout_ms=ACK_TIMEOUT_MS,
            attempts_max=attempts_max,
            on_exhausted=on_exhausted,
            backoff_ms=BACKOFF_MS,
            key_window=shape.key_window,
            leases_max=leases_max,
        )
        limits = {"PER_KEY_MAX": shape.per_key_max, "PER_KEY_WHEN_CROWDED": shape.per_key_max}
        weights = {"HOT_FACTOR": 1, "HOT_SLACK": 0, "WEIGHT_LESS": 0.3}
        self.patches = contextlib.ExitStack()
        self.patches.enter_context(mock.patch.multiple(schedule, **limits))
        self.patches.enter_context(mock.patch.multiple(attached_consumers, **weights))
        self.log = Log()
        self.row = Row()
        self.model_row = ModelRow()
        self.now = 1_000_000
        self.zombies: list[Dispatcher] = []
        self.tokens: list[Token] = []
        self.latest: dict[int, Token] = {}
        self.acked: set[int] = set()
        """Offsets for which an acknowledgement was taken, by whichever dispatcher."""
        self.gaps: set[int] = set()
        """Offsets at which a member of a share group found no message."""
        self.confirmed: set[int] = set()
        """Those of which the consumer was told."""
        self.furthest: dict[int, int] = {}
        """The last offset delivered of each key."""
        self.granted: Counter[str] = Counter()
        self.unnoticed: set[int] = set()
        """Messages that have left the log, which the dispatcher will find out when it reads there again."""
        self.vanished: set[int] = set()
        """All that were unnoticed once: the dispatcher may not have heard that they are stored."""
        self.last_changes: StateChanges | None = None
        self.begin()

    def begin(self) -> None:
        """A dispatcher takes the partition over."""
        self.row.take()
        self.machine = Dispatcher(
            self.config,
            epoch=self.row.epoch,
            floor=self.row.floor,
            chunks=dict(self.row.chunks),
            retries=dict(self.row.retries),
            log_start=self.log.start,
            tracked_max=self.shape.tracked_max,
            reasons=ReasonLimits(kept_max=REASONS_KEPT),
        )
        self.model = Model(self.config, self.log, self.model_row, self.row.epoch)
        self.model.index(self.machine.frontier)
        self.latest = {}
        self.granted = Counter()
        self.let_go: set[int] = set()
        """Messages that an operator may have let go, which begins anew."""

    def close(self) -> None:
        self.patches.close()

    @property
    def both(self) -> tuple[Dispatcher, Model]:
        return self.machine, self.model

    # -- what may happen --------------------------------------------------------------------------------------

    def publish(self, keys: Sequence[str | None], size: int, delay_ms: int) -> None:
        """`void` is no message: a marker, or what was aborted."""
        for key in keys:
            offset, not_before = self.log.end, self.now + delay_ms if delay_ms else 0
            entry = LogEntry(offset, self.hash(key), size, not_before)
            self.log.entries.append(None if key == "void" else entry)

    def hash(self, key: str | None) -> int | None:
        if self.config.mode is SubscriptionMode.KEY_SHARED:
            return None if key is None else KEYS.get(key)
        return 0 if self.config.ordered_by_partition else None

    def attach(self, name: str, messages: int, size: int | None) -> None:
        for each in (self.machine.consumers, self.model):
            each.attach(name)
            each.grant(name, messages, size)
        self.granted[name] += messages

    def pause(self, name: str, *, paused: bool) -> None:
        for each in (self.machine.consumers, self.model):
            each.pause(name, paused=paused)

    def detach(self, name: str, *, graceful: bool) -> None:
        for each in self.both:
            each.detach(name, self.now, graceful=graceful)
        self.granted.pop(name, None)

    def balance(self) -> None:
        """How much a consumer weighs is the dispatcher's judgement; what follows from it is not."""
        self.machine.consumers.balance()
        for member in self.model.members.values():
            member.weight = self.machine.consumers.by_name[member.name].weight

    def token(self, index: int) -> Token:
        """Recent ones first."""
        return self.tokens[-1 - index % len(self.tokens)]

    def ack(self, token: Token, *, through: bool = False) -> AckResult:
        held = [o for o, lease in self.model.leases.items() if lease.member.name == token.consumer]
        arguments = (token.offset, token.epoch, token.number)
        if through:
            answer = self.machine.ack_through(*arguments)
            self.same("answer", answer, self.model.ack_through(*arguments))
        else:
            answer = self.machine.ack(*arguments)
            self.same("answer", answer, self.model.ack(*arguments))
        if answer is AckResult.OK:
            self.check_token(token)
            self.acked |= {token.offset, *(o for o in held if through and o < token.offset)}
        return answer

    def forge(self, token: Token) -> None:
        """A delivery that never was."""
        arguments = (token.offset, self.machine.epoch, self.model.issued + 1)
        assert self.machine.ack(*arguments) is AckResult.UNKNOWN
        assert self.machine.ack(self.log.end, self.machine.epoch, 1) is AckResult.UNKNOWN

    def nack(self, token: Token, delay_ms: int | None, reason: str) -> None:
        arguments = (token.offset, token.epoch, token.number, self.now, delay_ms, reason)
        answer = self.machine.nack(*arguments)
        self.same("answer", answer, self.model.nack(*arguments))
        if answer is AckResult.OK:
            self.check_token(token)

    def share_ack(self, name: str, ranges: Sequence[AckRange], *, renew_allowed: bool) -> None:
        """A member of a share group says what becomes of ranges of offsets."""
        end = self.log.end
        refused = refusal(self.machine, name, ranges, end_offset=end, renew_allowed=renew_allowed)
        if any(each.first <= offset <= each.last for each in ranges for offset in self.vanished):
            return  # to the model it is settled, and the dispatcher may not know yet
        self.same("refusal", refused, self.model.share_refusal(name, ranges, renew_allowed=renew_allowed))
        if refused is None:
            held = set(self.model.leases)
            settle(self.machine, name, ranges, self.now)
            self.model.share_settle(name, ranges, self.now)
            said = [(o, kind) for each in ranges for o, kind in each.typed_from(0) if o in held]
            self.acked |= {offset for offset, kind in said if kind == AckType.ACCEPT}
            self.gaps |= {offset for offset, kind in said if kind == AckType.GAP}

    def extend(self, token: Token, by_ms: int) -> None:
        arguments = (token.offset, token.epoch, token.number, self.now, by_ms)
        answer = self.machine.extend(*arguments)
        self.same("answer", answer, self.model.extend(*arguments))
        if answer is AckResult.OK:
            self.check_token(token)

    def restore(self, token: Token) -> None:
        """The shell could not deliver it after all."""
        if token.epoch == self.machine.epoch:
            self.machine.restore(QueueDelivery(token.offset, token.consumer, 0, token.number))
            self.model.restore(token.offset, token.number)

    def unblock(self, offset: int | None) -> None:
        self.let_go |= {each for each, retry in self.model.retries.items() if retry.not_before == NEVER}
        self.same("unblocked", self.machine.unblock(offset), self.model.unblock(offset))

    def advance_time(self, by_ms: int) -> None:
        self.now += by_ms
        for each in self.both:
            each.expire(self.now)

    def truncate(self, by: int) -> None:
        """Retention: the log begins later."""
        self.log.start = min(self.log.start + by, self.log.end)
        for each in self.both:
            each.forget_below(self.log.start)

    def compact(self, offset: int) -> None:
        """A message leaves the log, and the dispatcher is told, as when it cannot be read."""
        if offset < self.machine.frontier and self.log.has(offset):
            self.log.entries[offset] = None
            for each in self.both:
                each.void(offset)

    def vanish(self, index: int) -> None:
        """One that is not tracked leaves the log, and the dispatcher is not told."""
        settled = self.machine.settled
        shown = [entry.offset for entry in self.log.between(settled.floor, self.machine.frontier)]
        hidden = [each for each in shown if each not in settled and each not in self.machine._messages]
        if hidden:
            offset = hidden[index % len(hidden)]
            self.log.entries[offset] = None
            self.unnoticed.add(offset)
            self.vanished.add(offset)
            self.model.void(offset)

    def commit(self, outcome: str) -> None:
        """`stored`; `refused`, which changes nothing; `unheard`: stored, but the answer is lost."""
        changes = self.machine.begin_commit()
        if changes is None:
            assert self.unnoticed or not self.shape.exact or not self.model.is_dirty, (
                "something is not stored"
            )
            return
        batch = self.model.begin_commit()
        if changes is not self.last_changes:
            self.check_dead(changes)
        self.last_changes = changes
        if outcome == "refused":
            return
        self.check_retries_of(changes)
        assert self.row.store(self.machine.epoch, changes), "the owner is fenced off"
        self.model_row.store(batch)
        if outcome == "stored":
            acked = [each.offset for each in changes.messages if each.settle_reason is SettleReason.ACKED]
            self.machine.committed()
            self.same("answered", sorted(acked), self.model.committed())
            self.confirmed |= set(acked)

    def crash(self, *, stored: bool, unblock: bool = False) -> None:
        """Another dispatcher takes over; the old one does not know."""
        if stored:
            self.commit("unheard")
        consumers = list(self.model.members)
        self.zombies = [*self.zombies, self.machine][-ZOMBIES_MAX:]
        self.begin()
        if unblock:
            self.unblock(None)
        for name in consumers:
            self.attach(name, 2, None)

    def haunt(self, index: int, token: Token) -> None:
        """A former dispatcher goes on, and changes nothing."""
        zombie = self.zombies[index % len(self.zombies)]
        before = self.picture()
        zombie.ack(token.offset, zombie.epoch, token.number)
        zombie.dispatch(self.now)
        changes = zombie.begin_commit()
        if changes is not None:
            assert not self.row.store(zombie.epoch, changes), "I11 a former owner stores"
        assert self.picture() == before, "I11 a former owner changes something"

    def picture(self) -> tuple[object, ...]:
        row = self.row
        return row.epoch, row.floor, dict(row.chunks), dict(row.retries), dict(row.dead)

    # -- a turn of the shell ----------------------------------------------------------------------------------

    def turn(self, read: int = 3, *, expire: bool = True) -> None:
        """Read what is wanted, deliver what is eligible."""
        for each in self.both if expire else ():
            each.expire(self.now)
        while True:
            self.retrack(read)
            deliveries = self.machine.dispatch(self.now)
            if self.shape.exact:
                self.same("deliveries", deliveries, self.model.dispatch(self.now))
            else:
                self.follow(deliveries)
            for delivery in deliveries:
                self.check_delivery(delivery)
            if not self.machine.wants_more or self.machine.frontier >= self.log.end:
                break
            self.index(read)
        self.retrack(read)
        revoked, self.machine.revoked = self.machine.revoked, []
        self.same("revoked", revoked, self.model.revoked)
        self.model.revoked = []
        if self.shape.exact:
            assert self.model.could_be_taken() == [], "I10 somebody could have a message, and does not get it"

    def retrack(self, read: int) -> None:
        for _ in range(READS_MAX):
            if (start := self.machine.schedule.retrack_from) is None:
                return
            end = min(start + read, self.machine.frontier)
            self.machine.retrack(self.log.between(start, end), start, end)
        raise AssertionError("I9 the log is read again and again")

    def index(self, read: int) -> None:
        end = min(self.machine.frontier + read, self.log.end)
        self.machine.index(self.log.between(self.machine.frontier, end), end)
        self.model.index(self.machine.frontier)

    def follow(self, deliveries: list[QueueDelivery]) -> None:
        """The model does what the dispatcher did, if it is allowed."""
        self.model.now = max(self.model.now, self.now)
        for delivery in deliveries:
            member = self.model.taker(delivery.offset)
            assert member is not None, f"{delivery} is not to be delivered"
            if self.model.entries[delivery.offset].key is None:
                member = self.model.members[delivery.consumer]
            self.same("delivery", delivery, self.model.lease(delivery.offset, member))

    def same(self, what: str, ours: object, theirs: object) -> None:
        assert ours == theirs, f"{what}: the dispatcher says {ours}, the model {theirs}"

    # -- what must hold ---------------------------------------------------------------------------------------

    def check_token(self, token: Token) -> None:
        assert self.latest.get(token.offset) == token, "I12 the answer to an earlier delivery counts"

    def check_delivery(self, delivery: QueueDelivery) -> None:
        offset, consumer, attempts, number = delivery
        assert offset not in SettledOffsets(self.row.floor, self.row.chunks), (
            "I2 delivered though durably settled"
        )
        assert offset not in self.confirmed, "I3 delivered though acknowledged"
        assert attempts < self.config.attempts_max, "I8 delivered once too often"
        stored = self.row.retries.get(offset)
        if stored is not None and offset not in self.let_go:
            assert attempts >= stored.attempts, "I8 a failure is forgotten"
        entry = self.log.entries[offset]
        if entry is not None and entry.key is not None and self.config.strict:
            assert offset >= self.furthest.get(entry.key, -1), "O1 a key goes back"
            self.furthest[entry.key] = offset
        token = Token(offset, self.machine.epoch, number, consumer)
        self.tokens.append(token)
        self.latest[offset] = token

    def check_dead(self, changes: StateChanges) -> None:
        offsets = [dead.offset for dead in changes.dead]
        assert len(set(offsets)) == len(offsets), "I8 twice among the dead"
        assert not set(offsets) & set(self.row.dead), "I8 dead a second time"

    def check_retries_of(self, changes: StateChanges) -> None:
        assert not set(changes.retries) & set(changes.forgotten), "kept and forgotten at once"

    def check(self) -> None:
        self.check_rows()
        self.check_settled()
        self.check_reasons()
        self.check_leases()
        self.check_credit()

    def check_rows(self) -> None:
        ours = self.row.settled(self.log.end)
        self.unnoticed -= ours
        theirs = {offset for offset in self.model_row.settled if offset < self.log.end}
        self.same("settled", ours - self.unnoticed, theirs - self.unnoticed)
        self.same("dead", self.row.dead, self.model_row.dead)
        kept = {o: retry for o, retry in self.row.retries.items() if o not in self.unnoticed}
        self.same("retries", kept, self.model_row.retries)

    def check_settled(self) -> None:
        settled = self.row.settled(self.log.end + 1)
        assert self.row.floor not in settled, "I1 the floor is not the first that is open"
        assert settled >= set(range(self.row.floor)), "I1 something below the floor is open"
        above = [o for o in settled if o > self.row.floor]
        assert bool(self.row.chunks) == bool(above), "I1 chunks are kept for nothing"
        assert settled >= self.confirmed, "I3 an acknowledgement is lost"
        for offset in settled:
            void = offset < self.log.start or not self.log.has(offset)
            is_known = void or offset in self.acked or offset in self.gaps or offset in self.row.dead
            assert is_known, "I4 settled for no reason"
        assert not settled & set(self.row.retries), "a settled message keeps its retry"

    def check_reasons(self) -> None:
        ours = {
            each.offset: (each.attempts, each.reasons)
            for each in self.machine.failing(self.log.end)
            if each.why != "settling" and each.offset not in self.unnoticed
        }
        self.same("failing", ours, self.model.failing())

    def check_leases(self) -> None:
        messages = self.machine._messages
        leased = {o: each for o, each in messages.items() if each.state is MessageState.LEASED}
        assert len(leased) == self.machine.leased <= self.config.leases_max, "I7 too many leases"
        held = sorted(o for each in self.machine.consumers for o in each.leases)
        assert held == sorted(leased), "I7 leases leak"
        for key in self.machine.schedule.keys.values():
            mine = [each for each in leased.values() if each.key is key]
            assert {each.offset for each in mine} == key.leased, "a key does not know its leases"
            assert len({each.consumer.name for each in mine}) <= 1, "X1 two consumers hold a key"
            assert len(mine) <= self.model.window, "I7 too many of a key"
            for each in mine:
                before = [
                    o for o, entry in self.model.entries.items() if o < each.offset and entry.key == key.hash
                ]
                waits = [o for o in before if self.model.is_open(o) and o not in leased]
                assert not waits, "O2 an earlier one of the key is neither settled nor on its way"

    def check_credit(self) -> None:
        for consumer in self.machine.consumers:
            assert consumer.consumer_credit.messages >= 0, "I7 more than it has room for"
            assert consumer.consumer_credit.bytes > -LARGEST, "I7 more than one message over"
            assert len(consumer.leases) + consumer.consumer_credit.messages <= self.granted[consumer.name], (
                "I7 credit"
            )

    # -- the end ----------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """One good consumer, a catalog that answers, an operator who lets go: everything drains."""
        for name in list(self.model.members):
            self.detach(name, graceful=True)
        self.attach("healer", 10_000, None)
        for _ in range(DRAIN_ROUNDS + self.log.end):
            self.unblock(None)
            self.turn(read=50)
            for offset in list(self.model.leases):
                self.ack(self.latest[offset])
            self.commit("stored")
            self.check()
            if self.row.floor == self.log.end:
                self.turn()
                return self.check_nothing_is_left()
            self.advance_time(ACK_TIMEOUT_MS)
        raise AssertionError(f"I9 not drained: {self.row.floor} of {self.log.end}")

    def check_nothing_is_left(self) -> None:
        machine = self.machine
        schedule = machine.schedule
        left = (machine._messages, schedule.keys, schedule.lagging, schedule.drained, machine._unsaved.failed)
        assert not machine.failing(1), "a reason is remembered of a message that is settled"
        assert not machine._unsaved.reasons.size, "reasons are counted that are gone"
        assert not any(left), "something is remembered of messages that are settled"
        assert not self.row.retries, "retries are left of messages that are settled"
        assert not self.row.chunks, "I1 chunks are left below the floor"
