"""A pause of retention outlives the broker that began it."""

import contextlib
import secrets

import pytest

from millpond.catalog import clock_pauses
from millpond.catalog.clock_pauses import DATABASE_CLOCK, ClockReading
from millpond.catalog.postgres import PostgresDatabase
from millpond.maintenance import resume
from millpond.model.errors import MillpondError
from millpond.testing import SimulatedClock, running_broker

HOUR = 3_600_000
DAY = 24 * HOUR
MONTH = 30 * DAY
YEAR = 365 * DAY


async def jumped(start, folder, by_ms, *, passes=1):
    """A broker with a record, whose wall clock is then set."""
    kept = await start(folder)
    await kept.append(b"kept")
    kept.clock.advance(HOUR)
    kept.clock.jump(by_ms)
    for _ in range(passes):
        assert await kept.expire() == 0
    return kept


async def stop(kept):
    await kept.broker.stop()


async def kill(kept):
    """From one moment to the next nothing is written any more."""
    kept.broker.database.close()
    with contextlib.suppress(MillpondError):
        await kept.broker.stop()


def recorded(kept):
    with kept.broker.database.read() as tx:
        return clock_pauses.read(tx)


async def restarted(start, folder, before, **settings):
    again = await start(folder, clock=before.clock, topic=False, **settings)
    again.topic_id = before.topic_id
    return again


END = pytest.mark.parametrize("end", [stop, kill])


@END
@pytest.mark.parametrize("by_ms", [YEAR, -YEAR])
async def test_a_pause_outlives_a_restart_and_ends_when_the_clock_is_back(
    start, tmp_path, end, by_ms, caplog
):
    kept = await jumped(start, tmp_path, by_ms)
    await end(kept)
    again = await restarted(start, tmp_path, kept)
    for _ in range(3):
        assert await again.expire(DAY) == 0
        assert await again.values() == [b"kept"]
    assert not again.upkeep.guard.trusts_clock()
    assert any("--trust-clock" in getattr(each, "hint", "") for each in caplog.records)
    again.clock.jump(-by_ms)
    assert await again.expire(HOUR) == 0  # three days old, and the retention is a week
    assert recorded(again) is None
    assert await again.expire(7 * DAY) == 1


@END
async def test_a_clock_that_was_set_right_while_the_broker_was_down_is_trusted(start, tmp_path, end):
    kept = await jumped(start, tmp_path, YEAR)
    await end(kept)
    kept.clock.jump(-YEAR)
    kept.clock.advance(MONTH)
    again = await restarted(start, tmp_path, kept)
    assert await again.expire() == 1
    assert recorded(again) is None


async def test_a_broker_that_was_off_for_a_month_expires_as_usual(start, tmp_path):
    kept = await start(tmp_path)
    await kept.append(b"old")
    await kept.expire()
    await stop(kept)
    kept.clock.advance(MONTH)
    again = await restarted(start, tmp_path, kept)
    assert await again.expire() == 1


async def test_an_operator_who_vouches_for_the_clock_ends_the_pause(start, tmp_path):
    kept = await jumped(start, tmp_path, YEAR)
    await stop(kept)
    again = await restarted(start, tmp_path, kept, trust_clock=True)
    assert recorded(again) is None
    assert await again.expire() == 1


async def test_a_jump_that_no_pass_has_seen_is_recorded_when_the_broker_stops(start, tmp_path):
    kept = await jumped(start, tmp_path, YEAR, passes=0)
    await stop(kept)
    again = await restarted(start, tmp_path, kept)
    assert await again.expire() == 0


async def test_after_a_restart_of_the_machine_only_an_operator_ends_it(start, tmp_path, caplog):
    """There is nothing left to compare the clock with, so even one that is right is not trusted."""
    kept = await jumped(start, tmp_path, YEAR)
    reading = recorded(kept)
    with kept.broker.database.write() as tx:
        clock_pauses.end(tx)
        clock_pauses.begin(tx, ClockReading("another boot", reading.ahead_ms))
    await kill(kept)
    kept.clock.jump(-YEAR)
    again = await restarted(start, tmp_path, kept)
    assert await again.expire(MONTH) == 0
    assert recorded(again) == ClockReading("another boot", reading.ahead_ms)
    assert "wall clock jumped before this machine started; retention paused" in caplog.messages
    await stop(again)
    trusted = await restarted(start, tmp_path, kept, trust_clock=True)
    assert await trusted.expire() == 1


async def test_a_pause_that_is_over_leaves_nothing_behind(start, tmp_path):
    kept = await jumped(start, tmp_path, YEAR)
    assert recorded(kept) is not None
    kept.clock.jump(-YEAR)
    await kept.expire()
    assert recorded(kept) is None
    await kill(kept)
    kept.clock.advance(MONTH)
    again = await restarted(start, tmp_path, kept)
    assert await again.expire() == 1


async def test_two_brokers_whose_clocks_are_off_share_a_pause_until_both_are_back(start, tmp_path):
    """One that goes on takes the record away; the other puts it back."""
    kept = await jumped(start, tmp_path, YEAR)
    with kept.broker.database.write() as tx:
        clock_pauses.end(tx)
    assert await kept.expire() == 0
    assert recorded(kept) is not None


async def test_groups_transactions_compaction_and_payloads_pause_with_it(start, tmp_path):
    kept = await jumped(start, tmp_path, YEAR)
    await kill(kept)
    async with running_broker(tmp_path, clock=kept.clock) as broker:
        guard = broker.maintenance.guard
        assert broker.groups._trusts_clock == broker.transactions._trusts_clock == guard.trusts_clock
        assert broker.maintenance.compaction._guard is broker.maintenance.payloads._guard is guard
        assert not guard.trusts_clock()


# -- on PostgreSQL ----------------------------------------------------------------------------------------------------


@pytest.fixture
def shared(postgres_url):
    """A catalog of several machines, with a pause that began when the clock of one of them was right."""
    database = PostgresDatabase(postgres_url, schema=f"test_{secrets.token_hex(6)}")
    database.migrate()
    with database.write() as tx:
        clock_pauses.begin(tx, ClockReading(DATABASE_CLOCK, 0))
    yield database
    with database.write() as tx:
        tx.rows(f"DROP SCHEMA {database._schema} CASCADE")
    database.close()


@pytest.mark.parametrize("by_ms", [YEAR, -YEAR])
def test_a_broker_on_postgresql_compares_its_clock_with_the_servers_on_any_machine(shared, by_ms):
    clock = SimulatedClock()
    clock.jump(by_ms)
    guard, is_recorded = resume(shared, clock)
    assert (guard.trusts_clock(), is_recorded) == (False, True)
    clock.jump(-by_ms)
    assert guard.trusts_clock()


def test_a_broker_on_postgresql_whose_clock_is_right_leaves_the_pause_of_another(shared):
    guard, is_recorded = resume(shared, SimulatedClock())
    assert (guard.trusts_clock(), is_recorded) == (True, False)
