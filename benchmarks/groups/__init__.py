"""Part `groups`: how long a new consumer group waits for its first message, and how fifty members that start
together affect it: with the default `group_initial_rebalance_delay`, and with 0 and 3 s, which are Kafka's
two defaults.

Real clients (aiokafka and librdkafka) run in one process, the broker in another, all on the same cores.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.engine.setup import folder
from benchmarks.queues.broker import process
from benchmarks.report import Report
from millpond.groups import GroupLimits

ROUNDS, QUICK_ROUNDS = 5, 1
MEMBERS = 50
DELAYS_MS = (GroupLimits().initial_rebalance_delay_ms, 0, 3_000)
CLIENTS = ("aiokafka", "librdkafka")

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
        wanted = {
            "client": client,
            "address": listeners["kafka"],
            "members": members,
            "catalog": str(place / "catalog.db"),
        }
        command = [sys.executable, "-m", "benchmarks.groups.load", json.dumps(wanted)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _shown(seconds: list[float]) -> tuple[str, str]:
    return f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}"
