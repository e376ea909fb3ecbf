"""The stage on which stories of queues are played: a log, a catalog and consumers by name; time passes when told.

After every command the shell does its turn: it reads on, delivers and tells who must forget what. A consumer
remembers the latest delivery of each offset, as real ones do; `#2` names an earlier one by its token, `#2@1` one of
an earlier epoch.

    queue [mode=] [window=] [attempts=] [exhausted=] [timeout=] [backoff=] [leases=] [per_key=]
    publish KEY… ; `-` has no key, `!` is no message, `KEY@5s` is not to be delivered before 5 s from now
    attach NAME [credit=] [bytes=]      grant NAME credit= [bytes=]    pause NAME    resume NAME    hear NAME
    detach NAME | break NAME            ack OFFSET[#TOKEN]…            ack OFFSET through
    nack OFFSET[#TOKEN] [delay=] [reason=]              extend OFFSET[#TOKEN] by=      unblock [OFFSET]
    commit | commit refused | commit unheard            crash          old ack OFFSET | old commit
    pass 3s                             expire-log OFFSET              compact OFFSET       undeliver OFFSET
    show                                why                                                 failing
"""

from unittest import mock

from tests.queues.model import Log
from tests.queues.row import Row

from millpond.model.subscriptions import config_from
from millpond.model.units import format_duration, parse_duration_ms
from millpond.queues import schedule
from millpond.queues.dispatcher import Dispatcher
from millpond.queues.dispatcher_results import QueueDelivery
from millpond.queues.dispatcher_state import NEVER, LogEntry, MessageState
from millpond.queues.failure_reasons import ACK_TIMEOUT, CONNECTION_LOST, NO_REASON
from millpond.queues.key_assignment import key_hash
from millpond.queues.settled_offsets import SettledOffsets

PARTITION = 0
OPTIONS = {
    "mode": "mode",
    "window": "key_window",
    "attempts": "attempts_max",
    "exhausted": "on_exhausted",
    "timeout": "ack_timeout_ms",
    "backoff": "backoff_ms",
    "leases": "leases_max",
}


class QueueStage:
    def __init__(self):
        self.now = 0
        self.log = Log()
        self.row = Row()
        self.keys = {}
        self.per_key = 1_000
        self.old = None
        self.config = config_from({"mode": "key_shared", "attempts_max": 3})
        self._begin()

    def perform(self, command):
        verb, *words = command.split()
        flags = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        with mock.patch.object(schedule, "PER_KEY_MAX", self.per_key):
            said = getattr(self, f"do_{verb.replace('-', '_')}")(flags, options)
            return [*said, *self._turn()] or ["nothing"]

    # -- commands ---------------------------------------------------------------------------------------------

    def do_queue(self, _, options):
        self.per_key = int(options.pop("per_key", self.per_key))
        self.config = config_from({OPTIONS[name]: value for name, value in options.items()}, self.config)
        self._begin()
        return []

    def do_publish(self, flags, _):
        first = self.log.end
        for word in flags:
            key, _, delay = word.partition("@")
            not_before = self.now + parse_duration_ms(delay) if delay else 0
            entry = LogEntry(self.log.end, self._hash(key), 10, not_before)
            self.keys[self.log.end] = key
            self.log.entries.append(None if key == "!" else entry)
        return [f"offsets {first} to {self.log.end - 1}"] if len(flags) > 1 else [f"offset {first}"]

    def do_attach(self, flags, options):
        self.machine.consumers.attach(flags[0])
        return self.do_grant(flags, options) if options else []

    def do_grant(self, flags, options):
        size = int(options["bytes"]) if "bytes" in options else None
        self.machine.consumers.grant(flags[0], int(options.get("credit", 0)), size)
        return []

    def do_hear(self, flags, _):
        self.machine.consumers.mark_alive(flags[0])
        return []

    def do_pause(self, flags, _):
        self.machine.consumers.pause(flags[0])
        return []

    def do_resume(self, flags, _):
        self.machine.consumers.pause(flags[0], paused=False)
        return []

    def do_detach(self, flags, _):
        self.machine.detach(flags[0], self.now, graceful=True)
        return []

    def do_break(self, flags, _):
        self.machine.detach(flags[0], self.now, graceful=False)
        return []

    def do_ack(self, flags, _):
        if flags[-1] == "through":
            return [self.machine.ack_through(*self._answer(flags[0])).value]
        return [self.machine.ack(*self._answer(flag)).value for flag in flags]

    def do_nack(self, flags, options):
        delay_ms = parse_duration_ms(options["delay"]) if "delay" in options else None
        reason = options.get("reason", "").replace("_", " ")
        return [self.machine.nack(*self._answer(flags[0]), self.now, delay_ms, reason).value]

    def do_extend(self, flags, options):
        by_ms = parse_duration_ms(options["by"])
        return [self.machine.extend(*self._answer(flags[0]), self.now, by_ms).value]

    def do_unblock(self, flags, _):
        return [f"{self.machine.unblock(int(flags[0]) if flags else None)} unblocked"]

    def do_undeliver(self, flags, _):
        offset = int(flags[0])
        self.machine.restore(self.latest[offset])
        return []

    def do_commit(self, flags, _):
        changes = self.machine.begin_commit()
        if changes is None:
            return ["nothing to store"]
        if flags != ["refused"]:
            self.row.store(self.machine.epoch, changes)
        if not flags:
            self.machine.committed()
        return [self._stored()] if flags != ["refused"] else ["refused"]

    def do_crash(self, *_):
        self.old = self.machine
        self._begin()
        return [f"epoch {self.machine.epoch}: {self._stored()}"]

    def do_old(self, flags, _):
        """The former owner goes on, and does not know."""
        if flags[0] == "ack":
            token = self.told[int(flags[1]), self.old.epoch]
            return [self.old.ack(int(flags[1]), self.old.epoch, token).value]
        stored = self.row.store(self.old.epoch, self.old.begin_commit())
        return [f"fenced; still {self._stored()}" if not stored else "stored"]

    def do_pass(self, flags, _):
        end = self.now + parse_duration_ms(flags[0])
        said = []
        while (due := self.machine.next_event()) is not None and due <= end:
            self.now = max(self.now, due)
            self.machine.expire(self.now)
            said += [f"at {format_duration(self.now)} {line}" for line in self._turn()]
            assert self.machine.next_event() != due, "time does not pass"
        self.now = end
        return said

    def do_expire_log(self, flags, _):
        self.log.start = int(flags[0])
        self.machine.forget_below(self.log.start)
        return []

    def do_compact(self, flags, _):
        """Whether it is tracked or not: the dispatcher is told only of what it asks for."""
        offset = int(flags[0])
        self.log.entries[offset] = None
        if offset in self.machine._messages:
            self.machine.void(offset)
        return []

    def do_show(self, *_):
        messages = [self._say_message(each) for each in self.machine._messages.values()]
        lagging = [
            f"{self._name(key.hash)} from {key.resume_from}" for key in self.machine.schedule.lagging.values()
        ]
        return [*messages, *(f"the log is read again for {each}" for each in lagging)] or ["nothing is open"]

    def do_why(self, *_):
        statuses = self.machine.schedule.waiting_keys(10)
        return [f"{self._name(each.key)} at {each.offset}: {each.why} {each.consumer}" for each in statuses]

    def do_failing(self, *_):
        found = self.machine.failing(10)
        return [
            f"{each.offset} failed {each.attempts} times, {each.why}: {'; '.join(each.reasons) or 'unknown'}"
            for each in found
        ] or ["none fails"]

    # -- inside -----------------------------------------------------------------------------------------------

    def _begin(self):
        self.machine = Dispatcher(
            self.config,
            epoch=self.row.take(),
            floor=self.row.floor,
            chunks=dict(self.row.chunks),
            retries=dict(self.row.retries),
            log_start=self.log.start,
        )
        self.latest = {}
        self.told = getattr(self, "told", {})

    def _hash(self, key):
        if self.config.ordered_by_partition:
            return PARTITION
        return None if key == "-" or self.config.mode == "shared" else key_hash(key.encode())

    def _name(self, hashed):
        return next((key for key in self.keys.values() if key_hash(key.encode()) == hashed), "the partition")

    def _answer(self, word):
        word, _, epoch = word.partition("@")
        offset, _, token = word.partition("#")
        latest = self.latest.get(int(offset), QueueDelivery(0, "", 0, 0)).token
        return int(offset), int(epoch or self.machine.epoch), int(token or latest)

    def _turn(self):
        """What the shell does whenever something has happened."""
        machine, said = self.machine, []
        machine.expire(self.now)
        while True:
            while (start := machine.schedule.retrack_from) is not None:
                machine.retrack(self.log.between(start, machine.frontier), start, machine.frontier)
            deliveries = machine.dispatch(self.now)
            said += [self._say_delivery(each) for each in deliveries]
            if not machine.wants_more or machine.frontier >= self.log.end:
                break
            machine.index(self.log.between(machine.frontier, self.log.end), self.log.end)
        revoked, machine.revoked = machine.revoked, []
        forget = [f"{each.consumer} forgets {each.offset}#{each.token}" for each in revoked]
        return [*forget, *said]

    def _say_delivery(self, delivery):
        self.latest[delivery.offset] = delivery
        self.told[delivery.offset, self.machine.epoch] = delivery.token
        failed = f", failed {delivery.attempts}" if delivery.attempts else ""
        key = self.keys[delivery.offset].replace("-", "no key")
        return f"{delivery.consumer} gets {delivery.offset} ({key}{failed}) #{delivery.token}"

    def _say_message(self, message):
        where = {
            MessageState.READY: "ready",
            MessageState.SETTLING: f"settling ({message.settle_reason.name.lower()})",
        }
        said = where.get(message.state, f"leased to {message.consumer.name if message.consumer else None}")
        if message.state is MessageState.READY and message.not_before > self.now:
            wait = format_duration(message.not_before - self.now)
            said = "blocked" if message.not_before >= NEVER else f"delayed for {wait}"
        failed = f", failed {message.attempts}" if message.attempts else ""
        return f"{message.offset} ({self.keys[message.offset]}): {said}{failed}"

    def _stored(self):
        settled = SettledOffsets(self.row.floor, self.row.chunks)
        above = [str(offset) for offset in range(self.row.floor, self.log.end) if offset in settled]
        parts = [f"floor {self.row.floor}", *(["settled " + ",".join(above)] if above else [])]
        parts += [f"{offset} failed {retry.attempts}" for offset, retry in sorted(self.row.retries.items())]
        parts += [
            f"{dead.offset} {'dropped' if dead.dropped else 'is a dead letter'}{_reasons_of(dead)}"
            for dead in self.row.dead.values()
        ]
        return ", ".join(parts)


def _reasons_of(dead):
    """Only if a consumer gave one: other stories are not about reasons."""
    said = [each for each in dead.reasons if each not in (NO_REASON, ACK_TIMEOUT, CONNECTION_LOST)]
    return f": {'; '.join(dead.reasons)}" if said else ""
