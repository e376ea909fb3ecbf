"""Reliability test 3: owners that stand still for longer than their lease and then go on (SIGSTOP, SIGCONT).

Whatever they still try is refused, epochs never fall along a partition, and they come back by themselves.
"""

import time

import pytest
from tests.cluster.chaos import REFUSED_COMMIT, Clients, Nemesis, judge, spread_of, start, summary, zombies
from tests.cluster.harness import Brokers

CYCLES = 3
CYCLES_LONG = 200


def cycle(brokers: Brokers, cycles: int, figures: list[str], name: str) -> None:
    start(brokers)
    clients, nemesis = Clients(brokers), Nemesis(brokers)
    began = time.monotonic()
    with clients.running():
        for turn in range(cycles):
            nemesis.strike("pause", brokers.nodes[turn % 3])
            clients.check()
        seconds = time.monotonic() - began
        log = clients.drained()
    judge(clients, nemesis, log)
    assert brokers.said(REFUSED_COMMIT) >= cycles, "each of them has tried, and was refused"
    figures += summary(clients, nemesis, seconds, name)
    figures.append(f"{name}: {zombies(brokers)}; from SIGCONT to serving again {spread_of(nemesis.rejoins)}")


@pytest.mark.long
def test_a_zombie_is_refused_and_joins_again(brokers: Brokers, figures: list[str]) -> None:
    cycle(brokers, CYCLES, figures, "zombies")


@pytest.mark.long
def test_two_hundred_zombies(brokers: Brokers, figures: list[str]) -> None:
    cycle(brokers, CYCLES_LONG, figures, "zombies, long")
