"""Reliability test 3: owners that stand still for longer than their lease and then go on (SIGSTOP, SIGCONT).

Whatever they still try is refused, epochs never fall along a partition, and they come back by themselves.
"""

import time

import pytest
from tests.faults.processes.chaos import (
    REFUSED_COMMIT,
    Clients,
    Nemesis,
    judge,
    spread_of,
    start,
    summary,
    zombies,
)
from tests.faults.processes.harness import Brokers

CYCLES = 200


@pytest.mark.long
def test_two_hundred_zombies_are_refused_and_join_again(brokers: Brokers, figures: list[str]) -> None:
    """One of each kind is in `test_chaos.py`; what they try to commit, step by step, in `tests/faults/cluster`."""
    start(brokers)
    clients, nemesis = Clients(brokers), Nemesis(brokers)
    began = time.monotonic()
    with clients.running():
        for turn in range(CYCLES):
            nemesis.strike("pause", brokers.nodes[turn % 3])
            clients.check()
        seconds = time.monotonic() - began
        log = clients.drained()
    judge(clients, nemesis, log)
    assert brokers.said(REFUSED_COMMIT) >= CYCLES, "each of them has tried, and was refused"
    figures += summary(clients, nemesis, seconds, "zombies, long")
    rejoined = spread_of(nemesis.rejoins)
    figures.append(f"zombies, long: {zombies(brokers)}; from SIGCONT to serving again {rejoined}")
