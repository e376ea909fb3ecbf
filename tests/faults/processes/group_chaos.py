"""A group whose members come, go, pause and die while brokers do: starts and ends member processes and broker
processes, and reads what the members log."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.processes import workload
from tests.faults.processes.group_judge import MemberLog, Ownership, owned_twice
from tests.faults.processes.harness import LEASE_SECONDS, Brokers, Node, eventually

import millpond

TOPIC, GROUP = "work", "workers"
PARTITIONS = 30
ALL = sorted(f"{TOPIC}-{number}" for number in range(PARTITIONS))
MEMBERS = 20
END_SECONDS_MAX = 90.0
SETTLE_SECONDS_MAX = 120.0
READ_SECONDS_MAX = 120.0
PER_SECOND = 100.0
BROKERS = 3
SETTINGS = {
    "group_consumer_heartbeat_interval": "500ms",
    "group_consumer_heartbeat_interval_min": "500ms",
    "group_consumer_session_timeout": "6s",
    "group_consumer_session_timeout_min": "6s",
}
"""Members of the consumer protocol learn these from the broker. They are those of classic members here."""


class MemberProcess:
    """One life of a member: its process, and what it has logged so far."""

    def __init__(self, number: int, name: str, folder: Path, wanted: Mapping[str, object]) -> None:
        self.name = name
        """Another life of a static member has the same."""
        self.kind = wanted["kind"]
        self.log = MemberLog(f"{name}.{number}")
        self.is_paused = False
        self.is_running = True
        self._path = folder / f"{self.log.member}.log"
        self._parsed_to = 0
        command = [sys.executable, "-m", "tests.faults.processes.group_member"]
        command.append(json.dumps({**wanted, "name": name}))
        with self._path.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=out, stderr=errors)

    @property
    def _errors(self) -> Path:
        return self._path.with_suffix(".err")

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait(END_SECONDS_MAX)
        self._ended()

    def leave(self) -> None:
        self.tell_to_leave()
        self.wait()

    def tell_to_leave(self) -> None:
        self._signal(signal.SIGTERM)

    def wait(self) -> None:
        code = self._process.wait(END_SECONDS_MAX)
        self._ended()
        assert code == 0, f"{self.log.member} ended with {code}: {self._errors.read_text()}"

    def check(self) -> None:
        code = self._process.poll()
        assert code is None, f"{self.log.member} ended with {code}: {self._errors.read_text()}"

    def look(self) -> None:
        """Reads what it has logged since the last look, whole lines only."""
        with self._path.open("rb") as file:
            file.seek(self._parsed_to)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._parsed_to += len(whole)
        for line in whole.splitlines():
            self.log.add(json.loads(line))

    def close(self) -> None:
        if self.is_running:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def _ended(self) -> None:
        self.look()
        self.log.end(time.monotonic())
        self.is_running = False


@dataclass
class MemberChaos:
    """Changes the members of the group, and measures how long it takes until each partition has an owner again."""

    folder: Path
    addresses: Mapping[str, list[str]]
    """Of the brokers, by interface."""
    draw: random.Random
    kinds: tuple[str, ...]
    assignor: str
    """Of classic members, which must agree."""
    lives: list[MemberProcess] = field(default_factory=list)
    rebalances: list[float] = field(default_factory=list)
    """Seconds until the group was settled again after members had joined or left."""
    recoveries: list[float] = field(default_factory=list)
    """The same after members had died or paused, which shows when their sessions end, or brokers were struck."""
    has_silent_change: bool = False
    changes: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def running(self) -> list[MemberProcess]:
        return [life for life in self.lives if life.is_running]

    @property
    def awake(self) -> list[MemberProcess]:
        return [life for life in self.running if not life.is_paused]

    def add(self, kind: str | None = None, name: str | None = None) -> None:
        """Unless a kind is named, one of those that there are fewest of."""
        number = next(self._numbers)
        running = Counter(member.kind for member in self.running)
        kind = kind or min(self.kinds, key=lambda each: running[each])
        wanted = {"kind": kind, "topic": TOPIC, "group": GROUP, "assignor": self.assignor, **self.addresses}
        self.lives.append(MemberProcess(number, name or f"{kind}-{number}", self.folder, wanted))

    def change(self) -> None:
        """One random change. A static member that goes comes back under its name."""
        if len(self.running) < MEMBERS // 2 or (len(self.running) < MEMBERS and self.draw.random() < 0.5):
            self.changes["joined"] += 1
            self.add()
            return
        member = self.draw.choice(self.awake)
        member.look()
        kinds_of_change = ("died", "left", "left", "paused") if member.log.is_started else ("died",)
        change = self.draw.choice(kinds_of_change)
        self.changes[change] += 1
        self.has_silent_change |= change != "left"
        if change == "paused":
            member.pause()
            return
        member.kill() if change == "died" else member.leave()
        if member.kind == "static":
            self.add("static", member.name)

    def resume(self, share: float = 1.0) -> None:
        """About this share of those that are paused."""
        for member in self.running:
            if member.is_paused and self.draw.random() < share:
                member.resume()

    def settle(self) -> None:
        began = time.monotonic()
        eventually(self.is_settled, "each partition has one owner, each member some", SETTLE_SECONDS_MAX)
        found = self.recoveries if self.has_silent_change else self.rebalances
        found.append(time.monotonic() - began)
        self.has_silent_change = False

    def is_settled(self) -> bool:
        """Each partition has one owner, and each member has some; members that are paused do not count."""
        self.check()
        owned = [member.log.owned for member in self.awake]
        return all(owned) and sorted(itertools.chain(*owned)) == ALL

    def check(self) -> None:
        for member in self.running:
            member.check()
            member.look()

    @contextmanager
    def members(self, count: int = MEMBERS) -> Iterator[None]:
        try:
            for _ in range(count):
                self.add()
            self.settle()
            yield
            self.resume()
            for member in self.running:
                member.tell_to_leave()
            for member in self.running:
                member.wait()
        finally:
            for member in self.running:
                member.close()

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """Whether every offset below these ends, by partition, was read by some member."""
        return not self.unread(ends)

    def unread(self, ends: Mapping[int, int]) -> set[tuple[str, int]]:
        self.check()
        left = {(f"{TOPIC}-{partition}", offset) for partition, end in ends.items() for offset in range(end)}
        for life in self.lives:
            left -= life.log.read
        return left

    def ownerships(self) -> list[Ownership]:
        return [each for life in self.lives for each in life.log.ownerships()]


@contextmanager
def working_group(
    brokers: Brokers, members: MemberChaos, count: int = MEMBERS
) -> Iterator[workload.KafkaWriter]:
    """Members that read what a writer sends. In the end they have read every message, and have owned no partition twice
    at one time."""
    writer = workload.KafkaWriter("writer", brokers.addresses("kafka"), TOPIC, PARTITIONS, PER_SECOND)
    writer.start()
    with members.members(count):
        yield writer
        members.resume()
        members.settle()
        writer.stop()
        ends = _ends(brokers, writer.sent)
        eventually(lambda: members.has_read(ends), "every message was read", READ_SECONDS_MAX)
    twice = owned_twice(members.ownerships())
    assert not twice, f"{len(twice)} partitions were owned twice, such as {twice[:3]}"


def start_brokers(brokers: Brokers) -> dict[str, list[str]]:
    """With the topic of the group. Returns their addresses by interface."""
    brokers.settings |= SETTINGS
    brokers.start(BROKERS)
    with millpond.Admin(address=brokers.addresses("grpc")[0]) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
    brokers.until_balanced()
    return {interface: brokers.addresses(interface) for interface in ("kafka", "grpc")}


def _ends(brokers: Brokers, sent: int) -> dict[int, int]:
    """The end of each partition, when all messages are in the log."""
    seen = workload.read_everything(brokers.addresses("kafka"), TOPIC, PARTITIONS)
    assert len(seen) == sent
    return Counter(each.partition for each in seen)


class BrokerChaos:
    """One broker after another is killed, paused or restarted: its groups move, or come back with it."""

    def __init__(self, brokers: Brokers, draw: random.Random) -> None:
        self._brokers = brokers
        self._draw = draw
        self.strikes: Counter[str] = Counter()

    def strike(self) -> None:
        fault = self._draw.choice([self.kill, self.kill_and_restart, self.drain, self.pause])
        self.strikes[fault.__name__] += 1
        fault(self._draw.choice(self._brokers.running))

    def kill(self, node: Node) -> None:
        """Another broker takes over before it returns."""
        node.kill()
        self._brokers.until_balanced()
        node.start()

    def kill_and_restart(self, node: Node) -> None:
        node.kill()
        node.start()

    def drain(self, node: Node) -> None:
        node.drain()
        node.start()

    def pause(self, node: Node) -> None:
        """For longer than its lease: when it wakes up, others have its groups."""
        lives = len(node.announcements())
        node.pause()
        time.sleep(1.75 * LEASE_SECONDS)
        node.resume()
        node.until_rejoined(lives)
