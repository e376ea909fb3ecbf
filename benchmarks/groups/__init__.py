"""Part `groups`: how long a new consumer group waits for its first message, and how fifty members that start
together affect it: with the default `group_initial_rebalance_delay`, and with 0 and 3 s, which are Kafka's
two defaults. And how long a rebalance takes with the classic and the consumer protocol, beside Apache Kafka.

And how many messages a second a member of a share group receives and accepts, beside Apache Kafka.

Real clients (aiokafka and librdkafka) run in one process, the broker in another, all on the same cores.
"""

import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.engine.setup import folder
from benchmarks.queues.broker import process
from benchmarks.report import Report
from millpond.groups import GroupLimits
from peers import Unavailable, kafka

ROUNDS, QUICK_ROUNDS, REBALANCE_ROUNDS = 5, 1, 3
MEMBERS = 50
DELAYS_MS = (GroupLimits().initial_rebalance_delay_ms, 0, 3_000)
CLIENTS = ("aiokafka", "librdkafka")

PROTOCOLS = ("classic", "consumer")
REBALANCED_PARTITIONS = 500
WARM_UP_ROUNDS = 1

SHARE_ROUNDS = 3
SHARE_MESSAGES = {100: 400_000, 1000: 200_000}
"""By the size of a message."""
SHARE_MESSAGES_QUICK = 50_000
SHARE_PARTITIONS = (1, 16)

Figures = dict[str, float]


def run(*, quick: bool = False, only: str | None = None) -> None:
    """Writes results/groups.md, unless `only` or `quick` is set."""
    report = Report("Consumer groups", "make bench PART=groups" + (" (quick)" if quick else ""))
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with folder("disk") as path:
        if only in (None, "first"):
            _first_message(report, path / "first", rounds)
        if only in (None, "many"):
            _many_members(report, path / "many", rounds)
        if only in (None, "rebalance"):
            _rebalances(report, path / "rebalance", QUICK_ROUNDS if quick else REBALANCE_ROUNDS)
        if only in (None, "shares"):
            _shares(report, path / "shares", quick=quick)
    if only in (None, "virtual"):
        _in_virtual_time(report)
    if only is None and not quick:
        report.write("groups")


def _first_message(report: Report, path: Path, rounds: int) -> None:
    report.section(
        "One member, from its start to its first message",
        f"A new group on a topic with one message. Median and slowest of {rounds} rounds, in turns.",
    )
    rows = [
        (client, f"{delay_ms} ms", *_shown([each["first_s"] for each in found]))
        for client, delay_ms, found in _all(path, rounds, members=1)
    ]
    report.table(("client", "delay", "first message, s", "slowest, s"), rows)


def _many_members(report: Report, path: Path, rounds: int) -> None:
    report.section(
        f"{MEMBERS} members that are started at once",
        f"A new group on a topic with {MEMBERS} partitions, until each member has one: how many generations that took, "
        f"and how long. Median and slowest of {rounds} rounds, in turns.",
    )
    rows = [
        (
            client,
            f"{delay_ms} ms",
            f"{statistics.median(each['generations'] for each in found):.0f}",
            f"{max(each['generations'] for each in found):.0f}",
            *_shown([each["all_s"] for each in found]),
        )
        for client, delay_ms, found in _all(path, rounds, members=MEMBERS)
    ]
    report.table(("client", "delay", "generations", "most", "all assigned, s", "slowest, s"), rows)


def _rebalances(report: Report, path: Path, rounds: int) -> None:
    report.section(
        f"Rebalances of {MEMBERS} members and {REBALANCED_PARTITIONS} partitions",
        "librdkafka. From the start of all members, from one more member, and from one that leaves, until each "
        f"partition has one owner. Median and slowest of {rounds} rounds in turns; one round before them warms up "
        "Java. Both brokers have their defaults, and Apache Kafka no initial delay, as in the server.properties that "
        "it ships.",
    )
    found = _rebalanced(path, rounds)
    rows = [
        (
            protocol,
            broker,
            *(
                cell
                for step in ("start_s", "join_s", "leave_s")
                for cell in _shown([r[step] for r in figures])
            ),
        )
        for (protocol, broker), figures in found.items()
    ]
    steps = ("all start, s", "slowest", "one joins, s", "slowest", "one leaves, s", "slowest")
    report.table(("protocol", "broker", *steps), rows)


def _rebalanced(path: Path, rounds: int) -> dict[tuple[str, str], list[Figures]]:
    found: dict[tuple[str, str], list[Figures]] = {}
    with ExitStack() as brokers:
        addresses = _both_brokers(brokers, path)
        for number in range(-WARM_UP_ROUNDS, rounds):
            for protocol in PROTOCOLS:
                for broker, address in addresses.items():
                    figures = _rebalance(address, protocol)
                    print(f"   {protocol}, {broker}: {figures}", flush=True)
                    if number >= 0:
                        found.setdefault((protocol, broker), []).append(figures)
    return found


def _shares(report: Report, path: Path, *, quick: bool) -> None:
    rounds = QUICK_ROUNDS if quick else SHARE_ROUNDS
    report.section(
        "Share groups: messages that one member receives and accepts",
        "One share consumer of librdkafka with implicit acknowledgement (max.poll.records 10,000) reads a topic that "
        f"was filled before. Millions of messages a second: median of {rounds} rounds, in turns, after one that "
        "warms up Java. Both brokers have their defaults, such as at most 2,000 locked messages of a partition, which "
        "Apache Kafka exceeds by the rest of a batch. The client's use of a core shows which side is the limit.",
    )
    found: dict[tuple[int, int, str], list[Figures]] = {}
    with ExitStack() as brokers:
        addresses = _both_brokers(brokers, path)
        for number in range(-WARM_UP_ROUNDS, rounds):
            for size, messages in SHARE_MESSAGES.items():
                for partitions in SHARE_PARTITIONS:
                    for broker, address in addresses.items():
                        wanted: dict[str, object] = {
                            "address": address,
                            "partitions": partitions,
                            "bytes": size,
                            "messages": SHARE_MESSAGES_QUICK if quick else messages,
                        }
                        figures = _run("benchmarks.groups.shares", wanted)
                        print(f"   {size} B, {partitions} partitions, {broker}: {figures}", flush=True)
                        if number >= 0:
                            found.setdefault((size, partitions, broker), []).append(figures)
    rows = []
    for (size, partitions, broker), figures in found.items():
        rate = statistics.median(each["messages_per_s"] for each in figures)
        base = found.get((size, partitions, "Apache Kafka"))
        factor = rate / statistics.median(each["messages_per_s"] for each in base) if base else 0.0
        client = statistics.median(each["client_cpu"] for each in figures)
        polls = statistics.median(each["polls"] for each in figures)
        shown = (
            f"{rate / 1e6:.3f}",
            f"{factor:.2f}",
            f"{rate * size / 1e6:.0f}",
            f"{polls:.0f}",
            f"{client:.0%}",
        )
        rows.append((f"{size} B", str(partitions), broker, *shown))
    header = (
        "message",
        "partitions",
        "broker",
        "million/s",
        "of Kafka",
        "MB/s",
        "polls",
        "client, of a core",
    )
    report.table(header, rows)


def _both_brokers(brokers: ExitStack, path: Path) -> dict[str, str]:
    """Their addresses; Apache Kafka's if it is installed."""
    _, listeners = brokers.enter_context(process(path / "millpond"))
    addresses = {"Millpond": listeners["kafka"]}
    try:
        addresses["Apache Kafka"] = brokers.enter_context(kafka.running(path / "kafka")).address
    except Unavailable as error:
        print(f"   without Apache Kafka: {error}", flush=True)
    return addresses


def _rebalance(address: str, protocol: str) -> Figures:
    wanted: dict[str, object] = {
        "address": address,
        "protocol": protocol,
        "members": MEMBERS,
        "partitions": REBALANCED_PARTITIONS,
    }
    return _run("benchmarks.groups.rebalance", wanted)


def _run(module: str, wanted: dict[str, object]) -> Figures:
    command = [sys.executable, "-m", module, json.dumps(wanted)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _in_virtual_time(report: Report) -> None:
    report.section(
        f"{MEMBERS} members that arrive at random, in virtual time",
        "`python -m tests.unit.groups.crowd`: the group machine alone, with members that behave as Kafka's clients do "
        "(1 ms a message, a heartbeat every 3 s), 60 seeds each.",
    )
    command = [sys.executable, "-m", "tests.unit.groups.crowd"]
    report.line(subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip())


def _all(path: Path, rounds: int, *, members: int) -> list[tuple[str, int, list[Figures]]]:
    found: dict[tuple[str, int], list[Figures]] = {(c, d): [] for c in CLIENTS for d in DELAYS_MS}
    for number in range(rounds):
        for client, delay_ms in found:
            place = path / f"{number}-{client}-{delay_ms}"
            figures = _measured(place, client, delay_ms, members)
            print(f"   {client}, {members} members, {delay_ms} ms: {figures}", flush=True)
            found[client, delay_ms].append(figures)
    return [(client, delay_ms, figures) for (client, delay_ms), figures in found.items()]


def _measured(place: Path, client: str, delay_ms: int, members: int) -> Figures:
    with process(place, group_initial_rebalance_delay=f"{delay_ms}ms") as (_, listeners):
        wanted: dict[str, object] = {
            "client": client,
            "address": listeners["kafka"],
            "members": members,
            "catalog": str(place / "catalog.db"),
        }
        return _run("benchmarks.groups.load", wanted)


def _shown(seconds: list[float]) -> tuple[str, str]:
    return f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}"
