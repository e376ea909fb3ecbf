"""Three brokers and more on PostgreSQL and S3, while some are killed, paused, drained and added: nothing is lost.

Kafka's clients, the client library and subscriptions write and read at the same time. When all has healed, everything
must have been seen, once, in order, at the offset that was told.
"""

import random
import time

import pytest
from tests.faults.processes.chaos import (
    LONG_SECONDS,
    QUIET_SECONDS,
    Clients,
    Nemesis,
    judge,
    start,
    summary,
    zombies,
)
from tests.faults.processes.harness import Brokers

FAULTS = ("kill", "pause", "drain", "add", "kill_and_restart")


def test_nothing_is_lost_while_brokers_come_and_go(brokers: Brokers, figures: list[str]) -> None:
    start(brokers)
    clients, nemesis = Clients(brokers), Nemesis(brokers)
    began = time.monotonic()
    with clients.running():
        time.sleep(QUIET_SECONDS)
        for turn, fault in enumerate(FAULTS):
            nemesis.strike(fault, brokers.nodes[turn % 3])
            clients.check()
        seconds = time.monotonic() - began
        log = clients.drained()
    judge(clients, nemesis, log)
    figures += [*summary(clients, nemesis, seconds, "cluster chaos"), f"cluster chaos: {zombies(brokers)}"]


@pytest.mark.long
def test_nothing_is_lost_for_a_long_time(brokers: Brokers, figures: list[str]) -> None:
    """The same with faults drawn at random; the seed is in the figures. MILLPOND_CHAOS_SECONDS says how long."""
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    start(brokers)
    clients, nemesis = Clients(brokers), Nemesis(brokers)
    began = time.monotonic()
    with clients.running():
        while (seconds := time.monotonic() - began) < LONG_SECONDS:
            nemesis.strike(draw.choice([*FAULTS, "remove"]), draw.choice(brokers.running[:3]))
            time.sleep(draw.uniform(0.0, QUIET_SECONDS))
            clients.check()
        log = clients.drained()
    judge(clients, nemesis, log)
    lines = [
        *summary(clients, nemesis, seconds, "cluster chaos, long"),
        f"cluster chaos, long: {zombies(brokers)}",
    ]
    figures += [f"{line} (seed {seed})" for line in lines]
