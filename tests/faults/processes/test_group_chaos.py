"""A group of twenty members of all kinds over three brokers: members join, leave, pause and die, and brokers are
killed, paused and restarted. Every message is read, and no partition is owned twice at one time: `group_judge.py`
says what that means."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.processes.checker import percentile
from tests.faults.processes.group_chaos import (
    MEMBERS,
    BrokerChaos,
    MemberChaos,
    start_brokers,
    working_group,
)
from tests.faults.processes.group_judge import believed_twice
from tests.faults.processes.group_member import KINDS, SESSION_MS
from tests.faults.processes.harness import Brokers

ROUNDS, CHANGES_AT_ONCE_MAX = 6, 4
BROKER_EVERY = 3
"""Rounds of changes from one fault of a broker to the next."""
LONG_SECONDS = float(os.environ.get("MILLPOND_CHAOS_SECONDS", "180"))
WAIT_SHARE = 0.7
"""In this share of rounds the group settles before the next changes."""
RESUME_SHARE = 0.5
ASSIGNORS = ("range", "cooperative-sticky")


def test_every_message_is_read_while_members_come_and_go(
    brokers: Brokers, tmp_path: Path, figures: list[str]
) -> None:
    _run(brokers, tmp_path, figures, "group chaos", lambda rounds, _: rounds < ROUNDS, seed=7)


@pytest.mark.long
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_every_message_is_read_for_minutes(
    brokers: Brokers, tmp_path: Path, figures: list[str], assignor: str
) -> None:
    """With changes drawn at random; the seed is in the figures, and MILLPOND_CHAOS_SEED repeats its draws.
    MILLPOND_CHAOS_SECONDS says how long."""
    seed = int(os.environ.get("MILLPOND_CHAOS_SEED") or random.randrange(2**32))
    name = f"group chaos, long, {assignor}"
    _run(brokers, tmp_path, figures, name, lambda _, seconds: seconds < LONG_SECONDS, seed, assignor)


def _run(
    brokers: Brokers,
    folder: Path,
    figures: list[str],
    name: str,
    goes_on: Callable[[int, float], bool],
    seed: int,
    assignor: str = ASSIGNORS[0],
) -> None:
    """A failure is shown with the seed."""
    draw = random.Random(seed)
    print(f"{name}: seed {seed}")
    members = MemberChaos(folder, start_brokers(brokers), draw, KINDS, assignor)
    nemesis = BrokerChaos(brokers, draw)
    with working_group(brokers, members) as writer:
        began, rounds = time.monotonic(), 0
        while goes_on(rounds, time.monotonic() - began):
            rounds += 1
            _round(members, nemesis, draw, strikes=rounds % BROKER_EVERY == 0)
        seconds = time.monotonic() - began
    figures += summary(members, nemesis, name, seconds, writer.sent, seed)


def _round(members: MemberChaos, nemesis: BrokerChaos, draw: random.Random, *, strikes: bool) -> None:
    """Paused members wake up in one of the next rounds."""
    members.resume(RESUME_SHARE)
    for _ in range(draw.randint(1, CHANGES_AT_ONCE_MAX)):
        members.change()
    if strikes:
        nemesis.strike()
        members.has_silent_change = True
    if draw.random() < WAIT_SHARE:
        members.settle()


def summary(
    members: MemberChaos, nemesis: BrokerChaos, name: str, seconds: float, messages: int, seed: int
) -> list[str]:
    changes = ", ".join(f"{count} {change}" for change, count in sorted(members.changes.items()))
    kinds = ", ".join(
        f"{count} {kind}" for kind, count in Counter(life.kind for life in members.lives).items()
    )
    strikes = ", ".join(f"{count} {strike}" for strike, count in nemesis.strikes.items())
    logs = [life.log for life in members.lives]
    refusals = Counter(reason for log in logs for reason in log.refusals)
    believed = believed_twice(members.ownerships())
    return [
        f"{name}, {seconds:.0f} s, seed {seed}: {MEMBERS} members ({changes}; lives: {kinds}) over 3 brokers "
        f"({strikes}); {messages} messages, unread 0, read again {sum(log.read_count for log in logs) - messages}",
        f"{name}: {len(members.ownerships())} ownerships, owned twice 0, believed twice {len(believed)} (longest "
        f"{max(believed, default=0.0):.1f} s), lost {sum(log.lost_count for log in logs)}; commits refused "
        f"{sum(refusals.values())} {dict(refusals)}",
        f"{name}: settled after members joined or left {spread(members.rebalances)}; after they died or paused, or a "
        f"broker was struck (sessions of {SESSION_MS / 1000:.0f} s) {spread(members.recoveries)}",
    ]


def spread(seconds: list[float]) -> str:
    if not seconds:
        return "n = 0"
    p50, p99 = percentile(seconds, 0.5), percentile(seconds, 0.99)
    return f"p50 {p50:.2f} s, p99 {p99:.2f} s, n = {len(seconds)}"
