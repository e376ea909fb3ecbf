"""Reliability test 17: every broker restarted in turn; a group and a subscription that grow to twenty members and
shrink again."""

import time

import pytest
from tests.faults.processes import workload
from tests.faults.processes.chaos import (
    PARTITIONS,
    QUIET_SECONDS,
    SUBSCRIPTION,
    TOPIC,
    Clients,
    Nemesis,
    judge,
    spread_of,
    start,
    summary,
)
from tests.faults.processes.checker import percentile
from tests.faults.processes.harness import Brokers

ROUNDS_LONG = 34
"""Of three brokers each: more than a hundred restarts."""
MEMBERS_MAX = 20
JOIN_SECONDS = 0.1
HANDED_OVER = r"partitions handed over partitions=\d+ duration_ms=(\d+)"


def roll(brokers: Brokers, rounds: int, figures: list[str], name: str) -> None:
    start(brokers)
    clients, nemesis = Clients(brokers), Nemesis(brokers)
    began = time.monotonic()
    with clients.running():
        time.sleep(QUIET_SECONDS)
        for turn in range(3 * rounds):
            nemesis.strike("drain", brokers.nodes[turn % 3])
            clients.check()
        seconds = time.monotonic() - began
        log = clients.drained()
    judge(clients, nemesis, log)
    figures += summary(clients, nemesis, seconds, name)
    figures.append(f"{name}: SIGTERM to exit {spread_of(nemesis.drains)}")
    handed = [int(ms) for ms in brokers.found_in_logs(HANDED_OVER)]
    assert len(handed) >= 3 * rounds, "each of them handed over what it had"
    figures.append(
        f"{name}: {len(handed)} steps of handing over partitions, each p50 {percentile(handed, 0.5):.0f} ms, p99 "
        f"{percentile(handed, 0.99):.0f} ms"
    )


def test_a_rolling_restart_loses_nothing(brokers: Brokers, figures: list[str]) -> None:
    roll(brokers, 1, figures, "rolling restart")


@pytest.mark.long
def test_a_hundred_rolling_restarts(brokers: Brokers, figures: list[str]) -> None:
    roll(brokers, ROUNDS_LONG, figures, "rolling restart, long")


def test_a_group_and_a_subscription_grow_to_twenty_members_and_shrink_again(
    brokers: Brokers, figures: list[str]
) -> None:
    """While two brokers are restarted. Members come and go as fast as they can; nobody is stuck."""
    start(brokers)
    clients, nemesis = Clients(brokers), Nemesis(brokers)
    began = time.monotonic()
    with clients.running():
        members = [_member(brokers, number) for number in range(MEMBERS_MAX - len(clients.group))]
        workers = [_worker(brokers, number) for number in range(MEMBERS_MAX - len(clients.queue))]
        for node in brokers.nodes[:2]:
            nemesis.strike("drain", node)
        for extra in (*members, *workers):
            extra.tell_to_stop()
        for extra in (*members, *workers):
            extra.stop()
        clients.group += members
        clients.queue += workers
        seconds = time.monotonic() - began
        log = clients.drained()
    judge(clients, nemesis, log)
    figures += summary(
        clients,
        nemesis,
        seconds,
        f"group and subscription of 2 to {MEMBERS_MAX} to 2 over {PARTITIONS} partitions",
    )


def _member(brokers: Brokers, number: int) -> workload.KafkaReader:
    member = workload.KafkaReader(f"extra-{number}", brokers.addresses("kafka"), TOPIC, "readers")
    member.start()
    time.sleep(JOIN_SECONDS)
    return member


def _worker(brokers: Brokers, number: int) -> workload.QueueReader:
    worker = workload.QueueReader(
        f"worker-{number}", brokers.addresses("grpc"), TOPIC, SUBSCRIPTION, "key_shared"
    )
    worker.start()
    return worker
