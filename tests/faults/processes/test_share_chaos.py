"""A share group over three brokers, whose members die, pause and leave while brokers are killed, restarted and
drained: every message is accepted, none comes again after that, releases are counted, and keys keep their order if the
group says so.

librdkafka's share consumers, and one of Kafka's Java client if it is installed (`python -m peers install kafka`).
"""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from peers.kafka import jars
from tests.faults.processes import workload
from tests.faults.processes.group_chaos import BrokerChaos
from tests.faults.processes.harness import Brokers, eventually
from tests.faults.processes.share_judge import ShareHistory, history

import millpond
from millpond.model.share_groups import subscription_name
from peers import Unavailable, programs

TOPIC, GROUP = "work", "sharers"
PARTITIONS, BROKERS, MEMBERS = 12, 3, 6
PER_SECOND = 60.0
LOCK_MS = 4_000
ROUNDS = 6
LONG_SECONDS = float(os.environ.get("MILLPOND_CHAOS_SECONDS", "180"))
STRIKE_EVERY = 2
PAUSE_SECONDS = 1.5 * LOCK_MS / 1000
SETTLE_SECONDS_MAX = 180.0
END_SECONDS_MAX = 60.0
SETTINGS = {
    "group_share_heartbeat_interval": "500ms",
    "group_share_heartbeat_interval_min": "500ms",
    "group_share_session_timeout": "6s",
    "group_share_session_timeout_min": "6s",
    "group_share_record_lock_duration_min": "1s",
}
CONFIGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.delivery.count.limit": "10",
}
ORDERED = {"millpond.share.key.order": "true"}
key_order = pytest.mark.parametrize("is_ordered", [True, False], ids=["key order", "any order"])


class Strikes(BrokerChaos):
    """Without pauses: a member may read a response of a paused broker long after others have settled what is in it."""

    def strike(self) -> None:
        fault = self._draw.choice([self.kill, self.kill_and_restart, self.drain])
        self.strikes[fault.__name__] += 1
        fault(self._draw.choice(self._brokers.running))


class Crew:
    """The members: those that live, and the logs of all that ever did."""

    def __init__(self, folder: Path, kafka: list[str], draw: random.Random) -> None:
        self.changes: Counter[str] = Counter()
        self._folder, self._kafka, self._draw = folder, kafka, draw
        self._living: list[subprocess.Popen[bytes]] = []
        self._java: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        self._logs: list[Path] = []

    def join(self, command: list[str] | None = None) -> subprocess.Popen[bytes]:
        path = self._folder / f"member-{next(self._numbers)}.log"
        wanted = {
            "kafka": self._kafka,
            "topic": TOPIC,
            "group": GROUP,
            "seed": self._draw.randrange(2**32),
        }
        command = command or [sys.executable, "-m", "tests.faults.processes.share_member"]
        with path.open("wb") as out, path.with_suffix(".err").open("wb") as errors:
            process = subprocess.Popen([*command, json.dumps(wanted)], stdout=out, stderr=errors)
        self._logs.append(path)
        if command[0] == sys.executable:
            self._living.append(process)
        return process

    def join_java(self) -> bool:
        """Whether it is installed. It stays for the whole test."""
        try:
            jars()
            program = programs.java_share_member()
        except Unavailable as reason:
            print(f"without Kafka's Java client: {reason}")
            return False
        self._java = self.join(program.command)
        return True

    def change(self) -> None:
        """One random change, and others for those that are gone."""
        self.check()
        fate = self._draw.choice(("died", "died", "left", "paused"))
        self.changes[fate] += 1
        member = self._draw.choice(self._living)
        if fate == "paused":
            os.kill(member.pid, signal.SIGSTOP)
            time.sleep(PAUSE_SECONDS)
            os.kill(member.pid, signal.SIGCONT)
            return
        self._end(member, signal.SIGKILL if fate == "died" else signal.SIGTERM)
        self.join()

    def check(self) -> None:
        for each in self._living:
            assert each.poll() is None, f"a member ended with {each.returncode}: {self._errors()}"

    def leave(self) -> None:
        """All of them, in order."""
        for member in list(self._living):
            self._end(member, signal.SIGTERM)
        if self._java is not None:
            self._java.terminate()
            self._java.wait(END_SECONDS_MAX)
            self._java = None

    def close(self) -> None:
        for each in (*self._living, *((self._java,) if self._java is not None else ())):
            each.kill()
            each.wait()

    def history(self) -> ShareHistory:
        return history((path.stem, _lines(path)) for path in self._logs)

    def lives(self) -> int:
        return len(self._logs)

    def _end(self, member: subprocess.Popen[bytes], how: signal.Signals) -> None:
        self._living.remove(member)
        member.send_signal(how)
        code = member.wait(END_SECONDS_MAX)
        assert code in (0, -signal.SIGKILL), f"a member ended with {code}: {self._errors()}"

    def _errors(self) -> str:
        return "\n".join(path.with_suffix(".err").read_text()[-500:] for path in self._logs)


def _lines(path: Path) -> list[dict[str, object]]:
    """Whole lines: a member may have died while it wrote one."""
    return [
        json.loads(line)
        for line in path.read_text().splitlines(keepends=True)
        if line.startswith("{") and line.endswith("}\n")
    ]


@key_order
def test_every_message_is_settled_once_while_members_and_brokers_come_and_go(
    brokers: Brokers, tmp_path: Path, figures: list[str], is_ordered: bool
) -> None:
    _run(brokers, tmp_path, figures, "share chaos", ROUNDS, seed=11, is_ordered=is_ordered)


@key_order
@pytest.mark.long
def test_every_message_is_settled_once_for_minutes(
    brokers: Brokers, tmp_path: Path, figures: list[str], is_ordered: bool
) -> None:
    """MILLPOND_CHAOS_SEED repeats the draws of a run."""
    seed = int(os.environ.get("MILLPOND_CHAOS_SEED") or random.randrange(2**32))
    _run(brokers, tmp_path, figures, "share chaos, long", int(LONG_SECONDS / 3), seed, is_ordered=is_ordered)


def _run(
    brokers: Brokers, folder: Path, figures: list[str], name: str, rounds: int, seed: int, *, is_ordered: bool
) -> None:
    draw = random.Random(seed)
    name += ", key order" if is_ordered else ", any order"
    print(f"{name}: seed {seed}")
    _start(brokers, CONFIGS | (ORDERED if is_ordered else {}))
    kafka = brokers.addresses("kafka")
    crew, strikes = Crew(folder, kafka, draw), Strikes(brokers, draw)
    writer = workload.KafkaWriter("writer", kafka, TOPIC, PARTITIONS, PER_SECOND)
    began = time.monotonic()
    with ExitStack() as stack:
        stack.callback(crew.close)
        has_java = crew.join_java()
        for _ in range(MEMBERS):
            crew.join()
        writer.start()
        for number in range(1, rounds + 1):
            crew.change()
            if number % STRIKE_EVERY == 0:
                strikes.strike()
        writer.stop()
        eventually(lambda: _backlog(brokers) == 0, "every message is settled", SETTLE_SECONDS_MAX)
        crew.leave()
    seconds = time.monotonic() - began
    seen = workload.read_everything(brokers.addresses("kafka"), TOPIC, PARTITIONS)
    ends = Counter(each.partition for each in seen)
    found = crew.history()
    assert not found.lost(ends)
    assert not found.delivered_again()
    assert not found.accepted_twice
    assert not found.counted_too_low()
    assert not is_ordered or not found.out_of_order()
    figures += _figures(f"{name}, {seconds:.0f} s, seed {seed}", crew, strikes, found, has_java=has_java)


def _figures(name: str, crew: Crew, strikes: Strikes, found: ShareHistory, *, has_java: bool) -> list[str]:
    changes = ", ".join(f"{count} {change}" for change, count in sorted(crew.changes.items()))
    struck = ", ".join(f"{count} {strike}" for strike, count in strikes.strikes.items())
    java = "one of Java" if has_java else "none of Java"
    return [
        f"{name}: {MEMBERS} members of librdkafka and {java}, {crew.lives()} lives ({changes}) over {BROKERS} brokers "
        f"({struck}); {len(found.keys)} messages of {len(set(found.keys.values()))} keys, lost 0, delivered again "
        f"after they were accepted 0, counted too low 0; not in the order of their keys {len(found.out_of_order())}",
        f"{name}: {found.delivery_count()} deliveries, {len(found.released)} releases confirmed, {found.unseen()} "
        f"deliveries that no member saw; {len(found.accepted)} acceptances confirmed; refusals "
        f"{dict(Counter(found.refusals))}",
    ]


def _start(brokers: Brokers, configs: dict[str, str]) -> None:
    brokers.settings |= SETTINGS
    brokers.start(BROKERS)
    with millpond.Admin(address=brokers.addresses("grpc")[0]) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
    brokers.until_balanced()
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": ",".join(brokers.addresses("kafka"))})
    admin.incremental_alter_configs([resource])[resource].result()


def _backlog(brokers: Brokers) -> int | None:
    """None while no broker can tell."""
    try:
        with millpond.Admin(address=brokers.addresses("grpc")[0], timeout=10) as admin:
            return admin.describe_subscription(TOPIC, subscription_name(GROUP)).backlog
    except millpond.MillpondError:
        return None
