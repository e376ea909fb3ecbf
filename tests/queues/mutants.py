"""Mistakes that somebody could make in the dispatcher, each as a text to be replaced, to see whether the histories of
`test_model.py` find them. `play` runs in a process of its own, in which `millpond` is the copy with the mistake."""

import sys
from dataclasses import dataclass
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

CONSUMERS = "src/millpond/queues/attached_consumers.py"
DISPATCHER = "src/millpond/queues/dispatcher.py"
REASONS = "src/millpond/queues/failure_reasons.py"
UNSAVED = "src/millpond/queues/unsaved_changes.py"
SCHEDULE = "src/millpond/queues/schedule.py"
SHARE_ACKS = "src/millpond/queues/share_acks.py"
SETTLED = "src/millpond/queues/settled_offsets.py"
TRACKED = "src/millpond/queues/dispatcher_state.py"
STORED = "src/millpond/catalog/subscriptions.py"
ROW = "tests/queues/row.py"
FOUND = 3
"""The exit code that says so; others are accidents."""
HISTORIES_MAX = 200
"""Of each kind, before a mistake counts as not found."""


@dataclass(frozen=True)
class Mutant:
    """`instead` stands for `code`, which is there once. An equivalent one changes nothing that can be seen."""

    name: str
    path: str
    code: str
    instead: str
    equivalent: bool = False

    def apply(self, root: Path) -> None:
        path = root / self.path
        text = path.read_text()
        assert text.count(self.code) == 1, f"{self.name}: its code is there {text.count(self.code)} times"
        path.write_text(text.replace(self.code, self.instead))


def _dispatcher(name: str, code: str, instead: str = "pass") -> Mutant:
    return Mutant(name, DISPATCHER, code, instead)


def _unsaved(name: str, code: str, instead: str = "pass") -> Mutant:
    return Mutant(name, UNSAVED, code, instead)


def _consumers(name: str, code: str, instead: str = "pass") -> Mutant:
    return Mutant(name, CONSUMERS, code, instead)


def _share_acks(name: str, code: str, instead: str = "pass") -> Mutant:
    return Mutant(name, SHARE_ACKS, code, instead)


def _schedule(name: str, code: str, instead: str = "pass") -> Mutant:
    return Mutant(name, SCHEDULE, code, instead)


SEEDED = (
    Mutant(
        "the next of a key is sent before the previous acknowledgement is durable",
        TRACKED,
        "return bool(self.leased or self.settling)",
        "return bool(self.leased)",
    ),
    _schedule(
        "a key moves without being drained",
        "return key.holder is consumer and len(key.leased)",
        "return len(key.leased)",
    ),
    _dispatcher(
        "later messages of a key are not revoked",
        "later = sorted(offset for offset in key.leased if offset > failed.offset)",
        "later: list[int] = []",
    ),
    _dispatcher("a stale token is accepted", "message.token != token or message.state", "message.state"),
    Mutant("no epoch is compared in a commit", ROW, "if epoch != self.epoch:", "if False:"),
    Mutant(
        "a batch is stored twice",
        ROW,
        "def store(self, epoch: int, changes: StateChanges) -> bool:",
        "def store(self, epoch: int, changes: StateChanges) -> bool:\n"
        "        return self.store_once(epoch, changes) and self.store_once(epoch, changes)\n\n"
        "    def store_once(self, epoch: int, changes: StateChanges) -> bool:",
        equivalent=True,
    ),
    _schedule(
        "an earlier message of a key that waits lets later ones pass",
        "            message = self._messages.get(key.waiting[0])\n"
        "            if message is not None and message.state is READY:",
        "            message = self._messages.get(key.waiting[0])\n"
        "            if message is not None and message.state is READY "
        "and message.not_before <= self.now:",
    ),
    Mutant("credit is not used up", TRACKED, "self.messages -= 1", "pass"),
    Mutant(
        "the floor jumps over a hole",
        SETTLED,
        "return offset - within + zero",
        "return offset - within + settled.bit_length()",
    ),
    _unsaved("a dead letter is not stored", "if message.settle_reason is not ACKED", "if False"),
    _dispatcher(
        "leases stay when a consumer leaves", "for offset in sorted(consumer.leases):", "for offset in ():"
    ),
    _dispatcher(
        "a failed message is never ready again",
        "        self._unsaved.failed[message.offset] = message\n        self.schedule.wait(message)",
        "        self._unsaved.failed[message.offset] = message",
    ),
    _dispatcher(
        "dispatching stops at the first that is not eligible",
        "                if consumer.queue and consumer.may_receive:",
        "                if message is not None and consumer.queue and consumer.may_receive:",
    ),
    _unsaved(
        "failures are forgotten when another takes over",
        "self.retries = dict(retries or {})",
        "self.retries = {}",
    ),
)
"""Those with which the design was tried. The one that is equivalent is so because all that is stored is absolute."""


OWN = (
    # consumers
    _consumers(
        "a paused consumer keeps its keys",
        "[each for each in consumers if not each.paused and not each.suspended]",
        "[each for each in consumers if not each.suspended]",
    ),
    _consumers(
        "a suspended consumer keeps its keys",
        "[each for each in consumers if not each.paused and not each.suspended]",
        "[each for each in consumers if not each.paused]",
    ),
    _consumers(
        "a suspended consumer never comes back",
        "            consumer.suspended = False\n            self._reassign()\n\n    def suspend",
        "            self._reassign()\n\n    def suspend",
    ),
    _consumers(
        "a consumer that comes back gets its keys only when somebody else comes or goes",
        "            consumer.suspended = False\n            self._reassign()\n\n    def suspend",
        "            consumer.suspended = False\n\n    def suspend",
    ),
    _dispatcher(
        "a consumer that starves keeps its keys",
        "silent += [each for each in self.consumers.by_name.values() if schedule.is_starving(each)]",
    ),
    _schedule(
        "a consumer that has nothing to take is taken to starve",
        "if not consumer.queue or consumer.paused or consumer.may_receive:",
        "if consumer.paused or consumer.may_receive:",
    ),
    _dispatcher(
        "a suspended consumer is served like the others",
        "(each.suspended, -each.consumer_credit.messages",
        "(False, -each.consumer_credit.messages",
    ),
    _dispatcher(
        "the consumer with least room is served first",
        "(each.suspended, -each.consumer_credit.messages",
        "(each.suspended, each.consumer_credit.messages",
    ),
    _dispatcher(
        "the one that came last is served first",
        "-each.consumer_credit.messages, each.number, each)",
        "-each.consumer_credit.messages, -each.number, each)",
    ),
    Mutant("bytes are not used up", TRACKED, "            self.bytes -= size", "            pass"),
    Mutant(
        "a consumer without room for bytes is served", TRACKED, "and consumer_credit.bytes > 0 and", "and"
    ),
    _dispatcher("one lease too many", "while self.leased < leases_max", "while self.leased <= leases_max"),
    _schedule("a queue survives its keys' moving away", "consumer.queue = []"),
    _schedule("a key that moves stays whose it was", "            key.owner = None\n", ""),
    _schedule(
        "keys that move wait for an event of their own",
        "            key.queued = -1\n            self.schedule_key(key)\n\n    # -- time",
        "            key.queued = -1\n\n    # -- time",
    ),
    # leaving and failing
    _dispatcher("who leaves in order is charged", "            if graceful:", "            if False:"),
    _dispatcher("who breaks off is not charged", "            if graceful:", "            if True:"),
    _dispatcher(
        "who broke off may still answer",
        "                self._fail(message, 0, CONNECTION_LOST)\n                message.token = 0",
        "                self._fail(message, 0, CONNECTION_LOST)",
    ),
    _dispatcher(
        "what was revoked may still be answered",
        "        self._end_lease(message)\n        message.token = 0\n",
        "        self._end_lease(message)\n",
    ),
    _dispatcher(
        "a lease ends twice",
        "        message.state = READY\n        self._deadlines",
        "        self._deadlines",
    ),
    _schedule("a key's leases are not counted", "len(key.leased) < self._window", "True"),
    _schedule(
        "a key is queued with a message that is not its first",
        "        key.queued = -1\n        if head.not_before > self.now:",
        "        if head.not_before > self.now:",
    ),
    _dispatcher("one attempt too many", "if message.attempts < config", "if message.attempts <= config"),
    _dispatcher(
        "what is blocked is tried again",
        "self._retry(message, NEVER)",
        "self._retry(message, self.schedule.now + 1)",
    ),
    _dispatcher(
        "what is dropped becomes a dead letter",
        "SettleReason.DROPPED if dropped else SettleReason.DEAD",
        "SettleReason.DEAD",
    ),
    _dispatcher(
        "what is let go keeps its failures",
        "message.attempts = message.not_before = 0",
        "message.not_before = 0",
    ),
    _dispatcher(
        "that it was let go is not stored",
        "        unsaved.forget_retry(offset)\n        if message.key is None",
        "        unsaved.failed.pop(offset, None)\n        unsaved.reasons.forget(offset)\n"
        "        if message.key is None",
    ),
    _dispatcher(
        "what is blocked and not tracked cannot be let go",
        "[*self._messages, *self._unsaved.retries] if offset",
        "[*self._messages] if offset",
    ),
    _dispatcher(
        "what was given back is passed by later ones of its key",
        "            self._release(message)\n            if message.key is not None:\n"
        "                self._revoke_after(message, message.key)",
        "            self._release(message)",
    ),
    Mutant("what was given back is not refunded", TRACKED, "        self.messages += 1\n", ""),
    # answers
    _dispatcher("a token of an earlier owner counts", "if epoch != self.epoch:", "if False:"),
    _dispatcher(
        "a late acknowledgement is refused",
        "or message.state is SETTLING:",
        "or message.state is not LEASED:",
    ),
    _dispatcher(
        "a cumulative acknowledgement takes later ones, too",
        "            if earlier < offset:",
        "            if True:",
    ),
    _dispatcher(
        "a cumulative acknowledgement takes one",
        "            if earlier < offset:",
        "            if False:",
    ),
    _dispatcher(
        "an extension changes nothing",
        "        message.deadline = self.schedule.now + by_ms\n        self._deadlines",
        "        self._deadlines",
    ),
    # the log
    _dispatcher(
        "a key that lags takes up what comes",
        "            if key.resume_from is not None:\n                return\n",
        "",
    ),
    _schedule("a key that lags is not recalled", "self.drained[key.hash] = key"),
    _dispatcher(
        "a key that lags forgets where it was",
        "                key.resume_from = max(end, resume[key.hash])",
        "                pass",
    ),
    _dispatcher(
        "what has left the log is waited for",
        "self._void_untracked(expected, offset)",
    ),
    _dispatcher("what has left the log at its end is waited for", "self._void_untracked(expected, end)"),
    _dispatcher(
        "what is settled is delivered again",
        "if not holes or offset not in self.settled:",
        "if True:",
    ),
    _dispatcher(
        "offsets without messages stay open",
        "            if offset > expected:\n                self._unsaved.void(expected, offset)",
        "            if offset > expected:\n                pass",
    ),
    _dispatcher(
        "the lease of what has left the log stays",
        "        if message.state is LEASED:\n            self._end_lease(message)\n        del",
        "        del",
    ),
    _dispatcher(
        "a key waits for what has left the log",
        "        self._unsaved.void(offset, offset + 1)\n        if message.key is not None:\n"
        "            self.schedule.schedule_key(message.key)",
        "        self._unsaved.void(offset, offset + 1)",
    ),
    _dispatcher(
        "the start of the log moves and nothing is settled",
        "self._unsaved.void(self.settled.floor, log_start)",
    ),
    _unsaved(
        "retries stay of what has left the log",
        "if start <= offset < end and offset in self.retries:",
        "if False:",
    ),
    _unsaved(
        "retries stay of what is settled",
        "forgotten += [message.offset for message in decided if message.attempts]",
    ),
    _unsaved(
        "reasons stay of what is settled",
        "                    self.reasons.forget(message.offset)",
        "                    pass",
    ),
    _unsaved(
        "reasons are not saved",
        "Retry(message.attempts, message.not_before, self.reasons.of(offset))",
        "Retry(message.attempts, message.not_before)",
    ),
    _unsaved(
        "a dead letter has no reasons",
        "return Dead(offset, message.attempts, is_dropped, self.reasons.of(offset))",
        "return Dead(offset, message.attempts, is_dropped)",
    ),
    _unsaved("reasons of what is let go stay", "        self.reasons.forget(offset)\n", ""),
    Mutant("reasons are not loaded", REASONS, "self._put(offset, retry.reasons)", "self._put(offset, ())"),
    Mutant("the first reasons are kept", REASONS, "[-limits.kept_max :]", "[: limits.kept_max]"),
    Mutant("one reason too many is kept", REASONS, "[-limits.kept_max :]", "[-limits.kept_max - 1 :]"),
    _dispatcher(
        "a timeout has no reason", "self._fail(message, None, ACK_TIMEOUT)", 'self._fail(message, None, "")'
    ),
    _unsaved("what is decided is stored as failed", "                if message.state is not SETTLING\n", ""),
    _unsaved(
        "what lies below the floor after a range is open",
        "self._voids[-1] = (self._voids[-1][0], end)",
        "self._voids[-1] = (start, end)",
    ),
    _dispatcher(
        "the first message of a key is not considered",
        "if key is None or not key.waiting:",
        "if key is None:",
    ),
    _dispatcher(
        "the next of a strict key waits for ever",
        "                key.settling -= 1\n                self.schedule.schedule_key(key)",
        "                key.settling -= 1",
    ),
    # time
    _schedule(
        "time stops at an alarm that nobody needs",
        "message.not_before != time:\n                continue",
        "message.not_before != time:\n                break",
    ),
    _schedule(
        "time comes a little late",
        "while self.due and self.due[0][0] <= self.now:",
        "while self.due and self.due[0][0] < self.now:",
    ),
    _schedule(
        "what is delayed is delivered at once", "        if head.not_before > self.now:", "        if False:"
    ),
    _dispatcher(
        "a lease runs out early",
        "or message.deadline > schedule.now:",
        "or message.deadline > schedule.now + 1_000:",
    ),
    Mutant("leases of the current bucket do not run out", TRACKED, "self._order[0] == due:", "False:"),
    Mutant("leases of past buckets do not run out", TRACKED, "self._order[0] < due:", "False:"),
)
"""Mistakes in what this dispatcher does beside."""


OF_SHARE_GROUPS = (
    _dispatcher("a rejected message is delivered again", "and not is_last:", "and True:"),
    _dispatcher(
        "a range of accepted messages keeps its leases", "            consumer.leases.discard(offset)\n", ""
    ),
    _dispatcher(
        "a range of accepted messages stays in flight",
        "            self.leased -= 1\n            consumer.acked",
        "            consumer.acked",
    ),
    _dispatcher(
        "an accepted message expires",
        "            message.state = SETTLING\n            message.settle_reason = ACKED\n",
        "            message.settle_reason = ACKED\n",
    ),
    _share_acks("offsets beyond the log count", "if last >= end_offset:", "if False:"),
    _share_acks("the end of the log counts", "if last >= end_offset:", "if last > end_offset:"),
    _share_acks(
        "any message may be acknowledged",
        "if last - first >= len(leases) or not leases.issuperset(range(first, last + 1)):",
        "if False:",
    ),
    _share_acks(
        "the last of a range is not looked at",
        "leases.issuperset(range(first, last + 1))",
        "leases.issuperset(range(first, last))",
    ),
    _share_acks(
        "settled messages are looked at", "        first = max(first, start)", "        first = max(first, 0)"
    ),
    _share_acks("what is settled is refused", "if last < start:", "if last < 0:"),
    _share_acks("renewing is always allowed", "and not renew_allowed:", "and False:"),
    _share_acks(
        "types are off by one below the start",
        "self.types[start - self.first :]",
        "self.types[: self.last - start + 1]",
    ),
    _share_acks("a release waits", "token, now, 0, RELEASED)", "token, now, None, RELEASED)"),
    _share_acks(
        "a gap is released",
        "dispatcher.void(offset)",
        "dispatcher.nack(offset, epoch, token, now, 0, RELEASED)",
    ),
    _share_acks("a member stays suspended", "    dispatcher.consumers.mark_alive(member)\n", ""),
)
"""Mistakes in what members of share groups say. `test_share_consumers.py` finds a renewal that is too short, and
`test_share_fetch.py` types that are taken for the first one: histories seldom get that far."""
IN_THE_CATALOG = (
    Mutant(
        "no epoch is compared in a commit",
        STORED,
        "AND partition = ? AND epoch = ? RETURNING epoch",
        "AND partition = ? AND ? > 0 RETURNING epoch",
    ),
    Mutant(
        "what was fenced is stored all the same",
        STORED,
        "_save_details(tx, [each for each, ok in zip(saves, held, strict=True) if ok])",
        "_save_details(tx, saves)",
    ),
    Mutant(
        "whoever takes a partition fences nobody",
        STORED,
        "DO UPDATE SET epoch = subscription_state.epoch + 1\n    RETURNING",
        "DO UPDATE SET epoch = subscription_state.epoch\n    RETURNING",
    ),
    Mutant(
        "anybody may take a partition",
        STORED,
        "if partitions.read(tx, topic_partition).owner != owner:",
        "if False:",
    ),
    Mutant(
        "retry counts are lost",
        STORED,
        "retries = {row[0]: _retry(*row[1:]) for row in tx.rows(RETRIES, state_key)}",
        "retries: dict[int, StoredRetry] = {}",
    ),
    Mutant(
        "reasons are lost",
        STORED,
        "return attempts, not_before, tuple(json.loads(reasons)) if reasons else ()",
        "return attempts, not_before, ()",
    ),
    Mutant("reasons are never renewed", STORED, ", reasons = excluded.reasons", ""),
    Mutant("too many retries are listed", STORED, "WHERE position <= ?", "WHERE position + 1 <= ?"),
    Mutant(
        "a reset forgets no retries",
        STORED,
        "            for statement in CLEAR:\n",
        "            for statement in CLEAR[:1]:\n",
    ),
    Mutant(
        "a batch is stored twice",
        STORED,
        "    _save_details(tx, [each",
        "    _save_details(tx, saves if all(held) else [])\n    _save_details(tx, [each",
        equivalent=True,
    ),
)
"""Mistakes in what is stored of a subscription; its contract finds them, not the histories."""


def play(histories: int) -> None:
    from tests.queues.test_model import HISTORIES, KINDS

    chosen = settings(
        HISTORIES, max_examples=histories, phases=[Phase.generate], derandomize=True, database=None,
        report_multiple_bugs=False,
    )  # fmt: skip
    for kind in KINDS:
        try:
            run_state_machine_as_test(kind, settings=chosen)
        except Exception as error:  # noqa: BLE001  # a mistake may show in whatever way
            print(f"{kind.__name__}: {type(error).__name__}: {error}".split("\n")[0])
            sys.exit(FOUND)


if __name__ == "__main__":
    play(int(sys.argv[1]))
