"""Brokers to attack."""

import contextlib

import pytest
from tests.hostile.rpc.consumers import besieged_queues, queues
from tests.hostile.rpc.siege import Siege

__all__ = ["attack_results", "attacked_broker", "besieged_queues", "queues"]


@pytest.fixture(scope="session")
def attack_results(figures):
    """Every siege of the run: (title, well-behaved client). What they came through is one line of the figures."""
    seen = []
    yield seen
    if seen:
        title, slowest = max(seen, key=lambda each: each[1].worst_ms)
        rounds = sum(len(good.acknowledged) for _, good in seen)
        figures.append(
            f"{len(seen)} sieges over gRPC: the well-behaved client did {rounds} rounds beside them,"
            f" the slowest took {slowest.worst_ms:.0f} ms ({title})"
        )


@pytest.fixture(scope="session")
def attacked_broker(attack_results, tmp_path_factory):
    """`with attacked_broker(title, setting=value) as siege:` is a broker under attack."""

    @contextlib.contextmanager
    def begin(title, **settings):
        with Siege(tmp_path_factory.mktemp("siege"), **settings) as siege:
            yield siege
        attack_results.append((title, siege.good))

    return begin
