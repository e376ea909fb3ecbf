"""Sessions as a broker remembers them: when they end, and what is read and written for that."""

import asyncio

import pytest

from millpond.catalog import sessions as stored
from millpond.catalog.sqlite import SqliteMemoryDatabase
from millpond.model.errors import AuthenticationFailed, CatalogUnavailable
from millpond.model.principals import Principal
from millpond.security import Identity
from millpond.security.sessions import (
    LIFETIME_MS,
    SEEN_EVERY_MS,
    Sessions,
    form_token,
    is_form_token,
    new_id,
    parse_id,
)
from millpond.testing import SimulatedClock

SECRET = bytes(range(32))
ALICE = Identity(Principal("User", "alice"), "oidc:x", 7)


class Cluster:
    """Brokers that share a catalog and a clock. `reads` and `writes` count what they do with the catalog."""

    def __init__(self):
        self.database = SqliteMemoryDatabase()
        self.database.migrate()
        self.clock = SimulatedClock(1_000_000)
        self.reads = self.writes = 0
        self.fails = False
        self.held = None

    def broker(self):
        made = Sessions(self._read, self._write, clock=self.clock)
        made.secret = SECRET
        return made

    def rows(self):
        with self.database.read() as tx:
            return stored.read(tx)[1]

    async def _read(self, function):
        self.reads += 1
        with self.database.read() as tx:
            found = function(tx)
        held, self.held = self.held, None
        await (asyncio.sleep(0) if held is None else held.wait())
        return found

    def hold_next_read(self):
        """The next read gets its rows now, and returns when the event is set."""
        self.held = asyncio.Event()
        return self.held

    async def _write(self, operation):
        self.writes += 1
        if self.fails:
            raise CatalogUnavailable(reason="test")
        with self.database.write() as tx:
            return operation(tx)


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    made.database.close()


async def is_found(broker, session_id):
    try:
        await broker.identity(session_id)
    except AuthenticationFailed:
        return False
    return True


async def test_a_session_has_the_identity_of_its_login_on_every_broker(cluster):
    first, second = cluster.broker(), cluster.broker()
    opened = await first.open(ALICE)
    for broker in (first, second):
        found = await broker.identity(opened.id)
        assert found == ALICE._replace(session=opened.id, expires_at_ms=cluster.clock.now_ms() + LIFETIME_MS)
        assert broker.is_live(opened.id)
    assert opened.id not in repr((opened, found, opened.stored))
    [row] = cluster.rows()
    assert opened.id.encode() not in row.digest


async def test_a_session_ends_when_it_is_idle_and_its_use_is_stored_once_a_minute(cluster):
    first, second = cluster.broker(), cluster.broker()
    opened = await first.open(ALICE)
    assert await is_found(second, opened.id)
    writes = cluster.writes
    for _ in range(59):
        cluster.clock.advance(1_000)
        assert await is_found(first, opened.id)
    assert cluster.writes == writes
    cluster.clock.advance(1_000)
    await asyncio.gather(*(first.identity(opened.id) for _ in range(5)))
    assert cluster.writes == writes + 1
    cluster.clock.advance(stored.IDLE_MS - 1)  # more than that since the other broker has seen it
    await second.refresh()
    assert second.is_live(opened.id)
    assert await is_found(second, opened.id)
    cluster.clock.advance(stored.IDLE_MS)
    assert not await is_found(first, opened.id)
    await second.refresh()
    assert not second.is_live(opened.id)
    assert not await is_found(second, opened.id)


async def test_a_session_ends_after_twelve_hours_or_with_its_credential_however_much_it_is_used(cluster):
    broker = cluster.broker()
    short = await broker.open(ALICE._replace(expires_at_ms=cluster.clock.now_ms() + 2 * SEEN_EVERY_MS))
    long = await broker.open(ALICE)
    for _ in range(LIFETIME_MS // 60_000 - 1):
        cluster.clock.advance(60_000)
        assert await is_found(broker, long.id)
    assert not await is_found(broker, short.id)
    cluster.clock.advance(60_000)
    assert not broker.is_live(long.id)
    assert not await is_found(broker, long.id)


async def test_the_end_of_a_session_is_seen_by_the_next_refresh_of_another_broker(cluster):
    first, second = cluster.broker(), cluster.broker()
    opened, other = await first.open(ALICE), await first.open(ALICE)
    for each in (opened, other):
        assert await is_found(second, each.id)
    assert await first.end(opened.id)
    assert not await first.end(opened.id)
    assert [first.is_live(opened.id), second.is_live(opened.id)] == [False, True]
    await second.refresh()
    assert [second.is_live(each.id) for each in (opened, other)] == [False, True]
    assert not await is_found(second, opened.id)


async def test_a_read_that_began_before_the_end_does_not_bring_a_session_back(cluster):
    broker = cluster.broker()
    opened, other = await broker.open(ALICE), await broker.open(ALICE)
    assert await is_found(broker, other.id)
    await asyncio.gather(broker.identity(opened.id), broker.end(opened.id), return_exceptions=True)
    assert not broker.is_live(opened.id)
    assert not await is_found(broker, opened.id)


async def test_an_ended_id_that_many_connections_repeat_is_read_once(cluster):
    first, second = cluster.broker(), cluster.broker()
    opened, other, live = [await first.open(ALICE) for _ in range(3)]
    assert await is_found(second, other.id)
    for each in (opened, other):
        await first.end(each.id)
    reads = cluster.reads
    assert not any(await asyncio.gather(*(is_found(second, opened.id) for _ in range(50))))
    assert not await is_found(second, opened.id)
    assert cluster.reads == reads + 1
    await second.refresh()
    reads = cluster.reads
    assert not await is_found(second, other.id)  # the refresh has found its end
    assert cluster.reads == reads
    assert all(await asyncio.gather(*(is_found(second, live.id) for _ in range(50))))
    assert cluster.reads == reads + 1


async def test_of_ended_sessions_the_latest_are_remembered(cluster, monkeypatch):
    monkeypatch.setattr("millpond.security.sessions.ENDED_MAX", 1)
    broker = cluster.broker()
    earlier, latest = await broker.open(ALICE), await broker.open(ALICE)
    for each in (earlier, latest):
        await broker.end(each.id)
    reads = cluster.reads
    assert not await is_found(broker, latest.id)
    assert cluster.reads == reads
    assert not await is_found(broker, earlier.id)
    assert cluster.reads == reads + 1


async def test_a_refresh_does_not_wait_for_the_sessions_that_requests_load(cluster):
    first, second = cluster.broker(), cluster.broker()
    opened, other = await first.open(ALICE), await first.open(ALICE)
    assert await is_found(second, other.id)
    released = cluster.hold_next_read()
    loading = asyncio.create_task(is_found(second, opened.id))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await first.end(other.id)
    await asyncio.wait_for(second.refresh(), 60)
    assert [loading.done(), second.is_live(other.id)] == [False, False]
    released.set()
    assert await loading


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_load_that_a_refresh_overtakes_is_repeated(cluster, is_first):
    """The refresh knows that the session has ended, and the read of the load does not."""
    first, second = cluster.broker(), cluster.broker()
    opened, other = await first.open(ALICE), await first.open(ALICE)
    assert await is_found(second, other.id)
    released = cluster.hold_next_read()
    loading = asyncio.create_task(is_found(second, opened.id))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await first.end(opened.id)
    if is_first:
        await second.refresh()
        released.set()
    else:
        refreshing = asyncio.create_task(second.refresh())
        await asyncio.sleep(0)
        released.set()
        await refreshing
    assert not await loading
    assert [second.is_live(each.id) for each in (opened, other)] == [False, True]


async def test_a_login_ends_the_session_that_the_browser_had(cluster):
    broker = cluster.broker()
    before = await broker.open(ALICE)
    assert await is_found(broker, before.id)
    after = await broker.open(ALICE, replaces=[broker.digest(before.id)])
    assert before.id != after.id
    assert [await is_found(broker, each.id) for each in (before, after)] == [False, True]
    assert not broker.is_live(before.id)
    assert broker.digest("forged") is None


async def test_a_forged_id_costs_no_read_of_the_catalog(cluster):
    broker = cluster.broker()
    opened = await broker.open(ALICE)
    reads = cluster.reads
    last = "A" if opened.id[-5] != "A" else "B"
    for forged in (
        "",
        "x",
        opened.id[:-5] + last + opened.id[-4:],
        new_id(bytes(32), bytes),
        opened.id + "x",
    ):
        assert not await is_found(broker, forged)
        assert not broker.is_live(forged)
    assert cluster.reads == reads
    broker.secret = b""
    assert not await is_found(broker, opened.id)
    with pytest.raises(AuthenticationFailed):
        await broker.open(ALICE)


async def test_without_sessions_nothing_is_read_and_without_expired_ones_nothing_is_written(cluster):
    broker = cluster.broker()
    await broker.refresh()
    assert cluster.reads == 0
    opened = await broker.open(ALICE)
    writes = cluster.writes
    await broker.clean()
    assert cluster.writes == writes
    cluster.clock.advance(stored.IDLE_MS)
    await broker.clean()
    assert cluster.rows() == []
    assert not await is_found(broker, opened.id)


async def test_while_the_catalog_cannot_be_written_a_session_stays_usable(cluster):
    broker = cluster.broker()
    opened = await broker.open(ALICE)
    cluster.clock.advance(SEEN_EVERY_MS)
    cluster.fails = True
    assert await is_found(broker, opened.id)


async def test_a_session_that_another_broker_has_removed_is_not_seen_again(cluster):
    first, second = cluster.broker(), cluster.broker()
    opened = await first.open(ALICE)
    assert await is_found(second, opened.id)
    await first.end(opened.id)
    cluster.clock.advance(SEEN_EVERY_MS)
    assert not await is_found(second, opened.id)  # before a refresh


def test_a_form_token_belongs_to_one_session():
    first, second = (new_id(SECRET, lambda size, byte=byte: bytes([byte]) * size) for byte in (1, 2))
    token = form_token(SECRET, first)
    assert is_form_token(SECRET, first, token)
    assert not any(
        (
            is_form_token(SECRET, second, token),
            is_form_token(SECRET, first, ""),
            is_form_token(SECRET, first, "é"),
            is_form_token(b"", first, form_token(b"", first)),
            token in first,
        )
    )
    assert parse_id(SECRET, first) != parse_id(SECRET, second)
