"""A broker that is paused between looking at its lease and committing (reliability test 4)."""

import asyncio
import threading
import time
from contextlib import contextmanager

import psycopg
import pytest
from tests.faults.cluster.conftest import cluster, owned, shared_topic, until
from tests.faults.cluster.workload import Sender, send_all

from millpond import Record
from millpond.catalog import topology, writers
from millpond.model.errors import Fenced, MillpondError, NotOwner, Unavailable
from millpond.records import build_batch

HOLD_SECONDS_MAX = 30
LONGER_MS = 6_000
"""A lease that is not lost because this process was not run for a second or two."""


class Paused:
    """A failpoint: while it is armed, the writer thread waits right before its commit, its bytes being durable."""

    def __init__(self):
        self.armed = False
        self.reached = threading.Event()
        self.released = threading.Event()

    def wrap(self, database):
        return PausingDatabase(database, self)


class PausingDatabase:
    """Waits at the beginning of a write by the writer thread, as if the process had been stopped there."""

    def __init__(self, database, point):
        self._database = database
        self._point = point

    def write(self):
        if self._point.armed and threading.current_thread().name == "millpond-writer":
            self._point.reached.set()
            assert self._point.released.wait(HOLD_SECONDS_MAX)
        return self._database.write()

    def __getattr__(self, name):
        return getattr(self._database, name)


def batch(value):
    return build_batch([Record(value)], now_ms=1)


@pytest.mark.parametrize("inline_bytes_max", [16 * 1024, 0], ids=["inline", "stored"])
async def test_a_commit_after_a_pause_longer_than_the_lease_is_refused(
    databases, s3_store, figures, inline_bytes_max
):
    point = Paused()
    url = databases.new_url()
    parts = [{"wrap_database": point.wrap}, {}]
    async with cluster([url, url], s3_store, parts=parts, inline_bytes_max=inline_bytes_max) as brokers:
        zombie, heir = brokers
        topic = await shared_topic(brokers, partitions=2)
        where = owned(zombie)[0]
        assert (await zombie.log.append(where, batch(b"before"))).base_offset == 0
        point.armed = True
        late = [asyncio.create_task(zombie.log.append(where, batch(b"late %d" % n))) for n in range(3)]
        await asyncio.to_thread(point.reached.wait, HOLD_SECONDS_MAX)
        await until(lambda: where in owned(heir))
        placed = [(await heir.log.append(where, batch(b"after %d" % n))).base_offset for n in range(3)]
        assert placed == [1, 2, 3]
        stored_before = contents(heir)
        point.released.set()
        results = await asyncio.gather(*late, return_exceptions=True)
        assert all(isinstance(result, Fenced) for result in results), results
        with pytest.raises(NotOwner):
            await zombie.log.append(where, batch(b"again"))
        assert stored_before.items() <= contents(heir).items(), "the zombie has overwritten an object"
        values = [record.value for record in await heir.read("t", partition=where.partition)]
        assert values == [b"before", b"after 0", b"after 1", b"after 2"]
        assert (await zombie.failed()).facts["session"] == zombie.session
        assert len(await heir.log.read(lambda tx: topology.read(tx).partitions)) == topic.partitions
    way = "inline" if inline_bytes_max else "stored"
    figures.append(
        f"pause before the commit ({way}): {len(late)} zombie appends, refused {len(late)}, lost 0"
    )


def contents(broker):
    """Every object's bytes."""
    return {key: broker.store.read(key, 0, broker.store.size(key)) for key in broker.store.list("")}


async def test_one_partition_taken_while_a_commit_was_on_its_way_refuses_only_its_share(databases, s3_store):
    """The zombie still lives, but one of the two partitions in its flush was given away."""
    point = Paused()
    url = databases.new_url()
    parts = [{"wrap_database": point.wrap}, {}]
    async with cluster([url, url], s3_store, parts=parts, lease=60_000) as brokers:
        broker, other = brokers
        await shared_topic(brokers, partitions=4)
        taken, kept = owned(broker)
        point.armed = True
        appends = [asyncio.create_task(broker.log.append(where, batch(b"x"))) for where in (taken, kept)]
        await asyncio.to_thread(point.reached.wait, HOLD_SECONDS_MAX)

        def take(tx):
            topology.move(tx)
            epoch = topology.owners(tx)[taken].epoch
            assert topology.give(tx, broker.session, {taken: (epoch, other.session)}) == 1

        await other.log.write(take, alone=True)
        await other.log.refresh()
        point.armed = False
        point.released.set()
        results = await asyncio.gather(*appends, return_exceptions=True)
        assert isinstance(results[0], NotOwner)
        assert results[1].base_offset == 0
        sender = Sender(taken.partition)
        await send_all([sender], brokers, taken.topic_id, 1)  # whoever has it by now: they share it out again
        assert sender.acknowledged == {0: 0}


class Stopping:
    """Stops a transaction of the writer thread in the middle, with the rows it has locked."""

    def __init__(self, transaction, point):
        self._transaction = transaction
        self._point = point

    def rows(self, sql, parameters=()):
        found = self._transaction.rows(sql, parameters)
        if self._point.armed and sql.strip().startswith("UPDATE partitions"):
            self._point.reached.set()
            assert self._point.released.wait(HOLD_SECONDS_MAX)
        return found

    def each(self, sql, many):
        return [self.rows(sql, parameters) for parameters in many]

    def __getattr__(self, name):
        return getattr(self._transaction, name)


class StoppingDatabase(PausingDatabase):
    @contextmanager
    def write(self):
        with self._database.write() as transaction:
            yield Stopping(transaction, self._point)


async def test_one_stopped_in_the_middle_of_a_commit_does_not_keep_what_it_has_locked(
    databases, s3_store, figures
):
    point = Paused()
    url = databases.new_url()
    parts = [{"wrap_database": lambda database: StoppingDatabase(database, point)}, {}]
    async with cluster([url, url], s3_store, parts=parts) as (zombie, heir):
        await shared_topic([zombie, heir], partitions=2)
        where = owned(zombie)[0]
        point.armed = True
        late = asyncio.create_task(zombie.log.append(where, batch(b"late")))
        await asyncio.to_thread(point.reached.wait, HOLD_SECONDS_MAX)
        started = time.perf_counter()
        await until(lambda: where in owned(heir))
        taken_s = time.perf_counter() - started
        assert (await heir.log.append(where, batch(b"mine"))).base_offset == 0
        point.armed = False
        point.released.set()
        with pytest.raises(Fenced):
            await late
        assert [record.value for record in await heir.read("t", partition=where.partition)] == [b"mine"]
    figures.append(f"stopped inside a commit, its rows locked: taken over after {taken_s:.1f} s")


async def test_one_declared_dead_can_commit_nothing_at_all(databases, s3_store):
    url = databases.new_url()
    async with cluster([url, url], s3_store, lease=60_000) as (dead, heir):
        await shared_topic([dead, heir], partitions=2)
        where = owned(dead)[0]

        def bury(tx):
            writers.bury(tx, dead.session, 1)
            topology.move(tx)
            topology.adopt(tx)

        await heir.log.write(bury, alone=True)
        for attempt in (
            dead.log.append(where, batch(b"x")),
            dead.log.create_topic("u", 1),
            dead.log.write(lambda tx: tx.rows("UPDATE counters SET next = next + 1 WHERE name = 'x'")),
        ):
            with pytest.raises(Fenced):
                await attempt
        await heir.log.refresh()
        assert where in owned(heir)
        assert await heir.read("t", partition=where.partition) == []


async def test_who_needs_what_a_paused_broker_has_locked_keeps_its_own_lease(databases, s3_store, figures):
    """A commit may hold rows of others' partitions: messages for several owners, the markers of a transaction."""
    url = databases.new_url()
    async with cluster([url, url], s3_store, lease=LONGER_MS) as brokers:
        await shared_topic(brokers, partitions=4)
        locked, free = sorted(owned(brokers[0]))
        answers = {locked: [], free: []}
        async with await psycopg.AsyncConnection.connect(url) as paused:
            await paused.execute(
                "UPDATE partitions SET bytes = bytes WHERE topic_id = %s AND partition = %s", tuple(locked)
            )
            until_ms = time.monotonic() * 1000 + 1.5 * LONGER_MS
            while time.monotonic() * 1000 < until_ms:
                for where, found in answers.items():
                    found.append(await refusal(brokers[0].log.append(where, batch(b"x"))))
                    assert brokers[0].lease.held
                    await asyncio.sleep(0.25)  # after a failure everything is refused for a moment
            assert all(isinstance(each, Unavailable) for each in answers[locked]), answers
            assert None in answers[free]
            await paused.rollback()
        assert not any(each._failure.done() for each in brokers), "somebody was declared dead"
        await until_taken(brokers[0], locked)
    figures.append(
        f"rows locked by a broker that is paused: {len(answers[locked])} appends refused, retriably, no lease lost"
    )


async def refusal(appending):
    try:
        await appending
    except MillpondError as error:
        return error


async def until_taken(broker, where):
    async with asyncio.timeout(20):
        while await refusal(broker.log.append(where, batch(b"after"))) is not None:
            await asyncio.sleep(0.05)
