"""Brokers to attack."""

import contextlib

import pytest
from tests.hostile.kafka.siege import Siege


@pytest.fixture(scope="session")
def attack_results(figures):
    """Every siege of the run: (title, well-behaved client). What they came through is one line of the figures."""
    seen = []
    yield seen
    if seen:
        title, slowest = max(seen, key=lambda each: each[1].worst_ms)
        rounds = sum(good.rounds for _, good in seen)
        figures.append(
            f"{len(seen)} sieges: the well-behaved client did {rounds} rounds beside them,"
            f" the slowest took {slowest.worst_ms:.0f} ms ({title})"
        )


@pytest.fixture
def attacked_broker(attack_results):
    """`with attacked_broker(title, limit=value) as siege:` is a broker under attack."""

    @contextlib.contextmanager
    def begin(title, settings=None, **limits):
        with Siege(limits, settings or {}) as siege:
            yield siege
        attack_results.append((title, siege.good))

    return begin
