"""Everybody who writes and reads in a test with faults, what is done to brokers meanwhile, and the judgement."""

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
from tests.faults.processes import workload
from tests.faults.processes.checker import (
    LOST,
    OK,
    REFUSED,
    UNKNOWN,
    Attempt,
    Delivered,
    Seen,
    Value,
    check_epochs,
    check_key_order,
    check_log,
    check_queue,
    check_reader,
    check_sequential,
    log_of,
    percentile,
    rates,
    repeats,
    windows,
)
from tests.faults.processes.harness import LEASE_SECONDS, Brokers, Node, eventually

import millpond
from millpond.model.errors import MillpondError

TOPIC = "chaos"
SUBSCRIPTION = "work"
PARTITIONS = 6
PER_SECOND = 50.0
LARGE_BYTES = 17_000
"""More than rides in the catalog: these go through the store."""
PAUSE_SECONDS = 1.75 * LEASE_SECONDS
QUIET_SECONDS = 0.5
DRAIN_SECONDS_MAX = 120.0
LONG_SECONDS = float(os.environ.get("MILLPOND_CHAOS_SECONDS", "300"))
PROBE_SECONDS = 0.5
"""How long a probe waits for one answer."""
FAILOVER_SECONDS_MAX = 60.0
EXTENTS = """
    SELECT partition, base_offset, extents.epoch FROM extents JOIN topics ON topics.id = extents.topic_id
    WHERE topics.name = 'chaos'
"""
DECLARED_DEAD = "declared dead; rejoining the cluster"
REFUSED_COMMIT = "session fenced; broker stops writing"


class Clients:
    """Kafka's clients, the client library and a subscription, on one topic."""

    def __init__(self, brokers: Brokers, per_second: float = PER_SECOND) -> None:
        kafka, grpc = brokers.addresses("kafka"), brokers.addresses("grpc")
        self._brokers = brokers
        self.writers: list[workload.Writer] = [
            workload.KafkaWriter("kafka-1", kafka, TOPIC, PARTITIONS, per_second),
            workload.KafkaWriter("kafka-2", kafka, TOPIC, PARTITIONS, per_second / 2, LARGE_BYTES),
            workload.MillpondWriter("client-1", grpc[0], TOPIC, PARTITIONS, per_second),
            workload.MillpondWriter("client-2", grpc[-1], TOPIC, PARTITIONS, per_second / 2, LARGE_BYTES),
        ]
        self.group = [workload.KafkaReader(f"member-{n}", kafka, TOPIC, "readers") for n in range(2)]
        self.reader = workload.MillpondReader("reader", grpc[1 % len(grpc)], TOPIC)
        self.queue = [
            workload.QueueReader(f"subscriber-{n}", grpc, TOPIC, SUBSCRIPTION, "key_shared") for n in range(2)
        ]

    @property
    def all(self) -> list[workload.Client]:
        return [*self.writers, *self.group, self.reader, *self.queue]

    @property
    def attempts(self) -> list[Attempt]:
        return [attempt for writer in self.writers for attempt in list(writer.attempts)]

    @property
    def delivered(self) -> list[Delivered]:
        return [each for reader in self.queue for each in list(reader.delivered)]

    @property
    def read_by_group(self) -> list[Seen]:
        return [each for member in self.group for each in list(member.seen)]

    def check(self) -> None:
        for client in self.all:
            client.check()

    @contextmanager
    def running(self) -> Iterator[None]:
        for client in self.all:
            client.start()
        try:
            yield
        finally:
            for client in self.all:
                client.tell_to_stop()

    def drained(self) -> list[Seen]:
        """Writers stop, and readers go on until they have seen the whole log, which is returned."""
        for writer in self.writers:
            writer.tell_to_stop()
        for writer in self.writers:
            writer.stop()
        log = workload.read_everything(self._brokers.addresses("kafka"), TOPIC, PARTITIONS)
        wanted = {(each.partition, each.offset) for each in log}
        eventually(lambda: self._saw(wanted, self.read_by_group), "the group has seen all", DRAIN_SECONDS_MAX)
        eventually(lambda: self._saw(wanted, self.reader.seen), "the reader has seen all", DRAIN_SECONDS_MAX)
        eventually(self._is_settled, "the subscription has no backlog", DRAIN_SECONDS_MAX)
        for client in self.all:
            client.tell_to_stop()
        for client in self.all:
            client.stop()
        return log

    def _saw(self, wanted: set[tuple[int, int]], seen: Sequence[Seen]) -> bool:
        self.check()
        return wanted <= {(each.partition, each.offset) for each in list(seen)}

    def _is_settled(self) -> bool:
        self.check()
        with millpond.Admin(address=self._brokers.addresses("grpc")[0]) as admin:
            return admin.describe_subscription(TOPIC, SUBSCRIPTION).backlog == 0


@dataclass
class Nemesis:
    """What is done to brokers, and how soon others answered for those that were gone."""

    brokers: Brokers
    probes: list[Attempt] = field(default_factory=list)
    kills: list[list[float]] = field(default_factory=list)
    pauses: list[list[float]] = field(default_factory=list)
    drains: list[float] = field(default_factory=list)
    rejoins: list[float] = field(default_factory=list)
    strikes: list[tuple[float, str]] = field(default_factory=list)
    left_out: Node | None = None

    def kill(self, node: Node) -> None:
        owned = self.brokers.owned_by(node, TOPIC)
        self.kills.append(self.failover(owned, node.kill()))
        self.brokers.until_balanced()
        node.start()

    def kill_and_restart(self, node: Node) -> None:
        """At once: it takes the place of its dead self."""
        node.kill()
        node.start()

    def pause(self, node: Node) -> None:
        """For longer than its lease: it is declared dead, wakes up, is refused, and joins again."""
        owned = self.brokers.owned_by(node, TOPIC)
        lives = len(node.announcements())
        began = node.pause()
        self.pauses.append(self.failover(owned, began))
        time.sleep(max(0.0, PAUSE_SECONDS - (time.monotonic() - began)))
        node.resume()
        resumed = time.monotonic()
        node.until_rejoined(lives)
        self.rejoins.append(time.monotonic() - resumed)

    def drain(self, node: Node) -> None:
        self.drains.append(node.drain())
        self.brokers.until_balanced()
        node.start()

    def add(self, _: Node) -> None:
        self.brokers.make().start()

    def remove(self, _: Node) -> None:
        """The newest, if there are more than three."""
        if len(self.brokers.running) > 3:
            node = self.brokers.running[-1]
            self.drains.append(node.drain())
            self.brokers.nodes.remove(node)
            self.brokers.gone.append(node)

    def strike(self, fault: str, node: Node) -> None:
        strike: Callable[[Node], None] = getattr(self, fault)
        self.strikes.append((time.monotonic(), f"{fault} of broker {node.number}"))
        strike(node)
        self.brokers.until_balanced()

    def during(self, at: float) -> str:
        """What was being done then."""
        return next((what for began, what in reversed(self.strikes) if began <= at), "nothing")

    @contextmanager
    def leaving_out(self, node: Node) -> Iterator[None]:
        """Probes do not begin with this one."""
        self.left_out = node
        yield
        self.left_out = None

    def failover(self, partitions: set[int], since: float) -> list[float]:
        """By partition: from `since` to the first answer of whoever serves it then."""
        with ThreadPoolExecutor(max(1, len(partitions))) as pool:
            return [ended - since for ended in pool.map(self._first_answer, sorted(partitions))]

    def _first_answer(self, partition: int) -> float:
        """Over HTTP, with little patience; each time another value, since one that was not answered may be stored."""
        name = f"probe-{len(self.probes)}-{partition}"
        asked = [node for node in self.brokers.running if not node.is_paused and node is not self.left_out]
        addresses = [node.listeners["http"] for node in asked]
        with httpx.Client(timeout=PROBE_SECONDS, follow_redirects=True) as client:
            deadline = time.monotonic() + FAILOVER_SECONDS_MAX
            for number in itertools.takewhile(lambda _: time.monotonic() < deadline, itertools.count()):
                value = Value(name, partition, number)
                attempt = _probe(client, addresses[number % len(addresses)], value)
                self.probes.append(attempt)
                if attempt.acknowledged:
                    return attempt.ended
                time.sleep(0.02)
        raise AssertionError(f"nobody serves partition {partition}")


def _probe(client: httpx.Client, address: str, value: Value) -> Attempt:
    url = f"http://{address}/topics/{TOPIC}/produce/{value.partition}"
    began, offset = time.monotonic(), UNKNOWN
    try:
        answer = client.post(
            url, content=value.encode(), headers={"content-type": "application/octet-stream"}
        )
        if answer.status_code == httpx.codes.OK:
            offset = answer.json()["offset"]
    except httpx.HTTPError:
        pass
    return Attempt(value, began, time.monotonic(), offset != UNKNOWN, offset)


def start(brokers: Brokers, count: int = 3) -> None:
    brokers.start(count)
    with millpond.Admin(address=brokers.addresses("grpc")[0]) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
    brokers.until_balanced()


def judge(clients: Clients, nemesis: Nemesis, log: list[Seen]) -> None:
    """Fails if anything is wrong."""
    truth = log_of(log)
    verdict = (
        check_log([*clients.attempts, *nemesis.probes], truth)
        | check_reader(clients.read_by_group, truth)
        | check_sequential(clients.reader.seen, truth)
        | check_queue(clients.delivered, truth)
        | check_key_order(clients.delivered)
        | check_epochs(nemesis.brokers.rows(EXTENTS))
    )
    assert verdict.is_clean, str(verdict)
    sent = sum(writer.sent for writer in clients.writers)
    assert len(clients.attempts) == sent, "every message is answered, one way or the other"
    unanswered = [each for each in clients.attempts if not each.acknowledged]
    assert not unanswered, f"faults of seconds fail nobody who has minutes: {unanswered[:5]}"


def summary(clients: Clients, nemesis: Nemesis, seconds: float, name: str) -> list[str]:
    """What was judged, with its n."""
    attempts, group = clients.attempts, clients.read_by_group
    counts = Counter(each.answer for each in clients.delivered)
    answers = ", ".join(f"{each} {counts[each]}" for each in (OK, LOST, REFUSED))
    gaps = ", ".join(f"{kind} {_longest(attempts, kind, nemesis)}" for kind in ("kafka", "client"))
    figures = [
        f"{name}, {seconds:.0f} s: sent and acknowledged {len(attempts)} (and {len(nemesis.probes)} probes), lost 0, "
        f"duplicated 0, reordered 0, unseen 0; group read {len(group)} ({repeats(group)} again), reader "
        f"{len(clients.reader.seen)}, subscription by key {len(clients.delivered)} (acks {answers}; out of order 0)",
        f"{name}: acknowledged in a second p50 {percentile(rates(attempts), 0.5):.0f}, least {min(rates(attempts))}; "
        f"delivered again {_again(clients):.2%} to the subscription, {repeats(group) / len(group):.2%} to the group",
        f"{name}: {len(nemesis.kills)} kills, {len(nemesis.pauses)} pauses, {len(nemesis.drains)} drains (longest "
        f"{max(nemesis.drains, default=0.0):.2f} s); longest time without an acknowledgement on a partition: {gaps}",
    ]
    for fault, found in (("kill -9", nemesis.kills), ("SIGSTOP", nemesis.pauses)):
        times = [each for times in found for each in times]
        if times:
            figures.append(f"{name}: failover after {fault}, lease {LEASE_SECONDS:.0f} s: {spread_of(times)}")
    return figures


def _again(clients: Clients) -> float:
    """Which part of the subscription's deliveries was of messages that had been delivered."""
    return repeats(Seen(*each[:3]) for each in clients.delivered) / len(clients.delivered)


def _longest(attempts: list[Attempt], kind: str, nemesis: Nemesis) -> str:
    """As producers of a kind saw it, with what was being done then."""
    seconds, since, _ = windows(each for each in attempts if each.value.producer.startswith(kind))[0]
    return f"{seconds:.2f} s ({nemesis.during(since + seconds / 2)})"


def zombies(brokers: Brokers) -> str:
    """How many came back after they were declared dead, and how much of theirs was refused."""
    return (
        f"{brokers.said(DECLARED_DEAD)} zombies, commits attempted and rejected "
        f"{brokers.said(REFUSED_COMMIT)}, appends in them {brokers.count('millpond_log_fenced_total'):.0f}"
    )


def spread_of(seconds: Sequence[float]) -> str:
    return (
        f"p50 {percentile(seconds, 0.5):.2f} s, p99 {percentile(seconds, 0.99):.2f} s, "
        f"worst {max(seconds):.2f} s, n = {len(seconds)}"
    )


def retriable(error: BaseException) -> bool:
    return isinstance(error, MillpondError) and error.retriable
