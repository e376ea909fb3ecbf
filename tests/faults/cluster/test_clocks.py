"""Clocks that jump and strobe, on brokers and on the database (reliability test 14): who owns what, and which offset is
whose, never rests on them. What rests on them is when a dead broker is noticed, and that stays bounded."""

import asyncio
import random

import pytest
from tests.cluster.over_postgres import shared_topic, until
from tests.cluster.workload import Running, Sender, check
from tests.faults.cluster.conftest import LEASE_MS, cluster

from millpond.model.clock import SystemClock

HOUR_MS = 3_600_000
PARTITIONS = 4
STEPS = 12
STEP_S = 0.25


class Clock:
    """The system's, with both hands moved."""

    def __init__(self):
        self._system = SystemClock()
        self.wall_ms = self.ahead_ms = 0

    def now_ms(self):
        return self._system.now_ms() + self.wall_ms

    def monotonic_ms(self):
        return self._system.monotonic_ms() + self.ahead_ms


class SkewedDatabase:
    """The database's clock, as its transactions read it, moved."""

    def __init__(self, database, clock):
        self._database = database
        self._clock = clock

    def write(self):
        return Skewed(self._database.write(), self._clock)

    def read(self):
        return Skewed(self._database.read(), self._clock)

    def __getattr__(self, name):
        return getattr(self._database, name)


class Skewed:
    def __init__(self, manager, clock):
        self._manager, self._clock = manager, clock

    def __enter__(self):
        self._transaction = self._manager.__enter__()
        return self

    def __exit__(self, *error):
        return self._manager.__exit__(*error)

    def lease_clock(self):
        whose, now_ms = self._transaction.lease_clock()
        return whose, now_ms + self._clock.database_ms

    def __getattr__(self, name):
        return getattr(self._transaction, name)


class DatabaseClock:
    def __init__(self):
        self.database_ms = 0


def senders():
    return [Sender(number % PARTITIONS, idempotent=number < PARTITIONS) for number in range(2 * PARTITIONS)]


def wall_steps(clocks, _, number, __):
    """Each broker's wall clock an hour ahead, an hour behind, right."""
    for place, clock in enumerate(clocks):
        clock.wall_ms = (HOUR_MS, -HOUR_MS, 0)[(number + place) % 3]


def wall_strobe(clocks, _, __, dice):
    for clock in clocks:
        clock.wall_ms = dice.randint(-HOUR_MS, HOUR_MS)


def monotonic_jumps(clocks, _, number, __):
    """As after a sleep of the machine: two leases have passed at once, for one broker and then for the other."""
    if number % 4 == 3:
        clocks[number // 4 % len(clocks)].ahead_ms += 2 * LEASE_MS


def database_jumps(_, database, number, __):
    """An hour ahead: every lease has run out. And back again: none will for an hour."""
    if number % 3 == 2:
        database.database_ms = HOUR_MS if not database.database_ms else 0


@pytest.mark.parametrize("disturb", [wall_steps, wall_strobe, monotonic_jumps, database_jumps])
async def test_clocks_have_no_say_in_what_is_stored(databases, s3_store, figures, disturb):
    clocks, database, dice = [Clock(), Clock()], DatabaseClock(), random.Random(14)
    url = databases.new_url()
    parts = [
        {"clock": clock, "maintain": True, "wrap_database": lambda each: SkewedDatabase(each, database)}
        for clock in clocks
    ]
    async with cluster([url, url], s3_store, parts=parts) as brokers:
        topic = await shared_topic(brokers, partitions=PARTITIONS)
        all_of_them = senders()
        load = Running(all_of_them, brokers, topic.id)
        await load.acknowledged(3)
        for number in range(STEPS):
            disturb(clocks, database, number, dice)
            await asyncio.sleep(STEP_S)
        dead = [broker for broker in brokers if broker._failure.done()]
        assert len(dead) < len(brokers), "nobody is left"
        await load.acknowledged(10)
        await load.stop()
        living = [broker for broker in brokers if not broker._failure.done()]
        acknowledged, unanswered, doubled = await check(living, "t", all_of_them)
        longest = max(each.longest_gap_s for each in all_of_them)
        await until(lambda: sum(len(each.log.partitions()) for each in living) >= PARTITIONS)
        for clock in clocks:
            clock.wall_ms = 0
    figures.append(
        f"clocks, {disturb.__name__.replace('_', ' ')}: acknowledged {acknowledged}, lost 0, idempotent duplicates 0, "
        f"unanswered but stored {unanswered}, other duplicates {doubled}, declared dead {len(dead)}, "
        f"longest time without an answer {longest:.2f} s"
    )
